//! One stream of a group member, from joining until it ends.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};
use varvelog_proto::v1;
use varvelog_proto::v1::consume_session_request::Message as Out;
use varvelog_proto::v1::consume_session_response::Message as In;

use super::ack::{Answer, Call, Order, Reply};
use super::member::Member;
use crate::error::CallError;

/// Requests on their way out. One place is kept for credit.
const OUTGOING_MAX: usize = 256;

/// Credit that the broker takes.
const GRANTED_MAX: u32 = 1_000;

/// Wait for the broker to end a stream that was half closed.
const GOODBYE: Duration = Duration::from_secs(5);

/// How a session ended.
pub(super) enum Ended {
    /// By the consumer, and the broker has seen it.
    Closed,
    /// By the consumer; the broker has still to be told.
    Leaving,
    /// By somebody who ended the membership.
    Left,
    /// For good.
    Refused(CallError),
    /// By a fault that passes. `joined`: the broker had taken this member.
    Broken { error: CallError, joined: bool },
}

/// Messages from the broker.
enum Incoming {
    Session(Streaming<v1::ConsumeSessionResponse>),
    Stream(Streaming<v1::ConsumeResponse>),
}

impl Incoming {
    async fn next(&mut self) -> Result<Option<v1::ConsumeSessionResponse>, Status> {
        match self {
            Self::Session(stream) => stream.message().await,
            Self::Stream(stream) => {
                Ok(stream
                    .message()
                    .await?
                    .map(|response| v1::ConsumeSessionResponse {
                        message: Some(In::Response(response)),
                        sequence: 0,
                    }))
            }
        }
    }
}

struct Session<'a> {
    member: &'a mut Member,
    /// None: a server stream, which takes nothing more.
    outgoing: Option<mpsc::Sender<v1::ConsumeSessionRequest>>,
    /// Unanswered, in order.
    orders: VecDeque<(i64, oneshot::Sender<Answer>)>,
    next_sequence: i64,
    /// Credit that the broker has and has not used.
    granted: u32,
    joined: bool,
}

/// Join and stay until something ends it.
pub(super) async fn run(member: &mut Member) -> Ended {
    let closing = member.arrivals.clone();
    let (outgoing, opened) = tokio::select! {
        opened = open(member) => opened,
        () = closing.closed() => return Ended::Leaving,
    };
    let incoming = match opened {
        Ok(incoming) => incoming,
        Err(status) => return ended(status.into(), false),
    };
    drop(closing);
    let mut session = Session {
        member,
        outgoing,
        orders: VecDeque::new(),
        next_sequence: 1,
        granted: 0,
        joined: false,
    };
    session.follow(incoming).await
}

type Opened = (
    Option<mpsc::Sender<v1::ConsumeSessionRequest>>,
    Result<Incoming, Status>,
);

async fn open(member: &Member) -> Opened {
    let (mut client, start) = (member.connection.group(), member.start.clone());
    if !member.session {
        let opened = client.consume(start).await;
        return (
            None,
            opened.map(|response| Incoming::Stream(response.into_inner())),
        );
    }
    let (outgoing, requests) = mpsc::channel(OUTGOING_MAX);
    // The channel is new and empty, so there is room.
    let started = outgoing.try_send(request(Out::Start(start), 0));
    debug_assert!(started.is_ok(), "a new channel has room");
    let opened = client.consume_session(ReceiverStream::new(requests)).await;
    (
        Some(outgoing),
        opened.map(|response| Incoming::Session(response.into_inner())),
    )
}

