//! The task of a group member: one session after the other, as the same member.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tonic::Code;
use varvelog_proto::v1;

use super::ack::Order;
use super::credit::Credit;
use super::delivery::{Holding, Incarnation};
use super::error::ConsumeError;
use super::group::Membership;
use super::session::{self, Ended};
use crate::clock;
use crate::connection::{Connection, answer};
use crate::error::CallError;
use crate::retry::{self, BackoffConfig};

/// What the task hands to the consumer.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Records.
    Delivery {
        response: Box<v1::ConsumeResponse>,
        holding: Holding,
    },
    /// The end, and why.
    Failed(ConsumeError),
}

/// Whether the broker knows that the consumer has ended.
enum Goodbye {
    Said,
    Owed,
}

/// The task's state; it alone changes it.
pub(super) struct Member {
    pub(super) connection: Connection,
    /// How to join; its `member_id` is that of the last event.
    pub(super) start: v1::ConsumeRequest,
    /// One stream in both directions, or a server stream.
    pub(super) session: bool,
    pub(super) backoff: BackoffConfig,
    pub(super) open_timeout: Duration,
    pub(super) reconnect_for: Option<Duration>,
    /// Closed by the consumer when it ends.
    pub(super) arrivals: mpsc::Sender<Arrival>,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) membership: watch::Sender<Membership>,
    pub(super) credit: Arc<Credit>,
    pub(super) incarnation: Arc<AtomicU32>,
    /// Until the first event.
    pub(super) opened: Option<oneshot::Sender<Result<(), CallError>>>,
}

impl Member {
    /// Until the consumer ends it, or it can go on no more.
    pub(super) async fn run(mut self) -> Result<(), CallError> {
        match self.live().await {
            Ok(Goodbye::Said) => Ok(()),
            Ok(Goodbye::Owed) => self.leave().await,
            Err(end) => {
                self.fail(end);
                Ok(())
            }
        }
    }

    async fn live(&mut self) -> Result<Goodbye, ConsumeError> {
        let mut delays = self.backoff.delays(retry::roll);
        let mut away_since = clock::now();
        loop {
            let error = match session::run(self).await {
                Ended::Closed => return Ok(Goodbye::Said),
                Ended::Leaving => return Ok(Goodbye::Owed),
                Ended::Left => return Err(ConsumeError::Left),
                Ended::Refused(error) if self.session && error.code() == Code::Unimplemented => {
                    tracing::info!(%error, "sessions are refused: consuming over a server stream");
                    self.session = false;
                    continue;
                }
                Ended::Refused(error) => return Err(ConsumeError::Refused(error)),
                Ended::Broken { error, joined } => {
                    if joined {
                        delays.reset();
                        away_since = clock::now();
                    }
                    error
                }
            };
            let delay = delays.next().unwrap_or_default();
            let delay = delay.max(error.retry_after().unwrap_or_default());
            if let Some(end) = self.gives_up(away_since, delay, &error) {
                return Err(end);
            }
            tracing::debug!(group = self.start.group, %error, ?delay, "the member comes back");
            if self.away_for(delay).await {
                return Ok(Goodbye::Owed);
            }
        }
    }

    fn gives_up(&self, since: Instant, delay: Duration, error: &CallError) -> Option<ConsumeError> {
        let after = if self.opened.is_some() {
            Some(self.open_timeout)
        } else {
            self.reconnect_for
        };
        let after = after.filter(|after| clock::now() + delay >= since + *after)?;
        Some(ConsumeError::GaveUp {
            after,
            last: error.clone(),
        })
    }

    /// Waits between two sessions. Settlements go their own way meanwhile. True: the consumer has
    /// ended.
    async fn away_for(&mut self, delay: Duration) -> bool {
        let sleep = tokio::time::sleep(delay);
        tokio::pin!(sleep);
        loop {
            tokio::select! {
                () = &mut sleep => return false,
                () = self.arrivals.closed() => return true,
                Some(order) = self.orders.recv() => drop(order),
            }
        }
    }

    /// The end: told to `open` if it still waits, else to the consumer.
    fn fail(&mut self, end: ConsumeError) {
        if let Some(opened) = self.opened.take() {
            let error = match end {
                ConsumeError::Refused(error) | ConsumeError::GaveUp { last: error, .. } => error,
                ConsumeError::Left | ConsumeError::Corrupt { .. } => {
                    CallError::local(Code::Aborted, end.to_string())
                }
            };
            drop(opened.send(Err(error)));
        } else if self.arrivals.try_send(Arrival::Failed(end)).is_err() {
            tracing::debug!("the consumer ended before it could be told why it had to");
        }
    }

    /// Say goodbye by a call of its own.
    pub(super) async fn leave(&self) -> Result<(), CallError> {
        if self.start.member_id.is_empty() {
            return Ok(());
        }
        let request = self.connection.request(v1::LeaveRequest {
            group: self.start.group.clone(),
            member_id: self.start.member_id.clone(),
        });
        answer(self.connection.group().leave(request).await).map(drop)
    }

    /// Who this member is from now on.
    pub(super) fn on_event(&mut self, event: v1::GroupEvent) {
        if !self.start.member_id.is_empty() && self.start.member_id != event.member_id {
            tracing::warn!(
                group = self.start.group,
                "the membership had lapsed; it is a new one"
            );
            self.incarnation.fetch_add(1, Ordering::AcqRel);
        }
        self.start.member_id.clone_from(&event.member_id);
        self.membership
            .send_modify(|membership| membership.apply(event));
        if let Some(opened) = self.opened.take() {
            drop(opened.send(Ok(())));
        }
    }

    /// Hand records over. False: there is no room, though credit was not exceeded by us.
    pub(super) fn deliver(&self, response: v1::ConsumeResponse) -> bool {
        let arrival = Arrival::Delivery {
            holding: Holding {
                in_hand: self.credit.take(response.records.len()),
                incarnation: Incarnation {
                    own: self.incarnation.load(Ordering::Acquire),
                    current: self.incarnation.clone(),
                },
                arrived: clock::now(),
            },
            response: Box::new(response),
        };
        match self.arrivals.try_send(arrival) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => true,
            Err(mpsc::error::TrySendError::Full(_)) => false,
        }
    }
}
