//! The producer's task: owns all of its state, does its I/O, and decides nothing itself.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tonic::Code;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchBuilder, BatchError, Codec, ProducerStamp};

use super::config::{IN_FLIGHT_PER_PARTITION, ProducerConfig};
use super::error::SendError;
use super::handle::{identity, partitions};
use super::lane::Identity;
use super::link::{Event, Link};
use super::pipeline::{Encode, Pipeline, PipelineConfig, Settled};
use super::pressure::Pressure;
use super::ticket::{Appended, Item};
use crate::batcher::{Batcher, Sealed};
use crate::clock;
use crate::connection::Connection;
use crate::error::{CallError, reason};
use crate::partitioner::Partitioner;
use crate::retry;

/// Commands taken in one turn.
const COMMANDS_A_TURN: usize = 1_024;

type Done = oneshot::Sender<Result<(), SendError>>;

/// What the handles ask for.
#[derive(Debug)]
pub(super) enum Command {
    Record(Item),
    Flush(Done),
    Close(Done),
}

/// State of one producer.
pub(super) struct Driver {
    config: ProducerConfig,
    connection: Connection,
    topic: String,
    batcher: Batcher<Item>,
    partitioner: Partitioner,
    pipeline: Pipeline<Vec<Item>>,
    encoder: Encoder,
    link: Option<Link>,
    /// Of the present link, or the last one.
    generation: u64,
    events: mpsc::Sender<Event>,
    inbox: mpsc::Receiver<Event>,
    asking_identity: bool,
    asking_partitions: bool,
    refresh_at: Instant,
    /// Waiters, and the batch below which all must be settled.
    flushes: VecDeque<(u64, Done)>,
    /// No more commands come.
    draining: bool,
    first_failure: Option<SendError>,
    /// What the handles are told while the broker refuses.
    pressure: Pressure,
}

impl Driver {
    pub(super) fn new(
        config: ProducerConfig,
        connection: Connection,
        topic: String,
        (partitions, identity): (u32, Option<Identity>),
        pressure: Pressure,
    ) -> Self {
        let per_partition = if config.idempotent {
            IN_FLIGHT_PER_PARTITION
        } else {
            config.in_flight
        };
        let pipeline = PipelineConfig {
            in_flight: config.in_flight,
            in_flight_per_partition: per_partition,
            request_bytes: config.request_bytes,
            idempotent: config.idempotent,
            named: !config.name.is_empty(),
            delivery_timeout: config.delivery_timeout,
            request_timeout: config.request_timeout,
            max_block: config.max_block,
            backoff: config.backoff,
        };
        let (events, inbox) = mpsc::channel(config.in_flight + 4);
        Self {
            batcher: Batcher::new(config.limits),
            partitioner: Partitioner::new(partitions, rand::random()),
            pipeline: Pipeline::new(pipeline, identity),
            encoder: Encoder {
                codec: config.compression.into(),
            },
            link: None,
            generation: 0,
            events,
            inbox,
            asking_identity: false,
            asking_partitions: false,
            refresh_at: clock::now() + config.partitions_refresh,
            flushes: VecDeque::new(),
            draining: false,
            first_failure: None,
            pressure,
            config,
            connection,
            topic,
        }
    }

