//! What must hold of the model at any time, and in the end.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{IN_FLIGHT_MAX, Model, PARTITIONS, WINDOW};
use super::rig::{group, join};
use crate::core::request::{LeaseId, StreamEnd};

impl Model {
    /// Takes up what the machine said, and checks all that must hold at any time.
    pub(super) fn observe(&mut self) {
        for stream in self.streams.clone() {
            while let Some(message) = self.rig.next_message(stream) {
                self.take_up(stream, message);
            }
        }
        let rig = &self.rig;
        self.streams.retain(|stream| !rig.closed.contains(stream));
        self.grants.retain(|stream, _| !rig.closed.contains(stream));
        self.check_progress();
        self.check_bounds();
    }

    /// The low watermark does not fall, and what is done is forgotten here as well.
    pub(super) fn check_progress(&mut self) {
        for number in 0..PARTITIONS {
            let low = self.rig.position("g", self.partition(number)).low.get();
            let before = self.lows.insert(number, low).unwrap_or(0);
            assert!(
                low >= before,
                "the low watermark fell from {before} to {low}"
            );
        }
        let open: Vec<_> = self.records.keys().copied().collect();
        for (number, offset) in open {
            if self.is_done(number, offset) {
                self.records.remove(&(number, offset));
            }
        }
    }

    pub(super) fn check_bounds(&self) {
        let seen = self.rig.describe("g");
        for partition in seen.partitions.values() {
            assert!(partition.in_flight <= u64::from(IN_FLIGHT_MAX));
        }
        let mut held: BTreeMap<&String, BTreeSet<LeaseId>> = BTreeMap::new();
        for record in self
            .records
            .values()
            .filter(|record| record.held_until.is_some())
        {
            let lease = record.last.expect("held by a hand-out");
            held.entry(&self.holders[&lease]).or_default().insert(lease);
        }
        for leases in held.values() {
            assert!(leases.len() <= usize::try_from(WINDOW).unwrap());
        }
        let mut owned = BTreeSet::new();
        for member in &seen.members {
            for partition in &member.partitions {
                assert!(owned.insert(*partition), "one owner at a time");
            }
        }
    }

    /// Lets one fresh member settle everything, and everyone leave.
    pub(super) fn drain(&mut self) {
        self.rig.prompt = true;
        self.flush();
        for stream in self.streams.clone() {
            self.end_stream(stream, StreamEnd::Clean);
        }
        self.advance(4_000_000);
        assert_eq!(
            self.rig.sessions.open_leases(&group("g")),
            0,
            "nothing stays leased"
        );
        let (stream, _) = self.rig.member(join("g", &[]));
        while !self.rig.is_silent(stream) {
            let delivery = self.rig.receive(stream, 5);
            assert!(self.rig.ack(&delivery.token).conflicts.is_empty());
        }
        for number in 0..PARTITIONS {
            let position = self.rig.position("g", self.partition(number));
            assert_eq!(
                (position.undone, position.low),
                (0, position.end),
                "all was offered"
            );
        }
        self.rig.end_stream(stream, StreamEnd::Clean);
        assert!(self.rig.sessions.is_empty(), "nothing leaks");
    }
}
