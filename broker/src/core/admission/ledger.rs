//! How many bytes a partition has from an offset on, and when an offset was appended, without
//! reading it.
//!
//! Marks stand at the beginnings of batches. While there are few, each batch has its own and both
//! answers are exact. When there would be more than [`MARKS_MAX`], what no group needs any more
//! goes, and stretches that are short beside the backlog become one: none but a single batch holds
//! more than a 64th of it. Bytes within a stretch are then taken at its mean, and times as that of
//! its beginning. After a start
//! stretches are as long as segments until their records are done, but for the places where groups
//! stand, of which the time is looked up ([`Ledger::place`]).

use std::collections::VecDeque;

use varvelog_store::{Offset, WallMs};

/// Most marks of a partition; 40 bytes each.
pub(super) const MARKS_MAX: usize = 256;
/// Stretches that a backlog is divided into at least.
const STRETCHES: u64 = MARKS_MAX as u64 / 4;
/// Times that differ by less are one.
const NEAR_MS: i64 = 1_000;

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    first: Offset,
    /// Of the record at `first`, or not later.
    time: WallMs,
    /// Of the last record in front of the next mark.
    last_time: WallMs,
    /// The time was guessed, as late as it can be.
    is_guessed: bool,
    /// Bytes of what lies between the first mark ever and this one.
    before: u64,
}

/// See the module.
///
/// Invariants: marks rise in all they hold and none lies behind `end`; there are at most
/// 256.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    marks: VecDeque<Mark>,
    end: Offset,
    bytes: u64,
    /// Of the last batch.
    time: WallMs,
}

impl Ledger {
    /// A stretch of so many bytes follows, up to `end`. It begins with a batch that was appended
    /// at `first_time` and ends with one of `last_time`. No group needs what is below `floor`.
    pub fn add(
        &mut self,
        (first, end): (Offset, Offset),
        (first_time, last_time): (WallMs, WallMs),
        bytes: u64,
        floor: Offset,
    ) {
        if first < self.end {
            // The ledger was made when the batch was in the log already.
            return;
        }
        if self.marks.len() >= MARKS_MAX {
            self.thin(floor);
        }
        self.marks.push_back(Mark {
            first,
            time: first_time.max(self.time),
            last_time: last_time.max(self.time),
            is_guessed: false,
            before: self.bytes,
        });
        self.end = end;
        self.bytes = self.bytes.saturating_add(bytes);
        self.time = self.time.max(last_time);
    }

    /// Whether nothing is known of the record at `at` any more.
    pub(super) fn begins_behind(&self, at: Offset) -> bool {
        self.marks.front().is_some_and(|mark| at < mark.first)
    }

    /// Bytes from `from` to the end.
    pub(super) fn bytes_from(&self, from: Offset) -> u64 {
        self.bytes.saturating_sub(self.before(from))
    }

    /// When the record at `at` was appended: exact at a mark, else that of the mark before it,
    /// which is earlier.
    pub(super) fn time_at(&self, at: Offset) -> Option<WallMs> {
        Some(self.marks.get(self.mark_of(at)?)?.time)
    }

    /// Whether the append time at `at` would have to be looked up to be known to the second.
    pub(super) fn is_unsure(&self, at: Offset) -> bool {
        let mark = self.mark_of(at).filter(|_| at < self.end);
        mark.and_then(|index| self.marks.get(index))
            .is_some_and(|mark| {
                let is_near = mark.last_time.0.saturating_sub(mark.time.0) <= NEAR_MS;
                mark.is_guessed || (mark.first != at && !is_near)
            })
    }

    /// A group came to stand at `at` by a jump: as long as its time is not looked up, it is taken
    /// to be as late as it can be, so that nobody is turned away by a guess.
    pub(super) fn place(&mut self, at: Offset, floor: Offset) {
        if self.is_unsure(at) {
            let mark = self.mark_of(at).and_then(|index| self.marks.get(index));
            let late = mark.map_or(self.time, |mark| mark.last_time);
            self.put(at, late, true, floor);
        }
    }

