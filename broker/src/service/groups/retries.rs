//! `ListRetries`.

use std::collections::{BTreeSet, BinaryHeap};
use std::ops::ControlFlow;
use std::time::Duration;

use varvelog_proto::v1;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::retry_texts;
use super::waiting::{Place, Waiting, each_waiting, portions};
use crate::core::handle::CoreView;
use crate::names::GroupName;
use crate::service::ack::with_nearest;
use crate::service::context::Context;
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::topics::timestamp;
use crate::service::{checks, lookup};

const PAGE_SIZE: (u32, u32) = (100, 1000);

/// Ends of the buckets of a histogram, from now; the first is of what is due, and all later than
/// the last but one are in the last.
const BUCKET_ENDS: [Duration; 20] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_mins(5),
    Duration::from_mins(10),
    Duration::from_mins(20),
    Duration::from_mins(30),
    Duration::from_hours(1),
    Duration::from_hours(2),
    Duration::from_hours(6),
    Duration::from_hours(12),
    Duration::from_hours(24),
    Duration::from_hours(3 * 24),
    Duration::from_hours(7 * 24),
    Duration::from_hours(60 * 24),
];

/// The order of the list. Never the same for two records that wait at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    due: WallMs,
    source: PartitionId,
    origin: Offset,
    place: Place,
}

/// A record of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listed {
    key: Key,
    failures: u32,
    /// Code and message, if they are noted.
    text: Option<(String, String)>,
}

impl PartialOrd for Listed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Listed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// `ListRetries`.
pub(super) async fn list(
    context: &Context,
    request: v1::ListRetriesRequest,
) -> Result<v1::ListRetriesResponse, CallFailure> {
    let group = lookup::group_name("group", &request.group)?;
    let size = checks::count("page_size", request.page_size, PAGE_SIZE)?;
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let after = match request.page_token.as_str() {
        "" => None,
        token => Some(read_token(token)?),
    };
    let topic = match request.topic.as_str() {
        "" => None,
        name => Some(lookup::topic(context.view(), "topic", name)?.id),
    };
    let found = portions(context, (&group, topic)).await;
    let found = with_nearest(context, &group, found).await?;
    let mut page = Page {
        after,
        size,
        now: context.wall(),
        soonest: BinaryHeap::new(),
        counts: [0; BUCKET_ENDS.len()],
    };
    for portion in found {
        let group = group.clone();
        page = context
            .core()
            .query(move |view| page.look_at(view, &group, &portion))
            .await?;
    }
    let Page {
        soonest,
        counts,
        now,
        ..
    } = page;
    let mut listed = soonest.into_sorted_vec();
    let has_more = listed.len() > size;
    listed.truncate(size);
    let last = listed.last().filter(|_| has_more);
    let next_page_token = last.map(|last| token_after(&last.key)).unwrap_or_default();
    let histogram = match after {
        None => histogram(&counts, now),
        Some(_) => Vec::new(),
    };
    Ok(v1::ListRetriesResponse {
        retries: shown(context, listed).await,
        next_page_token,
        histogram,
    })
}

/// A page in the making.
struct Page {
    after: Option<Key>,
    size: usize,
    now: WallMs,
    /// One more than the page has room for, the latest on top.
    soonest: BinaryHeap<Listed>,
    /// By bucket, of all that wait.
    counts: [u64; BUCKET_ENDS.len()],
}

impl Page {
    fn look_at(
        mut self,
        view: &CoreView<'_>,
        group: &GroupName,
        partitions: &[PartitionId],
    ) -> Self {
        each_waiting(view, group, partitions, |waiting| {
            self.take(&waiting);
            ControlFlow::Continue(())
        });
        self
    }

    fn take(&mut self, waiting: &Waiting<'_>) {
        let wait_ms = waiting.due.0.saturating_sub(self.now.0);
        let bucket = BUCKET_ENDS.partition_point(|end| {
            i64::try_from(end.as_millis()).is_ok_and(|end_ms| end_ms < wait_ms)
        });
        if let Some(count) = self.counts.get_mut(bucket.min(BUCKET_ENDS.len() - 1)) {
            *count += 1;
        }
        let key = Key {
            due: waiting.due,
            source: waiting.source,
            origin: waiting.origin,
            place: waiting.place,
        };
        let is_before = self.after.is_some_and(|after| key <= after);
        let is_late = self.soonest.len() > self.size
            && self.soonest.peek().is_some_and(|latest| latest.key < key);
        if is_before || is_late {
            return;
        }
        let text = |note: &crate::core::failure::FailureNote| {
            (note.text.code.clone(), note.text.message.clone())
        };
        self.soonest.push(Listed {
            key,
            failures: waiting.failures,
            text: waiting.note.map(text),
        });
        if self.soonest.len() > self.size + 1 {
            self.soonest.pop();
        }
    }
}

