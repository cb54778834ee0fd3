//! Records of a partition that groups are not given before their time.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, WallMs};

use super::fields::holds;

/// Most delayed records of one partition.
pub const DELAYS_MAX: u64 = 1_000_000;

/// Delayed records of a partition.
///
/// Invariant: both maps hold the same pairs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delays {
    by_offset: BTreeMap<Offset, WallMs>,
    by_due: BTreeSet<(WallMs, Offset)>,
}

impl Delays {
    /// How many there are, those included that came due since the last append.
    pub fn count(&self) -> u64 {
        u64::try_from(self.by_offset.len()).unwrap_or(u64::MAX)
    }

    /// Each record and when it is due, rising by offset.
    pub fn iter(&self) -> impl Iterator<Item = (Offset, WallMs)> {
        self.by_offset.iter().map(|(at, due)| (*at, *due))
    }

    /// The first from `from` on.
    pub fn next(&self, from: Offset) -> Option<(Offset, WallMs)> {
        let (at, due) = self.by_offset.range(from..).next()?;
        Some((*at, *due))
    }

    /// How many are due after `now`. Takes as long as there are others.
    pub(super) fn count_after(&self, now: WallMs) -> u64 {
        let due = self.by_due.range(..=(now, Offset::MAX)).count();
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        self.count().saturating_sub(due)
    }

    pub(super) fn insert(&mut self, at: Offset, due: WallMs) {
        if let Some(before) = self.by_offset.insert(at, due) {
            self.by_due.remove(&(before, at));
        }
        self.by_due.insert((due, at));
    }

    /// Forgets those that are due.
    pub(super) fn drop_due(&mut self, now: WallMs) {
        while let Some((due, at)) = self.by_due.first().copied()
            && due <= now
        {
            self.by_due.remove(&(due, at));
            self.by_offset.remove(&at);
        }
    }

    /// Forgets those below `start`.
    pub(super) fn drop_below(&mut self, start: Offset) {
        while let Some((at, due)) = self
            .by_offset
            .first_key_value()
            .map(|(at, due)| (*at, *due))
            && at < start
        {
            self.by_offset.remove(&at);
            self.by_due.remove(&(due, at));
        }
    }

    /// What must hold and does not, if anything; `start` and `end` are those of the log.
    pub(super) fn verify(&self, start: Offset, end: Offset) -> Result<(), &'static str> {
        let mut offsets = self.by_offset.keys();
        let within = offsets.all(|at| (start..end).contains(at));
        holds(within, "a delayed record lies outside its log")?;
        holds(
            self.count() <= DELAYS_MAX,
            "more records are delayed than may be",
        )?;
        let same = self.by_due.len() == self.by_offset.len()
            && (self.by_due.iter()).all(|(due, at)| self.by_offset.get(at) == Some(due));
        holds(same, "a delayed record is due at two times")
    }
}
