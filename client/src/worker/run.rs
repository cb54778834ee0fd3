//! A worker at work: one loop that owns the ledger, and a task for each thing that waits.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;

use super::error::HandlerError;
use super::ledger::{Complete, DeliveryId, Ledger, Terms};
use super::message::Message;
use crate::clock;
use crate::consumer::{ConsumeError, Delivery, Extended, GroupConsumer, Settled};
use crate::error::{CallError, reason};

/// What became of the records that a worker was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerSummary {
    /// Processed and settled.
    pub done: u64,
    /// Failed, and will come again.
    pub retried: u64,
    /// Failed for good: dead letters.
    pub dead_lettered: u64,
    /// Given back, uncounted.
    pub released: u64,
    /// Given to others before they were settled here: what was done for them may be done twice.
    pub conflicts: u64,
    /// Processed, but the broker could not be told; they come again.
    pub unsettled: u64,
}

impl WorkerSummary {
    fn add(&mut self, settled: &Settled) {
        let conflicts = u64::try_from(settled.conflicts.len()).unwrap_or(u64::MAX);
        // A repeated call was made before with the same content, and its answer was lost.
        self.done += u64::from(settled.done + settled.already_settled);
        self.retried += u64::from(settled.retried);
        self.dead_lettered += u64::from(settled.dead_lettered);
        self.released += u64::from(settled.released);
        self.conflicts += conflicts;
    }
}

/// Settlements are waited for so long once handlers were aborted.
const LAST_ACKS: Duration = Duration::from_secs(5);

/// A handler's end. Err: it panicked, or was aborted.
type Handled = Result<(task::Id, Result<(), HandlerError>), JoinError>;

struct Acked {
    records: usize,
    answer: Result<Settled, CallError>,
}

struct Held {
    id: DeliveryId,
    asked: Instant,
    /// None: no answer while the hold lasted.
    answer: Option<Result<Extended, CallError>>,
}

/// Why the loop looks around.
enum Event {
    Arrived(Option<Result<Delivery, ConsumeError>>),
    Handled(Handled),
    Acked(Acked),
    Held(Held),
    Time,
    Shutdown,
    Overdue,
}

/// A worker at work.
pub(super) struct Run<H> {
    consumer: GroupConsumer,
    /// The consumer has ended.
    ended: Option<ConsumeError>,
    gone: bool,
    ledger: Ledger<Message>,
    deliveries: BTreeMap<DeliveryId, Arc<Delivery>>,
    handler: Arc<H>,
    handlers: JoinSet<Result<(), HandlerError>>,
    /// What each handler works at.
    at_work: HashMap<task::Id, (DeliveryId, i64)>,
    acks: JoinSet<Acked>,
    holds: JoinSet<Held>,
    drain_timeout: Duration,
    draining: bool,
    /// Set once it is to end: when handlers are aborted, and then, when it ends.
    end_by: Option<Instant>,
    aborted: bool,
    summary: WorkerSummary,
}

