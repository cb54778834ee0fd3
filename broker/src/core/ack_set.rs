//! Offsets that are done ahead of a low watermark, as runs.

use std::collections::VecDeque;

use varvelog_store::Offset;

use super::fields::holds;

/// A run of offsets: from `first` up to, not including, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First offset of it.
    pub first: Offset,
    /// One past the last.
    pub end: Offset,
}

impl Run {
    /// How many offsets it has.
    pub fn count(self) -> u64 {
        self.end.since(self.first)
    }
}

/// A set of offsets, kept as runs.
///
/// Invariants: runs are not empty, rise, and neither touch nor overlap; `count` is their sum.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AckSet {
    runs: VecDeque<Run>,
    count: u64,
}

impl AckSet {
    /// How many offsets are in it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many runs it takes.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of memory that the runs take.
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.runs.len().saturating_mul(size_of::<Run>())).unwrap_or(u64::MAX)
    }

    /// Its runs, rising.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        self.runs.iter().copied()
    }

    /// Whether `offset` is in it.
    pub fn contains(&self, offset: Offset) -> bool {
        self.run_of(offset).is_some()
    }

    /// The first offset from `from` on that is not in it.
    pub fn first_missing(&self, from: Offset) -> Offset {
        self.run_of(from).map_or(from, |run| run.end)
    }

    /// The first offset from `from` on that is in it.
    pub fn first_present(&self, from: Offset) -> Option<Offset> {
        let run = self
            .runs
            .get(self.runs.partition_point(|run| run.end <= from))?;
        Some(run.first.max(from))
    }

    /// How many offsets from `first` up to, not including, `end` are in it.
    pub fn count_in(&self, first: Offset, end: Offset) -> u64 {
        let at = self.runs.partition_point(|run| run.end <= first);
        let within = self.runs.range(at..).take_while(|run| run.first < end);
        within
            .map(|run| run.end.min(end).since(run.first.max(first)))
            .sum()
    }

    /// Adds `first` up to, not including, `end`, and returns how many were not in it.
    pub fn insert(&mut self, first: Offset, end: Offset) -> u64 {
        if first >= end {
            return 0;
        }
        let from = self.runs.partition_point(|run| run.end < first);
        let to = self.runs.partition_point(|run| run.first <= end);
        let mut merged = Run { first, end };
        let mut had = 0;
        for run in self.runs.range(from..to) {
            merged.first = merged.first.min(run.first);
            merged.end = merged.end.max(run.end);
            had += run.count();
        }
        match self.runs.get_mut(from) {
            Some(slot) if from < to => {
                *slot = merged;
                self.runs.drain(from + 1..to);
            }
            _ => self.runs.insert(from, merged),
        }
        let added = merged.count() - had;
        self.count += added;
        added
    }

    /// Drops what is below `low`, and the run that then begins at it; returns where that run ended,
    /// else `low`.
    pub fn advance(&mut self, low: Offset) -> Offset {
        while let Some(run) = self.runs.front().copied()
            && run.first <= low
        {
            self.runs.pop_front();
            self.count -= run.count();
            if run.end > low {
                return run.end;
            }
        }
        low
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.count = 0;
    }

    fn run_of(&self, offset: Offset) -> Option<Run> {
        let run = self
            .runs
            .get(self.runs.partition_point(|run| run.end <= offset))?;
        (run.first <= offset).then_some(*run)
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let filled = self.runs.iter().all(|run| run.first < run.end);
        holds(filled, "a run of settled records is empty")?;
        let mut pairs = self.runs.iter().zip(self.runs.iter().skip(1));
        let apart = pairs.all(|(a, b)| a.end < b.first);
        holds(apart, "runs of settled records are not apart")?;
        let count = self.runs.iter().map(|run| run.count()).sum::<u64>();
        holds(self.count == count, "settled records are miscounted")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SPACE: u64 = 64;

    fn at(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, u64),
        Advance(u64),
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..SPACE, 0..12u64).prop_map(|(first, count)| Step::Insert(first, first + count)),
            2 => (0..SPACE).prop_map(Step::Advance),
            1 => Just(Step::Clear),
        ]
    }

    fn agree(set: &AckSet, naive: &BTreeSet<u64>) {
        assert_eq!(set.verify(), Ok(()));
        assert_eq!(set.count(), naive.len() as u64);
        assert_eq!(set.is_empty(), naive.is_empty());
        let listed: Vec<u64> = set
            .runs()
            .flat_map(|run| run.first.get()..run.end.get())
            .collect();
        assert_eq!(listed, naive.iter().copied().collect::<Vec<_>>());
        for offset in 0..SPACE + 16 {
            assert_eq!(set.contains(at(offset)), naive.contains(&offset));
            let missing = (offset..2 * SPACE)
                .find(|other| !naive.contains(other))
                .unwrap();
            assert_eq!(set.first_missing(at(offset)), at(missing));
            let present = naive.range(offset..).next().map(|found| at(*found));
            assert_eq!(set.first_present(at(offset)), present);
            let count = naive.range(offset..offset + 9).count() as u64;
            assert_eq!(set.count_in(at(offset), at(offset + 9)), count);
        }
    }

    proptest! {
        #[test]
        fn runs_hold_what_a_plain_set_holds(steps in prop::collection::vec(step(), 0..60)) {
            let (mut set, mut naive) = (AckSet::default(), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Insert(first, end) => {
                        let added = (first..end).filter(|offset| naive.insert(*offset)).count();
                        prop_assert_eq!(set.insert(at(first), at(end)), added as u64);
                    }
                    Step::Advance(low) => {
                        let missing = |other: &u64| !naive.contains(other);
                        let reached = (low..2 * SPACE).find(missing).unwrap();
                        naive = naive.split_off(&reached);
                        prop_assert_eq!(set.advance(at(low)), at(reached));
                    }
                    Step::Clear => {
                        naive.clear();
                        set.clear();
                    }
                }
                agree(&set, &naive);
            }
        }
    }

    #[test]
    fn fifty_thousand_records_behind_a_stuck_one_take_one_run() {
        let mut set = AckSet::default();
        for offset in 1..=50_000 {
            assert_eq!(set.insert(at(offset), at(offset + 1)), 1);
        }
        assert_eq!(set.run_count(), 1);
        assert_eq!(set.insert(at(0), at(1)), 1);
        assert_eq!(set.advance(at(0)), at(50_001));
        assert!(set.is_empty());
    }
}
