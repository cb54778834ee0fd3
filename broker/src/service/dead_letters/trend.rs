//! The trend of a queue in the steps that a caller wants.

use std::collections::VecDeque;

use varvelog_proto::v1;
use varvelog_store::WallMs;

use super::queues::count;
use crate::core::dead_letters::{HOUR_MS, HOURS_MAX, MINUTE_MS, MINUTES_MAX, Moves, Step, Trend};
use crate::service::topics::timestamp;

/// How far a caller looks back, and in how many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    /// One minute to 30 days.
    pub(super) ms: i64,
    /// At least 1.
    pub(super) buckets: u32,
}

impl Window {
    /// When it begins.
    pub(super) fn start(self, now: WallMs) -> WallMs {
        let (unit_ms, units) = self.units();
        let present = now.0.div_euclid(unit_ms);
        WallMs(present.saturating_sub(units - 1).saturating_mul(unit_ms))
    }

    /// The length of a unit, and how many there are. The last one is the present one.
    fn units(self) -> (i64, i64) {
        let of = |unit_ms: i64| (self.ms + unit_ms - 1) / unit_ms;
        let minutes = of(MINUTE_MS);
        if minutes <= MINUTES_MAX {
            (MINUTE_MS, minutes.max(1))
        } else {
            (HOUR_MS, of(HOUR_MS).min(HOURS_MAX))
        }
    }
}

/// Steps of the window, oldest first, each of as many minutes or hours.
pub(super) fn points(trend: &Trend, window: Window, now: WallMs) -> Vec<v1::TrendPoint> {
    let (unit_ms, units) = window.units();
    let steps = if unit_ms == MINUTE_MS {
        trend.minutes()
    } else {
        trend.hours()
    };
    let buckets = i64::from(window.buckets.max(1)).min(units);
    let width = (units + buckets - 1) / buckets;
    let present = now.0.div_euclid(unit_ms);
    let number = (units + width - 1) / width;
    let first = present - number * width + 1;
    let mut depth = depth_before(steps, first);
    let point = |index: i64| {
        let start = first + index * width;
        let within = start..start + width;
        let inside = || steps.iter().filter(|step| within.contains(&step.number));
        let moves = inside().fold(Moves::default(), |sum, step| sum.plus(step.moves));
        depth = inside().next_back().map_or(depth, |step| step.depth);
        v1::TrendPoint {
            bucket_time: Some(timestamp(start.saturating_mul(unit_ms))),
            arrived: count(moves.arrived),
            replayed: count(moves.replayed),
            discarded: count(moves.discarded),
            depth: count(depth),
        }
    };
    (0..number).map(point).collect()
}

/// Entries before a step, as far as that is remembered.
fn depth_before(steps: &VecDeque<Step>, first: i64) -> u64 {
    let before = steps.iter().rev().find(|step| step.number < first);
    if let Some(before) = before {
        return before.depth;
    }
    steps.front().map_or(0, |step| {
        let after = step.depth.saturating_add(step.moves.departed());
        after.saturating_sub(step.moves.arrived)
    })
}

#[cfg(test)]
mod tests {
    use varvelog_store::{Offset, PartitionId, TopicId};

    use super::*;
    use crate::core::dead_letters::{Cause, DeadLetters, Death};

    const TOPIC: TopicId = TopicId([1; 16]);

    /// One death in each of these minutes.
    fn deaths(minutes: &[i64]) -> DeadLetters {
        let mut all = DeadLetters::default();
        let id = PartitionId {
            topic: TOPIC,
            partition: 0,
        };
        for (index, minute) in minutes.iter().enumerate() {
            let now = WallMs(minute * MINUTE_MS);
            let death = Death {
                at: now,
                bytes: 1,
                cause: Cause::default(),
                replays: 0,
                replayed_by: None,
                parked_key: None,
            };
            let base = Offset::ZERO.plus(index as u64);
            all.bury(id, base, &[death], now);
        }
        all
    }

    fn shown(minutes: &[i64], window_minutes: i64, buckets: u32, now: i64) -> Vec<(i64, i64, i64)> {
        let all = deaths(minutes);
        let window = Window {
            ms: window_minutes * MINUTE_MS,
            buckets,
        };
        let trend = all.get(TOPIC).unwrap().trend();
        let points = points(trend, window, WallMs(now * MINUTE_MS + 7));
        let of = |point: v1::TrendPoint| {
            let start = point.bucket_time.unwrap().seconds / 60;
            (start, point.arrived, point.depth)
        };
        points.into_iter().map(of).collect()
    }

    #[test]
    fn each_step_has_what_came_in_it_and_what_was_there_at_its_end() {
        let all = shown(&[100, 100, 102], 4, 60, 103);
        assert_eq!(all, [(100, 2, 2), (101, 0, 2), (102, 1, 3), (103, 0, 3)]);
        let late = shown(&[100, 100, 102], 2, 60, 103);
        assert_eq!(late, [(102, 1, 3), (103, 0, 3)]);
    }

    #[test]
    fn fewer_steps_than_minutes_are_equally_wide_and_end_with_the_present() {
        let halves = shown(&[100, 101, 103], 4, 2, 103);
        assert_eq!(halves, [(100, 2, 2), (102, 1, 3)]);
        let uneven = shown(&[100, 101, 103], 5, 2, 103);
        assert_eq!(uneven, [(98, 1, 1), (101, 2, 3)]);
    }

    #[test]
    fn beyond_a_day_the_steps_are_hours() {
        let hours = shown(&[60, 61, 1_500, 3_000], 49 * 60, 1_440, 3_000);
        assert_eq!(hours.len(), 49);
        assert_eq!(hours[0], (120, 0, 2));
        assert_eq!(hours[23], (1_500, 1, 3));
        assert_eq!(hours[48], (3_000, 1, 4));
    }
}
