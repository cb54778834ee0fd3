//! Gathers records into batches, one open batch a partition. Pure: the time is an argument.
//!
//! A batch is sealed when the next record would pass its size, when it holds the most records,
//! or when it has lingered long enough. Records of a partition leave in the order they came.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// When a batch is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchLimits {
    /// A record beyond this still makes a batch, alone.
    pub(crate) bytes: usize,
    /// At least 1.
    pub(crate) records: usize,
    /// Longest wait for more records, from the first one on.
    pub(crate) linger: Duration,
}

/// A batch that takes no more records; never empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sealed<T> {
    pub(crate) partition: u32,
    pub(crate) items: Vec<T>,
    pub(crate) bytes: usize,
}

#[derive(Debug)]
struct Open<T> {
    items: Vec<T>,
    bytes: usize,
    due: Instant,
}

/// The open batches of one topic.
#[derive(Debug)]
pub(crate) struct Batcher<T> {
    limits: BatchLimits,
    open: BTreeMap<u32, Open<T>>,
    /// One entry for each open batch.
    due: BTreeSet<(Instant, u32)>,
}

impl<T> Batcher<T> {
    pub(crate) fn new(limits: BatchLimits) -> Self {
        Self {
            limits,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
        }
    }

    /// Add an item of `bytes`; what is full by it goes to `sealed`, in order.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        partition: u32,
        item: T,
        bytes: usize,
        sealed: &mut Vec<Sealed<T>>,
    ) {
        if self
            .open
            .get(&partition)
            .is_some_and(|open| !self.fits(open, bytes))
        {
            sealed.extend(self.seal(partition));
        }
        let due = now + self.limits.linger;
        let open = self.open.entry(partition).or_insert_with(|| {
            self.due.insert((due, partition));
            Open {
                items: Vec::new(),
                bytes: 0,
                due,
            }
        });
        open.items.push(item);
        open.bytes += bytes;
        if open.bytes >= self.limits.bytes || open.items.len() >= self.limits.records {
            sealed.extend(self.seal(partition));
        }
    }

    /// Seal what has lingered long enough.
    pub(crate) fn take_due(&mut self, now: Instant, sealed: &mut Vec<Sealed<T>>) {
        while let Some(&(due, partition)) = self.due.first()
            && due <= now
        {
            sealed.extend(self.seal(partition));
        }
    }

    /// When the next open batch has lingered long enough.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|&(due, _)| due)
    }

    /// Seal everything.
    pub(crate) fn take_all(&mut self, sealed: &mut Vec<Sealed<T>>) {
        while let Some(&(_, partition)) = self.due.first() {
            sealed.extend(self.seal(partition));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn fits(&self, open: &Open<T>, bytes: usize) -> bool {
        open.bytes.saturating_add(bytes) <= self.limits.bytes
    }

    fn seal(&mut self, partition: u32) -> Option<Sealed<T>> {
        let open = self.open.remove(&partition)?;
        self.due.remove(&(open.due, partition));
        debug_assert_eq!(self.open.len(), self.due.len());
        Some(Sealed {
            partition,
            items: open.items,
            bytes: open.bytes,
        })
    }
}

#[cfg(test)]
#[path = "batcher_tests.rs"]
mod tests;
