//! The framing of gRPC, checked in front of the services.
//!
//! A request body is a chain of messages, each behind five bytes: a flag and a length. The body is
//! followed frame by frame without being copied, and fails with a status of ours where it breaks
//! the chain, so that no service ever sees such a request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

use super::budget::{Budget, BudgetPermit};
use super::methods::MethodShape;
use crate::service::status::{CallFailure, EdgeRefusal};
use crate::service::wire::Malformed;

const PREFIX_BYTES: usize = 5;
/// Messages up to this size are not counted against the budget: their number is bounded by the
/// number of streams.
const UNCOUNTED_BYTES_MAX: usize = 64 * 1024;

/// What a request body may take.
#[derive(Debug, Clone)]
pub struct FrameLimits {
    /// Room for messages that are still coming in.
    pub budget: Budget,
    /// How long a large message waits for room.
    pub room_wait_max: Duration,
    /// How long a message may stand still before its end.
    pub stall_max: Duration,
}

/// A request body whose framing is checked.
pub struct Framed<B> {
    inner: B,
    shape: MethodShape,
    limits: FrameLimits,
    place: Place,
    messages: u64,
    /// Read from `inner`, from a prefix on, and not handed on yet.
    held: Bytes,
    failure: Option<Status>,
    room: Room,
    stall: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

/// Where in the chain the next byte lies.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// In a prefix, of which so many bytes are there.
    Prefix {
        bytes: [u8; PREFIX_BYTES],
        have: usize,
    },
    /// In a message, of which so many bytes are to come.
    Message { left: usize },
}

const START: Place = Place::Prefix {
    bytes: [0; PREFIX_BYTES],
    have: 0,
};

type RoomFuture = Pin<Box<dyn Future<Output = Result<BudgetPermit, EdgeRefusal>> + Send>>;

enum Room {
    NotNeeded,
    Wanted(RoomFuture),
    Taken { _permit: BudgetPermit },
}

/// How far a piece of the body can be handed on.
enum Checked {
    /// All of it.
    All,
    /// Up to here; then the message that begins there needs room.
    NeedsRoom { good: usize, bytes: usize },
    /// Up to here; then the chain is broken.
    Broken { good: usize, failure: CallFailure },
}

impl<B> Framed<B> {
    /// Checks `inner` as a request of a method of that shape.
    pub fn new(inner: B, shape: MethodShape, limits: FrameLimits) -> Self {
        Self {
            inner,
            shape,
            limits,
            place: START,
            messages: 0,
            held: Bytes::new(),
            failure: None,
            room: Room::NotNeeded,
            stall: None,
            is_over: false,
        }
    }

    /// Follows the chain through `data`.
    fn check(&mut self, data: &[u8]) -> Checked {
        let mut at = 0;
        // Where the prefix in work began; one that began in an earlier piece is gone already.
        let mut prefix_at = 0;
        while let Some(byte) = data.get(at) {
            match &mut self.place {
                Place::Message { left } => {
                    let step = (*left).min(data.len() - at);
                    at += step;
                    *left -= step;
                    if *left == 0 {
                        self.end_message();
                    }
                    prefix_at = at;
                }
                Place::Prefix { bytes, have } => {
                    if let Some(place) = bytes.get_mut(*have) {
                        *place = *byte;
                    }
                    *have += 1;
                    at += 1;
                    if *have < PREFIX_BYTES {
                        continue;
                    }
                    let prefix = *bytes;
                    match self.begin_message(prefix) {
                        Err(failure) => {
                            return Checked::Broken {
                                good: prefix_at,
                                failure,
                            };
                        }
                        Ok(bytes) if bytes > UNCOUNTED_BYTES_MAX => {
                            return Checked::NeedsRoom { good: at, bytes };
                        }
                        Ok(_) => prefix_at = at,
                    }
                }
            }
        }
        Checked::All
    }

