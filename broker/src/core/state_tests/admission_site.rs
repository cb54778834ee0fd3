//! A state with its logs and the gates beside them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use varvelog_store::{Offset, PartitionId, Sequence, TopicId, WallMs};

use super::sample::*;
use crate::core::admission::{Admission, Ledger, Logs, TurnedAway};
use crate::core::applied::{Applied, Effect, Outcome};
use crate::core::backlog::Backlog;
use crate::core::command::{Change, Command};
use crate::core::decide::{CountLimits, Live};
use crate::core::forecast::AppendLimits;
use crate::core::pending::{Draft, Drafting, Origin, Pending};
use crate::core::refusal::CallError;
use crate::core::request::{AppendRequest, AppendRequestPart, Appended};
use crate::core::settings::{AdmissionSettings, GroupSettings};
use crate::traffic::Traffic;

/// A batch as the logs have it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub(super) partition: PartitionId,
    pub(super) first: Offset,
    pub(super) end: Offset,
    pub(super) time: WallMs,
    pub(super) bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Recorded(pub(super) Vec<Batch>);

impl Logs for Recorded {
    fn traffic(&self, _topic: TopicId) -> Option<Arc<Traffic>> {
        None
    }

    fn ledger(&self, partition: PartitionId) -> Ledger {
        let mut ledger = Ledger::default();
        for it in self.0.iter().filter(|it| it.partition == partition) {
            let times = (it.time, it.time);
            ledger.add((it.first, it.end), times, it.bytes, Offset::ZERO);
        }
        ledger
    }
}

/// A state, its logs and the gates beside them.
#[derive(Debug, Default)]
pub(super) struct Site {
    pub(super) bench: Bench,
    pub(super) logs: Recorded,
    pub(super) admission: Admission,
    pub(super) dice: u8,
}

impl Site {
    pub(super) fn with_topics() -> Self {
        let mut site = Self::default();
        site.must(create_topic(1, "orders", 2));
        site.must(create_topic(2, "bills", 1));
        site
    }

    /// With group `email` on `orders`, and its limits.
    pub(super) fn watched(limits: AdmissionSettings) -> Self {
        let mut site = Self::with_topics();
        site.must(create_group("email", vec![group_topic(1, &[])]));
        site.limit("email", limits);
        site
    }

    pub(super) fn limit(&mut self, group: &str, admission: AdmissionSettings) {
        self.must(Change::UpdateGroup {
            group: group_name(group),
            settings: GroupSettings {
                admission,
                ..GroupSettings::default()
            },
        });
    }

    pub(super) fn must(&mut self, change: Change) {
        let applied = self.bench.run(change);
        assert!(applied.outcome.is_ok(), "{:?}", applied.outcome);
        let command = self.bench.log.last().unwrap().clone();
        self.told(&command, &applied);
    }

    pub(super) fn told(&mut self, command: &Command, applied: &Applied) {
        for effect in &applied.effects {
            if let Effect::Append {
                partition,
                base_offset,
                record_count,
                append_time,
                part,
                ..
            } = effect
            {
                let parts = &command.change.append().unwrap().parts;
                self.logs.0.push(Batch {
                    partition: *partition,
                    first: *base_offset,
                    end: base_offset.plus(u64::from(*record_count)),
                    time: *append_time,
                    bytes: parts[*part].body.len() as u64,
                });
            }
        }
        let from = (&self.bench.state, &self.logs as &dyn Logs);
        self.admission
            .applied((command, applied), from, self.bench.stamp);
        self.admission.check_invariants();
    }

    /// Offers requests together and carries out those that are let in; says what became of each.
    pub(super) fn offer_all(
        &mut self,
        requests: Vec<AppendRequest>,
    ) -> Vec<Result<u64, CallError>> {
        let mut backlog = Backlog::default();
        let mut answers = Vec::new();
        for request in requests {
            let (reply, answer) = oneshot::channel();
            answers.push(answer);
            backlog.push_back(Pending::Append(request, reply, None));
        }
        self.dice = self.dice.wrapping_add(41);
        let dice = self.dice;
        let mut draft = Draft::gather(
            &mut backlog,
            &mut Drafting {
                state: &self.bench.state,
                stamp: self.bench.stamp,
                limits: &CountLimits::default(),
                append_limits: AppendLimits::default(),
                live: &|_| Live::default(),
                member: &|_, _, _| Ok(()),
                admission: &mut self.admission,
                dice: &mut || [dice; 16],
            },
        );
        assert!(backlog.is_empty());
        let origins = std::mem::take(&mut draft.origins);
        for (command, origin) in draft.commands.into_iter().zip(origins) {
            self.bench.log.push(command.clone());
            let sequence = Sequence::new(self.bench.log.len() as u64);
            let applied = self.bench.state.apply(sequence, &command);
            let Ok(Outcome::Appended(appended)) = applied.outcome.clone() else {
                panic!("an append had the outcome {:?}", applied.outcome)
            };
            if let Origin::Append(reply, _) = origin {
                reply.send(Ok(appended)).unwrap();
            }
            self.told(&command, &applied);
        }
        let told = |mut answer: oneshot::Receiver<Result<_, _>>| answer.try_recv().unwrap();
        let first = |it: Appended| it.parts[0].base_offset.get();
        answers.into_iter().map(|it| told(it).map(first)).collect()
    }

    pub(super) fn offer(
        &mut self,
        partition: PartitionId,
        records: u32,
    ) -> Result<u64, Box<TurnedAway>> {
        let answer = self.offer_all(vec![request_of(partition, records)]);
        match answer.into_iter().next().unwrap() {
            Ok(first) => Ok(first),
            Err(CallError::TurnedAway(turned)) => Err(turned),
            Err(other) => panic!("{other}"),
        }
    }

    pub(super) fn settle(&mut self, partition: PartitionId, first: u64, last: u64) {
        let change = self.bench.settle("email", partition, &[(first, last)]);
        self.must(change);
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.bench.pass(ms);
        self.admission.tick(self.bench.stamp);
    }

    pub(super) fn is_closed(&self) -> bool {
        let view = self.admission.view(&group_name("email"), self.bench.stamp);
        view.is_some_and(|view| view.closed_by.is_some())
    }

    pub(super) fn turned_away(&self) -> u64 {
        let view = self.admission.view(&group_name("email"), self.bench.stamp);
        view.unwrap().turned_away
    }

    /// The broker stops, and starts with the state alone.
    pub(super) fn restart(&mut self) {
        self.bench.restart();
        let from = (&self.bench.state, &self.logs as &dyn Logs);
        self.admission = Admission::of(from, self.bench.stamp);
    }
}

pub(super) fn request_of(partition: PartitionId, record_count: u32) -> AppendRequest {
    let body = Bytes::from(vec![7; record_count as usize * 100]);
    AppendRequest {
        request: None,
        parts: vec![AppendRequestPart {
            partition,
            record_count,
            producer: None,
            delays_ms: Vec::new(),
            ids: Vec::new(),
            body,
        }],
    }
}

pub(super) fn depth(depth_max: u64) -> AdmissionSettings {
    AdmissionSettings {
        depth_max,
        ..AdmissionSettings::default()
    }
}

pub(super) fn age(age_max_ms: u64) -> AdmissionSettings {
    AdmissionSettings {
        age_max_ms,
        ..AdmissionSettings::default()
    }
}
