//! What must hold of the model at any time, and in the end.

use std::collections::BTreeMap;

use varvelog_store::Offset;

use super::model::{
    Expected, IN_FLIGHT_MAX, Key, Known, Model, PARTITIONS, Record, Stands, key_of,
};
use super::rig::{at, group};
use crate::core::groups::Durable;
use crate::core::request::{Grant, MemberEnd, MemberMessage, StreamEnd, StreamKey};
use crate::core::settings::GroupMode;

impl Model {
    /// Takes up what the machine said and did, and checks all that must hold at any time.
    pub(super) fn observe(&mut self) {
        self.take_up_copies();
        for stream in self.streams.clone() {
            while let Some(message) = self.rig.next_message(stream) {
                self.take_up(stream, message);
            }
        }
        let rig = &self.rig;
        self.streams.retain(|stream| !rig.closed.contains(stream));
        self.grants.retain(|stream, _| !rig.closed.contains(stream));
        for partition in self.rig.describe("g").partitions.values() {
            assert!(partition.in_flight <= u64::from(IN_FLIGHT_MAX));
        }
        if self.rig.proposed() == 0 && self.rig.reads.is_empty() {
            self.follow_parked();
            self.compare();
        }
    }

    /// What is of a parked key, and out of nobody's hands, is dead as soon as it is looked at.
    fn follow_parked(&mut self) {
        let free = |(key, record): (&Key, &Record)| {
            let is_out = matches!(record.stands, Stands::Held { .. });
            (record.is_open() && !is_out && self.is_parked(*key)).then_some(*key)
        };
        let free = self.records.iter().filter_map(free);
        let gone: Vec<_> = free.filter(|key| !self.truth(*key).0).collect();
        for key in gone {
            self.end(key, Stands::Dead);
        }
    }

    fn take_up(&mut self, stream: StreamKey, message: MemberMessage) {
        match message {
            MemberMessage::Event(event) => {
                let members = self.rig.describe("g").members.into_iter();
                let name = members
                    .filter(|it| it.id == event.member_id)
                    .find_map(|it| it.name);
                let known = self.members.entry(event.member_id.clone());
                let known = known.or_insert_with(|| Known {
                    name,
                    stream: None,
                    session_end: None,
                });
                (known.stream, known.session_end) = (Some(stream), None);
                self.stream_of.insert(stream, event.member_id);
            }
            MemberMessage::Grant(grant) => {
                self.check_grant(&grant);
                self.grants.entry(stream).or_default().push(grant);
            }
            MemberMessage::End(MemberEnd::Fenced { .. } | MemberEnd::Left) => {
                let of = self
                    .members
                    .values_mut()
                    .filter(|it| it.stream == Some(stream));
                of.for_each(|known| known.stream = None);
            }
            MemberMessage::End(other) => panic!("no stream ends for that reason: {other:?}"),
        }
    }

    fn check_grant(&mut self, grant: &Grant) {
        let now = self.now();
        for offset in grant.from.get()..grant.until.get() {
            let key = self.key_at(grant.partition, offset);
            assert!(!self.is_parked(key), "{key:?} is parked");
            let record = self.records[&key];
            match record.stands {
                Stands::Free => {}
                Stands::Waits(until) => {
                    let is_due = until.is_none_or(|until| until <= now);
                    assert!(is_due, "{key:?} is given out before its time: {record:?}");
                }
                other => panic!("{key:?} is given out though it is {other:?}"),
            }
            assert!(record.due <= now, "{key:?}: {record:?} at {now}");
            assert_eq!(grant.attempt, record.failures + 1, "{key:?}");
            assert!(record.failures < 5);
            if self.holds() && !key.retry {
                self.check_order(grant.from, key, record);
            }
            let record = self.records.get_mut(&key).unwrap();
            (record.was_out, record.stands) = (true, Stands::Free);
        }
    }

