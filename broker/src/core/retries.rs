//! What a group has in one partition of a retry topic.

use std::collections::BTreeMap;

use varvelog_store::{Offset, WallMs};

use super::endings::Endings;
use super::failure::FailureNote;
use super::fields::holds;
use super::handed_out::{HandOuts, HandedOut};
use super::partitions::Partition;

/// A record in a retry topic that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryEntry {
    /// Not given out before.
    pub due: WallMs,
    /// Of its first append, in the source partition of the same number.
    pub origin: Offset,
    /// Counted failures when it came here; 0 for a delayed record.
    pub failures: u32,
    /// Whether its last failure was a crash or a timeout.
    pub suspect: bool,
}

/// A group's part in one partition of its retry topic. Everything in it that is not pending is
/// done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetryProgress {
    pub(super) pending: BTreeMap<Offset, RetryEntry>,
    /// The same by runs without a gap: last offset by first, so that what is done is found without
    /// going through what is not.
    runs: BTreeMap<Offset, Offset>,
    /// Of pending records that failed here and stayed.
    pub(super) notes: BTreeMap<Offset, FailureNote>,
    pub(super) endings: Endings,
    pub(super) out: HandOuts,
}

impl RetryProgress {
    /// As a snapshot has it.
    pub(super) fn restored(
        pending: BTreeMap<Offset, RetryEntry>,
        notes: BTreeMap<Offset, FailureNote>,
        (endings, out): (Endings, HandOuts),
    ) -> Self {
        let mut restored = Self {
            notes,
            endings,
            out,
            ..Self::default()
        };
        for (at, entry) in pending {
            restored.add(at, entry);
        }
        restored
    }

    /// Records that are not done, by offset in the retry partition.
    pub fn pending(&self) -> &BTreeMap<Offset, RetryEntry> {
        &self.pending
    }

    /// What is noted of records that failed again and stayed.
    pub fn notes(&self) -> &BTreeMap<Offset, FailureNote> {
        &self.notes
    }

    /// How the newest records ended that were not simply processed.
    pub fn endings(&self) -> &Endings {
        &self.endings
    }

    /// Hand-outs that are neither settled nor given back, as far as they were noted.
    pub fn out(&self) -> &HandOuts {
        &self.out
    }

    /// All below is done; `end` is that of the partition.
    pub fn low(&self, end: Offset) -> Offset {
        self.pending
            .first_key_value()
            .map_or(end, |(first, _)| *first)
    }

    /// The first done record from `from` on, and the last of those behind it that are done; `end`
    /// is that of the partition.
    pub fn next_done(&self, from: Offset, end: Offset) -> Option<(Offset, Offset)> {
        let around = self.runs.range(..=from).next_back();
        let from = match around {
            Some((_, last)) if *last >= from => last.plus(1),
            _ => from,
        };
        let next = self
            .runs
            .range(from..)
            .next()
            .map_or(end, |(first, _)| *first);
        (from < next).then(|| (from, next.minus(1)))
    }

    /// A record came to the partition.
    pub(super) fn add(&mut self, at: Offset, entry: RetryEntry) {
        if self.pending.insert(at, entry).is_some() {
            return;
        }
        let before = self.runs.range_mut(..at).next_back();
        match before.filter(|(_, last)| last.plus(1) == at) {
            Some((_, last)) => *last = at,
            None => {
                self.runs.insert(at, at);
            }
        }
    }

    /// Takes what is done out of the runs.
    fn cut_runs(&mut self, first: Offset, end: Offset) {
        let before = self.runs.range(..first).next_back();
        let from = match before {
            Some((start, last)) if *last >= first => *start,
            _ => first,
        };
        let touched: Vec<_> = self
            .runs
            .range(from..end)
            .map(|(at, last)| (*at, *last))
            .collect();
        for (start, last) in touched {
            self.runs.remove(&start);
            if start < first {
                self.runs.insert(start, first.minus(1));
            }
            if last >= end {
                self.runs.insert(end, last);
            }
        }
    }

    /// Marks `first` up to, not including, `end` as done; returns how many were not.
    pub(super) fn settle(&mut self, first: Offset, end: Offset) -> u64 {
        let done: Vec<Offset> = self.pending.range(first..end).map(|(at, _)| *at).collect();
        for at in &done {
            self.pending.remove(at);
            self.notes.remove(at);
        }
        if !done.is_empty() {
            self.cut_runs(first, end);
        }
        self.out.settle(first, end);
        u64::try_from(done.len()).unwrap_or(u64::MAX)
    }

    /// Notes a hand-out; what is done of it is nobody's.
    pub(super) fn hand_out(&mut self, first: Offset, out: HandedOut) {
        let last = out.last;
        self.out.note(first, out);
        let mut from = first;
        for at in self.pending.range(first..=last).map(|(at, _)| *at) {
            self.out.settle(from, at);
            from = at.plus(1);
        }
        self.out.settle(from, last.plus(1));
    }

    pub(super) fn verify(&self, partition: &Partition) -> Result<(), &'static str> {
        let first = self.pending.first_key_value();
        let last = self.pending.last_key_value();
        holds(
            first.is_none_or(|(at, _)| *at >= partition.start())
                && last.is_none_or(|(at, _)| *at < partition.next()),
            "a retry lies outside its log",
        )?;
        let by_runs = self
            .runs
            .iter()
            .map(|(first, last)| last.plus(1).since(*first));
        let counted = by_runs.sum::<u64>();
        let apart = self.runs.iter().all(|(first, last)| {
            self.pending.contains_key(first)
                && self.pending.contains_key(last)
                && !self.pending.contains_key(&last.plus(1))
        });
        holds(
            apart && u64::try_from(self.pending.len()) == Ok(counted),
            "the runs of retries are not those of the retries",
        )?;
        let noted = self.notes.keys().all(|at| self.pending.contains_key(at));
        holds(noted, "something is noted of a retry that is done")?;
        self.out.verify()?;
        let mut handed = self.out.iter();
        let open = handed.all(|(first, out)| {
            let pending = self.pending.range(first..=out.last).count();
            u64::try_from(pending) == Ok(out.last.plus(1).since(first))
        });
        holds(open, "a retry that is done is handed out")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_done_is_found_as_by_looking_at_each_record(
            steps in prop::collection::vec((any::<bool>(), 0..40_u64, 1..6_u64), 1..60),
        ) {
            let at = |offset| Offset::new(offset).unwrap();
            let entry = RetryEntry {
                due: WallMs(0),
                origin: Offset::ZERO,
                failures: 1,
                suspect: false,
            };
            let (mut progress, mut end) = (RetryProgress::default(), 0);
            for (adds, first, count) in steps {
                if adds {
                    (end..end + count).for_each(|offset| progress.add(at(offset), entry));
                    end += count;
                } else {
                    progress.settle(at(first.min(end)), at((first + count).min(end)));
                }
                for from in 0..=end {
                    let is_done = |offset: &u64| !progress.pending.contains_key(&at(*offset));
                    let first = (from..end).find(is_done);
                    let run = first.map(|first| {
                        let last = (first..end).take_while(|it| is_done(it)).last();
                        (at(first), at(last.unwrap()))
                    });
                    prop_assert_eq!(progress.next_done(at(from), at(end)), run);
                }
                let RetryProgress { pending, notes, endings, out, .. } = progress.clone();
                let restored = RetryProgress::restored(pending, notes, (endings, out));
                prop_assert_eq!(&restored, &progress);
            }
        }
    }
}
