//! Counts of records and bytes since the start, of a topic or of all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Traffic {
    records_in: AtomicU64,
    records_out: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// Produce requests by why they were refused; as many reasons as the API has. Held for one
    /// look.
    refused: Mutex<BTreeMap<&'static str, u64>>,
    /// Produce requests that a group would have had refused, by why. Held for one look.
    observed: Mutex<BTreeMap<&'static str, u64>>,
}

/// The counts of a [`Traffic`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Records that were committed.
    pub records_in: u64,
    /// Records that were handed to the transport.
    pub records_out: u64,
    /// Bytes of the requests that brought records.
    pub bytes_in: u64,
    /// Bytes of the replies that carried records.
    pub bytes_out: u64,
}

impl Traffic {
    /// Records were committed.
    pub fn came_in(&self, records: u64, bytes: usize) {
        self.records_in.fetch_add(records, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Records were handed to the transport.
    pub fn went_out(&self, records: u64, bytes: usize) {
        self.records_out.fetch_add(records, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// A produce request was refused, for one of the reasons of the API.
    pub fn refuse(&self, reason: &'static str) {
        add(&self.refused, reason);
    }

    /// A produce request would have been refused, if its group only observed.
    pub fn observe(&self, reason: &'static str) {
        add(&self.observed, reason);
    }

    /// Refused produce requests, by reason.
    pub fn refused(&self) -> BTreeMap<&'static str, u64> {
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Produce requests that would have been refused, by reason.
    pub fn observed(&self) -> BTreeMap<&'static str, u64> {
        self.observed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The counts now.
    pub fn counts(&self) -> TrafficCounts {
        TrafficCounts {
            records_in: self.records_in.load(Ordering::Relaxed),
            records_out: self.records_out.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}

fn add(counts: &Mutex<BTreeMap<&'static str, u64>>, reason: &'static str) {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    *counts.entry(reason).or_default() += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_goes_and_is_refused_adds_up() {
        let traffic = Traffic::default();
        traffic.came_in(3, 100);
        traffic.came_in(1, 20);
        traffic.went_out(2, 60);
        traffic.refuse("BACKPRESSURE_DISK");
        traffic.refuse("BACKPRESSURE_DISK");
        traffic.observe("BACKPRESSURE_DEPTH");
        let counts = TrafficCounts {
            records_in: 4,
            records_out: 2,
            bytes_in: 120,
            bytes_out: 60,
        };
        assert_eq!(traffic.counts(), counts);
        assert_eq!(traffic.refused(), [("BACKPRESSURE_DISK", 2)].into());
        assert_eq!(traffic.observed(), [("BACKPRESSURE_DEPTH", 1)].into());
    }
}