    /// Nothing that holds up a record is open when it is given out.
    fn check_order(&self, from: Offset, key: Key, record: Record) {
        for before in 0..key.offset {
            let earlier = Key {
                offset: before,
                ..key
            };
            let held_up = match self.mode {
                GroupMode::Stream => before < from.get(),
                GroupMode::Queue => {
                    key_of(before).is_some() && key_of(before) == key_of(key.offset)
                }
            };
            let has_followed = self.is_parked(earlier) && !self.truth(earlier).0;
            let open = self.records[&earlier].is_open() && !has_followed;
            assert!(
                !held_up || !open,
                "{key:?} {record:?} goes before {earlier:?}"
            );
        }
    }

    /// Each copy that came is one that was to come.
    fn take_up_copies(&mut self) {
        for number in 0..PARTITIONS {
            let source = self.source(number);
            let place = self.rig.state.place(&group("g"), source).unwrap();
            let known = self.known_copies.entry(place.retry).or_default();
            let came = self.rig.copies.get(&place.retry).into_iter().flatten();
            let came: Vec<_> = came.skip(usize::try_from(*known).unwrap()).collect();
            *known += u64::try_from(came.len()).unwrap();
            for (offset, copied) in came {
                let expected = self.expected.entry(number).or_default();
                let is_it =
                    |it: &Expected| (it.origin, it.failures) == (copied.origin, copied.failures);
                let found = expected.iter().position(is_it);
                let found = found.unwrap_or_else(|| panic!("{copied:?} came out of nothing"));
                let Expected { suspect, due, .. } = expected.remove(found);
                let key = Key {
                    retry: true,
                    number,
                    offset: *offset,
                };
                let record = Record {
                    stands: Stands::Waits(Some(due)),
                    failures: copied.failures,
                    expired: suspect,
                    due,
                    ..Record::fresh(copied.origin)
                };
                assert!(self.records.insert(key, record).is_none());
            }
            let dead = self.dead_of(number);
            self.known_copies.insert(place.dead_letter, dead);
        }
    }

    /// How the machine and durable state see a record.
    fn truth(&self, key: Key) -> (bool, u32, bool, Stands) {
        let (partition, offset) = (self.partition(key), at(key.offset));
        let (state, name) = (&self.rig.state, group("g"));
        let done = state.next_done(&name, partition, offset);
        if done.is_some_and(|run| run.0 <= offset) {
            return (false, 0, false, Stands::Done);
        }
        let note = state
            .next_note(&name, partition, offset)
            .filter(|(at, _)| *at == offset);
        let entry = state
            .next_retry(&name, partition, offset)
            .filter(|(at, _)| *at == offset);
        let (failures, expired) = match (note, entry) {
            (Some((_, note)), _) => (note.failures, note.has_expired()),
            (None, Some((_, entry))) => (entry.failures, entry.suspect),
            (None, None) => (0, false),
        };
        let feed = self.rig.sessions.feed(&name, partition);
        let Some(feed) = feed else {
            let waits = note.is_some() || entry.is_some();
            let stands = if waits {
                Stands::Waits(None)
            } else {
                Stands::Free
            };
            return (true, failures, expired, stands);
        };
        let lease = feed.leases.overlapping(offset, offset).next();
        let held = lease.and_then(|lease| Some((lease.id, lease.deadline()?)));
        let stands = match (held, feed.waiting.until(offset)) {
            (Some((lease, until)), _) => Stands::Held {
                lease,
                until: until.0,
            },
            (None, Some(until)) => Stands::Waits(until.map(|until| until.0)),
            (None, None) => Stands::Free,
        };
        (true, failures, expired, stands)
    }

