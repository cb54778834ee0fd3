//! The easy door: records on the wire become record batches, one for each partition or more where
//! one would be large.
//!
//! Two passes over the same bytes, neither of which keeps a record: the first checks every record
//! and chooses its batch, the second writes. So a request is refused before any room is taken, and
//! each batch gets its room in one piece.

use std::collections::BTreeMap;

use bytes::Bytes;
use varvelog_store::batch::{BatchBuilder, BatchError, Codec, partition_for_key};

use super::content_hash::ContentHash;
use super::new_record::NewRecord;
use super::produce_in::{RECORDS, checked_partition};
use crate::service::status::{CallFailure, EdgeRefusal, FieldViolation, RecordRefusal};
use crate::service::wire::{Fields, Malformed};

/// Most bytes of a key.
pub(crate) const KEY_BYTES_MAX: u32 = 64 * 1024;
/// Most headers of one record.
pub(crate) const HEADERS_MAX: u32 = 64;
/// Header names that begin so are the broker's own.
pub(crate) const RESERVED_HEADER_PREFIX: &str = "varvelog-";

/// A batch that has so much is closed and the next record of its partition begins another: a
/// reader is never given much more than it can put into one reply.
const PART_BYTES_MAX: usize = 1 << 20;
/// Room beside the wire bytes of a record in a batch: lengths, deltas and counts.
const RECORD_ROOM: usize = 24;

/// Where the records go and what is allowed.
#[derive(Debug, Clone, Copy)]
pub struct RecordTarget<'a> {
    /// Name of the topic, for refusals.
    pub topic: &'a str,
    /// Partitions of the topic; at least 1.
    pub partitions: u32,
    /// The one for records without a key or partition of their own.
    pub sticky: u32,
    /// Most bytes of key, value and headers of one record.
    pub record_bytes_max: u32,
    /// The broker's wall clock, Unix milliseconds.
    pub now_ms: i64,
    /// Latest timestamp.
    pub timestamp_ms_max: i64,
    /// Whether a hash of the content is wanted.
    pub is_hashed: bool,
}

/// A batch made of records of the request.
#[derive(Debug, Clone)]
pub struct PartIn {
    /// Of the topic.
    pub partition: u32,
    /// At least 1.
    pub record_count: u32,
    /// A record batch, magic 2.
    pub body: Bytes,
}

/// The records of a request as batches.
#[derive(Debug)]
pub struct RecordsIn {
    /// In the order in which their first records came.
    pub parts: Vec<PartIn>,
    /// For each record in request order: index of its part, and place in it.
    pub places: Vec<(u32, u32)>,
    /// Of what the caller sent, and of nothing that the broker chose; if it was wanted.
    pub content_hash: u64,
}

impl RecordsIn {
    /// Makes batches of the `count` records of the `ProduceRequest` that `wire` is.
    pub fn read(wire: &[u8], count: u32, target: &RecordTarget<'_>) -> Result<Self, CallFailure> {
        let survey = Survey::of(wire, count, target)?;
        let default_ms = survey.has_timestamps.then_some(target.now_ms);
        let mut builders: Vec<BatchBuilder> = survey
            .parts
            .iter()
            .map(|part| BatchBuilder::new(Codec::None, part.room))
            .collect();
        let mut places = Vec::with_capacity(survey.part_of.len());
        let mut records = RecordFields::new(wire);
        for index in survey.part_of {
            let record = records.next_record()?.ok_or_else(changed)?;
            let builder = builders.get_mut(index as usize).ok_or_else(changed)?;
            places.push((index, builder.record_count()));
            let timestamp_ms = record.timestamp_ms.or(default_ms);
            builder
                .push(
                    timestamp_ms,
                    record.key,
                    record.value,
                    record.headers.iter(),
                )
                .map_err(|error| unfit(&error))?;
        }
        let partitions = survey.parts.iter().map(|part| part.partition);
        let mut parts = Vec::with_capacity(builders.len());
        for (partition, builder) in partitions.zip(builders) {
            let record_count = builder.record_count();
            let body = builder.finish().map_err(|error| unfit(&error))?;
            parts.push(PartIn {
                partition,
                record_count,
                body,
            });
        }
        Ok(Self {
            parts,
            places,
            content_hash: survey.content_hash,
        })
    }
}

/// The same bytes are walked twice and cannot differ.
fn changed() -> CallFailure {
    Malformed::new(String::from("its records cannot be counted")).into()
}

fn unfit(error: &BatchError) -> CallFailure {
    FieldViolation::new("records", error.to_string()).into()
}

/// The records of a request, one by one.
struct RecordFields<'a> {
    fields: Fields<'a>,
    read: usize,
}

impl<'a> RecordFields<'a> {
    fn new(wire: &'a [u8]) -> Self {
        Self {
            fields: Fields::new(wire),
            read: 0,
        }
    }

    fn next_record(&mut self) -> Result<Option<NewRecord<'a>>, Malformed> {
        while let Some(field) = self.fields.next_field()? {
            if field.number == RECORDS {
                let index = self.read;
                self.read += 1;
                return NewRecord::read(field.bytes()?)
                    .map(Some)
                    .map_err(|bad| Malformed::new(format!("records[{index}]: {}", bad.what)));
            }
        }
        Ok(None)
    }
}

