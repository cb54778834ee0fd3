//! The first 64 bytes of a segment and of its indexes: what the file is and whose.

use std::io;

use crate::fs::File;
use crate::partition::fields::Fields;
use crate::{FolderId, Offset, PartitionId, TopicId};

/// Bytes of the header.
pub(crate) const FILE_HEADER_BYTES: u32 = 64;

const VERSION: u16 = 1;
/// Bytes that the checksum covers: all in front of it.
const CHECKED: usize = 60;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Segment,
    Index,
    TimeIndex,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        *match self {
            Self::Segment => b"VARVESEG",
            Self::Index => b"VARVEIDX",
            Self::TimeIndex => b"VARVETIM",
        }
    }
}

/// Whose file it is: which data folder, partition and segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) folder: FolderId,
    pub(crate) partition: PartitionId,
    pub(crate) base: Offset,
}

/// What a header turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFound {
    /// As expected. `count` is an index's own: its entries, if it is complete, else 0.
    Ours { count: u32 },
    /// Whole, but of another file.
    Foreign,
    /// Whole, but of a version that this program does not know.
    Unsupported { version: u16 },
    /// No header.
    Damaged,
}

/// The header of a file; `count` is 0 but for a complete index.
pub(crate) fn encode_file_header(kind: FileKind, identity: &Identity, count: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CHECKED + 4);
    bytes.extend_from_slice(&kind.magic());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&0_u16.to_le_bytes());
    bytes.extend_from_slice(&identity.partition.partition.to_le_bytes());
    bytes.extend_from_slice(&identity.folder.0);
    bytes.extend_from_slice(&identity.partition.topic.0);
    bytes.extend_from_slice(&identity.base.get().to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Judges the first bytes of a file that should be `identity`'s.
pub(crate) fn read_file_header(kind: FileKind, identity: &Identity, bytes: &[u8]) -> HeaderFound {
    parse(kind, identity, bytes).unwrap_or(HeaderFound::Damaged)
}

/// Whether `file` begins as the segment of that folder and partition does that starts at `base`.
pub(crate) fn is_segment_of(
    file: &dyn File,
    folder: FolderId,
    partition: PartitionId,
    base: Offset,
) -> io::Result<bool> {
    let mut header = [0; 64];
    let read = file.read_at(&mut header, 0)?;
    let found = header.get(..read).unwrap_or_default();
    let identity = Identity {
        folder,
        partition,
        base,
    };
    let judged = read_file_header(FileKind::Segment, &identity, found);
    Ok(matches!(judged, HeaderFound::Ours { .. }))
}

fn parse(kind: FileKind, identity: &Identity, bytes: &[u8]) -> Option<HeaderFound> {
    let checked = bytes.get(..CHECKED)?;
    let stated = Fields::new(bytes.get(CHECKED..)?).u32()?;
    let mut fields = Fields::new(checked);
    if stated != crc32fast::hash(checked) || fields.array()? != kind.magic() {
        return None;
    }
    let version = fields.u16()?;
    if version != VERSION {
        return Some(HeaderFound::Unsupported { version });
    }
    let flags = fields.u16()?;
    let partition = fields.u32()?;
    let folder = FolderId(fields.array()?);
    let topic = TopicId(fields.array()?);
    let base = fields.offset()?;
    let count = fields.u32()?;
    let found = Identity {
        folder,
        partition: PartitionId { topic, partition },
        base,
    };
    Some(if found == *identity && flags == 0 {
        HeaderFound::Ours { count }
    } else {
        HeaderFound::Foreign
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            folder: FolderId([7; 16]),
            partition: PartitionId {
                topic: TopicId([9; 16]),
                partition: 3,
            },
            base: Offset::new(1234).unwrap(),
        }
    }

    #[test]
    fn a_header_reads_back_for_its_own_file_only() {
        let own = identity();
        let bytes = encode_file_header(FileKind::Index, &own, 5);
        assert_eq!(bytes.len(), 64);
        let read = |kind, identity: &Identity| read_file_header(kind, identity, &bytes);
        assert_eq!(read(FileKind::Index, &own), HeaderFound::Ours { count: 5 });
        assert_eq!(read(FileKind::Segment, &own), HeaderFound::Damaged);
        for other in [
            Identity {
                folder: FolderId([8; 16]),
                ..own
            },
            Identity {
                base: Offset::ZERO,
                ..own
            },
            Identity {
                partition: PartitionId {
                    partition: 4,
                    ..own.partition
                },
                ..own
            },
        ] {
            assert_eq!(read(FileKind::Index, &other), HeaderFound::Foreign);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_of_a_header_is_seen() {
        let own = identity();
        let bytes = encode_file_header(FileKind::Segment, &own, 0);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let found = read_file_header(FileKind::Segment, &own, &damaged);
            assert_eq!(found, HeaderFound::Damaged, "bit {bit}");
        }
        for cut in 0..bytes.len() {
            let found = read_file_header(FileKind::Segment, &own, &bytes[..cut]);
            assert_eq!(found, HeaderFound::Damaged, "{cut} bytes");
        }
    }

    #[test]
    fn a_later_version_is_named_and_not_guessed_at() {
        let own = identity();
        let mut bytes = encode_file_header(FileKind::Segment, &own, 0);
        bytes[8] = 2;
        let crc = crc32fast::hash(&bytes[..60]).to_le_bytes();
        bytes[60..].copy_from_slice(&crc);
        let found = read_file_header(FileKind::Segment, &own, &bytes);
        assert_eq!(found, HeaderFound::Unsupported { version: 2 });
    }
}
