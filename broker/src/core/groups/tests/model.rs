//! A naive model beside the machine: one entry for each record.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, PartitionId};

use super::rig::{Delivery, Rig, at, group, join};
use crate::core::command::Change;
use crate::core::groups::Durable;
use crate::core::request::{
    Credit, Grant, GroupReply, GroupRequest, JoinRequest, LeaseId, MemberEnd, MemberMessage,
    SettleRequest, StreamEnd, StreamKey,
};
use crate::names::TopicName;

pub(super) const PARTITIONS: u32 = 4;
pub(super) const IN_FLIGHT_MAX: u32 = 8;
pub(super) const WINDOW: u32 = 3;
const TIMEOUT_MS: u64 = 30_000;
const SESSION_MS: u64 = 45_000;

/// What the model knows of a record that is not done.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Record {
    /// Hand-outs so far that failed.
    pub(super) failures: u32,
    pub(super) last: Option<LeaseId>,
    /// Held by `last` until then.
    pub(super) held_until: Option<u64>,
}

/// What the model knows of a member.
#[derive(Debug, Clone)]
pub(super) struct Known {
    name: Option<String>,
    stream: Option<StreamKey>,
    /// Without a stream: when its session ends.
    session_end: Option<u64>,
    assigned: BTreeSet<(TopicName, u32)>,
    generation: u64,
}

pub(super) struct Model {
    pub(super) rig: Rig,
    pub(super) records: BTreeMap<(u32, u64), Record>,
    pub(super) lows: BTreeMap<u32, u64>,
    pub(super) members: BTreeMap<String, Known>,
    /// Streams that are open, in the order in which they were opened.
    pub(super) streams: Vec<StreamKey>,
    pub(super) grants: BTreeMap<StreamKey, Vec<Grant>>,
    pub(super) deliveries: Vec<Delivery>,
    pub(super) holders: BTreeMap<LeaseId, String>,
    /// Who was told to own a partition in a generation.
    pub(super) owners: BTreeMap<(u64, TopicName, u32), String>,
}

