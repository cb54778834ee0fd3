//! Records of stored batches as `Record` messages, in one pass: the length of each is arithmetic
//! on the batch's own lengths.

use bytes::{Bytes, BytesMut};
use varvelog_store::batch::{BatchError, Records};
use varvelog_store::{Offset, PartitionId, WallMs};

use super::shown_record::{Show, Shown};
use crate::service::wire::{MessageWriter, bytes_field_len, varint_len};

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
    /// Names the records, which lie in a retry topic, by their first appends.
    pub origins: Option<Origins>,
}

/// First appends of a run of records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origins {
    /// Where they were appended first.
    pub partition: PartitionId,
    /// The first record of the run, where it lies now.
    pub first: Offset,
    /// Offset of the first append of each record from `first` on.
    pub offsets: Vec<Offset>,
}

impl Origins {
    fn of(&self, offset: Offset) -> Option<Offset> {
        let index = usize::try_from(offset.since(self.first)).ok()?;
        self.offsets.get(index).copied()
    }
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
        let named = self.style.origins.as_ref();
        let named = named.map_or(source.partition, |origins| origins.partition);
        let id_prefix = format!("{}/{}/", named.topic, named.partition);
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
            let name = match &self.style.origins {
                None => offset,
                Some(origins) => match origins.of(offset) {
                    Some(origin) => origin,
                    None => return Ok(Taken::Full),
                },
            };
            let shown = Shown::new(&record, source, name, &self.style);
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

const _: () = assert!(varint_len(RECORD_REPLY_BYTES_MAX as u64) == 4);
