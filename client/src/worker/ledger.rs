//! What a worker holds: which records wait, which run, and what becomes of each delivery.
//!
//! A record waits, then runs, then has an outcome; or it is released while it waits. A delivery is
//! settled once, when none of its records waits or runs. Time is given, never looked up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::consumer::{Failure, Settlement};

/// Number of a delivery, in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeliveryId(u64);

/// Which records may run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// Any.
    Free,
    /// One of a partition at a time.
    PartitionOrder,
    /// One of a partition at a time, and after a failure none that was behind it.
    PartitionHold,
}

/// What a ledger keeps to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) pace: Pace,
    /// Handlers at a time.
    pub(super) concurrency: usize,
    /// How long a record is held from its delivery, or from an extension.
    pub(super) hold: Duration,
    /// A record that is held for less than this is not begun.
    pub(super) margin: Duration,
    /// Records that may still be begun.
    pub(super) starts_left: u64,
}

type Partition = (Arc<str>, u32);

/// A delivery that is not settled.
#[derive(Debug)]
struct Entry<R> {
    partition: Partition,
    waiting: VecDeque<(i64, R)>,
    running: usize,
    settlement: Settlement,
    records: usize,
    /// When the hold ends.
    until: Instant,
    /// None: an extension was asked for, or none is to be.
    extend_at: Option<Instant>,
}

impl<R> Entry<R> {
    fn release_waiting(&mut self) {
        let mut settlement = std::mem::take(&mut self.settlement);
        for (offset, _) in self.waiting.drain(..) {
            settlement = settlement.release(offset);
        }
        self.settlement = settlement;
    }
}

/// A delivery that is to be settled.
#[derive(Debug)]
pub(super) struct Complete {
    pub(super) id: DeliveryId,
    pub(super) settlement: Settlement,
    pub(super) records: usize,
}

/// The ledger. `R` is what a handler is given.
#[derive(Debug)]
pub(super) struct Ledger<R> {
    terms: Terms,
    next_id: u64,
    entries: BTreeMap<DeliveryId, Entry<R>>,
    /// Of entries in which records wait.
    ready: BTreeSet<DeliveryId>,
    complete: VecDeque<Complete>,
    running: usize,
    /// Partitions in which a record runs, unless the pace is free.
    busy: BTreeSet<Partition>,
    draining: bool,
}

impl<R> Ledger<R> {
    pub(super) fn new(terms: Terms) -> Self {
        Self {
            terms,
            next_id: 0,
            entries: BTreeMap::new(),
            ready: BTreeSet::new(),
            complete: VecDeque::new(),
            running: 0,
            busy: BTreeSet::new(),
            draining: false,
        }
    }

    /// A delivery came. Once the ledger drains, it is released.
    pub(super) fn admit(
        &mut self,
        partition: Partition,
        records: impl IntoIterator<Item = (i64, R)>,
        arrived: Instant,
    ) -> DeliveryId {
        let id = DeliveryId(self.next_id);
        self.next_id += 1;
        let waiting: VecDeque<_> = records.into_iter().collect();
        let entry = Entry {
            partition,
            running: 0,
            settlement: Settlement::done(),
            records: waiting.len(),
            waiting,
            until: arrived + self.terms.hold,
            extend_at: Some(arrived + self.terms.hold / 2),
        };
        self.entries.insert(id, entry);
        self.ready.insert(id);
        if self.draining {
            self.release(id);
        } else {
            self.look_at(id);
        }
        id
    }

    /// The next record to begin with. Those whose time is nearly up are released on the way, as are
    /// those of deliveries that are not `ours` any more.
    pub(super) fn start(
        &mut self,
        now: Instant,
        ours: impl Fn(DeliveryId) -> bool,
    ) -> Option<(DeliveryId, R)> {
        if self.running >= self.terms.concurrency || self.terms.starts_left == 0 {
            return None;
        }
        while let Some(id) = self.next_ready() {
            let entry = self.entries.get_mut(&id)?;
            if entry.until <= now + self.terms.margin || !ours(id) {
                self.lose(id);
                continue;
            }
            let (_, record) = entry.waiting.pop_front()?;
            entry.running += 1;
            if self.terms.pace != Pace::Free {
                self.busy.insert(entry.partition.clone());
            }
            self.running += 1;
            self.terms.starts_left -= 1;
            self.look_at(id);
            return Some((id, record));
        }
        None
    }

