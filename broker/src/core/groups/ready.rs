//! Records of a retry partition that could be given out now.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, WallMs};

use super::feed::Run;

/// What is ready, by offset and by the time since when it is due. Records that may have to be given
/// out alone are kept apart, so that nobody has to search behind them for others.
#[derive(Debug, Default)]
pub(super) struct Ready {
    by_offset: BTreeMap<Offset, (WallMs, bool)>,
    plain: BTreeSet<(WallMs, Offset)>,
    suspect: BTreeSet<(WallMs, Offset)>,
}

impl Ready {
    /// The record can be given out, since `due`; perhaps alone.
    pub(super) fn insert(&mut self, offset: Offset, due: WallMs, suspect: bool) {
        self.remove(offset);
        self.by_offset.insert(offset, (due, suspect));
        self.of_kind(suspect).insert((due, offset));
    }

    /// The record cannot be given out any more.
    pub(super) fn remove(&mut self, offset: Offset) {
        if let Some((due, suspect)) = self.by_offset.remove(&offset) {
            self.of_kind(suspect).remove(&(due, offset));
        }
    }

    /// None of these can be given out any more.
    pub(super) fn remove_run(&mut self, (first, last): Run) {
        let within: Vec<Offset> = self.by_offset.range(first..=last).map(|it| *it.0).collect();
        for offset in within {
            self.remove(offset);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_offset.is_empty()
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.by_offset.contains_key(&offset)
    }

    /// Those that may go with others, the longest due first.
    pub(super) fn plain(&self) -> impl Iterator<Item = (WallMs, Offset)> {
        self.plain.iter().copied()
    }

    /// Those that may have to go alone, the longest due first.
    pub(super) fn suspect(&self) -> impl Iterator<Item = (WallMs, Offset)> {
        self.suspect.iter().copied()
    }

    fn of_kind(&mut self, suspect: bool) -> &mut BTreeSet<(WallMs, Offset)> {
        if suspect {
            &mut self.suspect
        } else {
            &mut self.plain
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn offsets(&self) -> impl Iterator<Item = Offset> {
        self.by_offset.keys().copied()
    }
}
