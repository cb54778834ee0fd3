//! A naive model beside the machine: one entry for each record, wherever it lies.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, PartitionId};

use super::rig::{Delivery, Rig, at, group};
use crate::core::groups::Durable;
use crate::core::request::{Grant, LeaseId, StreamKey};
use crate::core::settings::{GroupMode, GroupSettings, OnFailure, OnHeadDead};

pub(super) const PARTITIONS: u32 = 3;
pub(super) const IN_FLIGHT_MAX: u32 = 8;
pub(super) const WINDOW: u32 = 3;
pub(super) const TIMEOUT_MS: u64 = 30_000;
pub(super) const SESSION_MS: u64 = 45_000;
pub(super) const DELIVERIES_MAX: u32 = 5;
const DELAYS_MS: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// A record of a source partition, or of its retry partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) retry: bool,
    pub(super) number: u32,
    pub(super) offset: u64,
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    /// Not given out, or given back.
    Free,
    Held {
        lease: LeaseId,
        until: u64,
    },
    /// Until then; none: the time is not known here.
    Waits(Option<u64>),
    Done,
    Skipped,
    Dead,
    /// A copy of it went to the retry topic.
    Moved,
}

/// What the model knows of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) stands: Stands,
    /// Of its first append.
    pub(super) origin: u64,
    pub(super) failures: u32,
    /// It timed out or crashed before, as far as the next failure asks for it.
    pub(super) expired: bool,
    /// The last hand-out, as far as it is known.
    pub(super) last: Option<LeaseId>,
    /// Of a copy: not given out before.
    pub(super) due: u64,
    /// It was given out in this life.
    pub(super) was_out: bool,
}

impl Record {
    pub(super) fn fresh(origin: u64) -> Self {
        Self {
            stands: Stands::Free,
            origin,
            failures: 0,
            expired: false,
            last: None,
            due: 0,
            was_out: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.stands,
            Stands::Free | Stands::Held { .. } | Stands::Waits(_)
        )
    }
}

/// What the model knows of a member.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) name: Option<String>,
    pub(super) stream: Option<StreamKey>,
    /// Without a stream: when its session ends.
    pub(super) session_end: Option<u64>,
}

/// A copy that is to come to the retry topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) origin: u64,
    pub(super) failures: u32,
    pub(super) suspect: bool,
    pub(super) due: u64,
}

pub(super) struct Model {
    pub(super) rig: Rig,
    pub(super) mode: GroupMode,
    pub(super) on_failure: OnFailure,
    pub(super) deliveries_max: u32,
    /// Later records of a dead record's key follow it.
    pub(super) parks: bool,
    /// By partition number and key.
    pub(super) parked: BTreeSet<(u32, u64)>,
    pub(super) records: BTreeMap<Key, Record>,
    /// By partition number.
    pub(super) expected: BTreeMap<u32, Vec<Expected>>,
    /// Copies in retry and dead-letter partitions that were taken up.
    pub(super) known_copies: BTreeMap<PartitionId, u64>,
    /// How many dead letters there must be.
    pub(super) dead: u64,
    /// By number and origin: lives begun, and ended.
    pub(super) begun: BTreeMap<(u32, u64), u32>,
    pub(super) ended: BTreeMap<(u32, u64), u32>,
    pub(super) members: BTreeMap<String, Known>,
    /// Streams that are open, in the order in which they were opened.
    pub(super) streams: Vec<StreamKey>,
    pub(super) grants: BTreeMap<StreamKey, Vec<Grant>>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) holders: BTreeMap<LeaseId, String>,
    pub(super) stream_of: BTreeMap<StreamKey, String>,
}

/// The key of a source record, by which others wait behind it.
pub(super) fn key_of(offset: u64) -> Option<u64> {
    let key = offset % 3;
    (key > 0).then_some(key)
}

impl Model {
    pub(super) fn new(mode: GroupMode, on_failure: OnFailure) -> Self {
        let mut rig = Rig::with_group(PARTITIONS, |settings| {
            settings.mode = mode;
            settings.on_failure = on_failure;
            settings.in_flight_max = IN_FLIGHT_MAX;
        });
        rig.notes = true;
        rig.keys = (0..3_000)
            .filter_map(|at| Some((at, key_of(at)?)))
            .collect();
        Self {
            rig,
            mode,
            on_failure,
            deliveries_max: DELIVERIES_MAX,
            parks: false,
            parked: BTreeSet::new(),
            records: BTreeMap::new(),
            expected: BTreeMap::new(),
            known_copies: BTreeMap::new(),
            dead: 0,
            begun: BTreeMap::new(),
            ended: BTreeMap::new(),
            members: BTreeMap::new(),
            streams: Vec::new(),
            grants: BTreeMap::new(),
            deliveries: Vec::new(),
            holders: BTreeMap::new(),
            stream_of: BTreeMap::new(),
        }
    }

    /// Of a group that holds, and parks the keys of what is dead.
    pub(super) fn parking(mode: GroupMode) -> Self {
        let mut model = Self::new(mode, OnFailure::Hold);
        model.parks = true;
        let park = |settings: &mut GroupSettings| settings.on_head_dead = OnHeadDead::Park;
        model.rig.update_group("g", park);
        model
    }

