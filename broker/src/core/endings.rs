//! How records ended that were not simply processed.

use std::collections::BTreeMap;

use varvelog_store::Offset;

use super::failure::Ending;

/// Most endings remembered of a partition; the lowest offsets go first.
pub const ENDINGS_MAX: usize = 1_024;

/// How records ended that were not simply processed: what tells a repeated call from another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Endings {
    pub(super) by_offset: BTreeMap<Offset, Ending>,
}

impl Endings {
    /// How the record ended, if it is remembered.
    pub fn get(&self, offset: Offset) -> Option<Ending> {
        self.by_offset.get(&offset).copied()
    }

    /// All, rising.
    pub fn iter(&self) -> impl Iterator<Item = (Offset, Ending)> {
        self.by_offset.iter().map(|(at, ending)| (*at, *ending))
    }

    pub(super) fn insert(&mut self, offset: Offset, ending: Ending) {
        self.by_offset.insert(offset, ending);
        if self.by_offset.len() > ENDINGS_MAX {
            self.by_offset.pop_first();
        }
    }

    pub(super) fn clear(&mut self) {
        self.by_offset.clear();
    }
}
