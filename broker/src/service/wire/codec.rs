//! The codec: what does not decode is the caller's error, and is answered as such.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{DecodeBuf, EncodeBuf};

use crate::service::status::CallFailure;

/// Bytes that are no message of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request does not decode: {what}")]
pub struct Malformed {
    /// What is wrong, and in which field where that is known.
    pub what: String,
}

impl Malformed {
    /// With what is wrong.
    pub fn new(what: String) -> Self {
        Self { what }
    }
}

/// A request that can be taken off the wire.
pub trait FromWire: Sized + Send + 'static {
    /// Takes the whole of `body`.
    fn from_wire(body: &mut DecodeBuf<'_>) -> Result<Self, Malformed>;
}

impl<T: Message + Default + 'static> FromWire for T {
    fn from_wire(body: &mut DecodeBuf<'_>) -> Result<Self, Malformed> {
        T::decode(body).map_err(|error| Malformed::new(error.to_string()))
    }
}

/// A reply that can be put on the wire.
pub trait ToWire: Send + 'static {
    /// Puts the whole message behind what `body` holds.
    fn to_wire(self, body: &mut EncodeBuf<'_>);
}

impl<T: Message + 'static> ToWire for T {
    fn to_wire(self, body: &mut EncodeBuf<'_>) {
        body.reserve(self.encoded_len());
        self.encode_raw(body);
    }
}

/// The codec of every server: replies `E`, requests `D`.
pub struct Codec<E, D>(PhantomData<fn(E) -> D>);

/// The encoding half of [`Codec`].
pub struct Encoder<E>(PhantomData<fn(E)>);

/// The decoding half of [`Codec`].
pub struct Decoder<D>(PhantomData<fn() -> D>);

impl<E, D> Default for Codec<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E, D> fmt::Debug for Codec<E, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Codec")
    }
}

impl<E> fmt::Debug for Encoder<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoder")
    }
}

impl<D> fmt::Debug for Decoder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decoder")
    }
}

impl<E: ToWire, D: FromWire> tonic::codec::Codec for Codec<E, D> {
    type Encode = E;
    type Decode = D;
    type Encoder = Encoder<E>;
    type Decoder = Decoder<D>;

    fn encoder(&mut self) -> Self::Encoder {
        Encoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        Decoder(PhantomData)
    }
}

impl<E: ToWire> tonic::codec::Encoder for Encoder<E> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, item: E, body: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.to_wire(body);
        Ok(())
    }
}

impl<D: FromWire> tonic::codec::Decoder for Decoder<D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, body: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let item = D::from_wire(body).map_err(CallFailure::from)?;
        Ok(Some(item))
    }
}
