//! Lists that come in pages.

use varvelog_client::Admin;
use varvelog_proto::v1;

use crate::connect::Connection;
use crate::failure::Failure;

/// Entries that one call may bring.
const PAGE_MAX: u32 = 1_000;

/// The first so many dead letters, and whether there are more.
pub(super) async fn letters(
    connection: &Connection,
    request: &v1::ListDeadLettersRequest,
    limit: u32,
) -> Result<(Vec<v1::DeadLetter>, bool), Failure> {
    let admin = Admin::new(connection);
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let had = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let left = limit.saturating_sub(had);
        let request = v1::ListDeadLettersRequest {
            page_size: i32::try_from(left.min(PAGE_MAX)).unwrap_or(i32::MAX),
            page_token,
            ..request.clone()
        };
        let page = admin.dead_letters_page(request).await;
        let page = page.map_err(|error| connection.failure(error))?;
        let is_full = page.letters.len() >= usize::try_from(left).unwrap_or(usize::MAX);
        all.extend(page.letters);
        page_token = page.next_page_token;
        if is_full || page_token.is_empty() {
            return Ok((all, !page_token.is_empty()));
        }
    }
}

/// All dead-letter topics; an empty `group`: of all groups.
pub(super) async fn queues(
    connection: &Connection,
    group: &str,
) -> Result<Vec<v1::DeadLetterQueue>, Failure> {
    let admin = Admin::new(connection);
    let mut all = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListDeadLetterQueuesRequest {
            page_size: i32::try_from(PAGE_MAX).unwrap_or(i32::MAX),
            page_token,
            group: group.to_owned(),
        };
        let page = admin.dead_letter_queues_page(request).await;
        let page = page.map_err(|error| connection.failure(error))?;
        all.extend(page.queues);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(all);
        }
    }
}
