//! `GetDeadLetterStats`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varvelog_proto::v1;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::entries;
use super::queues::{self, count};
use super::trend::{Window, points};
use crate::core::dead_letters::{Cause, Queue, Trend};
use crate::core::handle::CoreView;
use crate::service::checks;
use crate::service::context::Context;
use crate::service::groups::failure_texts;
use crate::service::status::CallFailure;
use crate::service::topics::timestamp;

const WINDOW: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(30 * 24));
const WINDOW_DEFAULT_MS: u64 = 24 * 3_600_000;
const BUCKETS: (u32, u32) = (60, 1_440);
/// Causes that are shown each by itself.
const ERRORS_MAX: usize = 50;
/// The code of all other causes.
const OTHER_CODE: &str = "other";

/// Entries that died of one cause; of none those whose causes are not told apart.
pub(super) type Tallies = BTreeMap<Option<Cause>, Tally>;

/// Entries that count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    count: u64,
    first: WallMs,
    /// The last one: when, and where.
    last: (WallMs, u32, Offset),
}

impl Tally {
    /// One entry.
    pub(super) fn of(died: WallMs, partition: u32, offset: Offset) -> Self {
        Self {
            count: 1,
            first: died,
            last: (died, partition, offset),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// `GetDeadLetterStats`.
pub(super) async fn get(
    context: &Context,
    request: v1::GetDeadLetterStatsRequest,
) -> Result<v1::GetDeadLetterStatsResponse, CallFailure> {
    let topic = queues::find(context, &request.queue)?.id;
    let window_ms = checks::duration_ms("window", request.window.as_ref(), WINDOW)?;
    let window_ms = window_ms.unwrap_or(WINDOW_DEFAULT_MS);
    let window = Window {
        ms: i64::try_from(window_ms).unwrap_or(i64::MAX),
        buckets: checks::count("buckets", request.buckets, BUCKETS)?,
    };
    let now = context.wall();
    let ask = move |view: &CoreView<'_>| {
        let queue = view.state.dead_letters.get(topic);
        let trend = queue.map_or_else(Trend::default, |queue| queue.trend().clone());
        (queues::by_topic(view, topic, now), trend)
    };
    let (queue, trend) = context.core().query(ask).await?;
    let since = window.start(now);
    let look = move |queue: &Queue, partition: u32, made: &mut Tallies| {
        tally(queue, (partition, since), made);
    };
    let tallies = entries::fold(context, topic, Tallies::new(), look).await?;
    Ok(v1::GetDeadLetterStatsResponse {
        queue,
        errors: shown(context, topic, tallies).await,
        trend: points(&trend, window, now),
    })
}

/// Counts what died in a partition since then.
fn tally(queue: &Queue, (partition, since): (u32, WallMs), made: &mut Tallies) {
    let mut by_number = BTreeMap::<u32, Tally>::new();
    for (offset, entry) in queue.entries(partition) {
        if entry.died < since {
            continue;
        }
        let one = Tally::of(entry.died, partition, offset);
        add(&mut by_number, entry.cause, one);
    }
    for (number, tally) in by_number {
        add(made, queue.causes().get(number).cloned(), tally);
    }
}

/// Counts one more in.
pub(super) fn add<K: Ord>(tallies: &mut BTreeMap<K, Tally>, key: K, tally: Tally) {
    let sum = tallies.get(&key).map_or(tally, |sum| sum.plus(tally));
    tallies.insert(key, sum);
}

/// The most frequent, then all others as one.
fn ranked(mut tallies: Tallies) -> Vec<(Option<Cause>, Tally)> {
    let untold = tallies.remove(&None);
    let mut all: Vec<(Option<Cause>, Tally)> = tallies.into_iter().collect();
    all.sort_by_key(|(_, tally)| Reverse(tally.count));
    let rest = all.split_off(all.len().min(ERRORS_MAX));
    let rest = rest.into_iter().map(|(_, tally)| tally);
    all.extend(
        rest.chain(untold)
            .reduce(Tally::plus)
            .map(|others| (None, others)),
    );
    all
}

/// The most frequent causes, then all others as one.
pub(super) async fn shown(
    context: &Context,
    topic: TopicId,
    tallies: Tallies,
) -> Vec<v1::ErrorBucket> {
    let ranked = ranked(tallies);
    let place = |tally: &Tally| {
        let (_, partition, offset) = tally.last;
        (PartitionId { topic, partition }, offset)
    };
    let samples: BTreeSet<(PartitionId, Offset)> =
        ranked.iter().map(|(_, tally)| place(tally)).collect();
    let mut texts = failure_texts(context, &samples).await;
    let bucket = |(cause, tally): (Option<Cause>, Tally)| {
        let (last, partition, offset) = tally.last;
        let is_other = cause.is_none();
        let cause = cause.unwrap_or_default();
        let fingerprint = cause.fingerprint.map(|hash| format!("{hash:016x}"));
        let class = cause.class.map(|class| class.as_str().to_owned());
        let sample = texts.remove(&place(&tally));
        v1::ErrorBucket {
            error_code: if is_other {
                OTHER_CODE.to_owned()
            } else {
                cause.code
            },
            fingerprint: fingerprint.unwrap_or_default(),
            count: count(tally.count),
            first_seen_time: Some(timestamp(tally.first.0)),
            last_seen_time: Some(timestamp(last.0)),
            sample_message: sample.map(|(_, message)| message).unwrap_or_default(),
            error_class: class.unwrap_or_default(),
            sample_id: Some(v1::DeadLetterId {
                partition: i32::try_from(partition).unwrap_or(i32::MAX),
                offset: offset.as_i64(),
            }),
        }
    };
    ranked.into_iter().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(code: usize, count: u64) -> (Option<Cause>, Tally) {
        let cause = Cause {
            code: format!("E{code:03}"),
            ..Cause::default()
        };
        let at = i64::try_from(code).unwrap();
        let tally = Tally {
            count,
            first: WallMs(at),
            last: (WallMs(at + 1), 0, Offset::ZERO.plus(count)),
        };
        (Some(cause), tally)
    }

    #[test]
    fn fifty_causes_are_shown_most_frequent_first_and_all_others_as_one() {
        let mut tallies: Tallies = (0..60).map(|code| of(code, code as u64 + 1)).collect();
        tallies.insert(None, of(100, 1_000).1);
        let shown = ranked(tallies);
        assert_eq!(shown.len(), 51);
        assert_eq!(shown[0], of(59, 60));
        assert_eq!(shown[49], of(10, 11));
        let (cause, others) = &shown[50];
        assert_eq!((cause, others.count), (&None, 55 + 1_000));
        assert_eq!(others.first, WallMs(0));
        assert_eq!(others.last, (WallMs(101), 0, Offset::ZERO.plus(1_000)));
        assert!(ranked(Tallies::new()).is_empty());
    }
}
