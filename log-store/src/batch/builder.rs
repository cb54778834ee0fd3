//! Makes a batch, record by record, in one buffer.

use bytes::Bytes;

use crate::batch::header::{self, HEADER_BYTES};
use crate::batch::{BatchError, BatchHeader, Codec, ProducerStamp, RecordFault, varint};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};

/// Timestamp of a record that has none: the append time stands for it.
const NO_TIMESTAMP: i64 = -1;

/// A batch in the making. A record costs one pass over its lengths and one over its bytes, and no
/// allocation as long as the capacity lasts. Base offset and leader epoch of the finished batch are
/// 0 and -1 until they are stamped.
#[derive(Debug)]
pub struct BatchBuilder {
    codec: Codec,
    producer: Option<ProducerStamp>,
    /// Room for the header, then the records.
    body: Vec<u8>,
    record_count: u32,
    base_timestamp_ms: i64,
    max_timestamp_ms: i64,
}

impl BatchBuilder {
    /// An empty batch with room for `capacity_bytes` of records; it grows beyond if it must.
    pub fn new(codec: Codec, capacity_bytes: usize) -> Self {
        let mut body = Vec::with_capacity(HEADER_BYTES.saturating_add(capacity_bytes));
        body.resize(HEADER_BYTES, 0);
        Self {
            codec,
            producer: None,
            body,
            record_count: 0,
            base_timestamp_ms: NO_TIMESTAMP,
            max_timestamp_ms: NO_TIMESTAMP,
        }
    }

    /// Compresses the batch so, and not as was said when it began.
    pub const fn set_codec(&mut self, codec: Codec) {
        self.codec = codec;
    }

    /// Says who sends the batch.
    pub const fn set_producer(&mut self, stamp: ProducerStamp) {
        self.producer = Some(stamp);
    }

    /// Adds a record. Without a timestamp, or with -1, its append time stands for it. Header names
    /// should be UTF-8, since a broker takes no others. A record that is refused leaves the batch
    /// as it was: refused is what makes it larger than [`BATCH_BYTES_MAX`] before compression, or
    /// longer than [`BATCH_RECORDS_MAX`], and a timestamp below -1.
    ///
    /// # Panics
    /// When `headers` and its clone do not give the same.
    pub fn push<'h>(
        &mut self,
        timestamp_ms: Option<i64>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
    ) -> Result<(), BatchError> {
        let place = self.next_place()?;
        let timestamp_ms = timestamp_ms.unwrap_or(NO_TIMESTAMP);
        let (base_timestamp_ms, timestamp_delta) = self.anchor(timestamp_ms)?;

        let mut room = Room {
            used: 0,
            record: self.record_count,
        };
        room.take(1 + varint::len64(timestamp_delta) + varint::len32(place))?;
        let key_length = room.take_bytes(key)?;
        let value_length = room.take_bytes(value)?;
        let mut header_count = 0_i32;
        for (name, value) in headers.clone() {
            room.take_bytes(Some(name))?;
            room.take_bytes(value)?;
            header_count += 1;
        }
        room.take(varint::len32(header_count))?;
        let end = room.end(self.body.len())?;

        varint::put32(&mut self.body, room.used);
        self.body.push(0);
        varint::put64(&mut self.body, timestamp_delta);
        varint::put32(&mut self.body, place);
        put_bytes(&mut self.body, key_length, key);
        put_bytes(&mut self.body, value_length, value);
        varint::put32(&mut self.body, header_count);
        for (name, value) in headers {
            put_bytes(&mut self.body, length_of(Some(name)), Some(name));
            put_bytes(&mut self.body, length_of(value), value);
        }
        assert_eq!(
            self.body.len(),
            end,
            "headers must be the same when they are read again"
        );

        self.record_count += 1;
        self.base_timestamp_ms = base_timestamp_ms;
        self.max_timestamp_ms = self.max_timestamp_ms.max(timestamp_ms);
        Ok(())
    }

    /// Records so far.
    pub const fn record_count(&self) -> u32 {
        self.record_count
    }

    /// Size of the batch so far, header included, before compression.
    pub const fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Compresses and seals the batch. One without records is refused.
    pub fn finish(self) -> Result<Bytes, BatchError> {
        let rule = "must be at least 1";
        let last_offset_delta = self.record_count.checked_sub(1).ok_or(BatchError::Header {
            field: "record count",
            value: 0,
            rule,
        })?;
        let header = BatchHeader {
            base_offset: 0,
            batch_bytes: 0,
            leader_epoch: -1,
            crc: 0,
            attributes: self.codec.attributes(),
            codec: self.codec,
            last_offset_delta,
            base_timestamp_ms: self.base_timestamp_ms,
            max_timestamp_ms: self.max_timestamp_ms,
            producer: self.producer,
            record_count: self.record_count,
        };
        let mut body = match self.codec {
            Codec::None => self.body,
            codec @ (Codec::Gzip | Codec::Snappy | Codec::Lz4 | Codec::Zstd) => {
                let plain = self.body.get(HEADER_BYTES..).unwrap_or_default();
                let mut packed = Vec::with_capacity(HEADER_BYTES + plain.len() / 2);
                packed.resize(HEADER_BYTES, 0);
                codec.compress(plain, &mut packed)?;
                packed
            }
        };
        header::seal(&mut body, &header)?;
        // The batch may be kept for long: do not keep much more than it needs.
        if body.capacity() / 2 > body.len() {
            body.shrink_to_fit();
        }
        Ok(Bytes::from(body))
    }

    /// The place of the next record, if the batch may have one.
    #[inline]
    fn next_place(&self) -> Result<i32, BatchError> {
        let place = i32::try_from(self.record_count).ok();
        place
            .filter(|_| self.record_count < BATCH_RECORDS_MAX)
            .ok_or(BatchError::Limit {
                record: None,
                what: "record count",
                value: u64::from(self.record_count) + 1,
                max: BATCH_RECORDS_MAX.into(),
            })
    }

    /// What the timestamps count from, which the first one decides, and how far this one is from
    /// it.
    #[inline]
    fn anchor(&self, timestamp_ms: i64) -> Result<(i64, i64), BatchError> {
        let record = self.record_count;
        let base = if record == 0 {
            timestamp_ms
        } else {
            self.base_timestamp_ms
        };
        let delta = timestamp_ms
            .checked_sub(base)
            .filter(|_| timestamp_ms >= NO_TIMESTAMP);
        delta.map(|delta| (base, delta)).ok_or({
            let rule = "must be -1 (none) or more, and near those of the batch";
            let fault = RecordFault::Field {
                field: "timestamp",
                value: timestamp_ms,
                rule,
            };
            BatchError::Record { record, fault }
        })
    }
}

