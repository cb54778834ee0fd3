//! Which entries of a queue a job or a discard is about.

use std::collections::BTreeMap;

use varvelog_store::Offset;

/// Runs of entries by partition: first and last offset, rising and apart. Within a run every entry
/// that was there when it was chosen is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    by_partition: BTreeMap<u32, Vec<(Offset, Offset)>>,
}

impl Claims {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs by partition.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[(Offset, Offset)])> {
        let each = self.by_partition.iter();
        each.map(|(number, runs)| (*number, runs.as_slice()))
    }

    /// Runs of one partition.
    pub fn of(&self, partition: u32) -> &[(Offset, Offset)] {
        self.by_partition
            .get(&partition)
            .map_or(&[], |runs| runs.as_slice())
    }

    /// How many runs.
    pub fn run_count(&self) -> usize {
        self.by_partition.values().map(Vec::len).sum()
    }

    /// Adds an entry behind those of its partition. It lengthens the last run if `joins`: nothing
    /// that is not meant lies between.
    pub fn add(&mut self, partition: u32, offset: Offset, joins: bool) {
        let runs = self.by_partition.entry(partition).or_default();
        match runs.last_mut() {
            Some(last) if joins => last.1 = offset,
            Some(_) | None => runs.push((offset, offset)),
        }
    }

    /// Adds a run; false unless it is one and lies behind those of its partition.
    pub(in crate::core) fn restore(
        &mut self,
        partition: u32,
        (first, last): (Offset, Offset),
    ) -> bool {
        let runs = self.by_partition.entry(partition).or_default();
        let is_behind = runs.last().is_none_or(|before| before.1 < first);
        runs.push((first, last));
        is_behind && first <= last
    }

    /// Nothing below `start` is meant any more.
    pub(super) fn cut(&mut self, partition: u32, start: Offset) {
        let Some(runs) = self.by_partition.get_mut(&partition) else {
            return;
        };
        let gone = runs.partition_point(|run| run.1 < start);
        runs.drain(..gone);
        if let Some(first) = runs.first_mut() {
            first.0 = first.0.max(start);
        } else {
            self.by_partition.remove(&partition);
        }
    }

    /// Whether an offset lies within a run.
    pub fn contains(&self, partition: u32, offset: Offset) -> bool {
        let runs = self.of(partition);
        let at = runs.partition_point(|run| run.1 < offset);
        runs.get(at).is_some_and(|run| run.0 <= offset)
    }
}
