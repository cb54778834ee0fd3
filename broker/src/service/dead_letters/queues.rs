//! `ListDeadLetterQueues`, and a queue in short.

use std::sync::Arc;

use varvelog_proto::v1;
use varvelog_store::{TopicId, WallMs};

use crate::core::dead_letters::Queue;
use crate::core::durable_groups::GroupReads;
use crate::core::failure::{FailureNote, Wait};
use crate::core::handle::CoreView;
use crate::core::topics::{Derived, DerivedKind, Topic};
use crate::names::{DEAD_LETTER_SUFFIX, TopicName};
use crate::service::context::Context;
use crate::service::lookup;
use crate::service::pages::{Page, token_after};
use crate::service::status::CallFailure;
use crate::service::topics::timestamp;
use crate::view::TopicView;

/// Minutes of the last hour.
const HOUR_MINUTES: i64 = 60;
/// Records that failed and stayed, of one queue, that are looked at for those that wait for room.
const NOTES_LOOKED_AT_MAX: usize = 100_000;

/// `ListDeadLetterQueues`.
pub(super) async fn list(
    context: &Context,
    request: v1::ListDeadLetterQueuesRequest,
) -> Result<v1::ListDeadLetterQueuesResponse, CallFailure> {
    let page = Page::read(request.page_size, &request.page_token)?;
    let group = match request.group.as_str() {
        "" => None,
        name => Some(lookup::group_name("group", name)?),
    };
    let (wanted, now) = (page.clone(), context.wall());
    let ask = move |view: &CoreView<'_>| {
        let found = view.state.topics.iter().filter_map(|topic| {
            let derived = topic.derived.as_ref()?;
            let is_wanted = derived.kind == DerivedKind::DeadLetter
                && wanted.is_next(topic.name.as_str())
                && group.as_ref().is_none_or(|group| *group == derived.group);
            is_wanted.then(|| shown(view, (topic, derived), now))
        });
        found.take(wanted.size + 1).collect()
    };
    let mut queues: Vec<v1::DeadLetterQueue> = context.core().query(ask).await?;
    let has_more = queues.len() > page.size;
    queues.truncate(page.size);
    let last = queues.last().filter(|_| has_more);
    Ok(v1::ListDeadLetterQueuesResponse {
        next_page_token: last.map(|last| token_after(&last.name)).unwrap_or_default(),
        queues,
    })
}

/// The dead-letter topic of a queue, which may be named with its ending or without.
pub(super) fn find(context: &Context, name: &str) -> Result<Arc<TopicView>, CallFailure> {
    let parsed = lookup::topic_name("queue", name)?;
    let catalog = context.view().catalog();
    let is_whole = name.ends_with(DEAD_LETTER_SUFFIX);
    let whole = if is_whole {
        Ok(parsed)
    } else {
        TopicName::parse(&format!("{name}{DEAD_LETTER_SUFFIX}"))
    };
    let found = whole.ok().and_then(|whole| catalog.by_name.get(&whole));
    let found = found.filter(|topic| topic.derived.is_some());
    found.cloned().ok_or_else(|| {
        let names = catalog.by_name.keys().map(TopicName::as_str);
        let names = names.filter(|name| name.ends_with(DEAD_LETTER_SUFFIX));
        lookup::missing_queue(name, names).into()
    })
}

/// A queue by its dead-letter topic; none if it was just deleted.
pub(super) fn by_topic(
    view: &CoreView<'_>,
    topic: TopicId,
    now: WallMs,
) -> Option<v1::DeadLetterQueue> {
    let topic = view.state.topics.by_id(topic)?;
    let derived = topic.derived.as_ref()?;
    Some(shown(view, (topic, derived), now))
}

fn shown(
    view: &CoreView<'_>,
    (topic, derived): (&Topic, &Derived),
    now: WallMs,
) -> v1::DeadLetterQueue {
    let source = view.state.topics.by_id(derived.source);
    let group = view.state.groups.get(&derived.group);
    let reads = group.and_then(|group| group.topics.get(&derived.source));
    let short = v1::DeadLetterQueue {
        name: topic.name.to_string(),
        group: derived.group.to_string(),
        source_topic: source.map(|it| it.name.to_string()).unwrap_or_default(),
        oldest_age: Some(prost_types::Duration::default()),
        waiting: reads.map_or(0, waiting),
        active_jobs: active_jobs(view, topic.id),
        ..v1::DeadLetterQueue::default()
    };
    match view.state.dead_letters.get(topic.id) {
        None => short,
        Some(queue) => with_counts(short, queue, now),
    }
}

fn with_counts(short: v1::DeadLetterQueue, queue: &Queue, now: WallMs) -> v1::DeadLetterQueue {
    let oldest = queue.firsts().map(|entry| entry.died).min();
    let newest = queue.lasts().map(|entry| entry.died).max();
    let age_ms = oldest.map_or(0, |died| now.0.saturating_sub(died.0).max(0));
    let hour = queue.trend().of_last(HOUR_MINUTES, now);
    let top = queue.causes().top();
    v1::DeadLetterQueue {
        depth: count(queue.depth()),
        claimed: count(queue.claimed()),
        bytes: count(queue.bytes()),
        oldest_age: Some(prost_types::Duration {
            seconds: age_ms / 1_000,
            nanos: i32::try_from(age_ms % 1_000).unwrap_or(0) * 1_000_000,
        }),
        newest_death_time: newest.map(|died| timestamp(died.0)),
        arrivals_last_hour: count(hour.arrived),
        departures_last_hour: count(hour.departed()),
        top_error_code: top.map(|cause| cause.code.clone()).unwrap_or_default(),
        ..short
    }
}

/// Records that wait in place for room in the dead-letter topic.
fn waiting(reads: &GroupReads) -> i64 {
    let in_source = reads.partitions.iter().flat_map(|it| it.notes().values());
    let in_retry = reads.retries.iter().flat_map(|it| it.notes().values());
    let waits = |note: &&FailureNote| matches!(note.wait, Wait::Room(_));
    let looked_at = in_source.chain(in_retry).take(NOTES_LOOKED_AT_MAX);
    i64::try_from(looked_at.filter(waits).count()).unwrap_or(i64::MAX)
}

fn active_jobs(view: &CoreView<'_>, topic: TopicId) -> i32 {
    let jobs = view.state.dead_letters.jobs().active();
    let jobs = jobs.filter(|job| job.queue == topic).count();
    i32::try_from(jobs).unwrap_or(i32::MAX)
}

pub(super) fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