/// Adds up the length of a record, never beyond the largest batch.
struct Room {
    used: i32,
    record: u32,
}

impl Room {
    const MAX: i32 = BATCH_BYTES_MAX.cast_signed();

    #[inline]
    fn take(&mut self, bytes: u32) -> Result<(), BatchError> {
        match i32::try_from(bytes)
            .ok()
            .and_then(|bytes| self.used.checked_add(bytes))
        {
            Some(used) if used <= Self::MAX => {
                self.used = used;
                Ok(())
            }
            _ => Err(self.full(u64::from(self.used.unsigned_abs()) + u64::from(bytes))),
        }
    }

    #[inline]
    fn take_bytes(&mut self, bytes: Option<&[u8]>) -> Result<i32, BatchError> {
        let length = length_of(bytes);
        self.take(length.max(0).unsigned_abs())?;
        self.take(varint::len32(length))?;
        Ok(length)
    }

    /// Where the record ends that begins at `start` of the batch.
    #[inline]
    fn end(&self, start: usize) -> Result<usize, BatchError> {
        let record_bytes = self.used.unsigned_abs() + varint::len32(self.used);
        usize::try_from(record_bytes)
            .ok()
            .and_then(|bytes| start.checked_add(bytes))
            .filter(|end| u32::try_from(*end).is_ok_and(|end| end <= BATCH_BYTES_MAX))
            .ok_or_else(|| {
                let start = u64::try_from(start).unwrap_or(u64::MAX);
                self.full(start.saturating_add(record_bytes.into()))
            })
    }

    #[cold]
    fn full(&self, value: u64) -> BatchError {
        BatchError::Limit {
            record: Some(self.record),
            what: "batch size in bytes before compression",
            value,
            max: BATCH_BYTES_MAX.into(),
        }
    }
}

/// The length as it is written: -1 for none, and more than any batch holds where it does not fit.
#[inline]
fn length_of(bytes: Option<&[u8]>) -> i32 {
    bytes.map_or(-1, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX))
}

#[inline]
fn put_bytes(into: &mut Vec<u8>, length: i32, bytes: Option<&[u8]>) {
    varint::put32(into, length);
    into.extend_from_slice(bytes.unwrap_or_default());
}

const _: () = assert!(BATCH_BYTES_MAX <= i32::MAX as u32);
