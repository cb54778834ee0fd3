//! Failures and delays of group `g` in partition 0 of topic `a`: what they do, and what is seen of
//! them.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_broker::core::command::{
    Append, AppendPart, Change, Command, HandOut, MakeDue, Settle,
};
use varvelog_broker::core::dead_letters::{Cause, Claims, Death, Job, Queue};
use varvelog_broker::core::durable_groups::DurableGroup;
use varvelog_broker::core::durable_groups::Progress;
use varvelog_broker::core::failure::{Ending, ErrorClass, FailureNote, FailureText, Wait};
use varvelog_broker::core::forecast::RoundForecast;
use varvelog_broker::core::handed_out::HandedOut;
use varvelog_broker::core::message_ids::PartIds;
use varvelog_broker::core::request::LeaseId;
use varvelog_broker::core::retries::RetryEntry;
use varvelog_store::{Offset, PartitionId, WallMs};

use super::model::Model;
use super::world::{Died, World, batch, group, read};

/// One thing that befalls a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It is done, and its copy lies in the retry topic.
    Retry(u64),
    /// The same of a record of the retry topic.
    RetryAgain(u64),
    /// It is done, and its copy lies in the dead-letter topic.
    Bury(u64),
    /// It is done, and two new records lie in the topic.
    Produce(u64),
    /// A record of the retry topic is done.
    SettleRetry(u64),
    /// It failed and stays in place.
    Note(u64),
    /// First and last record, written lazily: a crash may forget it.
    HandOut(u64, u64),
    /// A record of the retry topic is due at once.
    MakeDue(u64),
    /// So many are appended, and the first is not to be given out before its time.
    AppendDelayed(u32),
    /// A replay claims all dead letters that are nobody's.
    StartReplay,
    /// Of a replay, the first entry that it has is given out again.
    ReplayOne(u64),
    /// A dead letter is dropped, unless a replay has it.
    Discard(u64),
}

/// What there is of failures and delays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Deliveries {
    /// Values in the retry and in the dead-letter topic.
    pub(super) copies: [Vec<String>; 2],
    /// Copies that are not done: their origins, and whether they are due.
    pub(super) pending: BTreeMap<u64, (u64, bool)>,
    /// Entries of the dead-letter topic: what they died of, the record's own value.
    pub(super) dead: BTreeMap<u64, String>,
    /// Deaths, by the trend.
    pub(super) deaths: u64,
    /// Entries that a replay has.
    pub(super) claimed: BTreeMap<u64, u64>,
    /// Of each replay: what it claimed, gave out, and whether it goes on.
    pub(super) replays: Vec<(u64, u64, bool)>,
    pub(super) notes: BTreeSet<u64>,
    pub(super) delayed: BTreeSet<u64>,
}

/// Due times before this one are of the past.
pub(super) const LATER: WallMs = WallMs(1_000_000);

impl Deliveries {
    /// The first entry that a replay has.
    pub(super) fn next_of(&self, number: u64) -> u64 {
        let mut claimed = self.claimed.iter();
        *claimed.find(|(_, of)| **of == number).unwrap().0
    }
}

impl Model {
    /// What a delivery does if it is carried out.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Retry(at) => {
                let value = self.finish(at);
                self.schedule(value, at);
            }
            Delivery::RetryAgain(at) => {
                let (origin, _) = self.deliveries.pending.remove(&at).unwrap();
                let value = self.deliveries.copies[0][usize::try_from(at).unwrap()].clone();
                self.schedule(value, origin);
            }
            Delivery::Bury(at) => {
                let value = self.finish(at);
                let entry = u64::try_from(self.deliveries.copies[1].len()).unwrap();
                self.deliveries.dead.insert(entry, value.clone());
                self.deliveries.deaths += 1;
                self.deliveries.copies[1].push(value);
            }
            Delivery::Produce(at) => {
                self.finish(at);
                self.append("a", 0, 2);
            }
            Delivery::SettleRetry(at) => {
                self.deliveries.pending.remove(&at).unwrap();
            }
            Delivery::Note(at) => {
                self.deliveries.notes.insert(at);
            }
            Delivery::HandOut(..) => {}
            Delivery::MakeDue(at) => self.deliveries.pending.get_mut(&at).unwrap().1 = true,
            Delivery::AppendDelayed(count) => {
                let first = self.topics["a"][0].values.len();
                self.deliveries
                    .delayed
                    .insert(u64::try_from(first).unwrap());
                self.append("a", 0, count);
            }
            Delivery::StartReplay => {
                let deliveries = &mut self.deliveries;
                let number = u64::try_from(deliveries.replays.len()).unwrap() + 1;
                let mut matched = 0;
                for at in deliveries.dead.keys() {
                    if !deliveries.claimed.contains_key(at) {
                        deliveries.claimed.insert(*at, number);
                        matched += 1;
                    }
                }
                deliveries.replays.push((matched, 0, matched > 0));
            }
            Delivery::ReplayOne(number) => {
                let deliveries = &mut self.deliveries;
                let at = deliveries.next_of(number);
                deliveries.claimed.remove(&at);
                let value = deliveries.dead.remove(&at).unwrap();
                let is_last = deliveries.claimed.values().all(|of| *of != number);
                let replay = &mut deliveries.replays[usize::try_from(number - 1).unwrap()];
                replay.1 += 1;
                replay.2 = !is_last;
                self.schedule(value, at);
            }
            Delivery::Discard(at) => {
                if !self.deliveries.claimed.contains_key(&at) {
                    self.deliveries.dead.remove(&at);
                }
            }
        }
    }

    /// Marks a record as done and returns its value.
    fn finish(&mut self, at: u64) -> String {
        let key = ("g".to_owned(), "a".to_owned(), 0);
        let low = self.low.get_mut(&key).unwrap();
        assert_eq!(*low, at, "scenarios settle in order");
        *low = at + 1;
        self.deliveries.notes.remove(&at);
        self.value(at)
    }

    fn value(&self, at: u64) -> String {
        self.topics["a"][0].values[usize::try_from(at).unwrap()].clone()
    }

    fn schedule(&mut self, value: String, origin: u64) {
        let retries = &mut self.deliveries.copies[0];
        let at = u64::try_from(retries.len()).unwrap();
        retries.push(value);
        self.deliveries.pending.insert(at, (origin, false));
    }
}