    pub(super) fn source(&self, number: u32) -> PartitionId {
        self.rig.partition("orders", number)
    }

    pub(super) fn partition(&self, key: Key) -> PartitionId {
        let place = self.rig.state.place(&group("g"), self.source(key.number));
        let place = place.unwrap();
        if key.retry { place.retry } else { place.source }
    }

    pub(super) fn key_at(&self, partition: PartitionId, offset: u64) -> Key {
        Key {
            retry: partition.topic != self.rig.topic_id("orders"),
            number: partition.partition,
            offset,
        }
    }

    /// Keys of the records of a delivery.
    pub(super) fn keys_of(&self, delivery: &Delivery) -> Vec<Key> {
        let partition = delivery.token.partition;
        let offsets = delivery.offsets().into_iter();
        offsets.map(|at| self.key_at(partition, at)).collect()
    }

    pub(super) fn is_granted(&self, key: Key) -> bool {
        let partition = self.partition(key);
        let feed = self.rig.sessions.feed(&group("g"), partition);
        let (first, last) = (at(key.offset), at(key.offset));
        let mut leases = feed
            .into_iter()
            .flat_map(|it| it.leases.overlapping(first, last));
        leases.any(super::super::lease::Lease::is_granted)
    }

    /// Whether a token's partition was reset since.
    pub(super) fn is_void(&self, delivery: &Delivery) -> bool {
        let token = &delivery.token;
        self.rig.position("g", token.partition).reset_count != token.reset_count
    }

    pub(super) fn now(&self) -> u64 {
        self.rig.mono
    }

    /// The wait before the next delivery of a record that failed so often.
    pub(super) fn delay_ms(failures: u32) -> u64 {
        DELAYS_MS[usize::try_from(failures).unwrap() - 1]
    }

    pub(super) fn end(&mut self, key: Key, how: Stands) {
        let record = self.records.get_mut(&key).unwrap();
        assert!(record.is_open(), "{key:?} ends twice: {record:?} {how:?}");
        record.stands = how;
        if how != Stands::Moved {
            *self.ended.entry((key.number, record.origin)).or_default() += 1;
        }
        if how == Stands::Dead {
            self.dead += 1;
        }
    }

    /// Later records of its key follow it from now on.
    pub(super) fn dies(&mut self, key: Key) {
        self.end(key, Stands::Dead);
        if let Some(of) = key_of(key.offset).filter(|_| self.parks) {
            self.parked.insert((key.number, of));
        }
    }

    pub(super) fn is_parked(&self, key: Key) -> bool {
        let parked = |of| self.parked.contains(&(key.number, of));
        key_of(key.offset).is_some_and(parked)
    }

    /// A delivery failed at a time; `said` is none if its lease was over.
    pub(super) fn failed(&mut self, key: Key, when: u64, is_said: bool) {
        let record = self.records.get_mut(&key).unwrap();
        record.failures += 1;
        let failures = record.failures;
        let was_expired = record.expired;
        record.expired |= !is_said;
        if failures >= self.deliveries_max {
            self.dies(key);
        } else if !is_said && !was_expired {
            record.stands = Stands::Free;
        } else if self.on_failure == OnFailure::Hold {
            record.stands = Stands::Waits(Some(when + Self::delay_ms(failures)));
        } else {
            let expected = Expected {
                origin: record.origin,
                failures,
                suspect: !is_said,
                due: when + Self::delay_ms(failures),
            };
            self.end(key, Stands::Moved);
            self.expected.entry(key.number).or_default().push(expected);
        }
    }

    /// What a lease held is nobody's any more.
    pub(super) fn held_by(&self, lease: LeaseId) -> Vec<Key> {
        let held = |(key, record): (&Key, &Record)| match record.stands {
            Stands::Held { lease: id, .. } if id == lease => Some(*key),
            _ => None,
        };
        self.records.iter().filter_map(held).collect()
    }

    /// What a member holds, by record.
    pub(super) fn held_of(&self, member: &str) -> Vec<Key> {
        let held = |(key, record): (&Key, &Record)| match record.stands {
            Stands::Held { lease, .. } if self.holders[&lease] == member => Some(*key),
            _ => None,
        };
        self.records.iter().filter_map(held).collect()
    }

    pub(super) fn free(&mut self, keys: Vec<Key>) {
        for key in keys {
            self.records.get_mut(&key).unwrap().stands = Stands::Free;
        }
    }

    /// Source records of a partition at or beyond an offset that are to be given out once more.
    pub(super) fn begin_again(&mut self, number: u32, from: u64, forgets_failures: bool) {
        let source = |key: &Key| !key.retry && key.number == number && key.offset >= from;
        let keys: Vec<_> = self.records.keys().copied().filter(source).collect();
        for key in keys {
            let record = self.records[&key];
            if !record.is_open() {
                *self.begun.entry((number, key.offset)).or_default() += 1;
            }
            if forgets_failures || !record.is_open() {
                self.records.insert(key, Record::fresh(key.offset));
            }
        }
    }

    pub(super) fn end_of(&self, number: u32) -> Offset {
        self.rig.position("g", self.source(number)).end
    }
}