    fn next_ready(&self) -> Option<DeliveryId> {
        let free = |id: &&DeliveryId| match self.entries.get(id) {
            Some(entry) => !self.busy.contains(&entry.partition),
            None => false,
        };
        self.ready.iter().find(free).copied()
    }

    /// A handler ended. None: its record is done.
    pub(super) fn finish(&mut self, id: DeliveryId, offset: i64, failure: Option<Failure>) {
        self.running = self.running.saturating_sub(1);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.running = entry.running.saturating_sub(1);
        self.busy.remove(&entry.partition);
        if let Some(failure) = failure {
            entry.settlement = std::mem::take(&mut entry.settlement).fail(offset, failure);
            if self.terms.pace == Pace::PartitionHold {
                let partition = entry.partition.clone();
                self.release_where(|entry| entry.partition == partition);
            }
        }
        self.look_at(id);
    }

    /// The next delivery that is to be settled; it is forgotten here.
    pub(super) fn take_complete(&mut self) -> Option<Complete> {
        self.complete.pop_front()
    }

    /// Records of a delivery that wait or run.
    pub(super) fn unfinished(&self, id: DeliveryId) -> usize {
        let entry = self.entries.get(&id);
        entry.map_or(0, |entry| entry.waiting.len() + entry.running)
    }

    /// Deliveries whose hold is to be extended now, and when it ends.
    pub(super) fn take_extensions(&mut self, now: Instant) -> Vec<(DeliveryId, Instant)> {
        let mut due = Vec::new();
        for (id, entry) in &mut self.entries {
            if entry.extend_at.is_some_and(|at| at <= now) {
                entry.extend_at = None;
                due.push((*id, entry.until));
            }
        }
        due
    }

    /// The hold was extended at a call made at `asked`. `last`: it cannot be extended again, and
    /// when it ends is not known here, only that it is no earlier than before.
    pub(super) fn extended(&mut self, id: DeliveryId, asked: Instant, last: bool) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if !last {
            entry.until = asked + self.terms.hold;
            entry.extend_at = Some(asked + self.terms.hold / 2);
        }
    }

    /// Records of the delivery were given to others: begin no more of it.
    pub(super) fn lose(&mut self, id: DeliveryId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.extend_at = None;
            self.release(id);
        }
    }

    /// Begin nothing more.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.release_where(|_| true);
    }

    /// Whether it is to begin nothing more, by being told or by its limit.
    pub(super) fn is_over(&self) -> bool {
        self.draining || self.terms.starts_left == 0
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.complete.is_empty()
    }

    /// When it is to be looked at again, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let entry_wake = |entry: &Entry<R>| {
            let waits = !entry.waiting.is_empty();
            let drop_at = waits.then(|| entry.until.checked_sub(self.terms.margin));
            entry.extend_at.into_iter().chain(drop_at.flatten()).min()
        };
        self.entries.values().filter_map(entry_wake).min()
    }

    /// Releases what waits and will not be held for long enough to be begun.
    pub(super) fn release_overdue(&mut self, now: Instant) {
        let margin = self.terms.margin;
        self.release_where(|entry| entry.until <= now + margin);
    }

    fn release_where(&mut self, which: impl Fn(&Entry<R>) -> bool) {
        let matching = |id: &&DeliveryId| self.entries.get(id).is_some_and(&which);
        let ids: Vec<_> = self.ready.iter().filter(matching).copied().collect();
        for id in ids {
            self.release(id);
        }
    }

    fn release(&mut self, id: DeliveryId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.release_waiting();
        }
        self.look_at(id);
    }

    /// Whether a delivery still has something to begin, and whether it is complete.
    fn look_at(&mut self, id: DeliveryId) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        if !entry.waiting.is_empty() {
            return;
        }
        self.ready.remove(&id);
        if entry.running > 0 {
            return;
        }
        if let Some(entry) = self.entries.remove(&id) {
            self.complete.push_back(Complete {
                id,
                settlement: entry.settlement,
                records: entry.records,
            });
        }
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