/// What the first pass finds.
struct Survey {
    parts: Vec<PartPlan>,
    /// Part of each record.
    part_of: Vec<u32>,
    /// Some record has a timestamp of its own: the others are then given the broker's.
    has_timestamps: bool,
    content_hash: u64,
}

struct PartPlan {
    partition: u32,
    room: usize,
}

impl Survey {
    fn of(wire: &[u8], count: u32, target: &RecordTarget<'_>) -> Result<Self, CallFailure> {
        let mut survey = Self {
            parts: Vec::new(),
            part_of: Vec::with_capacity(count as usize),
            has_timestamps: false,
            content_hash: 0,
        };
        let mut open = BTreeMap::new();
        let mut hash = ContentHash::new();
        let mut records = RecordFields::new(wire);
        while let Some(record) = records.next_record()? {
            let index = survey.part_of.len();
            check(index, &record, target)?;
            let partition = route(index, &record, target)?;
            let part = survey.part_for(&mut open, partition, room_of(&record));
            survey.part_of.push(part);
            survey.has_timestamps |= record.timestamp_ms.is_some();
            if target.is_hashed {
                add(&mut hash, &record);
            }
        }
        survey.content_hash = hash.finish();
        Ok(survey)
    }

    /// The part that the next record of `partition` goes to.
    fn part_for(&mut self, open: &mut BTreeMap<u32, u32>, partition: u32, room: usize) -> u32 {
        if let Some(index) = open.get(&partition)
            && let Some(part) = self.parts.get_mut(*index as usize)
            && part.room + room <= PART_BYTES_MAX
        {
            part.room += room;
            return *index;
        }
        let index = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        self.parts.push(PartPlan { partition, room });
        open.insert(partition, index);
        index
    }
}

fn room_of(record: &NewRecord<'_>) -> usize {
    let content = usize::try_from(record.content_bytes()).unwrap_or(usize::MAX);
    content.saturating_add(RECORD_ROOM + 10 * record.header_count)
}

fn route(
    index: usize,
    record: &NewRecord<'_>,
    target: &RecordTarget<'_>,
) -> Result<u32, CallFailure> {
    match (record.partition, record.key) {
        (Some(partition), _) => {
            let path = || format!("records[{index}].partition");
            checked_partition(partition, target.topic, target.partitions, path)
        }
        (None, Some(key)) => Ok(partition_for_key(key, target.partitions)),
        (None, None) => Ok(target.sticky.checked_rem(target.partitions).unwrap_or(0)),
    }
}

fn check(
    index: usize,
    record: &NewRecord<'_>,
    target: &RecordTarget<'_>,
) -> Result<(), CallFailure> {
    let path = |field: &str| format!("records[{index}].{field}");
    if record.is_delayed {
        return Err(EdgeRefusal::not_implemented("delay").into());
    }
    if !record.message_id.is_empty() {
        return Err(EdgeRefusal::not_implemented("message_id").into());
    }
    let key_bytes = record.key.map_or(0, <[u8]>::len);
    if key_bytes > KEY_BYTES_MAX as usize {
        let what = format!("at most {KEY_BYTES_MAX} bytes are allowed");
        return Err(FieldViolation::bound(path("key"), KEY_BYTES_MAX, key_bytes, what).into());
    }
    if record.header_count > HEADERS_MAX as usize {
        let what = format!("at most {HEADERS_MAX} headers are allowed");
        let (field, count) = (path("headers"), record.header_count);
        return Err(FieldViolation::bound(field, HEADERS_MAX, count, what).into());
    }
    let is_reserved = |name: &[u8]| name.starts_with(RESERVED_HEADER_PREFIX.as_bytes());
    if record.header_count > 0 && record.headers.iter().any(|(name, _)| is_reserved(name)) {
        return Err(RecordRefusal::ReservedHeader {
            field: path("headers"),
        }
        .into());
    }
    let (size, limit) = (record.content_bytes(), u64::from(target.record_bytes_max));
    if size > limit {
        let field = format!("records[{index}]");
        return Err(RecordRefusal::TooLarge { field, limit, size }.into());
    }
    match record.timestamp_ms {
        Some(at) if !(0..=target.timestamp_ms_max).contains(&at) => {
            let what = "must be 0 to 1 h ahead of the broker's clock";
            let limit = format!("0 to {}", target.timestamp_ms_max);
            Err(FieldViolation::bound(path("timestamp_ms"), limit, at, what).into())
        }
        Some(_) | None => Ok(()),
    }
}

fn add(hash: &mut ContentHash, record: &NewRecord<'_>) {
    hash.optional(record.key);
    hash.optional(record.value);
    hash.number(
        record
            .partition
            .map_or(u64::MAX, |to| u64::from(to.unsigned_abs())),
    );
    hash.number(record.timestamp_ms.map_or(u64::MAX, i64::cast_unsigned));
    hash.headers(record.headers.iter());
}
