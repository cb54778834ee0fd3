//! The last records of all partitions together, in the order of their append times.
//!
//! The broker answers the last N of *each* partition, in any order between partitions. Here they
//! are gathered until every partition has reached the end that it had at the beginning, cut to
//! the last N, and put in order. What arrives beyond those ends waits until then.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_proto::v1::Record;

/// Records behind the ends that wait at most, before the backlog is given out as it is.
const LATER_MAX: usize = 10_000;

/// A partition, by name of its topic.
pub(super) type PartitionName = (String, i32);

/// A record and where it is from.
pub(super) type Placed = (PartitionName, Record);

/// Gathers.
#[derive(Debug)]
pub(super) struct Backlog {
    wanted: usize,
    /// One past the last record that belongs to the backlog.
    ends: BTreeMap<PartitionName, i64>,
    /// Partitions that have not reached their end.
    missing: BTreeSet<PartitionName>,
    /// The last `wanted`, by append time, partition and offset.
    held: BTreeMap<(i64, PartitionName, i64), Record>,
    later: Vec<Placed>,
}

impl Backlog {
    /// `partitions`: start and end of what each will send for the last `wanted`.
    pub(super) fn new(
        wanted: usize,
        partitions: impl IntoIterator<Item = (PartitionName, i64, i64)>,
    ) -> Self {
        let mut ends = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for (partition, start, end) in partitions {
            if start < end {
                missing.insert(partition.clone());
            }
            ends.insert(partition, end);
        }
        Self {
            wanted,
            ends,
            missing,
            held: BTreeMap::new(),
            later: Vec::new(),
        }
    }

    /// Takes a record in. Records of one partition come with rising offsets.
    pub(super) fn push(&mut self, partition: PartitionName, record: Record) {
        let end = self.ends.get(&partition).copied().unwrap_or(0);
        if record.offset + 1 >= end {
            self.missing.remove(&partition);
        }
        if record.offset >= end {
            self.later.push((partition, record));
            return;
        }
        self.held
            .insert((record.append_time_ms, partition, record.offset), record);
        if self.held.len() > self.wanted {
            self.held.pop_first();
        }
    }

    /// Everything is here, or too much waits.
    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty() || self.later.len() >= LATER_MAX
    }

    /// In order: the last records, then what came later.
    pub(super) fn into_records(self) -> impl Iterator<Item = Placed> {
        let held = self
            .held
            .into_iter()
            .map(|((_, partition, _), record)| (partition, record));
        held.chain(self.later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(partition: i32) -> PartitionName {
        ("t".into(), partition)
    }

    fn record(offset: i64, append_time_ms: i64) -> Record {
        Record {
            offset,
            append_time_ms,
            ..Record::default()
        }
    }

    fn order(backlog: Backlog) -> Vec<(i32, i64)> {
        backlog
            .into_records()
            .map(|((_, partition), record)| (partition, record.offset))
            .collect()
    }

    #[test]
    fn the_last_records_of_all_partitions_come_in_the_order_of_time() {
        let mut backlog = Backlog::new(3, [(name(0), 5, 8), (name(1), 0, 2), (name(2), 4, 4)]);
        for (partition, offset, time) in [(0, 5, 10), (0, 6, 30), (0, 7, 50), (1, 0, 20)] {
            backlog.push(name(partition), record(offset, time));
            assert!(!backlog.is_complete());
        }
        backlog.push(name(1), record(1, 40));
        assert!(backlog.is_complete());
        assert_eq!(order(backlog), [(0, 6), (1, 1), (0, 7)]);
    }

    #[test]
    fn what_is_appended_meanwhile_comes_after() {
        let mut backlog = Backlog::new(1, [(name(0), 0, 1), (name(1), 0, 1)]);
        backlog.push(name(0), record(0, 10));
        backlog.push(name(0), record(1, 99));
        backlog.push(name(1), record(0, 20));
        assert!(backlog.is_complete());
        assert_eq!(order(backlog), [(1, 0), (0, 1)]);
    }

    #[test]
    fn a_partition_that_moved_on_before_the_call_is_complete() {
        let mut backlog = Backlog::new(2, [(name(0), 0, 2)]);
        backlog.push(name(0), record(7, 10));
        assert!(backlog.is_complete());
        assert_eq!(order(backlog), [(0, 7)]);
    }

    #[test]
    fn nothing_to_wait_for_is_complete_at_once() {
        assert!(Backlog::new(10, [(name(0), 3, 3)]).is_complete());
        assert!(Backlog::new(0, []).is_complete());
    }

    #[test]
    fn a_flood_behind_the_end_does_not_wait_for_ever() {
        let mut backlog = Backlog::new(1, [(name(0), 0, 1), (name(1), 0, 1)]);
        for offset in 0..i64::try_from(LATER_MAX).unwrap() {
            assert!(!backlog.is_complete());
            backlog.push(name(0), record(1 + offset, 10));
        }
        assert!(backlog.is_complete());
    }
}
