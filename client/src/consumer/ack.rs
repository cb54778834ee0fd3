//! Settling what a delivery brought: through the session while there is one, else by a call of
//! its own, again and again. A settlement may be repeated without harm.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tonic::Code;
use varvelog_proto::v1;

use crate::admin::duration;
use crate::clock;
use crate::connection::{Connection, answer};
use crate::error::CallError;
use crate::retry::{self, BackoffConfig};

/// What becomes of the records of a delivery: all are done but those named here.
///
/// ```
/// use std::time::Duration;
/// use varvelog_client::Settlement;
///
/// let settlement = Settlement::done()
///     .retry(17, "timeout", "the shop did not answer")
///     .retry_in(18, Duration::from_secs(60), "busy", "come back in a minute")
///     .dead_letter(19, "bad-json", "expected a comma")
///     .release(20);
/// # let _ = settlement;
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a settlement does nothing until it is given to a delivery"]
pub struct Settlement {
    failures: Vec<v1::Failure>,
    outputs: Vec<v1::Output>,
    up_to_offset: Option<i64>,
}

impl Settlement {
    /// Every record is done.
    pub fn done() -> Self {
        Self::default()
    }

    /// The record failed, and may work later; with the last delivery it becomes a dead letter.
    pub fn retry(self, offset: i64, code: impl Into<String>, message: impl Into<String>) -> Self {
        self.fail(
            offset,
            v1::FailureAction::Retry,
            code.into(),
            message.into(),
        )
    }

    /// As [`retry`](Self::retry), after this time instead of the group's.
    pub fn retry_in(
        mut self,
        offset: i64,
        after: Duration,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        self = self.retry(offset, code, message);
        if let Some(failure) = self.failures.last_mut() {
            failure.retry_after = Some(duration(after));
        }
        self
    }

    /// The record can never be processed.
    pub fn dead_letter(
        self,
        offset: i64,
        code: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        self.fail(
            offset,
            v1::FailureAction::DeadLetter,
            code.into(),
            message.into(),
        )
    }

    /// The record was not looked at: it is given out again, and that is not counted.
    pub fn release(self, offset: i64) -> Self {
        self.fail(
            offset,
            v1::FailureAction::Release,
            String::new(),
            String::new(),
        )
    }

    /// A failure with everything that one can say.
    pub fn failure(mut self, failure: v1::Failure) -> Self {
        self.failures.push(failure);
        self
    }

    /// Settle only records up to and with this one; the others stay held.
    pub fn up_to(mut self, offset: i64) -> Self {
        self.up_to_offset = Some(offset);
        self
    }

    /// Append these records in the same step: it all happens, or none of it.
    pub fn output(mut self, topic: impl Into<String>, records: Vec<v1::NewRecord>) -> Self {
        self.outputs.push(v1::Output {
            topic: topic.into(),
            records,
        });
        self
    }

    fn fail(
        self,
        offset: i64,
        action: v1::FailureAction,
        error_code: String,
        error_message: String,
    ) -> Self {
        let action = action.into();
        self.failure(v1::Failure {
            offset,
            action,
            error_code,
            error_message,
            ..Default::default()
        })
    }

    pub(super) fn request(self, ack_token: bytes::Bytes) -> v1::AckRequest {
        v1::AckRequest {
            ack_token,
            failures: self.failures,
            up_to_offset: self.up_to_offset,
            outputs: self.outputs,
        }
    }
}

/// What a settlement did, in records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settled {
    /// Done by this call.
    pub done: u32,
    /// Given out again later.
    pub retried: u32,
    /// Moved to the dead-letter topic.
    pub dead_lettered: u32,
    /// Of those: their topic is full, so they wait in place.
    pub dead_letters_waiting: u32,
    /// Given back, uncounted.
    pub released: u32,
    /// Settled so before: the call was repeated.
    pub already_settled: u32,
    /// Where the outputs went, in order.
    pub outputs: Vec<v1::AppendResult>,
    /// Records that were not settled, since they are not this delivery's any more. Each is or was
    /// somebody else's to process: what was done for it may be done twice.
    pub conflicts: Vec<Conflict>,
}

