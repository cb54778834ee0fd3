//! The pipeline against a model of a broker: any schedule of pushes, answers, refusals, breaks and
//! lapses of time, then quiet until everything is settled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use proptest::prelude::*;
use tokio::time::Instant;
use tonic::Code;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchError, ProducerStamp};

use super::error::SendError;
use super::lane::Identity;
use super::pipeline::{Encode, Outgoing, Pipeline, PipelineConfig, Settled};
use crate::error::{CallError, reason};
use crate::retry::BackoffConfig;

/// A payload is its own number; its batch is that, the record count and the stamp.
struct Plain;

impl Encode<u32> for Plain {
    fn encode(&mut self, payload: &u32, stamp: Option<ProducerStamp>) -> Result<Bytes, BatchError> {
        let mut body = BytesMut::new();
        body.put_u32(*payload);
        if let Some(stamp) = stamp {
            body.put_i64(stamp.id);
            body.put_i16(stamp.epoch);
            body.put_i32(stamp.base_sequence);
        }
        Ok(body.freeze())
    }
}

fn records_of(payload: u32) -> u32 {
    1 + payload % 3
}

#[derive(Debug, Default)]
struct Sequences {
    next: i32,
    /// The last five: base sequence and offset.
    recent: VecDeque<(i32, i64)>,
}

/// Broker, as far as a producer can tell.
#[derive(Debug, Default)]
struct Model {
    logs: BTreeMap<u32, Vec<u32>>,
    producers: BTreeSet<i64>,
    sequences: BTreeMap<(i64, u32), Sequences>,
    next_producer: i64,
    /// These payloads are refused for good.
    poison: BTreeSet<u32>,
}

enum Verdict {
    New,
    Duplicate(i64),
}

impl Model {
    fn init_producer(&mut self) -> Identity {
        self.next_producer += 1;
        self.producers.insert(self.next_producer);
        Identity {
            id: self.next_producer,
            epoch: 0,
        }
    }

    /// All or nothing.
    fn append(&mut self, request: &Outgoing) -> Result<v1::ProduceResponse, CallError> {
        let mut verdicts = Vec::new();
        for batch in &request.batches {
            verdicts.push(self.judge(batch)?);
        }
        let appended = request.batches.iter().zip(verdicts);
        let results = appended
            .map(|(batch, verdict)| self.take(batch, &verdict))
            .collect();
        Ok(v1::ProduceResponse {
            results,
            ..Default::default()
        })
    }

    fn judge(&self, batch: &v1::PartitionBatch) -> Result<Verdict, CallError> {
        let (payload, stamp) = parse(batch);
        if self.poison.contains(&payload) {
            return Err(refusal(Code::InvalidArgument, "RECORD_TOO_LARGE", &[]));
        }
        let Some(stamp) = stamp else {
            return Ok(Verdict::New);
        };
        if !self.producers.contains(&stamp.id) {
            return Err(refusal(
                Code::FailedPrecondition,
                reason::PRODUCER_UNKNOWN,
                &[],
            ));
        }
        let got = stamp.base_sequence;
        let key = (stamp.id, batch.partition.unsigned_abs());
        let Some(known) = self.sequences.get(&key) else {
            return if got == 0 {
                Ok(Verdict::New)
            } else {
                Err(gap(0, got))
            };
        };
        match known.recent.iter().find(|(base, _)| *base == got) {
            Some((_, offset)) => Ok(Verdict::Duplicate(*offset)),
            None if got == known.next => Ok(Verdict::New),
            None if got > known.next => Err(gap(known.next, got)),
            None => Err(refusal(
                Code::FailedPrecondition,
                reason::SEQUENCE_TOO_OLD,
                &[],
            )),
        }
    }

