//! How far a partition's start may move: by age and by size, whole segments only.
//!
//! Age is the broker's append time, never a client's. A wrong clock must not delete much: in one
//! pass age takes at most a tenth of the segments, and nothing while the clock is in doubt.

use crate::partition::SegmentInfo;
use crate::{Offset, WallMs};

/// Wall time may move by so much more or less than the monotonic clock between two looks.
const CLOCK_STEP_MS_MAX: u64 = 60 * 60 * 1000;
/// Age takes at most one in so many segments a pass, and always one.
const SEGMENTS_PER_AGE_STEP: usize = 10;

/// What a topic wants kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetentionPolicy {
    /// Records older than so many milliseconds may go; `None` keeps them.
    pub age_ms_max: Option<u64>,
    /// The oldest segments may go as long as at least so many bytes stay; `None` keeps them.
    pub bytes_max: Option<u64>,
}

/// A partition at the time of a pass.
#[derive(Debug, Clone, Copy)]
pub struct RetentionInput<'a> {
    /// Its segments by offset.
    pub segments: &'a [SegmentInfo],
    /// Its start.
    pub start: Offset,
    /// Its size, what is not flushed included.
    pub bytes: u64,
    /// Whether the last segment is still written to. It goes by age only, and only once sealed.
    pub has_active: bool,
    /// The time.
    pub now: WallMs,
    /// Whether `now` can be believed; see [`clock_stepped`]. If not, age takes nothing.
    pub is_clock_trusted: bool,
}

/// What a pass decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The new start; the old one if nothing goes.
    pub start: Offset,
    /// The last segment is past its age as a whole: seal it, and a later pass takes it.
    pub roll_active: bool,
    /// More is past its age than one pass takes.
    pub is_capped: bool,
}

/// Decides one pass.
pub fn retain(input: &RetentionInput<'_>, policy: &RetentionPolicy) -> Retention {
    let sealed = input
        .segments
        .len()
        .saturating_sub(usize::from(input.has_active));
    let sealed = input.segments.get(..sealed).unwrap_or_default();
    let (by_age, is_capped) = count_by_age(input, policy, sealed);
    let by_size = count_by_size(input, policy, sealed);
    let gone = sealed.get(..by_age.max(by_size)).and_then(<[_]>::last);
    let is_old = |segment: &SegmentInfo| is_past_age(input, policy, segment);
    Retention {
        start: gone.map_or(input.start, |last| last.end.max(input.start)),
        roll_active: input.has_active && input.segments.last().is_some_and(is_old),
        is_capped,
    }
}

fn count_by_age(
    input: &RetentionInput<'_>,
    policy: &RetentionPolicy,
    sealed: &[SegmentInfo],
) -> (usize, bool) {
    let old = sealed
        .iter()
        .take_while(|segment| is_past_age(input, policy, segment))
        .count();
    let most = (input.segments.len() / SEGMENTS_PER_AGE_STEP).max(1);
    (old.min(most), old > most)
}

fn is_past_age(
    input: &RetentionInput<'_>,
    policy: &RetentionPolicy,
    segment: &SegmentInfo,
) -> bool {
    let age = i128::from(input.now.0) - i128::from(segment.append_time_max.0);
    input.is_clock_trusted && policy.age_ms_max.is_some_and(|max| age > i128::from(max))
}

fn count_by_size(
    input: &RetentionInput<'_>,
    policy: &RetentionPolicy,
    sealed: &[SegmentInfo],
) -> usize {
    let Some(bytes_max) = policy.bytes_max else {
        return 0;
    };
    let mut left = input.bytes;
    let fits = |segment: &&SegmentInfo| {
        left = left.saturating_sub(segment.bytes.into());
        left >= bytes_max
    };
    sealed.iter().take_while(fits).count()
}

/// Whether the wall clock was stepped: it moved by more than an hour more, or less, than the
/// monotonic clock did in the same time. Retention by age then pauses until someone has looked.
pub fn clock_stepped(before: WallMs, now: WallMs, monotonic_elapsed_ms: u64) -> bool {
    let moved = i128::from(now.0) - i128::from(before.0);
    (moved - i128::from(monotonic_elapsed_ms)).unsigned_abs() > u128::from(CLOCK_STEP_MS_MAX)
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