    /// The machine sees every record as the model does.
    fn compare(&mut self) {
        assert!(
            self.expected.values().all(Vec::is_empty),
            "{:?}",
            self.expected
        );
        let now = self.now();
        for key in self.records.keys().copied().collect::<Vec<_>>() {
            let (open, failures, expired, stands) = self.truth(key);
            let record = self.records[&key];
            assert_eq!(open, record.is_open(), "{key:?}: {record:?}, {stands:?}");
            if !open {
                continue;
            }
            assert_eq!(
                (failures, expired),
                (record.failures, record.expired),
                "{key:?}"
            );
            let is_same = match (record.stands, stands) {
                (Stands::Waits(Some(until)), Stands::Free) => until <= now,
                (Stands::Free, Stands::Waits(until)) => until.is_none(),
                (Stands::Waits(_), Stands::Waits(None)) | (Stands::Waits(None), _) => true,
                (model, machine) => model == machine,
            };
            assert!(is_same, "{key:?}: {record:?} is {stands:?} at {now}");
            // Without a feed the wall clock decides when it is due, or due once more.
            let unknown = stands == Stands::Waits(None);
            if unknown || matches!(record.stands, Stands::Waits(_)) {
                let record = self.records.get_mut(&key).unwrap();
                record.stands = stands;
                record.due = if unknown { 0 } else { record.due };
            }
        }
        let dead: u64 = (0..PARTITIONS).map(|number| self.dead_of(number)).sum();
        assert_eq!(dead, self.dead, "dead letters");
        for number in 0..PARTITIONS {
            let parked = self.rig.state.parked(&group("g"), self.source(number));
            let parked = parked.into_iter().flatten().map(|(of, _)| (number, *of));
            let model = self.parked.range((number, 0)..=(number, u64::MAX));
            assert_eq!(
                parked.collect::<Vec<_>>(),
                model.copied().collect::<Vec<_>>()
            );
        }
        if self.holds() && self.mode == GroupMode::Queue {
            self.check_keys();
        }
    }

    fn dead_of(&self, number: u32) -> u64 {
        let place = self
            .rig
            .state
            .place(&group("g"), self.source(number))
            .unwrap();
        let copies = self
            .rig
            .copies
            .get(&place.dead_letter)
            .map_or(0, BTreeMap::len);
        u64::try_from(copies).unwrap()
    }

    /// At most one record of a key is out or waits.
    fn check_keys(&self) {
        let mut busy = BTreeMap::new();
        for (key, record) in self.records.iter().filter(|(key, _)| !key.retry) {
            let is_busy = matches!(record.stands, Stands::Held { .. } | Stands::Waits(Some(_)));
            if let Some(of) = key_of(key.offset).filter(|_| is_busy) {
                let other = busy.insert((key.number, of), *key);
                assert_eq!(other, None, "{key:?} of the same key");
            }
        }
    }

    /// Takes over from the machine what cannot be foretold.
    pub(super) fn take_over(&mut self) {
        self.expected.clear();
        self.parked.clear();
        for number in 0..PARTITIONS {
            let parked = self.rig.state.parked(&group("g"), self.source(number));
            let parked = parked.into_iter().flatten();
            self.parked.extend(parked.map(|(of, _)| (number, *of)));
        }
        self.take_over_copies();
        for key in self.records.keys().copied().collect::<Vec<_>>() {
            let (open, failures, expired, stands) = self.truth(key);
            let record = self.records[&key];
            if !record.is_open() {
                continue;
            }
            if !open {
                self.end(key, Stands::Done);
                continue;
            }
            let fewest = record.failures;
            assert!(failures >= fewest, "{key:?}: failures are never forgotten");
            let record = self.records.get_mut(&key).unwrap();
            (record.failures, record.expired, record.stands) = (failures, expired, stands);
            match stands {
                Stands::Held { lease, .. } => {
                    record.last = Some(lease);
                    self.learn_holder(key);
                }
                Stands::Waits(until) => record.due = until.unwrap_or(0),
                _ => record.due = 0,
            }
        }
    }

    fn learn_holder(&mut self, key: Key) {
        let seen = self
            .rig
            .sessions
            .feed(&group("g"), self.partition(key))
            .unwrap();
        let lease = seen
            .leases
            .overlapping(at(key.offset), at(key.offset))
            .next()
            .unwrap();
        let holder = self.rig.sessions.member_id(&group("g"), lease.holder);
        self.holders.insert(lease.id, holder);
    }