    /// Until all handles are gone, or one closed it, and everything is settled.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        buffer: Arc<Semaphore>,
    ) {
        let mut taken = Vec::with_capacity(COMMANDS_A_TURN);
        loop {
            let now = clock::now();
            self.turn(now);
            if self.draining && self.batcher.is_empty() && self.pipeline.is_idle() {
                break;
            }
            let wake = self.next_wakeup(now);
            tokio::select! {
                Some(event) = self.inbox.recv() => self.on_event(event),
                count = commands.recv_many(&mut taken, COMMANDS_A_TURN), if !self.draining => {
                    self.draining = count == 0;
                    for command in taken.drain(..) {
                        if self.on_command(command) {
                            buffer.close();
                            commands.close();
                        }
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// Everything that is due now.
    fn turn(&mut self, now: Instant) {
        let mut sealed = Vec::new();
        self.batcher.take_due(now, &mut sealed);
        if self.draining {
            self.batcher.take_all(&mut sealed);
        }
        self.enqueue(now, sealed);
        self.pipeline.expire(now);
        if self.pipeline.is_overdue(now) {
            let waited = self.config.request_timeout;
            let silent = format!("no answer within {waited:?}");
            self.broken(now, &CallError::local(Code::DeadlineExceeded, silent));
        }
        self.send(now);
        self.ask(now);
        self.tell();
    }

    fn send(&mut self, now: Instant) {
        if self.link.is_none() && self.pipeline.wants_stream(now) {
            self.generation += 1;
            self.link = Some(Link::open(
                self.connection.clone(),
                self.generation,
                self.config.in_flight,
                self.events.clone(),
            ));
        }
        let Some(link) = &self.link else { return };
        while let Some(outgoing) = self.pipeline.next_request(now, &mut self.encoder) {
            link.send(v1::ProduceStreamRequest {
                sequence: outgoing.sequence,
                request: Some(v1::ProduceRequest {
                    topic: self.topic.clone(),
                    batches: outgoing.batches,
                    ..Default::default()
                }),
            });
        }
    }

    /// Calls beside the stream; their answers come as events.
    fn ask(&mut self, now: Instant) {
        if self.pipeline.wants_identity() && !self.asking_identity {
            self.asking_identity = true;
            let (connection, name) = (self.connection.clone(), self.config.name.clone());
            let (events, delay) = (self.events.clone(), self.config.backoff.base);
            tokio::spawn(async move {
                let mut answer = identity(&connection, &name).await;
                while answer.as_ref().is_err_and(CallError::is_retryable) && !events.is_closed() {
                    tokio::time::sleep(delay).await;
                    answer = identity(&connection, &name).await;
                }
                drop(events.send(Event::Identity(answer)).await);
            });
        }
        if self.refresh_at <= now && !self.asking_partitions {
            self.asking_partitions = true;
            self.refresh_at = now + self.config.partitions_refresh;
            let (connection, topic) = (self.connection.clone(), self.topic.clone());
            let events = self.events.clone();
            tokio::spawn(async move {
                let answer = partitions(&connection, &topic).await;
                drop(events.send(Event::Partitions(answer)).await);
            });
        }
    }

    /// Tell senders and flushers what has been settled.
    fn tell(&mut self) {
        for settled in self.pipeline.take_settled() {
            self.settle(settled);
        }
        let below = self.pipeline.settled_below();
        while let Some((_, done)) = self.flushes.pop_front_if(|(until, _)| *until <= below) {
            let outcome = self.first_failure.take().map_or(Ok(()), Err);
            drop(done.send(outcome));
        }
    }

    fn settle(&mut self, settled: Settled<Vec<Item>>) {
        match settled.outcome {
            Ok(placed) => {
                for (offset, item) in (placed.offset..).zip(settled.payload) {
                    item.settle(Ok(Appended {
                        partition: placed.partition,
                        offset,
                        epoch: placed.epoch,
                        duplicate: placed.duplicate,
                        durability: placed.durability,
                    }));
                }
            }
            Err(error) => {
                let records = settled.payload.len();
                tracing::warn!(topic = self.topic, records, %error, "records were not delivered");
                self.refresh_after(&error);
                self.first_failure.get_or_insert_with(|| error.clone());
                for item in settled.payload {
                    item.settle(Err(error.clone()));
                }
            }
        }
    }

    fn refresh_after(&mut self, error: &SendError) {
        if let SendError::Refused { error, .. } = error
            && (error.is(reason::PARTITION_NOT_FOUND) || error.is(reason::TOPIC_NOT_FOUND))
        {
            self.refresh_at = self.refresh_at.min(clock::now() + self.config.backoff.max);
        }
    }

    fn next_wakeup(&self, now: Instant) -> Instant {
        let times = [self.batcher.next_due(), self.pipeline.next_wakeup(now)];
        times
            .into_iter()
            .flatten()
            .min()
            .map_or(self.refresh_at, |at| at.min(self.refresh_at))
    }

    /// True: nothing is taken after this.
    fn on_command(&mut self, command: Command) -> bool {
        let now = clock::now();
        match command {
            Command::Record(item) => {
                self.accept(now, item);
                false
            }
            Command::Flush(done) => {
                self.flush(now, done);
                false
            }
            Command::Close(done) => {
                self.flush(now, done);
                true
            }
        }
    }

    fn accept(&mut self, now: Instant, item: Item) {
        let record = &item.record;
        let partition = self
            .partitioner
            .choose(record.partition, record.key_bytes());
        let bytes = record.buffer_bytes();
        let mut sealed = Vec::new();
        self.batcher.push(now, partition, item, bytes, &mut sealed);
        self.enqueue(now, sealed);
    }

    fn flush(&mut self, now: Instant, done: Done) {
        let mut sealed = Vec::new();
        self.batcher.take_all(&mut sealed);
        self.enqueue(now, sealed);
        self.flushes.push_back((self.pipeline.next_batch(), done));
    }

    fn enqueue(&mut self, now: Instant, sealed: Vec<Sealed<Item>>) {
        for batch in sealed {
            self.partitioner
                .batch_sealed(batch.partition, rand::random());
            let records = u32::try_from(batch.items.len()).unwrap_or(u32::MAX);
            self.pipeline
                .push(now, batch.partition, batch.items, records, batch.bytes);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = clock::now();
        match event {
            Event::Answer { generation, answer } if self.is_current(generation) => {
                if let Err(error) = self.on_answer(now, answer) {
                    self.broken(now, &error);
                }
            }
            Event::Broken { generation, error } if self.is_current(generation) => {
                self.broken(now, &error);
            }
            Event::Answer { .. } | Event::Broken { .. } => {}
            Event::Identity(answer) => {
                self.asking_identity = false;
                match answer {
                    Ok(identity) => self.pipeline.set_identity(identity),
                    Err(error) => self.broken(now, &error),
                }
            }
            Event::Partitions(answer) => {
                self.asking_partitions = false;
                match answer {
                    Ok(partitions) => self.partitioner.resize(partitions),
                    Err(error) => tracing::debug!(topic = self.topic, %error, "no partitions"),
                }
            }
        }
    }

    fn is_current(&self, generation: u64) -> bool {
        self.link
            .as_ref()
            .is_some_and(|link| link.generation == generation)
    }

    fn on_answer(
        &mut self,
        now: Instant,
        answer: v1::ProduceStreamResponse,
    ) -> Result<(), CallError> {
        use v1::produce_stream_response::Outcome;
        let outcome = match answer.outcome {
            Some(Outcome::Response(response)) => Ok(response),
            Some(Outcome::Error(error)) => Err(error.into()),
            None => {
                return Err(CallError::local(
                    Code::Internal,
                    "an answer without an outcome",
                ));
            }
        };
        self.pipeline
            .answered(now, answer.sequence, outcome, retry::roll())?;
        let pressed = self.pipeline.pressed.as_ref();
        self.pressure.set(pressed.map(|(_, error)| error));
        if self.pipeline.has_ended() {
            self.link = None;
        }
        Ok(())
    }

    fn broken(&mut self, now: Instant, error: &CallError) {
        tracing::debug!(topic = self.topic, %error, "the produce stream broke");
        self.link = None;
        self.pipeline.broken(now, error, retry::roll());
    }
}

/// Makes record batches.
struct Encoder {
    codec: Codec,
}

impl Encode<Vec<Item>> for Encoder {
    fn encode(
        &mut self,
        items: &Vec<Item>,
        stamp: Option<ProducerStamp>,
    ) -> Result<Bytes, BatchError> {
        let bytes = items.iter().map(|item| item.record.buffer_bytes()).sum();
        let mut builder = BatchBuilder::new(self.codec, bytes);
        if let Some(stamp) = stamp {
            builder.set_producer(stamp);
        }
        for Item { record, .. } in items {
            let headers = record
                .headers
                .iter()
                .map(|(name, value)| (&name[..], value.as_deref()));
            let (key, value) = (record.key_bytes(), record.value_bytes());
            builder.push(record.timestamp_ms, key, value, headers)?;
        }
        builder.finish()
    }
}