    fn begin_message(&mut self, prefix: [u8; PREFIX_BYTES]) -> Result<usize, CallFailure> {
        let [flag, a, b, c, d] = prefix;
        if flag > 1 {
            return Err(malformed(format!("the flag of a message is {flag}, not 0")));
        }
        if flag == 1 {
            return Err(malformed(String::from(
                "a message is marked as compressed, and no grpc-encoding says how",
            )));
        }
        if self.messages == 1 && !self.shape.is_client_stream {
            return Err(malformed(String::from(
                "a second message follows, the method takes one",
            )));
        }
        let size = u64::from(a) << 24 | u64::from(b) << 16 | u64::from(c) << 8 | u64::from(d);
        let limit = self.shape.message_bytes_max;
        let length = usize::try_from(size).unwrap_or(usize::MAX);
        if length > limit {
            let limit = limit as u64;
            return Err(EdgeRefusal::RequestTooLarge { limit, size }.into());
        }
        self.messages += 1;
        self.place = Place::Message { left: length };
        if length == 0 {
            self.end_message();
        }
        Ok(length)
    }

    fn end_message(&mut self) {
        self.place = START;
        self.room = Room::NotNeeded;
    }

    /// What is wrong with a body that ends here.
    fn end(&self) -> Option<CallFailure> {
        match self.place {
            Place::Prefix { have: 0, .. } if self.messages > 0 || self.shape.is_client_stream => {
                None
            }
            Place::Prefix { have: 0, .. } => Some(malformed(String::from(
                "there is no message, the method takes one",
            ))),
            Place::Prefix { .. } | Place::Message { .. } => {
                Some(malformed(String::from("the body ends inside a message")))
            }
        }
    }

    /// Hands on what is good of `data` and keeps the rest.
    fn hand_on(&mut self, mut data: Bytes) -> Option<Result<Bytes, Status>> {
        let good = match self.check(&data) {
            Checked::All => return Some(Ok(data)),
            Checked::NeedsRoom { good, bytes } => {
                let (budget, wait_max) = (self.limits.budget.clone(), self.limits.room_wait_max);
                self.room = Room::Wanted(Box::pin(async move {
                    budget.acquire_within(bytes, wait_max).await
                }));
                // The prefix goes too, so that what is held begins inside the message; tonic takes
                // room only when bytes of it come.
                self.held = data.split_off(good);
                return Some(Ok(data));
            }
            Checked::Broken { good, failure } => {
                self.failure = Some(failure.into());
                good
            }
        };
        data.truncate(good);
        if data.is_empty() {
            self.failure.take().map(Err)
        } else {
            Some(Ok(data))
        }
    }

    fn fail(&mut self, failure: impl Into<Status>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_over = true;
        Poll::Ready(Some(Err(failure.into())))
    }

    /// Whether a message stood still for too long; registers for the time it will have.
    fn is_stalled(&mut self, cx: &mut Context<'_>) -> bool {
        if matches!(self.place, Place::Prefix { have: 0, .. }) {
            self.stall = None;
            return false;
        }
        let stall_max = self.limits.stall_max;
        let stall = self
            .stall
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_max)));
        stall.as_mut().poll(cx).is_ready()
    }
}

impl<B: Body<Data = Bytes, Error = Status> + Unpin> Body for Framed<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if let Some(failure) = this.failure.take() {
            return this.fail(failure);
        }
        if let Room::Wanted(wanted) = &mut this.room {
            match ready!(wanted.as_mut().poll(cx)) {
                Ok(permit) => this.room = Room::Taken { _permit: permit },
                Err(refusal) => return this.fail(CallFailure::from(refusal)),
            }
        }
        let data = if this.held.is_empty() {
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Pending if this.is_stalled(cx) => {
                    let what = format!("a message stood still for {:?}", this.limits.stall_max);
                    return this.fail(malformed(what));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    this.is_over = true;
                    return Poll::Ready(this.end().map(|failure| Err(failure.into())));
                }
                Poll::Ready(Some(Err(status))) => return this.fail(status),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        } else {
            std::mem::take(&mut this.held)
        };
        this.stall = None;
        let handed = this.hand_on(data);
        this.is_over |= matches!(handed, Some(Err(_)));
        Poll::Ready(handed.map(|data| data.map(Frame::data)))
    }

    /// Never: an empty body has to be judged, too.
    fn is_end_stream(&self) -> bool {
        self.is_over
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn malformed(what: String) -> CallFailure {
    Malformed::new(what).into()
}

impl<B> fmt::Debug for Framed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Framed")
            .field("shape", &self.shape)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}
