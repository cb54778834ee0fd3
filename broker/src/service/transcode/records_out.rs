//! Records of stored batches as `Record` messages, in one pass: the length of each is arithmetic
//! on the batch's own lengths.

use bytes::{Bytes, BytesMut};
use varvelog_store::batch::{BatchError, Headers, RecordRef, Records};
use varvelog_store::{Offset, PartitionId, WallMs};

use super::records_in::RESERVED_HEADER_PREFIX;
use crate::service::wire::{MessageWriter, bytes_field_len, int_field_len, varint_len};

/// Most bytes of a reply whose caller raised no limit: generated clients refuse 4 MiB, and the
/// reply's own fields need some room.
pub const RECORD_REPLY_BYTES_MAX: usize = (7 << 19) - 4096;

/// How much a reply may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplyLimit {
    /// Records; at least 1.
    pub records_max: u64,
    /// Bytes that several records may take together. One record alone may take more.
    pub bytes_aim: usize,
    /// Bytes of one record beyond which it goes without its value.
    pub record_bytes_max: usize,
    /// Whether a record may go without its value; else the reply ends in front of it.
    pub may_omit: bool,
}

impl ReplyLimit {
    /// The limit that a caller's `max_records` and `max_bytes` give.
    pub fn new(records_max: u32, bytes_max: usize) -> Self {
        Self {
            records_max: u64::from(records_max.max(1)),
            bytes_aim: bytes_max,
            record_bytes_max: bytes_max.max(RECORD_REPLY_BYTES_MAX),
            may_omit: true,
        }
    }
}

/// How records are shown.
#[derive(Debug, Clone, Default)]
pub struct RecordStyle {
    /// Of a group; elsewhere 0.
    pub attempt: u32,
    /// Leaves out the headers that are the broker's own.
    pub as_produced: bool,
    /// Only records with this key.
    pub key_equals: Option<Bytes>,
}

/// What all records of a batch have in common.
#[derive(Debug, Clone, Copy)]
pub struct RecordSource {
    /// Where they lie.
    pub partition: PartitionId,
    /// Of the first.
    pub base_offset: Offset,
    /// Of the batch.
    pub append_time: WallMs,
}

/// A record that is too large for the reply and may not go without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oversized {
    /// Which.
    pub offset: Offset,
    /// Bytes that it would take in the reply.
    pub bytes: usize,
}

/// Whether a reply has room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The batch was taken to its end.
    All,
    /// The reply is full, or a record has reached the end of what was wanted.
    Full,
}

/// The `records` field of a reply, in the making.
#[derive(Debug)]
pub struct ReplyRecords {
    /// Number of the field.
    field: u32,
    limit: ReplyLimit,
    style: RecordStyle,
    encoded: BytesMut,
    count: u64,
    omitted: u64,
    oversized: Option<Oversized>,
    next: Offset,
    until: Offset,
}

impl ReplyRecords {
    /// Takes records from `from` up to, not including, `until`.
    pub fn new(
        field: u32,
        limit: ReplyLimit,
        style: RecordStyle,
        (from, until): (Offset, Offset),
    ) -> Self {
        let encoded = BytesMut::new();
        Self {
            field,
            limit,
            style,
            encoded,
            count: 0,
            omitted: 0,
            oversized: None,
            next: from,
            until,
        }
    }

    /// Records in it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How much more it takes: records, and bytes unless a single record is larger. Both are 0
    /// when it is full.
    pub fn room(&self) -> (u64, usize) {
        match self.limit.records_max.saturating_sub(self.count) {
            0 => (0, 0),
            records => (
                records,
                self.limit.bytes_aim.saturating_sub(self.encoded.len()),
            ),
        }
    }

    /// Records that went without their value.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    /// The record that the reply ends in front of, because it is too large.
    pub fn oversized(&self) -> Option<Oversized> {
        self.oversized
    }

    /// The offset behind the last record that was looked at.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// The encoded field.
    pub fn finish(self) -> Bytes {
        self.encoded.freeze()
    }

    /// Takes what it has room for from a batch. Nothing of a damaged record is taken, but what
    /// lies before it is.
    pub fn take(&mut self, source: &RecordSource, records: &Records) -> Result<Taken, BatchError> {
        let id_prefix = format!("{}/{}/", source.partition.topic, source.partition.partition);
        let mut is_reserved = false;
        for record in records {
            let record = record?;
            let offset = source.base_offset.plus(u64::from(record.offset_delta));
            if offset < self.next {
                continue;
            }
            if offset >= self.until || self.count == self.limit.records_max {
                return Ok(Taken::Full);
            }
            if self
                .style
                .key_equals
                .as_deref()
                .is_some_and(|key| record.key != Some(key))
            {
                self.next = offset.plus(1);
                continue;
            }
            if !is_reserved {
                self.reserve(records, id_prefix.len());
                is_reserved = true;
            }
            let shown = Shown::new(&record, source, offset, &self.style);
            if !self.put(&shown, &id_prefix) {
                return Ok(Taken::Full);
            }
            self.next = offset.plus(1);
        }
        Ok(if self.next >= self.until {
            Taken::Full
        } else {
            Taken::All
        })
    }

