//! Whole batches on their way out: offset and epoch are stamped into a copy of the batch's first
//! bytes, the rest is shared with the store.

use bytes::{Bytes, BytesMut};
use varvelog_store::Offset;
use varvelog_store::batch::{STAMP_BYTES, stamped_head};
use varvelog_store::partition::StoredBatch;

use crate::service::wire::{MessageWriter, Payload, bytes_field_len, int_field_len};

/// Adds a `StoredBatch` as field `field` to a reply.
pub fn stored_batch(to: &mut Payload, field: u32, batch: &StoredBatch) {
    let base_offset = batch.base_offset.as_i64();
    let (append_time_ms, record_count) = (batch.append_time.0, i64::from(batch.record_count));
    let length = int_field_len(1, base_offset)
        + int_field_len(2, append_time_ms)
        + int_field_len(3, record_count)
        + bytes_field_len(4, batch.body.len());
    let mut head = BytesMut::with_capacity(64 + STAMP_BYTES);
    let mut writer = MessageWriter::new(&mut head);
    writer.open(field, length);
    writer.int(1, base_offset);
    writer.int(2, append_time_ms);
    writer.int(3, record_count);
    writer.open(4, batch.body.len());
    let stamped = stamped_head(&batch.body, batch.base_offset, batch.epoch);
    // The store gives out whole batches only; a shorter body would go as it is.
    let stamped = stamped.as_ref().map_or(&[][..], |stamped| &stamped[..]);
    writer.raw(stamped);
    to.push(head.freeze());
    to.push(batch.body.slice(stamped.len()..));
}

/// An `OffsetRange` as field `field` of a reply; both ends included.
pub fn leased_range(field: u32, first: Offset, last: Offset) -> Bytes {
    let length = int_field_len(1, first.as_i64()) + int_field_len(2, last.as_i64());
    let mut range = BytesMut::with_capacity(32);
    let mut writer = MessageWriter::new(&mut range);
    writer.open(field, length);
    writer.int(1, first.as_i64());
    writer.int(2, last.as_i64());
    range.freeze()
}
