//! How a worker works.

use std::future::{Future, pending};
use std::time::Duration;

use varvelog_proto::v1;

use super::error::HandlerError;
use super::ledger::{Pace, Terms};
use super::message::Message;
use super::run::{Run, WorkerSummary};
use crate::admin::Admin;
use crate::connection::Connection;
use crate::consumer::{ConsumeError, GroupConsumerConfig};
use crate::record::Position;
use crate::retry::BackoffConfig;

/// The most handlers at a time.
const CONCURRENCY_MAX: u32 = 1_000;
/// The most records in hand.
const BUFFER_MAX: u32 = 100_000;
/// A group's visibility timeout where it says nothing else.
const HOLD_DEFAULT: Duration = Duration::from_secs(30);
/// The longest time that is kept back of a hold without being asked to.
const MARGIN_MAX: Duration = Duration::from_secs(5);

/// How a worker works. Made by [`Worker::builder`], ended by [`handler`](Self::handler).
#[derive(Debug, Clone)]
#[must_use = "a worker is made by `handler`"]
pub struct WorkerBuilder {
    connection: Connection,
    group: String,
    consumer: GroupConsumerConfig,
    concurrency: u32,
    buffer: Option<u32>,
    max_records: Option<u32>,
    ack_timeout: Option<Duration>,
    safety_margin: Option<Duration>,
    ordered: bool,
    limit: Option<u64>,
    drain_timeout: Duration,
}

impl WorkerBuilder {
    fn new(connection: &Connection, group: String) -> Self {
        Self {
            connection: connection.clone(),
            consumer: GroupConsumerConfig::new(group.clone()),
            group,
            concurrency: 1,
            buffer: None,
            max_records: None,
            ack_timeout: None,
            safety_margin: None,
            ordered: false,
            limit: None,
            drain_timeout: Duration::from_secs(30),
        }
    }

    /// What to work at; the group takes on those it lacks. None: the group's own.
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.consumer = self.consumer.topics(topics);
        self
    }

    /// Handlers at a time, 1 to 1,000. Default 1.
    pub fn concurrency(mut self, handlers: u32) -> Self {
        self.concurrency = handlers.clamp(1, CONCURRENCY_MAX);
        self
    }

    /// Records in hand, those that run included: from the concurrency to 100,000. Default twice
    /// the concurrency. A deep buffer keeps records from other workers.
    pub fn buffer(mut self, records: u32) -> Self {
        self.buffer = Some(records);
        self
    }

    /// The most records that are given, and settled, at a time. Default a quarter of the
    /// concurrency: more are settled in fewer calls, but each waits for the slowest of them.
    pub fn max_records(mut self, records: u32) -> Self {
        self.max_records = Some(records.max(1));
        self
    }

    /// Bytes that are given at a time; 0: 1 MiB.
    pub fn max_bytes(mut self, bytes: u32) -> Self {
        self.consumer = self.consumer.max_bytes(bytes);
        self
    }

    /// How long a record is held before it is given to another, if this program dies: 1 s to 12 h.
    /// Handlers may take longer, since holds are extended. Default: as the group says when the
    /// worker starts.
    pub fn ack_timeout(mut self, timeout: Duration) -> Self {
        self.consumer = self.consumer.ack_timeout(timeout);
        self.ack_timeout = Some(timeout);
        self
    }

    /// A record that is held for less than this is given back instead of being begun. Default: a
    /// tenth of the hold, at most 5 s.
    pub fn safety_margin(mut self, margin: Duration) -> Self {
        self.safety_margin = Some(margin);
        self
    }

    /// One record of a partition at a time, in order; after a failure the next one. Default:
    /// false, unless the group is a stream that holds its partition on failure.
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self
    }

    /// End after so many records were begun. Default: no limit.
    pub fn limit(mut self, records: u64) -> Self {
        self.limit = Some(records);
        self
    }

    /// How long handlers may take to finish once the worker is to end; then they are aborted and
    /// their records given back, uncounted. Default 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// As [`GroupConsumerConfig::member_name`].
    pub fn member_name(mut self, name: impl Into<String>) -> Self {
        self.consumer = self.consumer.member_name(name);
        self
    }

    /// As [`GroupConsumerConfig::start`].
    pub fn start(mut self, start: Position) -> Self {
        self.consumer = self.consumer.start(start);
        self
    }

    /// As [`GroupConsumerConfig::accept_omitted`].
    pub fn accept_omitted(mut self, accept: bool) -> Self {
        self.consumer = self.consumer.accept_omitted(accept);
        self
    }

    /// As [`GroupConsumerConfig::session`].
    pub fn session(mut self, session: bool) -> Self {
        self.consumer = self.consumer.session(session);
        self
    }

    /// As [`GroupConsumerConfig::backoff`].
    pub fn backoff(mut self, backoff: BackoffConfig) -> Self {
        self.consumer = self.consumer.backoff(backoff);
        self
    }

    /// As [`GroupConsumerConfig::open_timeout`].
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.consumer = self.consumer.open_timeout(timeout);
        self
    }

    /// As [`GroupConsumerConfig::reconnect_for`].
    pub fn reconnect_for(mut self, time: Duration) -> Self {
        self.consumer = self.consumer.reconnect_for(time);
        self
    }

    /// As [`GroupConsumerConfig::ack_retry`].
    pub fn ack_retry(mut self, time: Duration) -> Self {
        self.consumer = self.consumer.ack_retry(time);
        self
    }

    /// What to do with each record. Each call runs as a task of its own, so it may block no thread.
    pub fn handler<H, F>(self, handler: H) -> Worker<H>
    where
        H: Fn(Message) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        Worker {
            builder: self,
            handler,
        }
    }

    fn consumer(&self) -> GroupConsumerConfig {
        let buffer = self.buffer.unwrap_or(self.concurrency.saturating_mul(2));
        let buffer = buffer.clamp(self.concurrency, BUFFER_MAX);
        let given = self.max_records.unwrap_or(self.concurrency.div_ceil(4));
        let consumer = self.consumer.clone();
        consumer.credit_by_records(buffer, given.min(buffer))
    }

    fn terms(&self, group: Option<&v1::GroupConfig>) -> Terms {
        let visibility = group
            .and_then(|config| config.visibility_timeout)
            .and_then(|timeout| Duration::try_from(timeout).ok())
            .filter(|timeout| !timeout.is_zero());
        let hold = self.ack_timeout.or(visibility).unwrap_or(HOLD_DEFAULT);
        let holds_partition = group.is_some_and(|config| {
            config.mode() != v1::GroupMode::Queue && config.on_failure() == v1::OnFailure::Hold
        });
        let pace = match (holds_partition, self.ordered) {
            (true, _) => Pace::PartitionHold,
            (false, true) => Pace::PartitionOrder,
            (false, false) => Pace::Free,
        };
        Terms {
            pace,
            concurrency: usize::try_from(self.concurrency).unwrap_or(usize::MAX),
            hold,
            margin: self.safety_margin.unwrap_or((hold / 10).min(MARGIN_MAX)),
            starts_left: self.limit.unwrap_or(u64::MAX),
        }
    }
}

