//! Records between the wire and record batches: one bounded walk each way, without a struct for
//! each record.
//!
//! In: [`ProduceHead`] is read first (topic, counts), then [`RecordsIn`] or [`batches_in`] turn
//! the same bytes into batches. Out: [`ReplyRecords`] takes records from stored batches until a
//! reply is full.

mod ack_in;
mod content_hash;
mod message_ids;
mod new_record;
mod produce_in;
mod records_in;
mod records_out;
mod session_in;
mod shown_record;
mod stored_out;

#[cfg(test)]
mod ack_in_tests;
#[cfg(test)]
mod fast_in_tests;
#[cfg(test)]
mod in_tests;
#[cfg(test)]
mod message_id_tests;
#[cfg(test)]
mod origin_tests;
#[cfg(test)]
mod out_tests;

pub use ack_in::{AckIn, OutputIn, outputs_hash};
pub(super) use content_hash::ContentHash;
pub use produce_in::{BatchIn, BatchLimits, ProduceHead, StreamProduceIn, batches_in};
pub(super) use records_in::{HEADERS_MAX, KEY_BYTES_MAX};
pub use records_in::{PartIn, RecordTarget, RecordsIn};
pub use records_out::{
    Origins, Oversized, RECORD_REPLY_BYTES_MAX, RecordSource, RecordStyle, ReplyLimit,
    ReplyRecords, Taken,
};
pub use session_in::{SessionIn, SessionMessage};
pub use stored_out::{leased_range, stored_batch};
