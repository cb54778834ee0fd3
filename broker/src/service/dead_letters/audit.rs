//! `ListAudit`.

use varvelog_proto::v1;

use super::queues::count;
use crate::core::dead_letters::AuditEntry;
use crate::core::handle::CoreView;
use crate::names::DEAD_LETTER_SUFFIX;
use crate::service::checks;
use crate::service::context::Context;
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::topics::timestamp;

const PAGE_SIZE: (u32, u32) = (100, 1_000);
/// Tells the version of a token; the number of the last entry follows.
const TOKEN_PREFIX: &str = "a1:";

/// `ListAudit`.
pub(super) async fn list(
    context: &Context,
    request: v1::ListAuditRequest,
) -> Result<v1::ListAuditResponse, CallFailure> {
    let size = checks::count("page_size", request.page_size, PAGE_SIZE)?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let before = match request.page_token.as_str() {
        "" => u64::MAX,
        token => {
            let number = token.strip_prefix(TOKEN_PREFIX);
            let number = number.and_then(|number| number.parse().ok());
            let wrong = || FieldViolation::new("page_token", "is none of this list");
            number.ok_or_else(wrong)?
        }
    };
    let subject = request.subject;
    let ask = move |view: &CoreView<'_>| {
        let entries = view.state.dead_letters.audit().newest_first();
        let next = entries.filter(|(number, _)| *number < before);
        let wanted = next.filter(|(_, entry)| subject.is_empty() || is_about(entry, &subject));
        let page = wanted.take(size + 1);
        page.map(|(number, entry)| (number, shown(entry))).collect()
    };
    let mut page: Vec<(u64, v1::AuditEntry)> = context.core().query(ask).await?;
    let has_more = page.len() > size;
    page.truncate(size);
    let last = page.last().filter(|_| has_more);
    Ok(v1::ListAuditResponse {
        next_page_token: last
            .map(|(number, _)| format!("{TOKEN_PREFIX}{number}"))
            .unwrap_or_default(),
        entries: page.into_iter().map(|(_, entry)| entry).collect(),
    })
}

/// Whether an entry is about a dead-letter topic, its group or the group's topic.
fn is_about(entry: &AuditEntry, subject: &str) -> bool {
    let queue = entry.subject.strip_suffix(DEAD_LETTER_SUFFIX);
    let parts = queue.and_then(|queue| queue.rsplit_once('.'));
    let is_part = parts.is_some_and(|(topic, group)| subject == topic || subject == group);
    is_part || entry.subject == subject || queue == Some(subject)
}

fn shown(entry: &AuditEntry) -> v1::AuditEntry {
    v1::AuditEntry {
        time: Some(timestamp(entry.at.0)),
        principal: String::new(),
        action: entry.action.clone(),
        subject: entry.subject.clone(),
        detail: entry.detail.clone(),
        count: count(entry.count),
        note: entry.note.clone(),
    }
}