    /// Copies that came of what was not foretold end what they are copies of.
    fn take_over_copies(&mut self) {
        for number in 0..PARTITIONS {
            let place = self
                .rig
                .state
                .place(&group("g"), self.source(number))
                .unwrap();
            let dead = self
                .rig
                .copies
                .get(&place.dead_letter)
                .into_iter()
                .flatten();
            let dead: Vec<_> = dead.map(|(_, copied)| copied.origin).collect();
            let known = self.known_copies.entry(place.dead_letter).or_default();
            let before = usize::try_from(std::mem::replace(known, dead.len() as u64)).unwrap();
            for origin in &dead[before..] {
                self.end_open(number, *origin, Stands::Dead);
            }
            let known = self.known_copies.entry(place.retry).or_default();
            let came = self.rig.copies.get(&place.retry).into_iter().flatten();
            let came: Vec<_> = came.skip(usize::try_from(*known).unwrap()).collect();
            *known += came.len() as u64;
            let came: Vec<_> = came.into_iter().map(|(at, it)| (*at, it.clone())).collect();
            for (offset, copied) in came {
                self.end_open(number, copied.origin, Stands::Moved);
                let key = Key {
                    retry: true,
                    number,
                    offset,
                };
                let record = Record {
                    failures: copied.failures,
                    ..Record::fresh(copied.origin)
                };
                self.records.insert(key, record);
            }
        }
    }

    /// Ends the record of an origin that the machine says is done.
    fn end_open(&mut self, number: u32, origin: u64, how: Stands) {
        let of = |(key, record): (&Key, &Record)| {
            let is_it = key.number == number && record.origin == origin && record.is_open();
            is_it.then_some(*key)
        };
        let open: Vec<_> = self.records.iter().filter_map(of).collect();
        let mut gone: Vec<_> = open.into_iter().filter(|key| !self.truth(*key).0).collect();
        // A reset leaves copies of a record in the retry topic: two of one origin may be gone.
        let was_copied = |key: &Key| {
            let (partition, offset) = (self.partition(*key), at(key.offset));
            self.rig
                .state
                .ending(&group("g"), partition, offset)
                .is_some()
        };
        gone.sort_by_key(|key| !was_copied(key));
        if let Some(key) = gone.first().copied() {
            self.end(key, how);
        }
    }

    /// Members whose session ended while the model did not look.
    pub(super) fn drop_members(&mut self) {
        let there = self.rig.describe("g").members;
        self.members
            .retain(|id, _| there.iter().any(|member| member.id == *id));
    }

    /// Lets one fresh member settle everything, and everyone leave.
    pub(super) fn drain(&mut self) {
        self.rig.prompt = true;
        self.flush();
        self.pause(false);
        for stream in self.streams.clone() {
            self.end_stream(stream, StreamEnd::Clean);
        }
        self.advance(4_000_000);
        let open = self.rig.sessions.open_leases(&group("g"));
        assert_eq!(open, 0, "nothing stays leased");
        self.join(Self::request(None));
        let stream = *self.streams.last().unwrap();
        for _ in 0..10 {
            while self
                .grants
                .get(&stream)
                .is_some_and(|grants| !grants.is_empty())
            {
                self.hand_on(stream, 5);
                let last = self.deliveries.len() - 1;
                let records = self.deliveries[last].offsets().len();
                self.ack(last, records);
            }
            self.rig.wall += 5_000_000;
            self.advance(2_000_000);
        }
        let open = self.records.iter().filter(|(_, record)| record.is_open());
        assert_eq!(open.collect::<Vec<_>>(), [], "all was offered");
        assert_eq!(self.begun, self.ended, "each life ends once");
        for number in 0..PARTITIONS {
            let position = self.rig.position("g", self.source(number));
            assert_eq!((position.undone, position.low), (0, position.end));
        }
        self.end_stream(stream, StreamEnd::Clean);
        self.advance(2_000_000);
        assert!(
            self.rig.sessions.is_empty(),
            "nothing leaks: {:?}",
            self.rig.sessions
        );
    }
}
