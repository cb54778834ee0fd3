//! Protobuf on the wire: one codec for all servers, and types of our own for the messages that
//! carry records.
//!
//! A replaced message stays the bytes it came as ([`ProduceRequest`] and the like) or is put
//! together from encoded pieces ([`FetchResponse`] and the like); [`super::transcode`] walks and
//! writes them. Every other message is `prost`'s.

mod codec;
mod fields;
mod messages;
mod put;

#[cfg(test)]
mod tests;

pub use codec::{Codec, Decoder, Encoder, FromWire, Malformed, ToWire};
pub use fields::{Field, Fields, Value};
pub use messages::{
    AckRequest, ConsumeResponse, ConsumeSessionRequest, ConsumeSessionResponse, FetchResponse,
    Payload, ProduceRequest, ProduceStreamRequest, TailResponse,
};
pub use put::{MessageWriter, bytes_field_len, int_field_len, varint_len};
