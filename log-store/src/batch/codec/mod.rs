//! How the records of a batch are compressed.
//!
//! Decompression is a stream that stops at the caller's bound. A size that the stream declares is
//! judged first, and no room is made for more than the bytes at hand can give.

mod bounded;
mod dispatch;
mod gzip;
mod lz4;
mod snappy;
#[cfg(test)]
mod tests;
mod zstandard;

pub use dispatch::Codec;
