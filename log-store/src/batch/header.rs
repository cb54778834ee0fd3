//! The 61 bytes in front of the records, and what covers them.
//!
//! All numbers are big-endian. The checksum covers everything from the attributes on, so base
//! offset and leader epoch can be filled in when the batch has found its place.
#![expect(
    clippy::big_endian_bytes,
    reason = "the record batch is big-endian by its standard"
)]

use crate::batch::{BatchError, Codec};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};
use crate::{Epoch, Offset};

/// Bytes of a batch in front of its records.
pub const HEADER_BYTES: usize = 61;
/// Bytes at the front of a batch that [`stamp`] may change: base offset, length, leader epoch.
pub const STAMP_BYTES: usize = 16;

/// Where the attributes begin: the first byte that the checksum covers.
const SEALED_FROM: usize = 21;
/// Base offset and length, which the length does not count.
const LENGTH_EXCLUDES: u32 = 12;
const MAGIC: i8 = 2;
const NO_PRODUCER: ProducerStamp = ProducerStamp {
    id: -1,
    epoch: -1,
    base_sequence: -1,
};

/// Who sent a batch, for the refusal of duplicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Producer id, from 0.
    pub id: i64,
    /// Epoch of the id, from 0.
    pub epoch: i16,
    /// Sequence of the first record, from 0; the others follow one by one.
    pub base_sequence: i32,
}

/// The header of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; whatever the producer wrote until [`stamp`] fills it in.
    pub base_offset: i64,
    /// Size of the whole batch, header included.
    pub batch_bytes: u32,
    /// Epoch of the partition; whatever the producer wrote until [`stamp`] fills it in.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// All 16 attribute bits; a batch that passed `validate` has none beside the codec's.
    pub attributes: u16,
    /// How the records are compressed.
    pub codec: Codec,
    /// Offset of the last record counted from the first.
    pub last_offset_delta: u32,
    /// What the records' timestamps count from, Unix milliseconds; -1 where none is given.
    pub base_timestamp_ms: i64,
    /// The latest timestamp as the producer states it, Unix milliseconds; -1 where none is given.
    pub max_timestamp_ms: i64,
    /// Who sent it; `None` when the producer id is -1.
    pub producer: Option<ProducerStamp>,
    /// How many records follow: 1 to [`BATCH_RECORDS_MAX`].
    pub record_count: u32,
}

/// Reads the header of `body`, which must be exactly one batch of magic 2. Neither the checksum
/// nor a record is looked at.
pub fn read_header(body: &[u8]) -> Result<BatchHeader, BatchError> {
    let batch_bytes = size_of_batch(body.len())?;
    let mut fields = Fields(body);
    let base_offset = i64::from_be_bytes(fields.take()?);
    let length = i32::from_be_bytes(fields.take()?);
    let leader_epoch = i32::from_be_bytes(fields.take()?);
    let magic = i8::from_be_bytes(fields.take()?);
    if magic != MAGIC {
        return Err(refused("magic", magic.into(), "must be 2"));
    }
    check_length(length, batch_bytes)?;
    let crc = u32::from_be_bytes(fields.take()?);
    let attributes = u16::from_be_bytes(fields.take()?);
    let codec = Codec::from_attributes(attributes)
        .ok_or_else(|| refused("codec", (attributes & 7).into(), "must be 0 to 4"))?;
    let last_offset_delta = i32::from_be_bytes(fields.take()?);
    let base_timestamp_ms = i64::from_be_bytes(fields.take()?);
    let max_timestamp_ms = i64::from_be_bytes(fields.take()?);
    let producer = check_producer(ProducerStamp {
        id: i64::from_be_bytes(fields.take()?),
        epoch: i16::from_be_bytes(fields.take()?),
        base_sequence: i32::from_be_bytes(fields.take()?),
    })?;
    let record_count = check_count(i32::from_be_bytes(fields.take()?))?;
    let last_offset_delta = u32::try_from(last_offset_delta)
        .ok()
        .filter(|last| *last >= record_count - 1)
        .ok_or_else(|| {
            let rule = "must be at least the record count less one";
            refused("last offset delta", last_offset_delta.into(), rule)
        })?;
    Ok(BatchHeader {
        base_offset,
        batch_bytes,
        leader_epoch,
        crc,
        attributes,
        codec,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        producer,
        record_count,
    })
}

/// Like [`read_header`], and the checksum must be right.
pub fn verify_crc(body: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = read_header(body)?;
    let computed = crc32c::crc32c(body.get(SEALED_FROM..).unwrap_or_default());
    if computed == header.crc {
        Ok(header)
    } else {
        Err(BatchError::Checksum {
            stated: header.crc,
            computed,
        })
    }
}

/// Fills in the two fields that the checksum leaves out, in place. What is shorter than a batch
/// header stays as it is.
pub fn stamp(body: &mut [u8], base_offset: Offset, leader_epoch: Epoch) {
    if body.len() >= HEADER_BYTES
        && let Some(head) = body.first_chunk_mut::<STAMP_BYTES>()
    {
        *head = stamped(*head, base_offset, leader_epoch);
    }
}

