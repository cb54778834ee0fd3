//! A member of a group, as its users hold it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::Code;
use varvelog_proto::v1;

use super::ack::Door;
use super::credit::Credit;
use super::delivery::Delivery;
use super::error::ConsumeError;
use super::member::{Arrival, Member};
use crate::admin::duration;
use crate::connection::Connection;
use crate::error::CallError;
use crate::record::Position;
use crate::retry::BackoffConfig;

/// The most deliveries that a consumer may have in hand.
const CREDIT_MAX: u32 = 1_000;

/// Settlements on their way to the session.
const ORDERS_MAX: usize = 1_024;

/// How to consume in a group.
#[derive(Debug, Clone)]
#[must_use = "a consumer is made by `open`"]
pub struct GroupConsumerConfig {
    start: v1::ConsumeRequest,
    credit: u32,
    /// What one delivery takes of the credit at most.
    delivery_units: u32,
    session: bool,
    backoff: BackoffConfig,
    open_timeout: Duration,
    reconnect_for: Option<Duration>,
    ack_retry: Duration,
}

impl GroupConsumerConfig {
    /// A member of this group (`[A-Za-z0-9_-]{1,64}`); an unknown one is made with the topics.
    pub fn new(group: impl Into<String>) -> Self {
        let start = v1::ConsumeRequest {
            group: group.into(),
            as_batches: true,
            ..Default::default()
        };
        Self {
            start,
            credit: 4,
            delivery_units: 1,
            session: true,
            backoff: BackoffConfig::default(),
            open_timeout: Duration::from_mins(1),
            reconnect_for: None,
            ack_retry: Duration::from_mins(1),
        }
    }

    /// What this member wants; the group takes on those it lacks. None: the group's own.
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.start.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// A static name, at most 128 bytes: the member keeps its place through a restart.
    pub fn member_name(mut self, name: impl Into<String>) -> Self {
        self.start.member_name = name.into();
        self
    }

    /// Where to begin in topics new to the group. Default: with the oldest record.
    pub fn start(mut self, start: Position) -> Self {
        self.start.start = Some(start.into());
        self
    }

    /// Records of one delivery, at most 10,000; 0: 500. Whole batches may pass it.
    pub fn max_records(mut self, records: u32) -> Self {
        self.start.max_records = i32::try_from(records).unwrap_or(i32::MAX);
        self
    }

    /// Bytes of one delivery; 0: 1 MiB.
    pub fn max_bytes(mut self, bytes: u32) -> Self {
        self.start.max_bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self
    }

    /// Deliveries in hand at a time, buffered ones included: 1 to 1,000. Default 4. All of them
    /// must be processed within their time, so a slow worker wants few.
    pub fn credit(mut self, deliveries: u32) -> Self {
        self.credit = deliveries.clamp(1, CREDIT_MAX);
        self
    }

    /// Count credit in records, and take at most so many with one delivery.
    pub(crate) fn credit_by_records(mut self, credit: u32, delivery_max: u32) -> Self {
        self.credit = credit;
        self.delivery_units = delivery_max;
        self.as_batches(false).max_records(delivery_max)
    }

    /// How long a delivery is held for this member, 1 s to 12 h. Default: as the group says.
    pub fn ack_timeout(mut self, timeout: Duration) -> Self {
        self.start.ack_timeout = Some(duration(timeout));
        self
    }

    /// At most once: records count as done when they are sent, and are lost if they do not arrive.
    pub fn auto_ack(mut self, auto_ack: bool) -> Self {
        self.start.auto_ack = auto_ack;
        self
    }

    /// Whether first deliveries come as whole batches, which is faster. Default true. As records,
    /// they bring their message ids.
    pub fn as_batches(mut self, as_batches: bool) -> Self {
        self.start.as_batches = as_batches;
        self
    }

    /// Take records whose value is too large for a message without it, rather than letting them
    /// fail.
    pub fn accept_omitted(mut self, accept: bool) -> Self {
        self.start.accept_omitted = accept;
        self
    }

    /// Whether to use one stream in both directions (default), or a server stream with calls
    /// beside it, for proxies that cannot do the former. A broker or proxy that refuses the
    /// former is given the latter without being asked to.
    pub fn session(mut self, session: bool) -> Self {
        self.session = session;
        self
    }

    /// Waits between tries while the broker cannot be reached.
    pub fn backoff(mut self, backoff: BackoffConfig) -> Self {
        self.backoff = backoff;
        self
    }

    /// How long [`open`](Self::open) waits for a broker that cannot be reached. Default 1 min.
    pub fn open_timeout(mut self, timeout: Duration) -> Self {
        self.open_timeout = timeout;
        self
    }

    /// How long a broken connection is tried again, once there was one. Default: for ever.
    pub fn reconnect_for(mut self, time: Duration) -> Self {
        self.reconnect_for = Some(time);
        self
    }

    /// How long a settlement is tried again through broken connections. Default 1 min.
    pub fn ack_retry(mut self, time: Duration) -> Self {
        self.ack_retry = time;
        self
    }

