//! The record batch: Kafka's format, magic 2, to the byte (`FORMAT.md`, "Record batch").
//!
//! Nothing outside this folder knows its layout. [`BatchBuilder`] writes a batch, [`Records`]
//! reads one, [`validate`] judges one that a producer sent, and [`stamp`] fills in the two fields
//! that the checksum leaves out. Uncompressed batches are read where they lie; compressed ones are
//! decompressed once, and never beyond a bound that the caller gives.

#![expect(
    clippy::big_endian_bytes,
    reason = "the record batch is big-endian by its standard"
)]

mod builder;
#[cfg(test)]
mod builder_tests;
mod codec;
#[cfg(test)]
mod damage_tests;
mod error;
#[cfg(test)]
mod fixture_tests;
mod header;
#[cfg(test)]
mod header_tests;
#[cfg(test)]
mod interop_tests;
mod partitioner;
mod record;
mod records;
#[cfg(test)]
mod records_tests;
#[cfg(test)]
mod samples;
mod validate;
#[cfg(test)]
mod validate_tests;
mod varint;

pub use builder::BatchBuilder;
pub use codec::Codec;
pub use error::{BatchError, RecordFault};
pub use header::{
    BatchHeader, HEADER_BYTES, ProducerStamp, STAMP_BYTES, read_header, stamp, stamped_head,
    verify_crc,
};
pub use partitioner::{key_hash, partition_for_key};
pub use record::{HeaderIter, Headers, RecordRef};
pub use records::{RecordIter, Records};
pub use validate::{BatchRules, validate, validate_sized};