impl Session<'_> {
    async fn follow(&mut self, mut incoming: Incoming) -> Ended {
        let credit = self.member.credit.clone();
        loop {
            self.grant();
            let room = self
                .outgoing
                .as_ref()
                .is_some_and(|outgoing| outgoing.capacity() > 1);
            let orders = self.outgoing.is_none() || room && self.orders.len() < OUTGOING_MAX;
            // A server stream knows no credit: what is not read holds the broker back.
            let read = self.outgoing.is_some() || credit.has_room();
            tokio::select! {
                message = incoming.next(), if read => match message {
                    Ok(Some(message)) => {
                        if let Err(error) = self.on_message(message) {
                            return ended(error, self.joined);
                        }
                    }
                    Ok(None) => return Ended::Left,
                    Err(status) => return ended(status.into(), self.joined),
                },
                Some(order) = self.member.orders.recv(), if orders => self.on_order(order),
                () = credit.freed.notified() => {}
                () = self.member.arrivals.closed() => return self.end(incoming).await,
            }
        }
    }

    /// Give the broker what credit there is.
    fn grant(&mut self) {
        let Some(outgoing) = &self.outgoing else {
            return;
        };
        let more = self.member.credit.deliveries_left(self.granted);
        let more = more.min(GRANTED_MAX.saturating_sub(self.granted));
        let Some(wire) = i32::try_from(more).ok().filter(|more| *more > 0) else {
            return;
        };
        if outgoing.try_send(request(Out::Credit(wire), 0)).is_ok() {
            self.granted += more;
        }
    }

    fn on_order(&mut self, order: Order) {
        // Without a session the order is dropped, and its caller makes the call by itself.
        let Some(outgoing) = &self.outgoing else {
            return;
        };
        let message = match order.call {
            Call::Ack(ack) => Out::Ack(ack),
            Call::Extend(extend) => Out::Extend(extend),
        };
        if outgoing
            .try_send(request(message, self.next_sequence))
            .is_ok()
        {
            self.orders.push_back((self.next_sequence, order.reply));
            self.next_sequence += 1;
        }
    }

    fn on_message(&mut self, message: v1::ConsumeSessionResponse) -> Result<(), CallError> {
        let sequence = message.sequence;
        match message.message {
            Some(In::Response(response)) => self.on_response(response),
            Some(In::Ack(response)) => self.on_answer(sequence, Ok(Reply::Ack(response))),
            Some(In::Extend(response)) => self.on_answer(sequence, Ok(Reply::Extend(response))),
            Some(In::Error(error)) => self.on_answer(sequence, Err(error.into())),
            None => Ok(()),
        }
    }

    fn on_response(&mut self, mut response: v1::ConsumeResponse) -> Result<(), CallError> {
        if let Some(event) = response.event.take() {
            self.joined = true;
            self.member.on_event(event);
        }
        if response.records.is_empty() && response.batches.is_empty() {
            return Ok(());
        }
        self.granted = self.granted.saturating_sub(1);
        if self.member.deliver(response) {
            Ok(())
        } else {
            Err(CallError::local(
                Code::Unavailable,
                "the broker sends more than it has credit for",
            ))
        }
    }

    fn on_answer(&mut self, sequence: i64, answer: Answer) -> Result<(), CallError> {
        match self.orders.pop_front() {
            Some((expected, reply)) if expected == sequence => {
                // Whoever asked may have stopped waiting.
                drop(reply.send(answer));
                Ok(())
            }
            _ => Err(CallError::local(
                Code::Unavailable,
                format!("the broker answered call {sequence} of the session out of turn"),
            )),
        }
    }

    /// The consumer is gone: settle what was asked for, say goodbye, and wait for the broker's.
    async fn end(&mut self, mut incoming: Incoming) -> Ended {
        while let Ok(order) = self.member.orders.try_recv() {
            self.on_order(order);
        }
        if self.outgoing.take().is_none() {
            return Ended::Leaving;
        }
        let goodbye = async {
            loop {
                match incoming.next().await {
                    Ok(Some(message)) => {
                        let leftover = matches!(message.message, Some(In::Response(_)) | None);
                        if !leftover && self.on_message(message).is_err() {
                            return Ended::Leaving;
                        }
                    }
                    Ok(None) => return Ended::Closed,
                    Err(_broken) => return Ended::Leaving,
                }
            }
        };
        tokio::time::timeout(GOODBYE, goodbye)
            .await
            .unwrap_or(Ended::Leaving)
    }
}

fn ended(error: CallError, joined: bool) -> Ended {
    if error.is_retryable() {
        Ended::Broken { error, joined }
    } else {
        Ended::Refused(error)
    }
}

fn request(message: Out, sequence: i64) -> v1::ConsumeSessionRequest {
    v1::ConsumeSessionRequest {
        message: Some(message),
        sequence,
    }
}
