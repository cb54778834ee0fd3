//! What is done to the machine, and what must come of it.

use super::model::{Key, Model, Record, SESSION_MS, Stands, TIMEOUT_MS, WINDOW};
use super::rig::{at, group, join};
use super::rig_members::{failed, settle_failed};
use super::settlement::settle;
use crate::core::request::{
    Conflict, Credit, FailureAction, GroupReply, GroupRequest, JoinRequest, SettleRequest,
    StreamEnd, StreamKey,
};

impl Model {
    pub(super) fn request(name: Option<u8>) -> JoinRequest {
        JoinRequest {
            member_name: name.map(|name| format!("static-{name}")),
            credit: Credit::Window(WINDOW),
            records_max: 5,
            ..join("g", &[])
        }
    }

    pub(super) fn join(&mut self, request: JoinRequest) {
        let named = request.member_name.clone();
        let by_id = request
            .member_id
            .clone()
            .filter(|id| self.members.contains_key(id));
        let by_name = self
            .members
            .iter()
            .find(|(_, it)| named.is_some() && it.name == named);
        let by_name = by_name.map(|(id, _)| id.clone());
        if by_id.is_none()
            && let Some(id) = &by_name
        {
            let now = self.now();
            for key in self.held_of(id) {
                self.failed(key, now, false);
            }
        }
        let call = self.rig.call(GroupRequest::Join(request));
        self.rig.commit_proposed();
        let stream = self.rig.joined(call);
        if let Some(id) = by_id.or(by_name) {
            let known = self.members.get_mut(&id).unwrap();
            known.stream = Some(stream);
            known.session_end = None;
            known.name = named;
            self.stream_of.insert(stream, id);
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
            ..Self::request(None)
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
            if let Some(wait_ms) = wait_ms {
                let session_end = Some(self.now() + wait_ms);
                let known = self.members.get_mut(&id).unwrap();
                (known.stream, known.session_end) = (None, session_end);
            } else {
                self.free(self.held_of(&id));
                self.members.remove(&id);
            }
        }
        self.streams.retain(|open| *open != stream);
        self.grants.remove(&stream);
        self.rig.end_stream(stream, how);
        self.observe();
    }

    pub(super) fn leave(&mut self, pick: usize) {
        let id = self
            .members
            .keys()
            .nth(pick % self.members.len().max(1))
            .cloned();
        let Some(id) = id else { return };
        let call = self.rig.call(GroupRequest::Leave {
            group: group("g"),
            member_id: id.clone(),
        });
        assert_eq!(self.rig.answer(call), Ok(GroupReply::Left));
        self.free(self.held_of(&id));
        self.members.remove(&id);
        self.observe();
    }

    pub(super) fn append(&mut self, number: u32, records: u32) {
        let end = self.end_of(number).get();
        for offset in end..end + u64::from(records) {
            let key = Key {
                retry: false,
                number,
                offset,
            };
            self.records.insert(key, Record::fresh(offset));
            *self.begun.entry((number, offset)).or_default() += 1;
        }
        self.rig.append("orders", number, records);
        self.observe();
    }

    /// An edge hands on up to `records` of the oldest grant that it was sent.
    pub(super) fn hand_on(&mut self, stream: StreamKey, records: u64) {
        let grants = self
            .grants
            .get_mut(&stream)
            .filter(|grants| !grants.is_empty());
        let Some(grants) = grants else { return };
        let grant = grants.remove(0);
        let delivery = self.rig.hand_on(stream, grant, records);
        let token = &delivery.token;
        let feed = self.rig.sessions.feed(&group("g"), token.partition);
        let lease = feed.and_then(|feed| feed.leases.get(token.lease));
        // Taken back while the edge was reading: then it is nobody's.
        if let Some((first, last)) = lease.map(|lease| (lease.first.get(), lease.last.get())) {
            let until = self.now() + TIMEOUT_MS;
            for offset in first..=last {
                let key = self.key_at(token.partition, offset);
                let record = self.records.get_mut(&key).unwrap();
                if record.is_open() {
                    assert!(
                        !matches!(record.stands, Stands::Held { .. }),
                        "{key:?}: {record:?}"
                    );
                    assert_eq!(token.attempt, record.failures + 1, "{key:?}");
                    record.stands = Stands::Held {
                        lease: token.lease,
                        until,
                    };
                    record.last = Some(token.lease);
                }
            }
            let holder = self.stream_of[&stream].clone();
            self.holders.insert(token.lease, holder);
            self.deliveries.push(delivery);
        }
        self.observe();
    }