    /// The append time at an offset was looked up.
    pub(super) fn note(&mut self, at: Offset, time: WallMs, floor: Offset) {
        if self.is_unsure(at) {
            self.put(at, time, false, floor);
        }
    }

    /// Puts a mark in a stretch, or a time into one; it stays between its neighbours.
    fn put(&mut self, at: Offset, time: WallMs, is_guessed: bool, floor: Offset) {
        if self.marks.len() >= MARKS_MAX {
            self.thin(floor);
        }
        let Some(index) = self.mark_of(at) else {
            return;
        };
        let before = self.before(at);
        let Some(mark) = self.marks.get_mut(index) else {
            return;
        };
        let time = time.min(mark.last_time);
        if mark.first == at {
            (mark.time, mark.is_guessed) = (time, is_guessed);
            return;
        }
        let time = if mark.is_guessed {
            time
        } else {
            time.max(mark.time)
        };
        let put = Mark {
            first: at,
            time,
            last_time: mark.last_time,
            is_guessed,
            before,
        };
        if !is_guessed {
            mark.last_time = time;
        }
        self.marks.insert(index + 1, put);
    }

    /// Makes room for at least as many marks as stay: what is wholly below `floor` goes, and then
    /// stretches that together are short beside the backlog become one.
    fn thin(&mut self, floor: Offset) {
        while self.marks.get(1).is_some_and(|next| next.first <= floor) {
            self.marks.pop_front();
        }
        if self.marks.len() <= MARKS_MAX / 2 {
            return;
        }
        let records_max = self.end.since(floor.min(self.end)) / STRETCHES;
        let marks = std::mem::take(&mut self.marks);
        let ends = marks.iter().skip(1).map(|next| next.first);
        let ends: Vec<Offset> = ends.chain([self.end]).collect();
        for (mark, end) in marks.into_iter().zip(ends) {
            match self.marks.back_mut() {
                Some(last) if end.since(last.first) <= records_max => {
                    last.last_time = last.last_time.max(mark.last_time);
                }
                Some(_) | None => self.marks.push_back(mark),
            }
        }
    }

    fn mark_of(&self, at: Offset) -> Option<usize> {
        let after = self.marks.partition_point(|mark| mark.first <= at);
        after.checked_sub(1)
    }

    fn next_of(&self, index: usize) -> Option<&Mark> {
        self.marks.get(index + 1)
    }

    /// Bytes in front of `at`, from the first mark ever on.
    fn before(&self, at: Offset) -> u64 {
        let Some(index) = self.mark_of(at) else {
            return self.marks.front().map_or(0, |mark| mark.before);
        };
        let Some(mark) = self.marks.get(index) else {
            return 0;
        };
        let (end, bytes) = self
            .next_of(index)
            .map_or((self.end, self.bytes), |next| (next.first, next.before));
        if at >= end {
            return bytes;
        }
        let stretch = u128::from(bytes - mark.before);
        let part = stretch * u128::from(at.since(mark.first)) / u128::from(end.since(mark.first));
        mark.before + u64::try_from(part).unwrap_or(0)
    }