impl Settled {
    /// Whether every record was settled as asked.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty()
    }
}

/// A record that was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflict {
    /// As in the delivery.
    pub offset: i64,
    /// Why.
    pub reason: v1::ConflictReason,
}

impl From<v1::AckResponse> for Settled {
    fn from(response: v1::AckResponse) -> Self {
        let count = |number: i32| u32::try_from(number).unwrap_or(0);
        let conflict = |wire: &v1::SettlementConflict| Conflict {
            offset: wire.offset,
            reason: wire.reason(),
        };
        Self {
            done: count(response.done),
            retried: count(response.retried),
            dead_lettered: count(response.dead_lettered),
            dead_letters_waiting: count(response.dead_letters_waiting),
            released: count(response.released),
            already_settled: count(response.already_settled),
            conflicts: response.conflicts.iter().map(conflict).collect(),
            outputs: response.outputs,
        }
    }
}

/// Until when a delivery is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extended {
    /// Informative, on the broker's clock: Unix milliseconds.
    pub ack_deadline_ms: i64,
    /// This deadline cannot be moved again.
    pub capped: bool,
}

/// A call about a delivery.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Ack(v1::AckRequest),
    Extend(v1::ExtendAckRequest),
}

/// Its answer.
#[derive(Debug)]
pub(super) enum Reply {
    Ack(v1::AckResponse),
    Extend(v1::ExtendAckResponse),
}

pub(super) type Answer = Result<Reply, CallError>;

/// A call for the session to make. When it cannot, it drops `reply`.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) call: Call,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// The ways a settlement can go.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) connection: Connection,
    pub(super) orders: mpsc::Sender<Order>,
    pub(super) backoff: BackoffConfig,
    /// How long a settlement is tried.
    pub(super) ack_retry: Duration,
}

impl Door {
    pub(super) async fn ack(&self, request: v1::AckRequest) -> Result<v1::AckResponse, CallError> {
        match self.call(Call::Ack(request)).await? {
            Reply::Ack(response) => Ok(response),
            Reply::Extend(_) => Err(mixed_up()),
        }
    }

    pub(super) async fn extend(
        &self,
        request: v1::ExtendAckRequest,
    ) -> Result<v1::ExtendAckResponse, CallError> {
        match self.call(Call::Extend(request)).await? {
            Reply::Extend(response) => Ok(response),
            Reply::Ack(_) => Err(mixed_up()),
        }
    }

    async fn call(&self, call: Call) -> Answer {
        match self.through_session(call.clone()).await {
            Some(Err(error)) if error.is_retryable() => self.by_itself(call).await,
            Some(answer) => answer,
            None => self.by_itself(call).await,
        }
    }

    /// None: there is no session, or it ended before the answer.
    async fn through_session(&self, call: Call) -> Option<Answer> {
        let asked = async {
            let (reply, answer) = oneshot::channel();
            self.orders.send(Order { call, reply }).await.ok()?;
            answer.await.ok()
        };
        tokio::time::timeout(self.connection.call_timeout(), asked)
            .await
            .ok()
            .flatten()
    }

    async fn by_itself(&self, call: Call) -> Answer {
        let give_up_at = clock::now() + self.ack_retry;
        let mut delays = self.backoff.delays(retry::roll);
        loop {
            let error = match self.once(call.clone()).await {
                Err(error) if error.is_retryable() => error,
                answer => return answer,
            };
            let least = error.retry_after().unwrap_or_default();
            let delay = delays.next().unwrap_or_default().max(least);
            if clock::now() + delay >= give_up_at {
                return Err(error);
            }
            tracing::debug!(%error, ?delay, "the settlement is tried again");
            tokio::time::sleep(delay).await;
        }
    }

    async fn once(&self, call: Call) -> Answer {
        let mut client = self.connection.group();
        match call {
            Call::Ack(request) => {
                answer(client.ack(self.connection.request(request)).await).map(Reply::Ack)
            }
            Call::Extend(request) => {
                answer(client.extend_ack(self.connection.request(request)).await).map(Reply::Extend)
            }
        }
    }
}

fn mixed_up() -> CallError {
    CallError::local(Code::Internal, "the broker answered another call")
}