    fn take(&mut self, batch: &v1::PartitionBatch, verdict: &Verdict) -> v1::AppendResult {
        let partition = batch.partition.unsigned_abs();
        let (payload, stamp) = parse(batch);
        let log = self.logs.entry(partition).or_default();
        let (offset, duplicate) = match verdict {
            Verdict::Duplicate(offset) => (*offset, true),
            Verdict::New => {
                log.push(payload);
                (i64::try_from(log.len()).expect("short") - 1, false)
            }
        };
        if let (Some(stamp), false) = (stamp, duplicate) {
            let known = self.sequences.entry((stamp.id, partition)).or_default();
            known.next = stamp.base_sequence + records_of(payload).cast_signed();
            known.recent.push_back((stamp.base_sequence, offset));
            if known.recent.len() > 5 {
                known.recent.pop_front();
            }
        }
        v1::AppendResult {
            partition: batch.partition,
            offset,
            epoch: 1,
            duplicate,
        }
    }

    fn forget_producers(&mut self) {
        self.producers.clear();
        self.sequences.clear();
    }
}

fn parse(batch: &v1::PartitionBatch) -> (u32, Option<ProducerStamp>) {
    let mut body = batch.batch.clone();
    let payload = body.get_u32();
    let stamp = body.has_remaining().then(|| ProducerStamp {
        id: body.get_i64(),
        epoch: body.get_i16(),
        base_sequence: body.get_i32(),
    });
    (payload, stamp)
}

fn refusal(code: Code, reason: &str, metadata: &[(&str, i32)]) -> CallError {
    CallError::from(v1::StreamError {
        code: code as i32,
        reason: reason.to_owned(),
        metadata: metadata
            .iter()
            .map(|(k, v)| ((*k).to_owned(), v.to_string()))
            .collect(),
        ..Default::default()
    })
}

fn gap(expected: i32, got: i32) -> CallError {
    let metadata = [("expected", expected), ("got", got)];
    refusal(Code::FailedPrecondition, reason::SEQUENCE_GAP, &metadata)
}

fn busy() -> CallError {
    CallError::from(v1::StreamError {
        code: Code::ResourceExhausted as i32,
        reason: "BROKER_BUSY".to_owned(),
        retry_after: Some(prost_types::Duration {
            seconds: 0,
            nanos: 50_000_000,
        }),
        ..Default::default()
    })
}

fn broken() -> CallError {
    CallError::local(Code::Unavailable, "the connection broke")
}

const CONFIG: PipelineConfig = PipelineConfig {
    in_flight: 4,
    in_flight_per_partition: 4,
    request_bytes: 30,
    idempotent: true,
    named: false,
    delivery_timeout: Duration::from_secs(5),
    request_timeout: Duration::from_mins(1),
    backoff: BackoffConfig {
        base: Duration::from_millis(10),
        max: Duration::from_millis(100),
    },
};

#[derive(Debug, Clone)]
enum Step {
    Push(u32),
    PushPoison(u32),
    /// Send what may be sent.
    Pump,
    /// The broker takes the oldest request and answers it.
    Process,
    /// The broker refuses the oldest request for now.
    Refuse,
    /// The oldest answer arrives.
    Answer,
    /// The connection breaks once the broker has taken so many of what it was sent.
    Break(usize),
    Forget,
    Wait(u64),
}

fn steps(forgetful: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0_u32..3).prop_map(Step::Push),
        1 => (0_u32..3).prop_map(Step::PushPoison),
        6 => Just(Step::Pump),
        6 => Just(Step::Process),
        2 => Just(Step::Refuse),
        6 => Just(Step::Answer),
        2 => (0_usize..5).prop_map(Step::Break),
        u32::from(forgetful) => Just(Step::Forget),
        3 => (0_u64..2_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..120)
}

struct World {
    now: Instant,
    pipeline: Pipeline<u32>,
    model: Model,
    inbox: VecDeque<Outgoing>,
    answers: VecDeque<(i64, Result<v1::ProduceResponse, CallError>)>,
    pushed: Vec<(u32, u32)>,
    settled: Vec<Settled<u32>>,
}

