//! The header in front of each record batch in a segment.
//!
//! Its checksum begins with the identity of the segment, so that a valid entry in a wrong file
//! fails, and covers the checksum of the body, which the body's producer computed. Each header
//! states the checksum of the one before: the last of a segment speaks for all.

use crate::limits::BATCH_BYTES_MAX;
use crate::partition::fields::Fields;
use crate::partition::file_header::Identity;
use crate::{Epoch, Offset, WallMs};

/// Bytes of a header.
pub(crate) const ENTRY_HEADER_BYTES: u32 = 44;
/// Bytes of a header, as the size of an array.
pub(crate) const ENTRY_HEADER_SIZE: usize = 44;

/// Kind of an entry whose body is a record batch of magic 2; there is no other yet.
const KIND_RECORDS: u8 = 1;
/// Smallest body: the header of a record batch.
const BODY_BYTES_MIN: u32 = 61;

/// What is known about an entry without its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    /// Size of the body behind the header.
    pub(crate) body_bytes: u32,
    /// Offset of its first record.
    pub(crate) base_offset: Offset,
    /// When it was appended, by the broker's clock.
    pub(crate) append_time: WallMs,
    /// At least 1.
    pub(crate) record_count: u32,
    /// Of the partition when it was appended.
    pub(crate) epoch: Epoch,
    /// Checksum of the header before it in the segment; 0 in the first.
    pub(crate) previous: u32,
    /// The body's own CRC-32C.
    pub(crate) body_crc: u32,
}

impl EntryHeader {
    /// One past its last record.
    pub(crate) fn end(&self) -> Offset {
        self.base_offset.plus(self.record_count.into())
    }

    /// Its last record.
    pub(crate) fn last(&self) -> Offset {
        self.end().minus(1)
    }

    /// Bytes of header and body.
    pub(crate) fn entry_bytes(&self) -> u32 {
        ENTRY_HEADER_BYTES.saturating_add(self.body_bytes)
    }
}

/// What the checksums of a segment's entries begin with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(u32);

impl Seed {
    pub(crate) fn new(identity: &Identity) -> Self {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&identity.folder.0);
        crc.update(&identity.partition.topic.0);
        crc.update(&identity.partition.partition.to_le_bytes());
        crc.update(&identity.base.get().to_le_bytes());
        Self(crc.finalize())
    }

    fn checksum(self, length: &[u8], rest: &[u8]) -> u32 {
        let mut crc = crc32fast::Hasher::new_with_initial(self.0);
        crc.update(length);
        crc.update(rest);
        crc.finalize()
    }

    /// Appends `header` to `out` and returns its checksum.
    pub(crate) fn encode(self, header: &EntryHeader, out: &mut Vec<u8>) -> u32 {
        let mut rest = Vec::with_capacity(ENTRY_HEADER_SIZE);
        rest.extend_from_slice(&header.base_offset.get().to_le_bytes());
        rest.extend_from_slice(&header.append_time.0.to_le_bytes());
        rest.extend_from_slice(&header.record_count.to_le_bytes());
        rest.extend_from_slice(&header.epoch.0.to_le_bytes());
        rest.extend_from_slice(&header.previous.to_le_bytes());
        rest.extend_from_slice(&header.body_crc.to_le_bytes());
        rest.extend_from_slice(&[KIND_RECORDS, 0, 0, 0]);
        let length = header.body_bytes.to_le_bytes();
        let checksum = self.checksum(&length, &rest);
        out.extend_from_slice(&length);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&rest);
        checksum
    }

    /// The header at the front of `bytes` and its checksum, if it is whole and of this segment.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<(EntryHeader, u32)> {
        let bytes = bytes.first_chunk::<ENTRY_HEADER_SIZE>()?;
        if *bytes.last_chunk::<4>()? != [KIND_RECORDS, 0, 0, 0] {
            return None;
        }
        let mut fields = Fields::new(bytes);
        let length = fields.array()?;
        let stated = fields.u32()?;
        let body_bytes = u32::from_le_bytes(length);
        if !(BODY_BYTES_MIN..=BATCH_BYTES_MAX).contains(&body_bytes) {
            return None;
        }
        let mut rest = fields.clone();
        if self.checksum(&length, rest.bytes(rest.remaining())?) != stated {
            return None;
        }
        let header = EntryHeader {
            body_bytes,
            base_offset: fields.offset()?,
            append_time: fields.wall_ms()?,
            record_count: fields.u32()?,
            epoch: Epoch(fields.u32()?),
            previous: fields.u32()?,
            body_crc: fields.u32()?,
        };
        (header.record_count > 0).then_some((header, stated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FolderId, PartitionId};

    fn seed(base: u64) -> Seed {
        Seed::new(&Identity {
            folder: FolderId([1; 16]),
            partition: PartitionId::default(),
            base: Offset::new(base).unwrap(),
        })
    }

    fn header() -> EntryHeader {
        EntryHeader {
            body_bytes: 61,
            base_offset: Offset::new(70).unwrap(),
            append_time: WallMs(-5),
            record_count: 3,
            epoch: Epoch(2),
            previous: 0xdead_beef,
            body_crc: 0x1234_5678,
        }
    }

    #[test]
    fn a_header_reads_back_in_its_own_segment_only() {
        let mut bytes = Vec::new();
        let checksum = seed(64).encode(&header(), &mut bytes);
        assert_eq!(bytes.len(), ENTRY_HEADER_SIZE);
        assert_eq!(seed(64).decode(&bytes), Some((header(), checksum)));
        assert_eq!(seed(65).decode(&bytes), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_header_is_seen() {
        let mut bytes = Vec::new();
        seed(0).encode(&header(), &mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seed(0).decode(&damaged), None, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            assert_eq!(seed(0).decode(&bytes[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn lengths_and_counts_outside_their_bounds_are_refused_before_use() {
        for change in [
            EntryHeader {
                body_bytes: 0,
                ..header()
            },
            EntryHeader {
                body_bytes: 60,
                ..header()
            },
            EntryHeader {
                body_bytes: BATCH_BYTES_MAX + 1,
                ..header()
            },
            EntryHeader {
                body_bytes: u32::MAX,
                ..header()
            },
            EntryHeader {
                record_count: 0,
                ..header()
            },
        ] {
            let mut bytes = Vec::new();
            seed(0).encode(&change, &mut bytes);
            assert_eq!(seed(0).decode(&bytes), None, "{change:?}");
        }
        assert_eq!(seed(0).decode(&[0; ENTRY_HEADER_SIZE]), None);
    }
}
