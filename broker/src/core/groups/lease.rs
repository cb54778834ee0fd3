//! Leases of one partition: who holds which records until when.

use std::collections::BTreeMap;

use varvelog_store::Offset;

use super::member::MemberKey;
use crate::clock::MonoMs;
use crate::core::request::{LeaseId, StreamKey};

/// Exclusive hold of a run of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) holder: MemberKey,
    /// First record that is not settled yet.
    pub(super) first: Offset,
    /// Last record, included.
    pub(super) last: Offset,
    /// From 1.
    pub(super) attempt: u32,
    /// The hand-out before this one, if the records were given out before.
    pub(super) previous: Option<LeaseId>,
    pub(super) stage: Stage,
}

/// How far a hand-out has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The edge was told to read; what it will hand on, and whether, is open. Has no deadline:
    /// it ends with its stream or with the partition's assignment.
    Granted {
        /// Whose edge.
        stream: StreamKey,
    },
    /// Handed on.
    Out {
        /// Then it is given to another.
        deadline: MonoMs,
        /// Beyond that no extension moves the deadline.
        hold_end: MonoMs,
        /// As at delivery.
        ack_timeout_ms: u64,
    },
}

impl Lease {
    pub(super) fn records(&self) -> u64 {
        self.last.plus(1).since(self.first)
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.stage, Stage::Granted { .. })
    }

    pub(super) fn deadline(&self) -> Option<MonoMs> {
        match self.stage {
            Stage::Granted { .. } => None,
            Stage::Out { deadline, .. } => Some(deadline),
        }
    }
}

/// Leases that do not overlap, by place and by id.
#[derive(Debug, Default)]
pub(super) struct LeaseTable {
    by_first: BTreeMap<Offset, Lease>,
    firsts: BTreeMap<LeaseId, Offset>,
    /// Sum of the records of all.
    records: u64,
    granted: Option<LeaseId>,
}

impl LeaseTable {
    pub(super) fn insert(&mut self, lease: Lease) {
        debug_assert!(self.overlapping(lease.first, lease.last).next().is_none());
        self.records += lease.records();
        if lease.is_granted() {
            self.granted = Some(lease.id);
        }
        self.firsts.insert(lease.id, lease.first);
        self.by_first.insert(lease.first, lease);
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.by_first.remove(&self.firsts.remove(&id)?)?;
        self.records -= lease.records();
        self.granted = self.granted.filter(|granted| *granted != id);
        Some(lease)
    }

    pub(super) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.by_first.get(self.firsts.get(&id)?)
    }

    /// Moves a deadline; returns the one before.
    pub(super) fn set_deadline(&mut self, id: LeaseId, to: MonoMs) -> Option<MonoMs> {
        let lease = self.by_first.get_mut(self.firsts.get(&id)?)?;
        match &mut lease.stage {
            Stage::Granted { .. } => None,
            Stage::Out { deadline, .. } => Some(std::mem::replace(deadline, to)),
        }
    }

    /// The one whose reading is not over yet.
    pub(super) fn granted(&self) -> Option<LeaseId> {
        self.granted
    }

    /// Records that are leased.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn len(&self) -> usize {
        self.by_first.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lease> {
        self.by_first.values()
    }

    /// Leases that hold some of `first` to `last`, by place.
    pub(super) fn overlapping(&self, first: Offset, last: Offset) -> impl Iterator<Item = &Lease> {
        let before = self
            .by_first
            .range(..first)
            .next_back()
            .map(|(_, lease)| lease);
        let before = before.filter(move |lease| lease.last >= first);
        let within = (first <= last).then(|| self.by_first.range(first..=last));
        before
            .into_iter()
            .chain(within.into_iter().flatten().map(|(_, lease)| lease))
    }

    /// The first lease that ends at or after `from`.
    pub(super) fn next(&self, from: Offset) -> Option<&Lease> {
        self.overlapping(from, Offset::MAX).next()
    }

    pub(super) fn check_invariants(&self) {
        let mut end = Offset::ZERO;
        let mut records = 0;
        for (first, lease) in &self.by_first {
            assert_eq!(*first, lease.first);
            assert!(
                *first >= end && lease.first <= lease.last,
                "leases are apart: {self:?}"
            );
            assert_eq!(self.firsts.get(&lease.id), Some(first));
            assert_eq!(lease.is_granted(), self.granted == Some(lease.id));
            end = lease.last.plus(1);
            records += lease.records();
        }
        assert_eq!(self.firsts.len(), self.by_first.len());
        assert_eq!(self.records, records);
    }
}
