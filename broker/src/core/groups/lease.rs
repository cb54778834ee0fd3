//! Leases of one partition: who holds which records until when.

use std::collections::{BTreeMap, BTreeSet};

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
    /// How often the records were given back since they failed last.
    pub(super) releases: u32,
    /// Something is noted of the records.
    pub(super) noted: bool,
    /// To be settled before its holder is given anything else.
    pub(super) isolated: bool,
    /// Of records of a retry partition: their first appends, one for each record. Else empty.
    pub(super) origins: Vec<Offset>,
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
        /// When it was.
        since: MonoMs,
    },
}

impl Lease {
    pub(super) fn records(&self) -> u64 {
        self.last.plus(1).since(self.first)
    }

    /// The offset of a record's first append.
    pub(super) fn origin(&self, offset: Offset) -> Offset {
        let at = usize::try_from(offset.since(self.first)).ok();
        let origin = at.and_then(|at| self.origins.get(at));
        origin.copied().unwrap_or(offset)
    }

    /// Holds no more than `first` to `last`, which is not nothing.
    pub(super) fn trim(&mut self, first: Offset, last: Offset) {
        let before = usize::try_from(first.since(self.first)).unwrap_or(usize::MAX);
        self.origins.drain(..before.min(self.origins.len()));
        self.first = self.first.max(first);
        self.last = self.last.min(last);
        let left = usize::try_from(self.records()).unwrap_or(usize::MAX);
        self.origins.truncate(left);
    }

    /// The last hand-out of its records: itself, if it was handed on.
    pub(super) fn last_hand_out(&self) -> Option<LeaseId> {
        match self.stage {
            Stage::Granted { .. } => self.previous,
            Stage::Out { .. } => Some(self.id),
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.stage, Stage::Granted { .. })
    }

    /// When it was handed on, if it was.
    pub(super) fn given(&self) -> Option<MonoMs> {
        match self.stage {
            Stage::Granted { .. } => None,
            Stage::Out { since, .. } => Some(since),
        }
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
    granted: BTreeSet<LeaseId>,
}

impl LeaseTable {
    pub(super) fn insert(&mut self, lease: Lease) {
        debug_assert!(self.overlapping(lease.first, lease.last).next().is_none());
        self.records += lease.records();
        if lease.is_granted() {
            self.granted.insert(lease.id);
        }
        self.firsts.insert(lease.id, lease.first);
        self.by_first.insert(lease.first, lease);
    }

    pub(super) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.by_first.remove(&self.firsts.remove(&id)?)?;
        self.records -= lease.records();
        self.granted.remove(&id);
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

    /// The first one whose reading is not over yet.
    pub(super) fn granted(&self) -> Option<LeaseId> {
        self.granted.first().copied()
    }

    /// Whether the reading of this one is not over yet.
    pub(super) fn is_granted(&self, id: LeaseId) -> bool {
        self.granted.contains(&id)
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
            assert_eq!(lease.is_granted(), self.granted.contains(&lease.id));
            end = lease.last.plus(1);
            records += lease.records();
        }
        assert_eq!(self.firsts.len(), self.by_first.len());
        assert_eq!(self.records, records);
    }
}
