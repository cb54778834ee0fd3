//! Keys whose later records follow into a dead-letter topic, by its entries.

use std::collections::BTreeMap;

use varvelog_store::Offset;

use crate::core::fields::holds;

/// Entries that records of their key follow, and how many there are of each key.
///
/// Invariant: the counts are those of the entries; none is 0.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::core) struct ParkedKeys {
    /// Hashes of keys.
    by_entry: BTreeMap<(u32, Offset), u64>,
    counts: BTreeMap<(u32, u64), u64>,
}

impl ParkedKeys {
    /// A hash of the key of an entry that records follow.
    pub(in crate::core) fn key_of(&self, partition: u32, offset: Offset) -> Option<u64> {
        self.by_entry.get(&(partition, offset)).copied()
    }

    /// By partition and offset.
    pub(in crate::core) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, Offset, u64)> {
        let each = self.by_entry.iter();
        each.map(|((partition, offset), key)| (*partition, *offset, *key))
    }

    pub(in crate::core) fn add(&mut self, partition: u32, offset: Offset, key: u64) {
        if self.by_entry.insert((partition, offset), key).is_none() {
            *self.counts.entry((partition, key)).or_default() += 1;
        }
    }

    /// An entry is gone: its key, if no other of it is left in the partition.
    pub(super) fn remove(&mut self, partition: u32, offset: Offset) -> Option<u64> {
        let key = self.by_entry.remove(&(partition, offset))?;
        let count = self.counts.get_mut(&(partition, key))?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        self.counts.remove(&(partition, key));
        Some(key)
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(
        &self,
        is_there: impl Fn(u32, Offset) -> bool,
    ) -> Result<(), &'static str> {
        let mut entries = self.iter();
        holds(
            entries.all(|(partition, offset, _)| is_there(partition, offset)),
            "a parked key has no dead letter",
        )?;
        let mut counts = BTreeMap::<(u32, u64), u64>::new();
        for (partition, _, key) in self.iter() {
            *counts.entry((partition, key)).or_default() += 1;
        }
        holds(counts == self.counts, "parked keys are miscounted")
    }
}