/// Buckets up to the last that holds anything.
fn histogram(counts: &[u64; BUCKET_ENDS.len()], now: WallMs) -> Vec<v1::DueBucket> {
    let filled = counts.iter().rposition(|count| *count > 0);
    let used = filled.map_or(0, |last| last + 1);
    let bucket = |(end, count): (&Duration, &u64)| {
        let end_ms = i64::try_from(end.as_millis()).unwrap_or(i64::MAX);
        v1::DueBucket {
            // What is due exactly then is counted before it.
            due_before_time: Some(timestamp(now.0.saturating_add(end_ms).saturating_add(1))),
            count: i64::try_from(*count).unwrap_or(i64::MAX),
        }
    };
    BUCKET_ENDS
        .iter()
        .zip(counts)
        .take(used)
        .map(bucket)
        .collect()
}

async fn shown(context: &Context, listed: Vec<Listed>) -> Vec<v1::ScheduledRetry> {
    let untold = listed.iter().filter(|listed| listed.text.is_none());
    let untold: BTreeSet<(PartitionId, Offset)> = untold
        .map(|listed| (listed.key.place.partition, listed.key.place.offset))
        .collect();
    let mut texts = retry_texts::read(context, &untold).await;
    let catalog = context.view().catalog();
    let show = |listed: Listed| {
        let Key {
            due,
            source,
            origin,
            place,
        } = listed.key;
        // Its topic may just have been deleted.
        let topic = catalog.by_id.get(&source.topic)?.name.to_string();
        let told = listed.text;
        let told = told.or_else(|| texts.remove(&(place.partition, place.offset)));
        let (error_code, error_message) = told.unwrap_or_default();
        Some(v1::ScheduledRetry {
            topic,
            partition: i32::try_from(source.partition).unwrap_or(i32::MAX),
            offset: origin.as_i64(),
            due_time: Some(timestamp(due.0)),
            attempt: i32::try_from(listed.failures.saturating_add(1)).unwrap_or(i32::MAX),
            error_code,
            error_message,
        })
    };
    listed.into_iter().filter_map(show).collect()
}

/// Tells the version of a token.
const TOKEN_PREFIX: &str = "r1:";

fn token_after(last: &Key) -> String {
    let Key {
        due,
        source,
        origin,
        place,
    } = last;
    format!(
        "{TOKEN_PREFIX}{}:{}:{}:{origin}:{}:{}",
        due.0,
        u128::from_le_bytes(source.topic.0),
        source.partition,
        u128::from_le_bytes(place.partition.topic.0),
        place.offset,
    )
}

fn read_token(token: &str) -> Result<Key, FieldViolation> {
    let read = || {
        let parts = token.strip_prefix(TOKEN_PREFIX)?.split(':');
        let [due, topic, partition, origin, place, offset]: [&str; 6] =
            parts.collect::<Vec<_>>().try_into().ok()?;
        let topic_of = |text: &str| Some(TopicId(text.parse::<u128>().ok()?.to_le_bytes()));
        let offset_of = |text: &str| Offset::new(text.parse().ok()?);
        let source = PartitionId {
            topic: topic_of(topic)?,
            partition: partition.parse().ok()?,
        };
        let lies = PartitionId {
            topic: topic_of(place)?,
            partition: source.partition,
        };
        Some(Key {
            due: WallMs(due.parse().ok()?),
            source,
            origin: offset_of(origin)?,
            place: Place {
                is_retry: lies != source,
                partition: lies,
                offset: offset_of(offset)?,
            },
        })
    };
    read().ok_or_else(|| FieldViolation::new("page_token", "is none of a page"))
}

#[cfg(test)]
#[path = "retries_tests.rs"]
mod tests;
