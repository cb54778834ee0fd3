//! What is due when.

use std::collections::BTreeSet;

use varvelog_store::PartitionId;

use super::member::MemberKey;
use crate::clock::MonoMs;
use crate::core::copies::ReadId;
use crate::core::request::LeaseId;
use crate::names::GroupName;

/// What a deadline is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Of a lease.
    Lease(GroupName, PartitionId, LeaseId),
    /// Of a member without a stream.
    Session(GroupName, MemberKey),
    /// Of a feed that gives out nothing for a while.
    Feed(GroupName, PartitionId),
    /// Of the waiting records of a feed.
    Due(GroupName, PartitionId),
    /// Of a group that gives out few records until one is done.
    Probe(GroupName),
    /// Of an order to read that could not be carried out.
    Reread(ReadId),
}

/// Deadlines that are set. Whoever sets one remembers its time, and clears it by that.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(MonoMs, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: MonoMs, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn clear(&mut self, at: MonoMs, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<MonoMs> {
        self.0.first().map(|(at, _)| *at)
    }

    #[cfg(test)]
    pub(super) fn retain(&mut self, keeps: impl Fn(&Timer) -> bool) {
        self.0.retain(|(_, timer)| keeps(timer));
    }

    /// Takes out the earliest one that is due.
    pub(super) fn pop_due(&mut self, now: MonoMs) -> Option<Timer> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
