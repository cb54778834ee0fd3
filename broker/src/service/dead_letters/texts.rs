//! Texts about selections and targets.

use super::filter::Filter;
use crate::core::handle::CoreView;
use crate::core::replay_command::DETAIL_BYTES_MAX;
use crate::service::context::Context;
use crate::service::status::CallFailure;
use crate::view::TopicView;

/// Groups that a warning names.
const NAMED_MAX: usize = 20;

/// A filter in short, for the audit.
pub(super) fn detail_of(filter: &Filter) -> String {
    let mut detail = filter.to_string();
    detail.truncate(detail.floor_char_boundary(DETAIL_BYTES_MAX));
    detail
}

/// Which groups see what is replayed into a topic.
pub(super) async fn readers_of(
    context: &Context,
    topic: &TopicView,
) -> Result<String, CallFailure> {
    let id = topic.id;
    let ask = move |view: &CoreView<'_>| {
        let readers = view.state.groups.readers_of(id);
        let names = readers.map(|group| group.name.to_string());
        names.take(NAMED_MAX + 1).collect()
    };
    let mut names: Vec<String> = context.core().query(ask).await?;
    let has_more = names.len() > NAMED_MAX;
    names.truncate(NAMED_MAX);
    let all = names.join(", ");
    let more = if has_more { " and more" } else { "" };
    Ok(match names.len() {
        0 => format!("no group reads {} now", topic.name),
        _ => format!(
            "every group of {} will see these records: {all}{more}",
            topic.name
        ),
    })
}
