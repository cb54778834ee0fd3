//! A model of a broker, and a world in which a pipeline talks to it: any schedule of pushes,
//! answers, refusals, breaks and lapses of time, then quiet until everything is settled.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use proptest::prelude::*;
use tokio::time::Instant;
use tonic::Code;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchError, ProducerStamp};

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
pub(super) struct Model {
    pub(super) logs: BTreeMap<u32, Vec<u32>>,
    producers: BTreeSet<i64>,
    sequences: BTreeMap<(i64, u32), Sequences>,
    pub(super) next_producer: i64,
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

    pub(super) fn forget_producers(&mut self) {
        self.producers.clear();
        self.sequences.clear();
    }
}

pub(super) fn parse(batch: &v1::PartitionBatch) -> (u32, Option<ProducerStamp>) {
    let mut body = batch.batch.clone();
    let payload = body.get_u32();
    let stamp = body.has_remaining().then(|| ProducerStamp {
        id: body.get_i64(),
        epoch: body.get_i16(),
        base_sequence: body.get_i32(),
    });
    (payload, stamp)
}

pub(super) fn refusal(code: Code, reason: &str, metadata: &[(&str, i32)]) -> CallError {
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

pub(super) fn busy() -> CallError {
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

pub(super) fn broken() -> CallError {
    CallError::local(Code::Unavailable, "the connection broke")
}

pub(super) const CONFIG: PipelineConfig = PipelineConfig {
    max_block: Duration::from_mins(1),
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
pub(super) enum Step {
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

pub(super) fn steps(forgetful: bool, partitions: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..partitions).prop_map(Step::Push),
        1 => (0..partitions).prop_map(Step::PushPoison),
        6 => Just(Step::Pump),
        6 => Just(Step::Process),
        2 => Just(Step::Refuse),
        6 => Just(Step::Answer),
        2 => (0_usize..5).prop_map(Step::Break),
        1 => Just(if forgetful { Step::Forget } else { Step::Pump }),
        3 => (0_u64..2_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..120)
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) pipeline: Pipeline<u32>,
    pub(super) model: Model,
    pub(super) inbox: VecDeque<Outgoing>,
    answers: VecDeque<(i64, Result<v1::ProduceResponse, CallError>)>,
    pushed: Vec<(u32, u32)>,
    pub(super) settled: Vec<Settled<u32>>,
}

impl World {
    pub(super) fn new(config: PipelineConfig) -> Self {
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

    pub(super) fn push(&mut self, partition: u32, poison: bool) {
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
            assert!(self.inbox.len() + self.answers.len() < 5);
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

    pub(super) fn take(&mut self, step: &Step) {
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
    pub(super) fn settle_down(&mut self) {
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

    pub(super) fn check(&self, exactly_once: bool) {
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

pub(super) fn run(config: PipelineConfig, steps: &[Step]) -> World {
    let mut world = World::new(config);
    for step in steps {
        world.take(step);
    }
    world.settle_down();
    world
}
