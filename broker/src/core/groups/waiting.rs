//! Records of one partition that are not given out before a time, or not at all for now.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::Offset;

use super::feed::Run;
use crate::clock::MonoMs;

/// Whether a record may be given out, as far as it depends on waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// It may.
    No,
    /// Not before that time.
    Until(MonoMs),
    /// Not for now: it waits for something else than time.
    Open,
}

/// What waits, by offset and by time.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// None: for something else than time.
    by_offset: BTreeMap<Offset, Option<MonoMs>>,
    by_time: BTreeSet<(MonoMs, Offset)>,
}

impl Waiting {
    /// The record waits, or not any more.
    pub(super) fn set(&mut self, offset: Offset, held: Held) {
        self.remove(offset);
        let until = match held {
            Held::No => return,
            Held::Until(until) => Some(until),
            Held::Open => None,
        };
        self.by_offset.insert(offset, until);
        if let Some(until) = until {
            self.by_time.insert((until, offset));
        }
    }

    /// The record does not wait any more; whether it did.
    pub(super) fn remove(&mut self, offset: Offset) -> bool {
        let Some(until) = self.by_offset.remove(&offset) else {
            return false;
        };
        if let Some(until) = until {
            self.by_time.remove(&(until, offset));
        }
        true
    }

    /// None of these wait any more.
    pub(super) fn remove_run(&mut self, (first, last): Run) {
        let within: Vec<Offset> = self.by_offset.range(first..=last).map(|it| *it.0).collect();
        for offset in within {
            self.remove(offset);
        }
    }

    /// Takes out one whose time has come.
    pub(super) fn pop_due(&mut self, now: MonoMs) -> Option<Offset> {
        let (_, offset) = self.by_time.first().filter(|(until, _)| *until <= now)?;
        let offset = *offset;
        self.remove(offset);
        Some(offset)
    }

    /// When the next one's time comes.
    pub(super) fn next_time(&self) -> Option<MonoMs> {
        self.by_time.first().map(|(until, _)| *until)
    }

    /// The first one from an offset on, as a run.
    pub(super) fn next_from(&self, from: Offset) -> Option<Run> {
        let next = self.by_offset.range(from..).next();
        next.map(|(offset, _)| (*offset, *offset))
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.by_offset.contains_key(&offset)
    }

    /// How many wait for a time.
    pub(super) fn timed(&self) -> usize {
        self.by_time.len()
    }

    /// Until when the record waits, if it does.
    #[cfg(test)]
    #[expect(clippy::option_option, reason = "it waits or not, for a time or not")]
    pub(super) fn until(&self, offset: Offset) -> Option<Option<MonoMs>> {
        self.by_offset.get(&offset).copied()
    }

    pub(super) fn check_invariants(&self) {
        let timed = self.by_offset.values().filter(|until| until.is_some());
        assert_eq!(timed.count(), self.by_time.len());
        for (until, offset) in &self.by_time {
            assert_eq!(self.by_offset.get(offset), Some(&Some(*until)));
        }
    }
}