    /// What an ack of a record by a delivery comes to: done, settled before, or a conflict.
    fn ack_of(&self, pick: usize, key: Key) -> Result<bool, Conflict> {
        let token = &self.deliveries[pick].token;
        let record = self.records[&key];
        let own = self.rig.sessions.own_lease(token);
        let lost = |is_lost: bool| {
            if is_lost {
                Err(Conflict::LeaseLost)
            } else {
                Ok(true)
            }
        };
        match record.stands {
            Stands::Done => Ok(false),
            Stands::Skipped | Stands::Dead | Stands::Moved => Err(Conflict::SettledOtherwise),
            Stands::Held { lease, .. } => lost(Some(lease) != own),
            _ if self.is_granted(key) => lost(true),
            Stands::Free | Stands::Waits(_) => {
                let stale = record.failures > token.attempt;
                let since = record.last.filter(|_| own.is_some());
                lost(stale || since.is_some_and(|last| Some(last) != own))
            }
        }
    }

    fn ack_all(&mut self, pick: usize, keys: &[Key]) -> (u32, u32, Vec<u64>) {
        let (mut done, mut already, mut lost) = (0, 0, Vec::new());
        let void = self.is_void(&self.deliveries[pick]);
        for key in keys {
            match self.ack_of(pick, *key) {
                _ if void => lost.push(self.records[key].origin),
                Ok(true) => {
                    done += 1;
                    self.end(*key, Stands::Done);
                }
                Ok(false) => already += 1,
                Err(_) => lost.push(self.records[key].origin),
            }
        }
        (done, already, lost)
    }

    /// Settles up to `records` of a delivery and compares the answer with what must come of it.
    pub(super) fn ack(&mut self, pick: usize, records: usize) {
        self.flush();
        let pick = pick % self.deliveries.len().max(1);
        let Some(delivery) = self.deliveries.get(pick).cloned() else {
            return;
        };
        let keys = self.keys_of(&delivery);
        let keys = &keys[..records.min(keys.len())];
        let up_to = self.records[keys.last().unwrap()].origin;
        let expected = self.ack_all(pick, keys);
        let call = self.rig.call(settle(delivery.token, Some(up_to)));
        self.rig.settle_down();
        let settled = self.rig.settled(call);
        let conflicts: Vec<_> = settled.conflicts.iter().map(|(at, _)| at.get()).collect();
        assert_eq!((settled.done, settled.already_settled, conflicts), expected);
        self.observe();
    }

