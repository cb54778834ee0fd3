//! A batch opened for reading.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Codec, HEADER_BYTES, RecordFault, RecordRef, header};

/// The records of one batch, decompressed if need be. An uncompressed batch is not copied.
#[derive(Debug, Clone)]
pub struct Records {
    header: BatchHeader,
    plain: Bytes,
}

impl Records {
    /// Opens `body`, which must be exactly one batch with a right checksum. Compressed records are
    /// decompressed, once, and refused when they give more than `decompressed_bytes_max`.
    pub fn open(body: &Bytes, decompressed_bytes_max: u64) -> Result<Self, BatchError> {
        Self::open_verified(header::verify_crc(body)?, body, decompressed_bytes_max)
    }

    /// Like [`Records::open`], with the header that the checksum of `body` was verified with.
    pub(super) fn open_verified(
        header: BatchHeader,
        body: &Bytes,
        decompressed_bytes_max: u64,
    ) -> Result<Self, BatchError> {
        let packed = body.slice(HEADER_BYTES.min(body.len())..);
        let plain = match header.codec {
            Codec::None => packed,
            codec @ (Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd) => {
                Bytes::from(codec.decompress(&packed, decompressed_bytes_max)?)
            }
        };
        Ok(Self { header, plain })
    }

    /// The batch's header.
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Bytes of all records as they lie here, decompressed.
    pub const fn plain_bytes(&self) -> usize {
        self.plain.len()
    }

    /// The same records in memory of their own, which keeps nothing else alive.
    #[must_use]
    pub fn to_owned_bytes(&self) -> Self {
        Self {
            header: self.header,
            plain: Bytes::copy_from_slice(&self.plain),
        }
    }

    /// The records in their order. What is not a record, missing or left over gives one error, and
    /// nothing behind it.
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter {
            header: &self.header,
            rest: &self.plain,
            next: 0,
        }
    }

    /// A share of this batch that holds just `part`, which a record of it gave: no byte is copied.
    /// A part from elsewhere is copied.
    pub fn slice_of(&self, part: &[u8]) -> Bytes {
        let start = part.as_ptr().addr().checked_sub(self.plain.as_ptr().addr());
        let range = start.and_then(|start| Some(start..start.checked_add(part.len())?));
        match range {
            Some(range) if range.end <= self.plain.len() => self.plain.slice(range),
            _ => Bytes::copy_from_slice(part),
        }
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Result<RecordRef<'a>, BatchError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Gives one record after the other.
#[derive(Debug, Clone)]
pub struct RecordIter<'a> {
    header: &'a BatchHeader,
    rest: &'a [u8],
    /// The place of the next record; beyond the count once it is over.
    next: u32,
}

impl<'a> RecordIter<'a> {
    fn take(&mut self) -> Result<RecordRef<'a>, RecordFault> {
        let record = RecordRef::take(&mut self.rest, self.header.base_timestamp_ms)?;
        if record.offset_delta <= self.header.last_offset_delta {
            Ok(record)
        } else {
            Err(RecordFault::Field {
                field: "offset delta",
                value: record.offset_delta.into(),
                rule: "must not be beyond the batch's last",
            })
        }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordRef<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (record, count) = (self.next, self.header.record_count);
        if record < count {
            self.next += 1;
            return Some(self.take().map_err(|fault| {
                self.next = u32::MAX;
                BatchError::Record { record, fault }
            }));
        }
        let over = record > count || self.rest.is_empty();
        self.next = u32::MAX;
        (!over).then(|| {
            let rule = "bytes follow the last of so many records";
            Err(BatchError::Header {
                field: "record count",
                value: count.into(),
                rule,
            })
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.header.record_count.saturating_sub(self.next);
        (
            0,
            usize::try_from(left)
                .ok()
                .and_then(|left| left.checked_add(1)),
        )
    }
}

impl std::iter::FusedIterator for RecordIter<'_> {}