impl World {
    fn new(config: PipelineConfig) -> Self {
        let mut model = Model::default();
        let identity = config.idempotent.then(|| model.init_producer());
        Self {
            now: crate::clock::now(),
            pipeline: Pipeline::new(config, identity),
            model,
            inbox: VecDeque::new(),
            answers: VecDeque::new(),
            pushed: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn push(&mut self, partition: u32, poison: bool) {
        let payload = u32::try_from(self.pushed.len()).expect("short");
        self.pushed.push((partition, payload));
        if poison {
            self.model.poison.insert(payload);
        }
        self.pipeline
            .push(self.now, partition, payload, records_of(payload), 10);
    }

    fn pump(&mut self) {
        if self.pipeline.wants_identity() {
            let identity = self.model.init_producer();
            self.pipeline.set_identity(identity);
        }
        while let Some(outgoing) = self.pipeline.next_request(self.now, &mut Plain) {
            let partitions: BTreeSet<_> = outgoing.batches.iter().map(|b| b.partition).collect();
            assert_eq!(
                partitions.len(),
                outgoing.batches.len(),
                "one batch of each partition"
            );
            assert!(self.inbox.len() + self.answers.len() < CONFIG.in_flight);
            self.inbox.push_back(outgoing);
        }
    }

    fn process(&mut self, refuse: bool) {
        if let Some(request) = self.inbox.pop_front() {
            let answer = if refuse {
                Err(busy())
            } else {
                self.model.append(&request)
            };
            self.answers.push_back((request.sequence, answer));
        }
    }

    fn answer(&mut self) {
        if let Some((sequence, answer)) = self.answers.pop_front() {
            let taken = self.pipeline.answered(self.now, sequence, answer, 0.5);
            taken.expect("the model keeps to the contract");
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Push(partition) => self.push(partition, false),
            Step::PushPoison(partition) => self.push(partition, true),
            Step::Pump => self.pump(),
            Step::Process => self.process(false),
            Step::Refuse => self.process(true),
            Step::Answer => self.answer(),
            Step::Break(arrived) => {
                (0..arrived).for_each(|_| self.process(false));
                self.inbox.clear();
                self.answers.clear();
                self.pipeline.broken(self.now, &broken(), 0.5);
            }
            Step::Forget => self.model.forget_producers(),
            Step::Wait(ms) => {
                self.now += Duration::from_millis(ms);
                self.pipeline.expire(self.now);
            }
        }
        self.settled.extend(self.pipeline.take_settled());
    }

    /// No more faults: everything must be settled, well before its time is up.
    fn settle_down(&mut self) {
        for _ in 0..1_000 {
            if self.pipeline.is_idle() {
                return;
            }
            for step in [Step::Pump, Step::Process, Step::Answer, Step::Wait(20)] {
                self.take(&step);
            }
        }
        panic!("not settled: {:?}", self.pipeline);
    }

    fn count(&self, partition: u32, payload: u32) -> usize {
        let log = self.model.logs.get(&partition);
        log.map_or(0, |log| {
            log.iter().filter(|logged| **logged == payload).count()
        })
    }

    fn check(&self, exactly_once: bool) {
        let mut settled: Vec<_> = self.settled.iter().map(|settled| settled.payload).collect();
        settled.sort_unstable();
        let pushed: Vec<_> = self.pushed.iter().map(|(_, payload)| *payload).collect();
        assert_eq!(settled, pushed, "each is settled once");
        for Settled { payload, outcome } in &self.settled {
            let (partition, _) = self.pushed[usize::try_from(*payload).expect("small")];
            let count = self.count(partition, *payload);
            assert!(
                count <= 1 || !exactly_once,
                "{payload} is there {count} times"
            );
            match outcome {
                Ok(placed) => {
                    let place = usize::try_from(placed.offset).expect("not negative");
                    assert_eq!(self.model.logs[&partition][place], *payload);
                }
                Err(error) => {
                    assert!(count == 0 || error.may_have_applied(), "{payload}: {error}");
                }
            }
        }
        for log in self.model.logs.values().filter(|_| exactly_once) {
            assert!(log.is_sorted(), "order is kept: {log:?}");
        }
    }
}

fn run(config: PipelineConfig, steps: &[Step]) -> World {
    let mut world = World::new(config);
    for step in steps {
        world.take(step);
    }
    world.settle_down();
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn whatever_happens_each_batch_is_there_once_in_order_or_its_error_says_so(
        steps in steps(false),
    ) {
        run(CONFIG, &steps).check(true);
    }

    #[test]
    fn a_broker_that_forgets_producers_makes_no_error_dishonest(steps in steps(true)) {
        run(CONFIG, &steps).check(true);
    }

    #[test]
    fn without_idempotence_nothing_is_lost_or_promised_falsely(steps in steps(false)) {
        run(PipelineConfig { idempotent: false, ..CONFIG }, &steps).check(false);
    }
}

fn push_all(world: &mut World, partitions: &[u32]) {
    for partition in partitions {
        world.push(*partition, false);
    }
}

#[test]
fn an_answer_lost_after_the_append_is_made_up_for_by_a_duplicate() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 0, 0]);
    world.take(&Step::Pump);
    world.take(&Step::Break(2));
    assert_eq!(world.model.logs[&0], [0, 1]);
    world.settle_down();
    world.check(true);
    let duplicate = |settled: &Settled<u32>| settled.outcome.as_ref().is_ok_and(|p| p.duplicate);
    assert_eq!(
        world.settled.iter().map(duplicate).collect::<Vec<_>>(),
        [true, true, false]
    );
}