    /// Join, and wait until the broker has taken this member.
    pub async fn open(self, connection: &Connection) -> Result<GroupConsumer, CallError> {
        let credit = Arc::new(Credit::new(self.credit, self.delivery_units));
        // Room for what credit allows, and for the error that ends it.
        let room = usize::try_from(credit.deliveries_max())
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let (arrivals_in, arrivals) = mpsc::channel(room);
        let (orders_in, orders) = mpsc::channel(ORDERS_MAX);
        let (membership_in, membership) = watch::channel(Membership::default());
        let (opened_in, opened) = oneshot::channel();
        let incarnation = Arc::new(AtomicU32::new(0));
        let mut start = self.start;
        let unacked = credit.full_deliveries().min(CREDIT_MAX);
        start.max_unacked_responses = i32::try_from(unacked).unwrap_or(1);
        let member = Member {
            connection: connection.clone(),
            start,
            session: self.session,
            backoff: self.backoff,
            open_timeout: self.open_timeout,
            reconnect_for: self.reconnect_for,
            arrivals: arrivals_in,
            orders,
            membership: membership_in,
            credit: credit.clone(),
            incarnation,
            opened: Some(opened_in),
        };
        let task = tokio::spawn(member.run());
        match opened.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(error),
            Err(_dropped) => return Err(ended_early()),
        }
        let door = Arc::new(Door {
            connection: connection.clone(),
            orders: orders_in,
            backoff: self.backoff,
            ack_retry: self.ack_retry,
        });
        Ok(GroupConsumer {
            arrivals,
            membership,
            credit,
            door,
            task,
        })
    }
}

/// Who this member is, and what it has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Membership {
    /// Given by the broker.
    pub member_id: String,
    /// Of the assignment; fences commits by hand.
    pub generation: i64,
    /// In a stream group the partitions that are this member's; else none.
    pub assigned: Vec<(String, u32)>,
}

impl Membership {
    pub(super) fn apply(&mut self, event: v1::GroupEvent) {
        let partition =
            |given: v1::TopicPartition| (given.topic, u32::try_from(given.partition).unwrap_or(0));
        self.member_id = event.member_id;
        self.generation = event.generation;
        self.assigned = event.assigned.into_iter().map(partition).collect();
    }
}

/// A member of a group: a stream of deliveries.
///
/// Broken connections are waited out, and the member comes back as who it was, so that what it
/// holds stays its own. Dropping it ends the membership as [`close`](Self::close) does, without
/// waiting: what was buffered, or is not settled, goes to others at once and uncounted.
#[derive(Debug)]
pub struct GroupConsumer {
    arrivals: mpsc::Receiver<Arrival>,
    membership: watch::Receiver<Membership>,
    credit: Arc<Credit>,
    door: Arc<Door>,
    task: JoinHandle<Result<(), CallError>>,
}

impl GroupConsumer {
    /// How to consume in this group.
    pub fn config(group: impl Into<String>) -> GroupConsumerConfig {
        GroupConsumerConfig::new(group)
    }

    /// The next delivery; None once it has ended, after the error that says why.
    pub async fn next(&mut self) -> Option<Result<Delivery, ConsumeError>> {
        StreamExt::next(self).await
    }

    /// Who this member is now, and what it has.
    pub fn membership(&self) -> Membership {
        self.membership.borrow().clone()
    }

    /// Told of each change of the membership.
    pub fn watch_membership(&self) -> watch::Receiver<Membership> {
        self.membership.clone()
    }

    /// End the membership, and wait until the broker knows. What is buffered or unsettled is
    /// released, uncounted; deliveries that are still in hand can be settled until somebody else
    /// has been given their records.
    pub async fn close(self) -> Result<(), CallError> {
        let Self { arrivals, task, .. } = self;
        drop(arrivals);
        task.await.unwrap_or_else(|_panic| Err(ended_early()))
    }

    /// Ask for nothing more; what was asked for may still come.
    pub(crate) fn stop_asking(&self) {
        self.credit.close();
    }

    /// None: it is not to be processed here any more.
    fn open_arrival(&self, arrival: Arrival) -> Option<Result<Delivery, ConsumeError>> {
        let (response, holding) = match arrival {
            Arrival::Failed(error) => return Some(Err(error)),
            Arrival::Delivery { response, holding } => (response, holding),
        };
        // Those of an earlier membership are somebody else's by now.
        if !holding.incarnation.is_current() {
            return None;
        }
        let topic = response.topic.clone();
        let partition = u32::try_from(response.partition).unwrap_or(0);
        // A partition that was taken away meanwhile waits for what is still out of it, so that
        // this delivery is this member's to settle all the same.
        match Delivery::new(*response, holding, self.door.clone()) {
            Ok(delivery) => Some(Ok(delivery)),
            Err((offset, error)) => Some(Err(ConsumeError::Corrupt {
                topic,
                partition,
                offset,
                error,
            })),
        }
    }
}

impl Stream for GroupConsumer {
    type Item = Result<Delivery, ConsumeError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match std::task::ready!(self.arrivals.poll_recv(context)) {
                None => return Poll::Ready(None),
                Some(arrival) => {
                    if let Some(item) = self.open_arrival(arrival) {
                        return Poll::Ready(Some(item));
                    }
                }
            }
        }
    }
}

fn ended_early() -> CallError {
    CallError::local(Code::Cancelled, "the consumer's task ended early")
}
