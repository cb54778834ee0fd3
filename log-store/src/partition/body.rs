//! What the store looks at in a body: its shape and its checksum.

use crate::batch;
use crate::partition::entry::EntryHeader;

/// Whether `body`, read back, is the one that `header` was written for, in every bit.
pub(crate) fn is_whole(body: &[u8], header: &EntryHeader) -> bool {
    batch::verify_crc(body).is_ok_and(|found| {
        found.crc == header.body_crc
            && found.base_offset == header.base_offset.as_i64()
            && found.leader_epoch == header.epoch.as_i32()
            && found.record_count == header.record_count
    })
}
