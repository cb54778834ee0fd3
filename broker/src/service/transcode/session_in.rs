//! `ConsumeSessionRequest` on the wire.

use bytes::Bytes;
use prost::Message;
use varvelog_proto::v1;

use crate::service::status::{CallFailure, FieldViolation};
use crate::service::wire::{AckRequest, Field, Fields, Malformed};

/// A message of a consume session.
#[derive(Debug, Clone)]
pub struct SessionIn {
    /// The caller's, for ack and extend.
    pub sequence: i64,
    /// What it says.
    pub message: SessionMessage,
}

/// What a message of a consume session says.
#[derive(Debug, Clone)]
pub enum SessionMessage {
    /// Join.
    Start(Box<v1::ConsumeRequest>),
    /// Settle.
    Ack(AckRequest),
    /// Hold for longer.
    Extend(v1::ExtendAckRequest),
    /// So many responses more.
    Credit(i32),
}

impl SessionIn {
    /// Walks the outer fields. Two messages in one, which the wire format would merge or drop, are
    /// refused.
    pub fn read(wire: &Bytes) -> Result<Self, CallFailure> {
        let (mut sequence, mut message) = (0, None);
        let mut fields = Fields::new(wire);
        while let Some(field) = fields.next_field()? {
            let said = match field.number {
                1 => SessionMessage::Start(Box::new(decode(&field)?)),
                2 => SessionMessage::Ack(AckRequest(wire.slice_ref(field.bytes()?))),
                3 => SessionMessage::Extend(decode(&field)?),
                4 => SessionMessage::Credit(field.int32()?),
                5 => {
                    sequence = field.int64()?;
                    continue;
                }
                _ => continue,
            };
            if message.replace(said).is_some() {
                return Err(Malformed::new(String::from("two messages are given in one")).into());
            }
        }
        let missing = || FieldViolation::new("message", "start, ack, extend or credit is needed");
        Ok(Self {
            sequence,
            message: message.ok_or_else(missing)?,
        })
    }
}

fn decode<M: Message + Default>(field: &Field<'_>) -> Result<M, Malformed> {
    M::decode(field.bytes()?).map_err(|error| Malformed::new(error.to_string()))
}
