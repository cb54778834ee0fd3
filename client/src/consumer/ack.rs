//! Settling what a delivery brought: through the session while there is one, else by a call of
//! its own, again and again. A settlement may be repeated without harm.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tonic::Code;
use varvelog_proto::v1;

use crate::clock;
use crate::connection::{Connection, answer};
use crate::error::CallError;
use crate::retry::{self, BackoffConfig};

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
