//! A member's stream on its way: messages of the core become responses.

use std::sync::Arc;

use tokio::sync::mpsc;
use tonic::Status;

use super::delivery::{DeliveryRules, Read, event, read_grant, response};
use super::join::Joining;
use crate::core::refusal::{CallError, GroupRefusal, TopicRefusal};
use crate::core::request::{
    Credit, Grant, GroupRequest, MemberEnd, MemberMessage, StreamEnd, StreamKey,
};
use crate::service::context::Context;
use crate::service::edge::ConnectionGuard;
use crate::service::status::CallFailure;
use crate::service::wire::ConsumeResponse;

/// Largest sum of credit.
pub(super) const CREDIT_MAX: u32 = 1000;
/// Messages beside those that credit pays for.
const MESSAGES_ROOM: u32 = 16;

/// A stream that the core knows.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) context: Arc<Context>,
    pub(super) stream: StreamKey,
    rules: DeliveryRules,
    messages: mpsc::Receiver<MemberMessage>,
}

/// What a member is sent next.
#[derive(Debug)]
pub(super) enum Next {
    /// An event, which costs no credit.
    Event(ConsumeResponse),
    /// Records.
    Delivery(ConsumeResponse),
    /// The stream ends well.
    Left,
}

/// How a member's stream ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The core ended it and knows.
    ByCore(Result<(), CallFailure>),
    /// This side ended it.
    ByEdge(CallFailure),
    /// The caller closed its half: it is done.
    HalfClosed,
    /// The caller's stream is gone.
    ByCaller,
    /// The caller's messages broke off, with this status.
    Failed(Status),
}

impl Ended {
    /// What the caller is told.
    pub(super) fn status(&self) -> Option<Status> {
        match self {
            Self::ByEdge(failure) | Self::ByCore(Err(failure)) => {
                Some(Status::from(failure.clone()))
            }
            Self::Failed(status) => Some(status.clone()),
            Self::ByCore(Ok(())) | Self::HalfClosed | Self::ByCaller => None,
        }
    }
}

impl Member {
    /// Joins; the core answers when the member is in.
    pub(super) async fn join(context: &Arc<Context>, joining: Joining) -> Result<Self, CallError> {
        let Joining { request, rules } = joining;
        let credit = match request.credit {
            Credit::Window(responses) => responses,
            Credit::Explicit => CREDIT_MAX,
        };
        let room = usize::try_from(credit + MESSAGES_ROOM).unwrap_or(usize::MAX);
        let (sender, messages) = mpsc::channel(room);
        let stream = context.core().join(request, sender).await?;
        Ok(Self {
            context: Arc::clone(context),
            stream,
            rules,
            messages,
        })
    }

    /// The next response, or how the stream ends.
    pub(super) async fn next(&mut self) -> Result<Next, Ended> {
        loop {
            match self.messages.recv().await {
                Some(MemberMessage::Event(told)) => return Ok(Next::Event(event(&told))),
                Some(MemberMessage::Grant(grant)) => {
                    let delivered = self.deliver(&grant).await;
                    let delivered = delivered.map_err(|error| Ended::ByEdge(error.into()))?;
                    if let Some(response) = delivered {
                        return Ok(Next::Delivery(response));
                    }
                }
                Some(MemberMessage::End(MemberEnd::Left)) => return Ok(Next::Left),
                Some(MemberMessage::End(end)) => {
                    return Err(Ended::ByCore(Err(self.failure(end))));
                }
                // The core dropped the stream without a word: it is ending.
                None => return Err(Ended::ByCore(Err(CallError::Draining.into()))),
            }
        }
    }

    /// Reads a grant and confirms what of it will be handed on; nothing if none of it is.
    async fn deliver(&self, grant: &Grant) -> Result<Option<ConsumeResponse>, CallError> {
        let context = &self.context;
        let room = context.replies.acquire(self.rules.limit.bytes_aim).await;
        let Some(room) = room else { return Ok(None) };
        let read = read_grant(context, &self.rules, grant).await;
        let (last, skip_to) = match &read {
            Read::Records { last, .. } => (Some(*last), None),
            Read::SkipTo(offset) => (None, Some(*offset)),
            Read::Unreadable | Read::Undeliverable => (None, None),
        };
        let (stream, lease) = (self.stream, grant.lease);
        let confirm = GroupRequest::Confirm {
            stream,
            lease,
            last,
            skip_to,
            undeliverable: matches!(read, Read::Undeliverable),
        };
        context.core().tell(confirm).await?;
        let Read::Records {
            payload,
            records,
            last,
        } = read
        else {
            return Ok(None);
        };
        if let Some(topic) = context.view().topic(grant.topic.as_str()) {
            context.went_out(&topic, records, payload.len());
        }
        Ok(Some(response(
            context,
            &self.rules,
            grant,
            (payload, last),
            room,
        )))
    }

    fn failure(&self, end: MemberEnd) -> CallFailure {
        match end {
            MemberEnd::Left => CallError::Draining.into(),
            MemberEnd::Fenced { generation } => GroupRefusal::MemberFenced { generation }.into(),
            MemberEnd::GroupGone => GroupRefusal::NotFound {
                group: self.rules.group.to_string(),
            }
            .into(),
            MemberEnd::TopicGone { topic } => TopicRefusal::NotFound {
                topic: topic.to_string(),
            }
            .into(),
        }
    }

    /// Tells the core how the stream ended, after a look at what became of the connection.
    pub(super) async fn part(self, guard: &ConnectionGuard, ended: &Ended) {
        let how = match ended {
            Ended::ByCore(_) => return,
            Ended::HalfClosed => StreamEnd::Clean,
            Ended::ByEdge(_) => StreamEnd::Broken,
            Ended::ByCaller => guard.judge().await,
            // Messages that break off on a connection that lives are no goodbye.
            Ended::Failed(_) => match guard.judge().await {
                StreamEnd::Clean => StreamEnd::Broken,
                how @ (StreamEnd::Broken | StreamEnd::Silent) => how,
            },
        };
        let stream = self.stream;
        self.context
            .core()
            .tell_now(GroupRequest::StreamEnded { stream, how });
    }
}