#[test]
fn a_poisoned_batch_fails_alone_and_the_ones_behind_it_go_on() {
    let mut world = World::new(CONFIG);
    world.push(0, false);
    world.push(0, true);
    world.push(0, false);
    world.push(1, false);
    world.settle_down();
    world.check(true);
    let failed = world
        .settled
        .iter()
        .filter(|settled| settled.outcome.is_err());
    assert_eq!(
        failed.map(|settled| settled.payload).collect::<Vec<_>>(),
        [1]
    );
    assert_eq!(world.model.logs[&0], [0, 2]);
    assert_eq!(world.model.next_producer, 1, "no new identity was needed");
}

#[test]
fn a_refusal_with_a_time_is_not_tried_before_that_time() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Refuse);
    world.take(&Step::Answer);
    world.take(&Step::Wait(49));
    world.take(&Step::Pump);
    assert!(world.inbox.is_empty());
    assert!(world.pipeline.next_wakeup(world.now) <= Some(world.now + Duration::from_millis(1)));
    world.take(&Step::Wait(1));
    world.take(&Step::Pump);
    assert_eq!(world.inbox.len(), 1);
}

#[test]
fn out_of_time_in_flight_may_have_applied_and_refused_has_not() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    push_all(&mut world, &[1]);
    world.take(&Step::Wait(5_000));
    let may: Vec<_> = world
        .settled
        .iter()
        .map(|settled| settled.outcome.as_ref().expect_err("out of time"))
        .map(|error| {
            (
                matches!(error, SendError::TimedOut { .. }),
                error.may_have_applied(),
            )
        })
        .collect();
    assert_eq!(may, [(true, true), (true, false)]);
}

#[test]
fn an_abandoned_batch_that_was_appended_leaves_no_gap() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(5_000));
    push_all(&mut world, &[0]);
    world.settle_down();
    assert_eq!(world.model.logs[&0], [0, 1]);
    assert_eq!(world.model.next_producer, 1);
}

#[test]
fn an_abandoned_batch_of_unknown_fate_costs_a_new_identity() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(5_000));
    world.take(&Step::Break(0));
    push_all(&mut world, &[0]);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.logs[&0], [1]);
    assert_eq!(world.model.next_producer, 2);
}

#[test]
fn a_fenced_producer_takes_nothing_more() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 0]);
    world.take(&Step::Pump);
    let sequence = world.inbox[0].sequence;
    let fenced = refusal(Code::Aborted, reason::PRODUCER_FENCED, &[("epoch", 3)]);
    world
        .pipeline
        .answered(world.now, sequence, Err(fenced), 0.5)
        .expect("in order");
    push_all(&mut world, &[0]);
    world.take(&Step::Wait(0));
    assert!(world.pipeline.has_ended() && world.pipeline.is_idle());
    let fenced = |settled: &Settled<u32>| {
        let error = settled.outcome.as_ref().expect_err("fenced");
        matches!(error, SendError::Refused { error, .. } if error.is(reason::PRODUCER_FENCED))
    };
    assert!(world.settled.iter().all(fenced));
    assert_eq!(world.settled.len(), 3);
}