    #[cfg(test)]
    fn check(&self) {
        let marks: Vec<Mark> = self.marks.iter().copied().collect();
        assert!(marks.len() <= MARKS_MAX);
        for pair in marks.windows(2) {
            assert!(pair[0].first < pair[1].first, "{pair:?}");
            assert!(pair[0].before <= pair[1].before, "{pair:?}");
            assert!(
                pair[1].is_guessed || pair[0].is_guessed || pair[0].time <= pair[1].time,
                "{pair:?}"
            );
        }
        assert!(
            marks
                .iter()
                .all(|mark| mark.first <= self.end && mark.before <= self.bytes)
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    /// Batches of records, bytes and the time since the one before.
    fn filled(batches: &[(u64, u64, i64)], floor: u64) -> (Ledger, Vec<(u64, i64)>) {
        let mut ledger = Ledger::default();
        let mut records = Vec::new();
        let mut time = 1_000;
        for (count, bytes, passed) in batches {
            time += passed;
            let first = records.len() as u64;
            records.extend((0..*count).map(|_| (bytes / count, time)));
            let range = (at(first), at(first + count));
            ledger.add(
                range,
                (WallMs(time), WallMs(time)),
                bytes / count * count,
                at(floor),
            );
            ledger.check();
        }
        (ledger, records)
    }

    proptest! {
        #[test]
        fn few_batches_are_answered_exactly(
            batches in prop::collection::vec((1..5_u64, 1..500_u64, 0..9_000_i64), 1..200),
        ) {
            let (ledger, records) = filled(&batches, 0);
            for (offset, (_, time)) in (0..).zip(&records) {
                let from = usize::try_from(offset).unwrap();
                let bytes: u64 = records[from..].iter().map(|record| record.0).sum();
                prop_assert_eq!(ledger.bytes_from(at(offset)), bytes);
                prop_assert_eq!(ledger.time_at(at(offset)), Some(WallMs(*time)));
            }
            prop_assert_eq!(ledger.bytes_from(at(records.len() as u64)), 0);
        }

        #[test]
        fn of_many_batches_the_time_is_never_late_and_early_by_a_64th_of_the_backlog(
            batches in prop::collection::vec((1..4_u64, 1..500_u64, 1..100_i64), 3_000..3_500),
            low in 0..2_000_u64,
        ) {
            let (ledger, records) = filled(&batches, low);
            let open = records.len() as u64 - low;
            for offset in (low..records.len() as u64).step_by(97) {
                let from = usize::try_from(offset).unwrap();
                let told = ledger.time_at(at(offset)).unwrap();
                prop_assert!(told.0 <= records[from].1);
                let early = records.partition_point(|record| record.1 < told.0) as u64;
                prop_assert!(offset - early.min(offset) <= open / 64 + 4, "{early} {offset}");
                let bytes: u64 = records[from..].iter().map(|record| record.0).sum();
                let off = ledger.bytes_from(at(offset)).abs_diff(bytes);
                prop_assert!(off <= 500 * (open / 64 + 4), "{off}");
            }
        }
    }

    #[test]
    fn memory_does_not_grow_with_the_backlog_and_what_is_done_makes_room_first() {
        let (mut ledger, _) = filled(&vec![(1, 10, 5); 100_000], 0);
        ledger.check();
        assert_eq!(ledger.bytes_from(at(0)), 1_000_000);
        for offset in 100_000..100_300 {
            let time = WallMs(10_000_000);
            ledger.add((at(offset), at(offset + 1)), (time, time), 7, at(100_000));
        }
        ledger.check();
        assert_eq!(
            ledger.bytes_from(at(100_200)),
            700,
            "exact where groups are"
        );
    }

    #[test]
    fn a_place_in_a_long_stretch_is_young_until_it_is_looked_up() {
        let mut ledger = Ledger::default();
        let times = (WallMs(1_000), WallMs(900_000));
        ledger.add((at(0), at(1_000)), times, 50_000, at(0));
        ledger.add(
            (at(1_000), at(1_001)),
            (WallMs(950_000), WallMs(950_000)),
            7,
            at(0),
        );
        assert!(!ledger.is_unsure(at(0)));
        assert!(ledger.is_unsure(at(400)));
        ledger.place(at(400), at(400));
        assert_eq!(ledger.time_at(at(400)), Some(WallMs(900_000)));
        assert!(ledger.is_unsure(at(400)), "still to be looked up");
        ledger.note(at(400), WallMs(300_000), at(400));
        assert_eq!(ledger.time_at(at(400)), Some(WallMs(300_000)));
        assert!(!ledger.is_unsure(at(400)));
        // As records are done the age is told too high rather than too low, until the next look.
        assert_eq!(ledger.time_at(at(401)), Some(WallMs(300_000)));
        assert!(ledger.is_unsure(at(401)));
        assert_eq!(ledger.bytes_from(at(400)), 30_007);
        assert!(!ledger.is_unsure(at(1_001)), "nothing is there");
        ledger.check();
    }
}