impl Model {
    pub(super) fn new() -> Self {
        let mut rig = Rig::with_orders(PARTITIONS);
        // One member makes the group, which is then bounded tightly.
        let (stream, _) = rig.member(join("g", &["orders"]));
        rig.update_group("g", |settings| settings.in_flight_max = IN_FLIGHT_MAX);
        rig.end_stream(stream, StreamEnd::Clean);
        Self {
            rig,
            records: BTreeMap::new(),
            lows: BTreeMap::new(),
            members: BTreeMap::new(),
            streams: Vec::new(),
            grants: BTreeMap::new(),
            deliveries: Vec::new(),
            holders: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    pub(super) fn partition(&self, number: u32) -> PartitionId {
        self.rig.partition("orders", number)
    }

    pub(super) fn is_done(&self, number: u32, offset: u64) -> bool {
        let done = self
            .rig
            .state
            .next_done(&group("g"), self.partition(number), at(offset));
        done.is_some_and(|(first, _)| first <= at(offset))
    }

    // Steps.

    pub(super) fn join(&mut self, request: JoinRequest) {
        let restarted = request.member_id.is_none();
        let found = request.member_id.clone().or_else(|| {
            let name = request.member_name.as_ref()?;
            let mut known = self.members.iter();
            known
                .find(|(_, it)| it.name.as_ref() == Some(name))
                .map(|(id, _)| id.clone())
        });
        if restarted && let Some(id) = &found {
            self.end_leases(id, 1);
        }
        let call = self.rig.call(GroupRequest::Join(request));
        let stream = self.rig.joined(call);
        if let Some(known) = found.and_then(|id| self.members.get_mut(&id)) {
            known.stream = Some(stream);
            known.session_end = None;
        }
        self.streams.push(stream);
        self.observe();
    }

    /// A member without or with a stream opens a new one by its id.
    pub(super) fn come_back(&mut self, pick: usize) {
        let Some((id, known)) = self.members.iter().nth(pick % self.members.len().max(1)) else {
            return;
        };
        let request = JoinRequest {
            member_id: Some(id.clone()),
            member_name: known.name.clone(),
            credit: Credit::Window(WINDOW),
            ..join("g", &[])
        };
        self.join(request);
    }

    pub(super) fn end_stream(&mut self, stream: StreamKey, how: StreamEnd) {
        let owner = self
            .members
            .iter()
            .find(|(_, known)| known.stream == Some(stream));
        let owner = owner.map(|(id, known)| (id.clone(), known.name.is_some()));
        if let Some((id, is_static)) = owner {
            let wait_ms = match how {
                StreamEnd::Clean => None,
                StreamEnd::Broken if !is_static => Some(5_000),
                StreamEnd::Broken | StreamEnd::Silent => Some(SESSION_MS),
            };
            let now = self.rig.mono;
            match (wait_ms, self.members.get_mut(&id)) {
                (Some(wait_ms), Some(known)) => {
                    known.stream = None;
                    known.session_end = Some(now + wait_ms);
                }
                _ => self.member_over(&id, 0),
            }
        }
        self.streams.retain(|open| *open != stream);
        self.grants.remove(&stream);
        self.rig.end_stream(stream, how);
        self.observe();
    }

    pub(super) fn leave(&mut self, pick: usize) {
        let Some(id) = self
            .members
            .keys()
            .nth(pick % self.members.len().max(1))
            .cloned()
        else {
            return;
        };
        let call = self.rig.call(GroupRequest::Leave {
            group: group("g"),
            member_id: id.clone(),
        });
        assert_eq!(self.rig.answer(call), Ok(GroupReply::Left));
        self.member_over(&id, 0);
        self.observe();
    }

    pub(super) fn append(&mut self, number: u32, records: u32) {
        self.rig.append("orders", number, records);
        self.observe();
    }

    /// An edge hands on up to `records` of the oldest grant that it was sent.
    pub(super) fn hand_on(&mut self, stream: StreamKey, records: u64) {
        let Some(grants) = self
            .grants
            .get_mut(&stream)
            .filter(|grants| !grants.is_empty())
        else {
            return;
        };
        let grant = grants.remove(0);
        let delivery = self.rig.hand_on(stream, grant, records);
        let number = delivery.token.partition.partition;
        let feed = self
            .rig
            .sessions
            .feed(&group("g"), delivery.token.partition);
        let lease = feed.and_then(|feed| feed.leases.get(delivery.token.lease));
        // Taken back while the edge was reading: then it is nobody's.
        if let Some((first, last)) = lease.map(|lease| (lease.first.get(), lease.last.get())) {
            for offset in first..=last {
                let record = self.records.entry((number, offset)).or_default();
                assert_eq!(record.held_until, None, "{number}/{offset} has one holder");
                assert_eq!(
                    delivery.token.attempt,
                    record.failures + 1,
                    "{number}/{offset}"
                );
                record.last = Some(delivery.token.lease);
                record.held_until = Some(self.rig.mono + TIMEOUT_MS);
            }
            let holder = self
                .members
                .iter()
                .find(|(_, known)| known.stream == Some(stream));
            let holder = holder.map(|(id, _)| id.clone()).expect("a known stream");
            self.holders.insert(delivery.token.lease, holder);
            self.deliveries.push(delivery);
        }
        self.observe();
    }

    /// Settles up to `records` of a delivery and compares the answer with what must come of it.
    pub(super) fn ack(&mut self, pick: usize, records: u64) {
        self.flush();
        let Some(delivery) = self
            .deliveries
            .get(pick % self.deliveries.len().max(1))
            .cloned()
        else {
            return;
        };
        let token = delivery.token;
        let number = token.partition.partition;
        let void = self.rig.position("g", token.partition).reset_count != token.reset_count;
        let named = (token.first.get()..=token.last.get())
            .take(usize::try_from(records).unwrap_or(usize::MAX));
        let named: Vec<_> = named.collect();
        let (mut done, mut already, mut lost) = (0, 0, Vec::new());
        for offset in named.iter().copied() {
            let record = self
                .records
                .get(&(number, offset))
                .copied()
                .unwrap_or_default();
            if void {
                lost.push(offset);
            } else if self.is_done(number, offset) {
                already += 1;
            } else if self.is_granted(token.partition, offset)
                || record.last.is_some_and(|last| last != token.lease)
            {
                lost.push(offset);
            } else {
                done += 1;
            }
        }
        let up_to = named.last().map(|last| at(*last));
        let call = self
            .rig
            .call(GroupRequest::Settle(SettleRequest { token, up_to }));
        self.rig.commit_proposed();
        let settled = self.rig.settled(call);
        let conflicts: Vec<_> = settled.conflicts.iter().map(|(at, _)| at.get()).collect();
        assert_eq!(
            (settled.done, settled.already_settled, conflicts),
            (done, already, lost)
        );
        self.observe();
    }

    pub(super) fn extend(&mut self, pick: usize, ms: u64) {
        let Some(delivery) = self
            .deliveries
            .get(pick % self.deliveries.len().max(1))
            .cloned()
        else {
            return;
        };
        let number = delivery.token.partition.partition;
        let mut held = Vec::new();
        let mut lost = false;
        for offset in delivery
            .offsets()
            .into_iter()
            .filter(|at| !self.is_done(number, *at))
        {
            let record = self
                .records
                .get(&(number, offset))
                .copied()
                .unwrap_or_default();
            lost |= record.last != Some(delivery.token.lease) || record.held_until.is_none();
            held.push(offset);
        }
        let reset = self.rig.position("g", delivery.token.partition).reset_count;
        lost |= reset != delivery.token.reset_count;
        let answer = self.rig.extend(&delivery.token, Some(ms));
        assert_eq!(answer.is_err(), lost, "{answer:?} {delivery:?}");
        if !lost {
            for offset in held {
                if let Some(record) = self.records.get_mut(&(number, offset)) {
                    record.held_until = Some(self.rig.mono + ms);
                }
            }
        }
        self.observe();
    }

    pub(super) fn advance(&mut self, ms: u64) {
        let now = self.rig.mono + ms;
        for record in self.records.values_mut() {
            if record.held_until.is_some_and(|until| until <= now) {
                record.held_until = None;
                record.failures += 1;
            }
        }
        let over = self
            .members
            .iter()
            .filter(|(_, it)| it.session_end.is_some_and(|e| e <= now));
        for id in over.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.member_over(&id, 1);
        }
        self.rig.advance(ms);
        self.observe();
    }

    pub(super) fn commit_offset(&mut self, number: u32, share: u64) {
        self.flush();
        let position = self.rig.position("g", self.partition(number));
        let offset = position.end.get() * share / 100;
        if offset < position.low.get() {
            // What was done at or beyond it is to be done again.
            self.lows.insert(number, offset);
            for at in offset..position.end.get() {
                if self.is_done(number, at) {
                    self.records.remove(&(number, at));
                }
            }
        }
        self.rig.commit("g", (self.partition(number), offset), true);
        self.observe();
    }

    pub(super) fn reset(&mut self, number: u32) {
        self.flush();
        self.records.retain(|(at, _), _| *at != number);
        self.lows.insert(number, 0);
        let positions = vec![(self.partition(number), Offset::ZERO)];
        self.rig
            .apply(Change::ResetOffsets {
                group: group("g"),
                positions,
            })
            .unwrap();
        self.observe();
    }

    pub(super) fn flush(&mut self) {
        self.rig.commit_proposed();
        self.observe();
    }

    // What follows.

    fn end_leases(&mut self, id: &str, failures: u32) {
        for record in self.records.values_mut() {
            let holder = record.last.and_then(|lease| self.holders.get(&lease));
            if record.held_until.is_some() && holder.is_some_and(|holder| holder == id) {
                record.held_until = None;
                record.failures += failures;
            }
        }
    }

    fn member_over(&mut self, id: &str, failures: u32) {
        self.end_leases(id, failures);
        self.members.remove(id);
    }

    fn is_granted(&self, partition: PartitionId, offset: u64) -> bool {
        let feed = self.rig.sessions.feed(&group("g"), partition);
        let mut leases = feed
            .into_iter()
            .flat_map(|it| it.leases.overlapping(at(offset), at(offset)));
        leases.any(super::super::lease::Lease::is_granted)
    }

    pub(super) fn take_up(&mut self, stream: StreamKey, message: MemberMessage) {
        match message {
            MemberMessage::Event(event) => {
                for (topic, number) in &event.assigned {
                    let key = (event.generation, topic.clone(), *number);
                    let owner = self
                        .owners
                        .entry(key)
                        .or_insert_with(|| event.member_id.clone());
                    assert_eq!(*owner, event.member_id, "one owner in each generation");
                }
                let name = self.rig.describe("g").members.into_iter();
                let name = name
                    .filter(|it| it.id == event.member_id)
                    .find_map(|it| it.name);
                let known = self
                    .members
                    .entry(event.member_id)
                    .or_insert_with(|| Known {
                        name,
                        stream: None,
                        session_end: None,
                        assigned: BTreeSet::new(),
                        generation: 0,
                    });
                assert!(
                    event.generation >= known.generation,
                    "generations do not fall"
                );
                known.stream = Some(stream);
                known.session_end = None;
                known.generation = event.generation;
                known.assigned = event.assigned.into_iter().collect();
            }
            MemberMessage::Grant(grant) => {
                for offset in grant.from.get()..grant.until.get() {
                    let number = grant.partition.partition;
                    assert!(!self.is_done(number, offset), "nothing done is given out");
                    let record = self
                        .records
                        .get(&(number, offset))
                        .copied()
                        .unwrap_or_default();
                    assert_eq!(record.held_until, None, "{number}/{offset} has one holder");
                    assert_eq!(grant.attempt, record.failures + 1, "{number}/{offset}");
                }
                self.grants.entry(stream).or_default().push(grant);
            }
            MemberMessage::End(MemberEnd::Fenced { .. } | MemberEnd::Left) => {
                for known in self
                    .members
                    .values_mut()
                    .filter(|it| it.stream == Some(stream))
                {
                    known.stream = None;
                }
            }
            MemberMessage::End(other) => panic!("no stream ends for that reason: {other:?}"),
        }
    }
}
