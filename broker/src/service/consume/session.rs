//! `ConsumeSession`: one stream with deliveries and credit, acks and extends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Status, Streaming};

use super::join::{Door, Joining};
use super::member::{CREDIT_MAX, Ended, Member, Next};
use crate::core::refusal::CallError;
use crate::core::request::{GroupRequest, StreamKey};
use crate::service::context::Context;
use crate::service::edge::{ConnectionGuard, Peer, Phase};
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::transcode::{SessionIn, SessionMessage};
use crate::service::wire::{ConsumeSessionRequest, ConsumeSessionResponse};
use crate::service::{ack, settle};

/// Acks and extends that are not answered yet. Small messages that are not read count against the
/// whole connection, so there may be many.
const ANSWERS_MAX: usize = 2048;
/// How long after the end of the requests the responses are looked at: only a caller that closed
/// its half still has them open then.
const HALF_CLOSE_LOOK: Duration = Duration::from_millis(100);

type Responses = mpsc::Sender<Result<ConsumeSessionResponse, Status>>;
type Requests = Streaming<ConsumeSessionRequest>;
type Answer = Pin<Box<dyn Future<Output = ConsumeSessionResponse> + Send>>;

/// `ConsumeSession`.
pub(in crate::service) fn consume_session(
    context: &Arc<Context>,
    requests: Requests,
    (guard, peer): (ConnectionGuard, Peer),
) -> BoxStream<ConsumeSessionResponse> {
    let (responses, sent) = mpsc::channel(1);
    tokio::spawn(run(Arc::clone(context), requests, (guard, peer), responses));
    Box::pin(ReceiverStream::new(sent))
}

async fn run(
    context: Arc<Context>,
    mut requests: Requests,
    (guard, peer): (ConnectionGuard, Peer),
    responses: Responses,
) {
    let started = tokio::select! {
        started = start(&context, &mut requests, peer) => started,
        () = responses.closed() => return,
        () = context.phase.reached(Phase::Draining) => {
            Err(CallFailure::from(CallError::Draining).into())
        }
    };
    // Not given up when the caller is gone: the core has to be told.
    let joined = match started {
        Ok(joining) => Member::join(&context, joining)
            .await
            .map_err(|error| CallFailure::from(error).into()),
        Err(status) => Err(status),
    };
    let mut member = match joined {
        Ok(member) => member,
        Err(status) => {
            drop(responses.send(Err(status)).await);
            return;
        }
    };
    let stream = member.stream;
    let credit = Credit::default();
    let ended = tokio::select! {
        ended = deliver(&mut member, &responses, &credit) => ended,
        ended = serve(&context, &mut requests, (stream, &credit), &responses) => ended,
        () = responses.closed() => Ended::ByCaller,
        () = context.phase.reached(Phase::Draining) => Ended::ByEdge(CallError::Draining.into()),
    };
    if let Some(status) = ended.status() {
        tokio::select! {
            sent = responses.send(Err(status)) => drop(sent),
            () = context.phase.reached(Phase::Over) => {}
        }
    }
    drop(responses);
    member.part(&guard, &ended).await;
}

/// The first message: the start.
async fn start(context: &Context, requests: &mut Requests, peer: Peer) -> Result<Joining, Status> {
    let missing = || CallFailure::from(FieldViolation::new("start", "must be the first message"));
    let request = requests.message().await?.ok_or_else(missing)?;
    match SessionIn::read(&request.0)?.message {
        SessionMessage::Start(start) => {
            Ok(Joining::read(context, *start, (Door::Session, peer)).await?)
        }
        SessionMessage::Ack(_) | SessionMessage::Extend(_) | SessionMessage::Credit(_) => {
            Err(missing().into())
        }
    }
}

/// Responses that the caller paid for and did not get yet.
#[derive(Debug, Default)]
struct Credit(AtomicU32);