impl World {
    pub(super) fn deliver(&mut self, delivery: Delivery, model: &Model) -> Result<(), Died> {
        let change = match delivery {
            Delivery::Retry(at) => self.retry((self.source(), at), at, model.value(at)),
            Delivery::RetryAgain(at) => {
                let value = model.deliveries.copies[0][usize::try_from(at).unwrap()].clone();
                let origin = model.deliveries.pending[&at].0;
                self.retry((self.derived(0), at), origin, value)
            }
            Delivery::Bury(at) => {
                let ending = Some(Ending::DeadLettered);
                let mut settle = self.settlement(self.source(), at, ending);
                settle.append.parts = vec![new_part(self.derived(1), &[model.value(at)])];
                settle.deaths = vec![(0, vec![death(model.value(at))])];
                settle
            }
            Delivery::Produce(at) => {
                let mut settle = self.settlement(self.source(), at, None);
                settle.append.parts = vec![new_part(self.source(), &model.next_values(2))];
                settle
            }
            Delivery::SettleRetry(at) => self.settlement(self.derived(0), at, None),
            Delivery::Note(at) => {
                let mut settle = self.settlement(self.source(), at, None);
                settle.ranges.clear();
                settle.notes = vec![(offset(at), note())];
                settle
            }
            Delivery::HandOut(first, last) => return self.hand_out(first, last),
            Delivery::MakeDue(at) => return self.make_due(at),
            Delivery::StartReplay => return self.start_replay(model),
            Delivery::ReplayOne(number) => return self.replay_one(number, model),
            Delivery::Discard(at) => {
                let mut claims = Claims::new();
                claims.add(0, offset(at), false);
                return self.discard(claims);
            }
            Delivery::AppendDelayed(count) => {
                let mut part = new_part(self.source(), &model.next_values(count));
                part.delays = vec![(0, LATER)];
                return self.append_parts(vec![part]);
            }
        };
        self.commit_settle(change)
    }

    fn source(&self) -> PartitionId {
        self.id("a", 0)
    }

    /// Partition 0 of the retry topic, or with 1 of the dead-letter topic.
    pub(super) fn derived(&self, which: usize) -> PartitionId {
        self.id(["a.g.retry", "a.g.dlq"][which], 0)
    }

    fn durable(&self) -> &DurableGroup {
        let state = self.engine.applier.state();
        state.groups.get(&group("g")).unwrap()
    }

    fn settlement(&self, from: PartitionId, at: u64, ending: Option<Ending>) -> Settle {
        let durable = self.durable();
        let resets = durable.progress(from).map_or(0, Progress::reset_count);
        Settle {
            ranges: vec![(offset(at), offset(at))],
            endings: ending
                .map(|ending| (offset(at), ending))
                .into_iter()
                .collect(),
            ..Settle::of(group("g"), durable.id, resets, from)
        }
    }

    fn retry(&self, (from, at): (PartitionId, u64), origin: u64, value: String) -> Settle {
        let mut settle = self.settlement(from, at, Some(Ending::Retried));
        settle.append.parts = vec![new_part(self.derived(0), &[value])];
        let entry = RetryEntry {
            due: LATER,
            origin: offset(origin),
            failures: 1,
            suspect: false,
        };
        settle.retries = vec![(0, vec![entry])];
        settle
    }