impl<H, F> Run<H>
where
    H: Fn(Message) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    pub(super) fn new(
        consumer: GroupConsumer,
        terms: Terms,
        drain_timeout: Duration,
        handler: H,
    ) -> Self {
        Self {
            consumer,
            ended: None,
            gone: false,
            ledger: Ledger::new(terms),
            deliveries: BTreeMap::new(),
            handler: Arc::new(handler),
            handlers: JoinSet::new(),
            at_work: HashMap::new(),
            acks: JoinSet::new(),
            holds: JoinSet::new(),
            drain_timeout,
            draining: false,
            end_by: None,
            aborted: false,
            summary: WorkerSummary::default(),
        }
    }

    /// Work until then, and finish.
    pub(super) async fn until(
        mut self,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<WorkerSummary, ConsumeError> {
        loop {
            self.begin_what_may_run();
            self.settle_what_is_complete();
            self.extend_what_is_due();
            if self.ledger.is_over() {
                self.drain();
            }
            if self.draining && self.ledger.is_empty() && self.acks.is_empty() {
                break;
            }
            match self.next_event(shutdown.as_mut()).await {
                Event::Arrived(arrival) => self.on_arrival(arrival),
                Event::Handled(handled) => self.on_handled(handled),
                Event::Acked(acked) => self.on_acked(acked),
                Event::Held(held) => self.on_held(held),
                Event::Time => self.ledger.release_overdue(clock::now()),
                Event::Shutdown => {
                    self.end_by = Some(clock::now() + self.drain_timeout);
                    self.drain();
                }
                Event::Overdue if self.aborted => break,
                Event::Overdue => self.abort(),
            }
        }
        self.end().await
    }

    async fn next_event(&mut self, shutdown: Pin<&mut impl Future<Output = ()>>) -> Event {
        let (wake_at, end_by) = (self.ledger.wake_at(), self.end_by);
        tokio::select! {
            biased;
            () = shutdown, if end_by.is_none() => Event::Shutdown,
            () = at(end_by) => Event::Overdue,
            Some(handled) = self.handlers.join_next_with_id() => Event::Handled(handled),
            Some(Ok(acked)) = self.acks.join_next() => Event::Acked(acked),
            Some(Ok(held)) = self.holds.join_next() => Event::Held(held),
            () = at(wake_at) => Event::Time,
            arrival = self.consumer.next(), if !self.gone => Event::Arrived(arrival),
        }
    }

    fn begin_what_may_run(&mut self) {
        let deliveries = &self.deliveries;
        // One of a membership that lapsed is somebody else's by now.
        let ours = |id| matches!(deliveries.get(&id), Some(delivery) if delivery.is_current());
        while let Some((id, message)) = self.ledger.start(clock::now(), ours) {
            let (handler, offset) = (self.handler.clone(), message.offset());
            let task = self.handlers.spawn(async move { handler(message).await });
            self.at_work.insert(task.id(), (id, offset));
        }
    }

    fn settle_what_is_complete(&mut self) {
        while let Some(complete) = self.ledger.take_complete() {
            let Complete {
                id,
                settlement,
                records,
            } = complete;
            let Some(delivery) = self.deliveries.remove(&id) else {
                continue;
            };
            delivery.keep_credit(0);
            self.acks.spawn(async move {
                let answer = delivery.settle(settlement).await;
                Acked { records, answer }
            });
        }
    }

    fn extend_what_is_due(&mut self) {
        let asked = clock::now();
        for (id, until) in self.ledger.take_extensions(asked) {
            let Some(delivery) = self.deliveries.get(&id).cloned() else {
                continue;
            };
            self.holds.spawn(async move {
                let answer = tokio::time::timeout_at(until, delivery.extend(None)).await;
                let answer = answer.ok();
                Held { id, asked, answer }
            });
        }
    }

    fn on_arrival(&mut self, arrival: Option<Result<Delivery, ConsumeError>>) {
        match arrival {
            Some(Ok(mut delivery)) => {
                let topic: Arc<str> = delivery.topic().into();
                let (partition, fence) = (delivery.partition(), delivery.fence());
                let records = delivery.take_records().into_iter().map(|record| {
                    let topic = topic.clone();
                    let message = Message {
                        topic,
                        partition,
                        fence,
                        record,
                    };
                    (message.offset(), message)
                });
                let place = (topic.clone(), partition);
                let id = self.ledger.admit(place, records, delivery.arrived());
                self.deliveries.insert(id, Arc::new(delivery));
            }
            Some(Err(error @ ConsumeError::Corrupt { .. })) => {
                tracing::error!(%error, "a delivery cannot be worked at");
            }
            Some(Err(error)) => self.ended = Some(error),
            None => {
                self.gone = true;
                self.drain();
            }
        }
    }

    fn on_handled(&mut self, handled: Handled) {
        let (task, failure) = match handled {
            Ok((task, Ok(()))) => (task, None),
            Ok((task, Err(error))) => (task, Some(error)),
            Err(error) => (error.id(), Some(unfinished(error))),
        };
        let failure = failure.map(HandlerError::into_failure);
        let Some((id, offset)) = self.at_work.remove(&task) else {
            return;
        };
        if let (Some(failure), Some(delivery)) = (&failure, self.deliveries.get(&id)) {
            let (topic, partition) = (delivery.topic(), delivery.partition());
            let (code, message) = (failure.code(), failure.message());
            tracing::debug!(topic, partition, offset, code, message, "a record failed");
        }
        self.ledger.finish(id, offset, failure);
        if let Some(delivery) = self.deliveries.get(&id) {
            let unfinished = self.ledger.unfinished(id);
            delivery.keep_credit(u32::try_from(unfinished).unwrap_or(u32::MAX));
        }
    }

    fn on_acked(&mut self, acked: Acked) {
        match acked.answer {
            Ok(settled) => self.summary.add(&settled),
            Err(error) => {
                let records = acked.records;
                tracing::warn!(%error, records, "records were not settled, and come again");
                self.summary.unsettled += u64::try_from(records).unwrap_or(u64::MAX);
            }
        }
    }

    fn on_held(&mut self, held: Held) {
        let Held { id, asked, answer } = held;
        match answer {
            Some(Ok(extended)) => self.ledger.extended(id, asked, extended.capped),
            Some(Err(error)) => {
                tracing::debug!(%error, "a hold could not be extended");
                if error.is(reason::LEASE_LOST) {
                    self.ledger.lose(id);
                }
            }
            None => tracing::debug!("no answer to an extension while the hold lasted"),
        }
    }

    fn drain(&mut self) {
        if !self.draining {
            self.draining = true;
            self.consumer.stop_asking();
            self.ledger.drain();
        }
    }

    /// Handlers that take too long are ended, and their records given back.
    fn abort(&mut self) {
        let handlers = self.handlers.len();
        tracing::warn!(handlers, "handlers that did not end in time are aborted");
        self.handlers.abort_all();
        self.aborted = true;
        self.end_by = Some(clock::now() + LAST_ACKS);
    }

    /// What is still held is given back by leaving.
    async fn end(mut self) -> Result<WorkerSummary, ConsumeError> {
        self.handlers.shutdown().await;
        if let Some(error) = self.ended {
            return Err(error);
        }
        if let Err(error) = self.consumer.close().await {
            tracing::warn!(%error, "the broker could not be told that the worker ends");
        }
        Ok(self.summary)
    }
}

fn unfinished(error: JoinError) -> HandlerError {
    match error.try_into_panic() {
        Ok(payload) => HandlerError::panicked(payload.as_ref()),
        Err(_aborted) => HandlerError::released(),
    }
}

/// At this time, or never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
