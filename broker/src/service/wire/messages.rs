//! The messages that stand in for those of the contract that carry records.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tonic::codec::{DecodeBuf, EncodeBuf};
use varvelog_proto::v1;

use super::codec::{FromWire, Malformed, ToWire};
use super::put::{MessageWriter, bytes_field_len, int_field_len};
use crate::service::edge::BudgetPermit;

/// `ProduceRequest`, not yet walked.
#[derive(Debug, Clone)]
pub struct ProduceRequest(pub Bytes);

/// `ProduceStreamRequest`, not yet walked.
#[derive(Debug, Clone)]
pub struct ProduceStreamRequest(pub Bytes);

/// `AckRequest`, not yet walked.
#[derive(Debug, Clone)]
pub struct AckRequest(pub Bytes);

/// `ConsumeSessionRequest`, not yet walked.
#[derive(Debug, Clone)]
pub struct ConsumeSessionRequest(pub Bytes);

macro_rules! taken_whole {
    ($($name:ident),+) => {
        $(impl FromWire for $name {
            fn from_wire(body: &mut DecodeBuf<'_>) -> Result<Self, Malformed> {
                Ok(Self(body.copy_to_bytes(body.remaining())))
            }
        })+
    };
}

taken_whole!(
    ProduceRequest,
    ProduceStreamRequest,
    AckRequest,
    ConsumeSessionRequest
);

/// An encoded message in pieces, so that stored batches are not copied before the transport's
/// own buffer.
#[derive(Debug, Default)]
pub struct Payload {
    pieces: Vec<Bytes>,
    bytes: usize,
    /// Given back when the message is handed to the transport.
    room: Option<BudgetPermit>,
}

impl Payload {
    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
    }

    /// Keeps the room that the message takes, and no more, until it is handed to the transport.
    pub fn hold(&mut self, mut room: BudgetPermit) {
        room.shrink_to(self.bytes);
        self.room = Some(room);
    }

    /// Bytes of the whole.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The whole in one piece.
    pub fn to_bytes(&self) -> Bytes {
        let mut whole = BytesMut::with_capacity(self.bytes);
        for piece in &self.pieces {
            whole.put_slice(piece);
        }
        whole.freeze()
    }

    fn put(self, body: &mut impl BufMut) {
        for piece in self.pieces {
            body.put(piece);
        }
    }
}

/// `FetchResponse`, encoded.
#[derive(Debug, Default)]
pub struct FetchResponse(pub Payload);

/// `TailResponse`, encoded.
#[derive(Debug, Default)]
pub struct TailResponse(pub Payload);

/// `ConsumeResponse`, encoded.
#[derive(Debug, Default)]
pub struct ConsumeResponse(pub Payload);

macro_rules! put_whole {
    ($($name:ident),+) => {
        $(impl ToWire for $name {
            fn to_wire(self, body: &mut EncodeBuf<'_>) {
                body.reserve(self.0.len());
                self.0.put(body);
            }
        })+
    };
}

put_whole!(FetchResponse, TailResponse, ConsumeResponse);

/// `ConsumeSessionResponse`.
#[derive(Debug)]
pub enum ConsumeSessionResponse {
    /// A delivery or event.
    Response(ConsumeResponse),
    /// The answer to an ack.
    Ack {
        /// Of the request.
        sequence: i64,
        /// As of the call.
        answer: v1::AckResponse,
    },
    /// The answer to an extend.
    Extend {
        /// Of the request.
        sequence: i64,
        /// As of the call.
        answer: v1::ExtendAckResponse,
    },
    /// An ack or extend was refused.
    Error {
        /// Of the request.
        sequence: i64,
        /// Why.
        error: v1::StreamError,
    },
}

impl ToWire for ConsumeSessionResponse {
    fn to_wire(self, body: &mut EncodeBuf<'_>) {
        let (field, sequence, message) = match self {
            Self::Response(response) => (1, 0, response.0),
            Self::Ack { sequence, answer } => (2, sequence, encoded(&answer)),
            Self::Extend { sequence, answer } => (3, sequence, encoded(&answer)),
            Self::Error { sequence, error } => (4, sequence, encoded(&error)),
        };
        let whole = bytes_field_len(field, message.len()) + int_field_len(5, sequence);
        body.reserve(whole);
        let mut head = BytesMut::with_capacity(32);
        let mut writer = MessageWriter::new(&mut head);
        // Field order is free: the number goes first, so that one small piece holds both heads.
        writer.int(5, sequence);
        writer.open(field, message.len());
        body.put(head);
        message.put(body);
    }
}

fn encoded(message: &impl Message) -> Payload {
    let mut payload = Payload::default();
    payload.push(Bytes::from(message.encode_to_vec()));
    payload
}