    fn commit_settle(&mut self, mut settle: Settle) -> Result<(), Died> {
        let (mut round, stamp) = (RoundForecast::default(), self.engine.applier.stamp());
        let state = self.engine.applier.state();
        state
            .predict_settle(&mut round, &mut settle, stamp)
            .unwrap();
        self.commit(Change::Settle(settle)).map(drop)
    }

    fn append_parts(&mut self, parts: Vec<AppendPart>) -> Result<(), Died> {
        let mut append = Append {
            request: None,
            parts,
        };
        let (mut round, stamp) = (RoundForecast::default(), self.engine.applier.stamp());
        let state = self.engine.applier.state();
        state.predict(&mut round, &mut append, stamp).unwrap();
        self.commit(Change::Append(append)).map(drop)
    }

    fn make_due(&mut self, at: u64) -> Result<(), Died> {
        let records = vec![(self.derived(0), offset(at))];
        let group = group("g");
        self.commit(Change::MakeDue(MakeDue { group, records }))
            .map(drop)
    }

    /// As the core does: written and applied, not synced.
    fn hand_out(&mut self, first: u64, last: u64) -> Result<(), Died> {
        let settle = self.settlement(self.source(), first, None);
        let change = Change::HandOut(HandOut {
            group: settle.group,
            group_id: settle.group_id,
            reset_count: settle.reset_count,
            partition: settle.partition,
            first: offset(first),
            out: HandedOut {
                last: offset(last),
                attempt: 1,
                lease: LeaseId(first),
                run: 1,
                member: "m".to_owned(),
                ack_timeout_ms: 30_000,
            },
        });
        let (wall, mono) = self.now();
        let stamp = self.engine.stamp(wall, mono);
        let written = self.engine.write(vec![Command { stamp, change }]);
        let round = written.map_err(|_error| Died)?;
        self.engine.apply(&round, |_, _, applied, _| {
            applied.outcome.expect("scenarios ask for what can be done");
        });
        Ok(())
    }

    /// What there is of failures and delays; nothing without the topic and the group.
    pub(super) fn see_deliveries(&self) -> Deliveries {
        let state = self.engine.applier.state();
        let mut seen = Deliveries::default();
        let Some(topic) = state.topics.iter().find(|topic| topic.name.as_str() == "a") else {
            return seen;
        };
        let delayed = topic.partitions[0].delayed().iter();
        seen.delayed = delayed.map(|(at, _)| at.get()).collect();
        let Some(durable) = state.groups.get(&group("g")) else {
            return seen;
        };
        let Some(reads) = durable.topics.get(&topic.id) else {
            return seen;
        };
        let catalog = self.engine.applier.view().catalog();
        for (values, topic) in seen.copies.iter_mut().zip([reads.retry, reads.dead_letter]) {
            *values = read(&catalog.by_id[&topic].partitions[0].reader).1;
        }
        let pending = reads.retries[0].pending().iter();
        let shown = |entry: &RetryEntry| (entry.origin.get(), entry.due < LATER);
        seen.pending = pending.map(|(at, it)| (at.get(), shown(it))).collect();
        if let Some(queue) = state.dead_letters.get(reads.dead_letter) {
            seen.dead = died_of(queue);
            let claims = queue.entries(0);
            let claims = claims.filter_map(|(at, entry)| Some((at.get(), entry.job?.0)));
            seen.claimed = claims.collect();
            let jobs = state.dead_letters.jobs().iter();
            let shown = |job: &Job| (job.matched, job.replayed, job.state.is_active());
            seen.replays = jobs.map(shown).collect();
            let steps = queue.trend().hours().iter();
            seen.deaths = steps.map(|step| step.moves.arrived).sum();
        }
        seen.notes = reads.partitions[0]
            .notes()
            .keys()
            .map(|at| at.get())
            .collect();
        seen
    }
}

fn death(code: String) -> Death {
    let cause = Cause {
        code,
        ..Cause::default()
    };
    Death {
        at: WallMs(1),
        bytes: 1,
        cause,
        replays: 0,
        replayed_by: None,
        parked_key: None,
    }
}

fn died_of(queue: &Queue) -> BTreeMap<u64, String> {
    let cause = |number| queue.causes().get(number).unwrap().code.clone();
    let entries = queue.entries(0);
    entries
        .map(|(at, entry)| (at.get(), cause(entry.cause)))
        .collect()
}

pub(super) fn offset(at: u64) -> Offset {
    Offset::new(at).unwrap()
}

pub(super) fn new_part(partition: PartitionId, values: &[String]) -> AppendPart {
    AppendPart {
        partition,
        record_count: u32::try_from(values.len()).unwrap(),
        producer: None,
        predicted: None,
        delays: Vec::new(),
        ids: PartIds::default(),
        body: batch(values),
    }
}

fn note() -> FailureNote {
    FailureNote {
        failures: 1,
        class: ErrorClass::Transient,
        wait: Wait::Until(LATER),
        first_failure: WallMs(1),
        text: FailureText::default(),
        consumer: "m".to_owned(),
        log: Vec::new(),
    }
}
