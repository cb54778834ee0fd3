//! Steps of the model that operators take, and restarts.

use super::model::{Key, Known, Model, Record, SESSION_MS, Stands};
use super::rig::{at, group};
use crate::core::command::{Change, MakeDue};
use crate::core::request::{GroupReply, GroupRequest, OperatorAction};
use crate::core::settings::{GroupMode, OnFailure};

impl Model {
    pub(super) fn commit_offset(&mut self, number: u32, share: u64) {
        if self.mode == GroupMode::Queue {
            return;
        }
        self.flush();
        let position = self.rig.position("g", self.source(number));
        let offset = position.end.get() * share / 100;
        if offset < position.low.get() {
            // What was done at or beyond it is to be done again.
            self.begin_again(number, offset, false);
            // How the others ended is forgotten.
            let others = self.records.iter_mut();
            let others =
                others.filter(|(key, it)| !key.retry && key.number == number && !it.is_open());
            others.for_each(|(_, record)| record.stands = Stands::Done);
        }
        let below = |(key, record): (&Key, &Record)| {
            let is_below = !key.retry && key.number == number && key.offset < offset;
            (is_below && record.is_open()).then_some(*key)
        };
        for key in self.records.iter().filter_map(below).collect::<Vec<_>>() {
            self.end(key, Stands::Done);
        }
        self.rig.commit("g", (self.source(number), offset), true);
        // A hole in a lease is held once more, as the machine knows.
        self.take_over();
        self.observe();
    }

    pub(super) fn reset(&mut self, number: u32) {
        self.flush();
        self.begin_again(number, 0, true);
        self.parked.retain(|(of, _)| *of != number);
        let positions = vec![(self.source(number), at(0))];
        let group = group("g");
        self.rig
            .apply(Change::ResetOffsets { group, positions })
            .unwrap();
        self.observe();
    }

    /// The policy gives more deliveries, or fewer.
    pub(super) fn set_policy(&mut self, deliveries_max: u32) {
        self.flush();
        self.deliveries_max = deliveries_max;
        self.end_spent();
        self.rig.update_group("g", |settings| {
            settings.retry.deliveries_max = deliveries_max;
        });
        self.flush();
    }

    /// Settings are changed, whichever: what failed as often as the policy allows, and is not
    /// out, is dead.
    fn end_spent(&mut self) {
        let spent = |(key, record): (&Key, &Record)| {
            let had = record.failures > 0 && record.failures >= self.deliveries_max;
            let is_out = matches!(record.stands, Stands::Held { .. }) || self.is_granted(*key);
            (record.is_open() && had && !is_out).then_some(*key)
        };
        let spent: Vec<_> = self.records.iter().filter_map(spent).collect();
        for key in spent {
            self.dies(key);
        }
    }

    pub(super) fn operate(&mut self, number: u32, pick: usize, action: OperatorAction) {
        self.flush();
        let end = usize::try_from(self.end_of(number).get()).unwrap();
        let origin = u64::try_from(pick % end.max(1)).unwrap();
        let open = |(key, record): (&Key, &Record)| {
            let is_it = key.number == number && record.origin == origin;
            (is_it && record.is_open()).then_some(*key)
        };
        let mut keys: Vec<_> = self.records.iter().filter_map(open).collect();
        if keys.iter().any(|key| !key.retry) {
            keys.retain(|key| !key.retry);
        }
        for key in &keys {
            self.operate_on(*key, action);
        }
        let call = self.rig.call(GroupRequest::SettleRecords {
            group: group("g"),
            records: vec![(self.source(number), at(origin))],
            action,
            note: String::new(),
        });
        self.rig.settle_down();
        let settled = u64::try_from(keys.len()).unwrap();
        assert_eq!(self.rig.answer(call), Ok(GroupReply::Operated { settled }));
        self.observe();
    }

    fn operate_on(&mut self, key: Key, action: OperatorAction) {
        match action {
            OperatorAction::Skip => self.end(key, Stands::Skipped),
            OperatorAction::DeadLetter => self.end(key, Stands::Dead),
            OperatorAction::Retry => {
                let record = self.records.get_mut(&key).unwrap();
                let stands = std::mem::replace(&mut record.stands, Stands::Free);
                (record.failures, record.expired, record.due) = (0, false, 0);
                if let Stands::Held { lease, .. } = stands {
                    let rest = self.held_by(lease);
                    let before = rest.iter().any(|it| it.offset < key.offset);
                    if before && rest.iter().any(|it| it.offset > key.offset) {
                        self.free(rest);
                    }
                }
            }
        }
    }

    /// A record that waits is due now.
    pub(super) fn make_due(&mut self, pick: usize) {
        self.flush();
        let waits = |record: &Record| matches!(record.stands, Stands::Waits(_));
        let waiting = self.records.iter().filter(|(_, record)| waits(record));
        let waiting: Vec<_> = waiting.map(|(key, _)| *key).collect();
        let Some(key) = waiting.get(pick % waiting.len().max(1)).copied() else {
            return;
        };
        let now = self.now();
        let record = self.records.get_mut(&key).unwrap();
        (record.stands, record.due) = (Stands::Waits(Some(now)), now);
        let records = vec![(self.partition(key), at(key.offset))];
        let group = group("g");
        self.rig
            .apply(Change::MakeDue(MakeDue { group, records }))
            .unwrap();
        self.observe();
    }

    /// The wall clock is set. What waits to be committed is committed first: a step in between
    /// shifts the one delay that was decided on before it.
    pub(super) fn step_wall(&mut self, ms: i64) {
        self.flush();
        self.rig.wall += ms;
    }

    pub(super) fn pause(&mut self, paused: bool) {
        self.flush();
        self.end_spent();
        self.rig
            .update_group("g", |settings| settings.paused = paused);
        self.flush();
    }

    /// The process is killed, with or without what it noted last.
    pub(super) fn restart(&mut self, noted: bool) {
        self.flush();
        if noted {
            self.rig.flush_notes();
        }
        self.rig.restart();
        self.members.clear();
        self.streams.clear();
        self.grants.clear();
        self.stream_of.clear();
        for record in self.records.values_mut() {
            record.last = None;
        }
        for member in self.rig.describe("g").members {
            let known = Known {
                name: None,
                stream: None,
                session_end: Some(self.rig.mono + SESSION_MS),
            };
            self.members.insert(member.id, known);
        }
        self.take_over();
        self.observe();
    }

    pub(super) fn flush(&mut self) {
        self.flush_rig();
        self.observe();
    }

    pub(super) fn flush_rig(&mut self) {
        self.rig.settle_down();
    }

    /// Whether later records wait behind one that failed.
    pub(super) fn holds(&self) -> bool {
        self.on_failure == OnFailure::Hold
    }
}