/// A handler, and how it is to be called. See the [module](crate::worker).
#[derive(Debug)]
#[must_use = "a worker does nothing until it is run"]
pub struct Worker<H> {
    builder: WorkerBuilder,
    handler: H,
}

impl Worker<()> {
    /// A worker of this group (`[A-Za-z0-9_-]{1,64}`); an unknown one is made with the topics.
    pub fn builder(connection: &Connection, group: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder::new(connection, group.into())
    }
}

impl<H, F> Worker<H>
where
    H: Fn(Message) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    /// Work until the limit, or until it can go on no more.
    pub async fn run(self) -> Result<WorkerSummary, ConsumeError> {
        self.run_until(pending()).await
    }

    /// Work until `shutdown` resolves, then finish what runs and give back the rest. Broken
    /// connections are waited out; an error is one that does not pass by itself, after what ran was
    /// finished.
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<WorkerSummary, ConsumeError> {
        let Self { builder, handler } = self;
        tokio::pin!(shutdown);
        let consumer = tokio::select! {
            opened = builder.consumer().open(&builder.connection) => {
                opened.map_err(ConsumeError::Refused)?
            }
            () = &mut shutdown => return Ok(WorkerSummary::default()),
        };
        let config = tokio::select! {
            config = group_config(&builder) => config,
            () = &mut shutdown => None,
        };
        let terms = builder.terms(config.as_ref());
        Run::new(consumer, terms, builder.drain_timeout, handler)
            .until(shutdown)
            .await
    }
}

/// None: the broker does not say, so its defaults are assumed.
async fn group_config(builder: &WorkerBuilder) -> Option<v1::GroupConfig> {
    let group = Admin::new(&builder.connection)
        .group(builder.group.as_str())
        .await;
    match group {
        Ok(group) => group.config,
        Err(error) => {
            tracing::warn!(%error, "the group's settings are not known, the defaults are assumed");
            None
        }
    }
}