    /// Room for the whole batch, or for what the reply may still hold.
    fn reserve(&mut self, records: &Records, id_bytes: usize) {
        let count = usize::try_from(records.header().record_count).unwrap_or(usize::MAX);
        let whole = records
            .plain_bytes()
            .saturating_add(count.saturating_mul(id_bytes + 64));
        let left = self.limit.bytes_aim.saturating_sub(self.encoded.len());
        self.encoded.reserve(whole.min(left));
    }

    fn put(&mut self, shown: &Shown<'_>, id_prefix: &str) -> bool {
        let mut show = Show {
            value: true,
            headers: true,
        };
        let mut length = shown.length(show, id_prefix);
        if length > self.limit.record_bytes_max {
            if !self.limit.may_omit {
                let (offset, bytes) = (shown.offset, length);
                self.oversized = Some(Oversized { offset, bytes });
                return false;
            }
            show.value = false;
            length = shown.length(show, id_prefix);
            // Headers alone can be too much, too.
            show.headers = length <= self.limit.record_bytes_max;
            length = shown.length(show, id_prefix);
        }
        let whole = bytes_field_len(self.field, length);
        if self.count > 0 && self.encoded.len() + whole > self.limit.bytes_aim {
            return false;
        }
        self.encoded.reserve(whole);
        let mut writer = MessageWriter::new(&mut self.encoded);
        writer.open(self.field, length);
        shown.write(show, id_prefix, &mut writer);
        self.count += 1;
        self.omitted += u64::from(!show.value);
        true
    }
}

/// What of a record is shown.
#[derive(Clone, Copy)]
struct Show {
    value: bool,
    headers: bool,
}

/// A record as its message shows it.
struct Shown<'a> {
    record: RecordRef<'a>,
    offset: Offset,
    timestamp_ms: i64,
    append_time_ms: i64,
    attempt: i64,
    as_produced: bool,
}

impl<'a> Shown<'a> {
    fn new(
        record: &RecordRef<'a>,
        source: &RecordSource,
        offset: Offset,
        style: &RecordStyle,
    ) -> Self {
        let append_time_ms = source.append_time.0;
        Self {
            record: *record,
            offset,
            timestamp_ms: if record.timestamp_ms < 0 {
                append_time_ms
            } else {
                record.timestamp_ms
            },
            append_time_ms,
            attempt: i64::from(style.attempt),
            as_produced: style.as_produced,
        }
    }

    fn headers(&self, show: Show) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let hide = self.as_produced;
        let headers = if show.headers {
            self.record.headers
        } else {
            Headers::default()
        };
        headers
            .iter()
            .filter(move |(name, _)| !(hide && name.starts_with(RESERVED_HEADER_PREFIX.as_bytes())))
            .map(|(name, value)| (name, value.unwrap_or_default()))
    }

    fn length(&self, show: Show, id_prefix: &str) -> usize {
        let bytes = |field, bytes: Option<&[u8]>| {
            bytes.map_or(0, |bytes| bytes_field_len(field, bytes.len()))
        };
        let headers = self
            .headers(show)
            .map(|(name, value)| bytes_field_len(4, header_len(name, value)));
        let id_bytes = id_prefix.len() + decimal_len(self.offset.get());
        let mut length = int_field_len(1, self.offset.as_i64())
            + bytes(2, self.record.key)
            + headers.sum::<usize>()
            + int_field_len(5, self.timestamp_ms)
            + int_field_len(6, self.append_time_ms)
            + int_field_len(7, self.attempt)
            + bytes_field_len(8, id_bytes);
        if show.value {
            length += bytes(3, self.record.value);
        } else {
            length += int_field_len(9, 1) + int_field_len(10, self.value_bytes());
        }
        length
    }

    fn write(&self, show: Show, id_prefix: &str, writer: &mut MessageWriter<'_>) {
        writer.int(1, self.offset.as_i64());
        if let Some(key) = self.record.key {
            writer.present_bytes(2, key);
        }
        if let (true, Some(value)) = (show.value, self.record.value) {
            writer.present_bytes(3, value);
        }
        for (name, value) in self.headers(show) {
            writer.open(4, header_len(name, value));
            writer.present_bytes(1, name);
            writer.present_bytes(2, value);
        }
        writer.int(5, self.timestamp_ms);
        writer.int(6, self.append_time_ms);
        writer.int(7, self.attempt);
        let offset = self.offset.get();
        writer.open(8, id_prefix.len() + decimal_len(offset));
        writer.raw(id_prefix.as_bytes());
        write_decimal(offset, writer);
        if !show.value {
            writer.int(9, 1);
            writer.int(10, self.value_bytes());
        }
    }

    fn value_bytes(&self) -> i64 {
        let bytes = self.record.value.map_or(0, <[u8]>::len);
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }
}

fn header_len(name: &[u8], value: &[u8]) -> usize {
    bytes_field_len(1, name.len()) + bytes_field_len(2, value.len())
}

fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn write_decimal(value: u64, writer: &mut MessageWriter<'_>) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [b'0'; DIGITS_MAX];
    let mut rest = value;
    for digit in digits.iter_mut().rev() {
        let [low, ..] = (rest % 10).to_le_bytes();
        *digit += low;
        rest /= 10;
    }
    writer.raw(
        digits
            .get(DIGITS_MAX - decimal_len(value)..)
            .unwrap_or_default(),
    );
}

const _: () = assert!(varint_len(RECORD_REPLY_BYTES_MAX as u64) == 4);
