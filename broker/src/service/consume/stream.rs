//! `Consume`.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;
use varvelog_proto::v1;

use super::join::{Door, Joining};
use super::member::{Ended, Member, Next};
use crate::core::refusal::CallError;
use crate::service::context::Context;
use crate::service::edge::{ConnectionGuard, Peer, Phase};
use crate::service::status::CallFailure;
use crate::service::wire::ConsumeResponse;

type Responses = mpsc::Sender<Result<ConsumeResponse, Status>>;

/// `Consume`.
pub(in crate::service) async fn consume(
    context: &Arc<Context>,
    request: v1::ConsumeRequest,
    (guard, peer): (ConnectionGuard, Peer),
) -> Result<BoxStream<ConsumeResponse>, CallFailure> {
    let joining = Joining::read(context, request, (Door::Consume, peer)).await?;
    let (responses, sent) = mpsc::channel(1);
    let (joined, is_in) = oneshot::channel();
    // A task from here on: a call that is given up in the middle of its join must be told to the
    // core, too.
    tokio::spawn(run(
        Arc::clone(context),
        joining,
        (guard, joined),
        responses,
    ));
    is_in.await.unwrap_or(Err(CallError::Draining))?;
    Ok(Box::pin(ReceiverStream::new(sent)))
}

async fn run(
    context: Arc<Context>,
    joining: Joining,
    (guard, joined): (ConnectionGuard, oneshot::Sender<Result<(), CallError>>),
    responses: Responses,
) {
    let mut member = match Member::join(&context, joining).await {
        Ok(member) => member,
        Err(error) => {
            // A caller that is gone needs no answer.
            drop(joined.send(Err(error)));
            return;
        }
    };
    drop(joined.send(Ok(())));
    let ended = tokio::select! {
        ended = forward(&mut member, &responses) => ended,
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

async fn forward(member: &mut Member, responses: &Responses) -> Ended {
    loop {
        let response = match member.next().await {
            Ok(Next::Event(response) | Next::Delivery(response)) => response,
            Ok(Next::Left) => return Ended::ByCore(Ok(())),
            Err(ended) => return ended,
        };
        if responses.send(Ok(response)).await.is_err() {
            return Ended::ByCaller;
        }
    }
}