    /// All before a record of a delivery is processed, and that fails.
    pub(super) fn fail(&mut self, pick: usize, number: usize, action: FailureAction) {
        self.flush();
        let pick = pick % self.deliveries.len().max(1);
        let Some(delivery) = self.deliveries.get(pick).cloned() else {
            return;
        };
        let own = self.rig.sessions.own_lease(&delivery.token);
        if own.is_none() || self.is_void(&delivery) {
            return;
        }
        let keys = self.keys_of(&delivery);
        let number = number % keys.len();
        let (before, key) = (&keys[..number], keys[number]);
        let origin = self.records[&key].origin;
        let (done, _, mut lost) = self.ack_all(pick, before);
        let held = matches!(self.records[&key].stands,
            Stands::Held { lease, .. } if Some(lease) == own);
        let mut counted = 0;
        if held {
            match action {
                FailureAction::Release => self.free(vec![key]),
                FailureAction::DeadLetter => {
                    counted = 1;
                    self.records.get_mut(&key).unwrap().failures += 1;
                    self.dies(key);
                }
                FailureAction::Retry | FailureAction::ByPolicy => {
                    counted = 1;
                    self.failed(key, self.now(), true);
                }
            }
        }
        let call = self.rig.call(GroupRequest::Settle(SettleRequest {
            token: delivery.token.clone(),
            up_to: Some(at(origin)),
            failures: vec![failed(origin, action)],
            outputs: None,
        }));
        self.rig.settle_down();
        let settled = self.rig.settled(call);
        let last = settled.conflicts.iter().find(|(at, _)| at.get() == origin);
        assert!(!held || last.is_none(), "{settled:?}");
        lost.extend(last.map(|_| origin));
        let conflicts: Vec<_> = settled.conflicts.iter().map(|(at, _)| at.get()).collect();
        assert_eq!((settled.done, conflicts), (done, lost), "{settled:?}");
        assert_eq!(settled.retried + settled.dead_lettered, counted);
        self.observe();
    }

    /// Calls on their way at once; what came of them is taken over.
    pub(super) fn race(&mut self, picks: &[(usize, FailureAction)], ms: u64) {
        self.flush();
        let prompt = std::mem::replace(&mut self.rig.prompt, false);
        let mut calls = Vec::new();
        for (pick, action) in picks {
            let delivery = self
                .deliveries
                .get(pick % self.deliveries.len().max(1))
                .cloned();
            let Some(delivery) = delivery else { break };
            let keys = self.keys_of(&delivery);
            let origin = self.records[&keys[pick % keys.len()]].origin;
            let request = if *action == FailureAction::ByPolicy {
                settle(delivery.token, Some(origin))
            } else {
                settle_failed(&delivery.token, vec![failed(origin, *action)])
            };
            calls.push(self.rig.call(request));
        }
        self.rig.advance(ms);
        self.rig.settle_down();
        for call in calls {
            self.rig.settled(call);
        }
        self.rig.prompt = prompt;
        self.flush_rig();
        self.drop_members();
        self.take_over();
        self.observe();
    }

    pub(super) fn extend(&mut self, pick: usize, ms: u64) {
        let pick = pick % self.deliveries.len().max(1);
        let Some(delivery) = self.deliveries.get(pick).cloned() else {
            return;
        };
        let own = self.rig.sessions.own_lease(&delivery.token);
        let keys = self.keys_of(&delivery);
        let mut lost = self.is_void(&delivery);
        let mut held = Vec::new();
        for key in keys {
            let record = self.records[&key];
            match record.stands {
                Stands::Held { lease, .. } if Some(lease) == own => held.push((key, lease)),
                _ if record.is_open() => lost = true,
                _ => {}
            }
        }
        self.flush();
        let answer = self.rig.extend(&delivery.token, Some(ms));
        assert_eq!(answer.is_err(), lost, "{answer:?} {delivery:?}");
        if !lost {
            let until = self.now() + ms;
            for (_, lease) in held {
                for key in self.held_by(lease) {
                    self.records.get_mut(&key).unwrap().stands = Stands::Held { lease, until };
                }
            }
        }
        self.observe();
    }

    pub(super) fn advance(&mut self, ms: u64) {
        let target = self.now() + ms;
        let ends = |record: &Record| match record.stands {
            Stands::Held { lease, until } => {
                let holder = self.members.get(&self.holders[&lease]);
                Some(
                    holder
                        .and_then(|it| it.session_end)
                        .unwrap_or(until)
                        .min(until),
                )
            }
            _ => None,
        };
        let over = self
            .records
            .iter()
            .filter_map(|(key, record)| Some((*key, ends(record)?)));
        let over: Vec<_> = over.filter(|(_, when)| *when <= target).collect();
        for (key, when) in over {
            self.failed(key, when, false);
        }
        self.members
            .retain(|_, it| it.session_end.is_none_or(|end| end > target));
        self.rig.advance(ms);
        self.observe();
    }
}