#[test]
fn an_answer_out_of_turn_is_a_fault_of_the_stream() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    let answer = Ok(v1::ProduceResponse::default());
    assert!(
        world
            .pipeline
            .answered(world.now, 99, answer.clone(), 0.5)
            .is_err()
    );
    let sequence = world.inbox[0].sequence;
    assert!(
        world
            .pipeline
            .answered(world.now, sequence, answer, 0.5)
            .is_err(),
        "too few results"
    );
    world.take(&Step::Break(1));
    world.settle_down();
    world.check(true);
}

#[test]
fn a_stream_that_can_never_be_opened_fails_what_waits() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 1]);
    let refused = refusal(Code::PermissionDenied, "NOT_ALLOWED", &[]);
    world.pipeline.broken(world.now, &refused, 0.5);
    world.take(&Step::Wait(0));
    assert_eq!(world.settled.len(), 2);
    assert!(world.settled.iter().all(|settled| {
        settled
            .outcome
            .as_ref()
            .is_err_and(|error| !error.may_have_applied())
    }));
}

#[test]
fn a_named_producer_renews_all_partitions_at_once() {
    let mut world = World::new(PipelineConfig {
        named: true,
        ..CONFIG
    });
    push_all(&mut world, &[0, 1, 2]);
    world.settle_down();
    world.model.forget_producers();
    push_all(&mut world, &[0, 1, 2, 0]);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.next_producer, 2);
}

#[test]
fn a_forgotten_producer_is_told_at_once_about_a_batch_of_unknown_fate() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Break(1));
    world.model.forget_producers();
    push_all(&mut world, &[0]);
    world.settle_down();
    world.check(true);
    let error = world.settled[0].outcome.as_ref().expect_err("not known");
    assert!(
        matches!(error, SendError::Refused { error, .. } if error.is(reason::PRODUCER_UNKNOWN))
    );
    assert!(error.may_have_applied());
    assert_eq!(world.model.logs[&0], [0, 1]);
}

#[test]
fn a_batch_that_came_back_is_not_sent_past_those_in_flight_behind_it() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0, 0]);
    for step in [
        Step::Pump,
        Step::Refuse,
        Step::Answer,
        Step::Wait(100),
        Step::Pump,
    ] {
        world.take(&step);
    }
    assert_eq!(world.inbox.len(), 1, "only the second is out");
    for step in [Step::Process, Step::Answer, Step::Pump] {
        world.take(&step);
    }
    assert_eq!(world.inbox.len(), 2, "both are sent again");
    world.settle_down();
    world.check(true);
}

#[test]
fn sequences_go_on_from_the_lowest_batch_that_was_not_taken() {
    let mut world = World::new(CONFIG);
    world.push(0, false);
    world.push(0, true);
    world.take(&Step::Pump);
    world.take(&Step::Refuse);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.logs[&0], [0]);
    assert_eq!(world.model.next_producer, 1);
}

#[test]
fn before_a_new_identity_only_batches_of_unknown_fate_go_out() {
    let mut world = World::new(CONFIG);
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(4_000));
    push_all(&mut world, &[0]);
    world.take(&Step::Pump);
    world.take(&Step::Wait(1_000));
    world.take(&Step::Break(0));
    push_all(&mut world, &[0]);
    world.take(&Step::Wait(1_000));
    world.take(&Step::Pump);
    let out: Vec<_> = world
        .inbox
        .iter()
        .map(|request| parse(&request.batches[0]).0)
        .collect();
    assert_eq!(out, [1]);
    world.settle_down();
    world.check(true);
    assert_eq!(world.model.logs[&0], [1, 2]);
}