/// The first [`STAMP_BYTES`] of `body` as [`stamp`] would leave them, for a body that is shared and
/// goes out in two pieces. `None` when `body` is shorter than a batch header.
pub fn stamped_head(
    body: &[u8],
    base_offset: Offset,
    leader_epoch: Epoch,
) -> Option<[u8; STAMP_BYTES]> {
    let head = body
        .first_chunk::<HEADER_BYTES>()?
        .first_chunk::<STAMP_BYTES>()?;
    Some(stamped(*head, base_offset, leader_epoch))
}

fn stamped(mut head: [u8; STAMP_BYTES], offset: Offset, epoch: Epoch) -> [u8; STAMP_BYTES] {
    if let Some(place) = head.first_chunk_mut() {
        *place = offset.as_i64().to_be_bytes();
    }
    if let Some(place) = head.last_chunk_mut() {
        *place = epoch.as_i32().to_be_bytes();
    }
    head
}

/// Writes the header into the first [`HEADER_BYTES`] of `body`, whose records are in place: size
/// and checksum are computed here, whatever `header` says.
pub(super) fn seal(body: &mut [u8], header: &BatchHeader) -> Result<(), BatchError> {
    let length = size_of_batch(body.len())? - LENGTH_EXCLUDES;
    let producer = header.producer.unwrap_or(NO_PRODUCER);
    let mut fields = Unwritten(&mut *body);
    fields.put(header.base_offset.to_be_bytes());
    fields.put(length.to_be_bytes());
    fields.put(header.leader_epoch.to_be_bytes());
    fields.put(MAGIC.to_be_bytes());
    fields.put([0; 4]);
    fields.put(header.attributes.to_be_bytes());
    fields.put(header.last_offset_delta.to_be_bytes());
    fields.put(header.base_timestamp_ms.to_be_bytes());
    fields.put(header.max_timestamp_ms.to_be_bytes());
    fields.put(producer.id.to_be_bytes());
    fields.put(producer.epoch.to_be_bytes());
    fields.put(producer.base_sequence.to_be_bytes());
    fields.put(header.record_count.to_be_bytes());
    let crc = crc32c::crc32c(body.get(SEALED_FROM..).unwrap_or_default());
    if let Some(place) = body
        .first_chunk_mut::<SEALED_FROM>()
        .and_then(|b| b.last_chunk_mut())
    {
        *place = crc.to_be_bytes();
    }
    Ok(())
}

/// The part of a header that is still to be written.
struct Unwritten<'a>(&'a mut [u8]);

impl Unwritten<'_> {
    fn put<const N: usize>(&mut self, field: [u8; N]) {
        if let Some(place) = self.0.split_off_mut(..N) {
            place.copy_from_slice(&field);
        }
    }
}

/// A cursor over the fields of a header.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], BatchError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(too_short(0))?;
        self.0 = rest;
        Ok(*field)
    }
}

fn refused(field: &'static str, value: i64, rule: &'static str) -> BatchError {
    BatchError::Header { field, value, rule }
}

fn too_short(bytes: u32) -> BatchError {
    refused(
        "size",
        bytes.into(),
        "must be at least the 61 bytes of a batch header",
    )
}

fn size_of_batch(bytes: usize) -> Result<u32, BatchError> {
    let max = u64::from(BATCH_BYTES_MAX);
    match u32::try_from(bytes) {
        Ok(few) if bytes < HEADER_BYTES => Err(too_short(few)),
        Ok(some) if some <= BATCH_BYTES_MAX => Ok(some),
        _ => {
            let value = u64::try_from(bytes).unwrap_or(u64::MAX);
            Err(BatchError::Limit {
                record: None,
                what: "batch size in bytes",
                value,
                max,
            })
        }
    }
}

fn check_length(length: i32, batch_bytes: u32) -> Result<(), BatchError> {
    let there = batch_bytes - LENGTH_EXCLUDES;
    match u32::try_from(length) {
        Ok(stated) if stated == there => Ok(()),
        Ok(stated) if stated < there => Err(refused(
            "length",
            length.into(),
            "bytes follow it, and one batch is expected",
        )),
        _ => Err(refused("length", length.into(), "must be what is there")),
    }
}

fn check_producer(stamp: ProducerStamp) -> Result<Option<ProducerStamp>, BatchError> {
    let rule = "must not be negative where a producer id is given";
    if stamp.id == NO_PRODUCER.id {
        Ok(None)
    } else if stamp.id < 0 {
        Err(refused(
            "producer id",
            stamp.id,
            "must be -1 (none) or more",
        ))
    } else if stamp.epoch < 0 {
        Err(refused("producer epoch", stamp.epoch.into(), rule))
    } else if stamp.base_sequence < 0 {
        Err(refused("base sequence", stamp.base_sequence.into(), rule))
    } else {
        Ok(Some(stamp))
    }
}

fn check_count(count: i32) -> Result<u32, BatchError> {
    match u32::try_from(count) {
        Err(_) | Ok(0) => Err(refused("record count", count.into(), "must be at least 1")),
        Ok(some) if some <= BATCH_RECORDS_MAX => Ok(some),
        Ok(many) => Err(BatchError::Limit {
            record: None,
            what: "record count",
            value: many.into(),
            max: BATCH_RECORDS_MAX.into(),
        }),
    }
}