impl Credit {
    /// Adds credit within the largest sum.
    fn add(&self, more: i32) -> Result<u32, FieldViolation> {
        let had = self.0.load(Ordering::Relaxed);
        match u32::try_from(more) {
            Ok(more @ 1..) if had.saturating_add(more) <= CREDIT_MAX => {
                self.0.fetch_add(more, Ordering::Relaxed);
                Ok(more)
            }
            Ok(_) | Err(_) => {
                let what = format!("must be above 0, and at most {CREDIT_MAX} with the {had} left");
                Err(FieldViolation::bound("credit", CREDIT_MAX, more, what))
            }
        }
    }

    fn spend(&self) {
        let left = |credit: u32| credit.checked_sub(1);
        let _none_was_left = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }
}

async fn deliver(member: &mut Member, responses: &Responses, credit: &Credit) -> Ended {
    loop {
        let response = match member.next().await {
            Ok(Next::Event(response)) => response,
            Ok(Next::Delivery(response)) => {
                credit.spend();
                response
            }
            Ok(Next::Left) => return Ended::ByCore(Ok(())),
            Err(ended) => return ended,
        };
        if responses
            .send(Ok(ConsumeSessionResponse::Response(response)))
            .await
            .is_err()
        {
            return Ended::ByCaller;
        }
    }
}

/// Serves credit, acks and extends until the requests end, and then until all are answered.
async fn serve(
    context: &Arc<Context>,
    requests: &mut Requests,
    (stream, credit): (StreamKey, &Credit),
    responses: &Responses,
) -> Ended {
    let mut answers: FuturesOrdered<Answer> = FuturesOrdered::new();
    let mut is_open = true;
    while is_open || !answers.is_empty() {
        tokio::select! {
            Some(answer) = answers.next() => {
                if responses.send(Ok(answer)).await.is_err() {
                    return Ended::ByCaller;
                }
            }
            request = requests.message(), if is_open && answers.len() < ANSWERS_MAX => {
                match request {
                    Ok(Some(request)) => match take(context, &request, (stream, credit)).await {
                        Ok(answer) => answers.extend(answer),
                        Err(failure) => return Ended::ByEdge(failure),
                    },
                    Ok(None) => is_open = false,
                    // A stream that failed must not be read again.
                    Err(status) => return Ended::Failed(status),
                }
            }
        }
    }
    tokio::time::sleep(HALF_CLOSE_LOOK).await;
    Ended::HalfClosed
}

/// Takes a message; gives what will be its answer, if it has one.
async fn take(
    context: &Arc<Context>,
    request: &ConsumeSessionRequest,
    (stream, credit): (StreamKey, &Credit),
) -> Result<Option<Answer>, CallFailure> {
    let SessionIn { sequence, message } = SessionIn::read(&request.0)?;
    let context = Arc::clone(context);
    match message {
        SessionMessage::Start(_) => {
            Err(FieldViolation::new("start", "must be the first message and comes once").into())
        }
        SessionMessage::Credit(more) => {
            let responses = credit.add(more)?;
            context
                .core()
                .tell(GroupRequest::AddCredit { stream, responses })
                .await?;
            Ok(None)
        }
        SessionMessage::Ack(request) => Ok(Some(Box::pin(async move {
            match settle::ack(&context, request).await {
                Ok(answer) => ConsumeSessionResponse::Ack { sequence, answer },
                Err(failure) => refused(sequence, &failure),
            }
        }))),
        SessionMessage::Extend(request) => Ok(Some(Box::pin(async move {
            match ack::extend(&context, &request).await {
                Ok(answer) => ConsumeSessionResponse::Extend { sequence, answer },
                Err(failure) => refused(sequence, &failure),
            }
        }))),
    }
}

fn refused(sequence: i64, failure: &CallFailure) -> ConsumeSessionResponse {
    ConsumeSessionResponse::Error {
        sequence,
        error: failure.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_bounded_by_what_is_left_of_it() {
        let credit = Credit::default();
        assert!(credit.add(0).is_err());
        assert!(credit.add(-1).is_err());
        assert!(credit.add(1001).is_err());
        assert_eq!(credit.add(1000), Ok(1000));
        assert!(credit.add(1).is_err());
        credit.spend();
        assert_eq!(credit.add(1), Ok(1));
        Credit::default().spend();
    }
}
