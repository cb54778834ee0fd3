//! The easy door: records on the wire become record batches, one for each partition or more where
//! one would be large.
//!
//! Two passes over the same bytes, neither of which keeps a record: the first checks every record
//! and chooses its batch, the second writes. So a request is refused before any room is taken, and
//! each batch gets its room in one piece.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use varvelog_store::batch::{BatchBuilder, BatchError, Codec, partition_for_key};
use varvelog_store::{PartitionId, TopicId};

use super::content_hash::ContentHash;
use super::message_ids::{IdsIn, MESSAGE_ID_HEADER, check_id};
use super::new_record::NewRecord;
use super::produce_in::{RECORDS, checked_partition};
use crate::core::message_ids::IdHash;
use crate::core::request::AppendRequestPart;
use crate::core::reserved_headers::is_reserved;
use crate::service::checks;
use crate::service::status::{CallFailure, FieldViolation, RecordRefusal};
use crate::service::wire::{Fields, Malformed};

/// Most bytes of a key.
pub(crate) const KEY_BYTES_MAX: u32 = 64 * 1024;
/// Most headers of one record.
pub(crate) const HEADERS_MAX: u32 = 64;

/// A batch that has so much is closed and the next record of its partition begins another: a
/// reader is never given much more than it can put into one reply.
const PART_BYTES_MAX: usize = 1 << 20;
/// How long groups may be kept from a record after its append.
const DELAY: (Duration, Duration) = (Duration::ZERO, Duration::from_hours(30 * 24));
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
    /// Whether the topic has a window within which message ids count.
    pub has_id_window: bool,
    /// What stands before `records` in the paths of refusals: empty, or ends in a dot.
    pub path: &'a str,
}

impl RecordTarget<'_> {
    fn record_path(&self, index: usize) -> String {
        format!("{}records[{index}]", self.path)
    }
}

/// A batch made of records of the request.
#[derive(Debug, Clone)]
pub struct PartIn {
    /// Of the topic.
    pub partition: u32,
    /// At least 1.
    pub record_count: u32,
    /// Records that groups are not given before so many ms after their append, by their number in
    /// the batch, rising.
    pub delays_ms: Vec<(u32, u64)>,
    /// Message ids that count, by number in the batch, rising.
    pub ids: Vec<(u32, IdHash)>,
    /// A record batch, magic 2.
    pub body: Bytes,
}

impl PartIn {
    /// The batch as it is appended to a partition of `topic`.
    pub fn to_append(self, topic: TopicId) -> AppendRequestPart {
        let partition = PartitionId {
            topic,
            partition: self.partition,
        };
        AppendRequestPart {
            partition,
            record_count: self.record_count,
            producer: None,
            delays_ms: self.delays_ms,
            ids: self.ids,
            body: self.body,
        }
    }
}

/// The records of a request as batches.
#[derive(Debug)]
pub struct RecordsIn {
    /// In the order in which their first records came.
    pub parts: Vec<PartIn>,
    /// For each record in request order: index of its part, and place in it. One whose message id
    /// came before in the request has the place of that one.
    pub places: Vec<(u32, u32)>,
    /// Numbers of those records in the request, rising.
    pub repeated: Vec<u32>,
    /// Of what the caller sent, and of nothing that the broker chose; if it was wanted.
    pub content_hash: u64,
}

impl RecordsIn {
    /// Makes batches of the `count` records of the `ProduceRequest`, or the `Output`, that `wire`
    /// is: both have their records in the same field.
    pub fn read(wire: &[u8], count: u32, target: &RecordTarget<'_>) -> Result<Self, CallFailure> {
        let survey = Survey::of(wire, count, target)?;
        let default_ms = survey.has_timestamps.then_some(target.now_ms);
        let mut builders: Vec<BatchBuilder> = survey
            .parts
            .iter()
            .map(|part| BatchBuilder::new(Codec::None, part.room))
            .collect();
        let mut delays_ms = vec![Vec::new(); builders.len()];
        let mut places = Vec::with_capacity(survey.part_of.len());
        let mut ids = vec![Vec::new(); builders.len()];
        let mut firsts = survey.ids.firsts();
        let mut records = RecordFields::new(wire);
        for (number, index) in (0_u32..).zip(survey.part_of) {
            let record = records.next_record()?.ok_or_else(changed)?;
            if let Some((_, first)) = firsts.next_if(|(repeated, _)| *repeated == number) {
                let place = usize::try_from(first).ok().and_then(|at| places.get(at));
                places.push(*place.ok_or_else(changed)?);
                continue;
            }
            if target.has_id_window
                && !record.message_id.is_empty()
                && let Some(ids) = ids.get_mut(index as usize)
            {
                let place = builders.get(index as usize).map(BatchBuilder::record_count);
                ids.push((place.unwrap_or_default(), IdHash::of(record.message_id)));
            }
            let builder = builders.get_mut(index as usize).ok_or_else(changed)?;
            places.push((index, builder.record_count()));
            if let Some(delay_ms) = delay_ms(target, places.len() - 1, &record)?
                && let Some(delays) = delays_ms.get_mut(index as usize)
            {
                delays.push((builder.record_count(), delay_ms));
            }
            let timestamp_ms = record.timestamp_ms.or(default_ms);
            builder
                .push(
                    timestamp_ms,
                    record.key,
                    record.value,
                    record.headers.iter().chain(id_header(&record)),
                )
                .map_err(|error| unfit(&error))?;
        }
        let partitions = survey.parts.iter().map(|part| part.partition);
        let mut parts = Vec::with_capacity(builders.len());
        let said = delays_ms.into_iter().zip(ids);
        for ((partition, builder), (delays_ms, ids)) in partitions.zip(builders).zip(said) {
            let record_count = builder.record_count();
            let body = builder.finish().map_err(|error| unfit(&error))?;
            parts.push(PartIn {
                partition,
                record_count,
                delays_ms,
                ids,
                body,
            });
        }
        Ok(Self {
            parts,
            places,
            repeated: survey.ids.repeated(),
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
                return NewRecord::read(field.bytes()?, HEADERS_MAX as usize)
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
    ids: IdsIn,
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
            ids: IdsIn::default(),
            content_hash: 0,
        };
        let mut open = BTreeMap::new();
        let mut hash = ContentHash::new();
        let mut records = RecordFields::new(wire);
        while let Some(record) = records.next_record()? {
            let index = survey.part_of.len();
            check(index, &record, target)?;
            if target.is_hashed {
                add(&mut hash, &record);
            }
            let partition = route(index, &record, target)?;
            if target.has_id_window && survey.ids.is_repeated(index, record.message_id) {
                survey.part_of.push(0);
                continue;
            }
            let part = survey.part_for(&mut open, partition, room_of(&record));
            survey.part_of.push(part);
            survey.has_timestamps |= record.timestamp_ms.is_some();
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
    let id = match record.message_id.len() {
        0 => 0,
        bytes => MESSAGE_ID_HEADER.len() + bytes + 10,
    };
    content.saturating_add(RECORD_ROOM + 10 * record.header_count + id)
}

fn route(
    index: usize,
    record: &NewRecord<'_>,
    target: &RecordTarget<'_>,
) -> Result<u32, CallFailure> {
    match (record.partition, record.key) {
        (Some(partition), _) => {
            let path = || format!("{}.partition", target.record_path(index));
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
    let path = |field: &str| format!("{}.{field}", target.record_path(index));
    delay_ms(target, index, record)?;
    check_id(|| path("message_id"), record.message_id)?;
    let key_bytes = record.key.map_or(0, <[u8]>::len);
    if key_bytes > KEY_BYTES_MAX as usize {
        let what = format!("at most {KEY_BYTES_MAX} bytes are allowed");
        return Err(FieldViolation::bound(path("key"), KEY_BYTES_MAX, key_bytes, what).into());
    }
    if record.header_count > HEADERS_MAX as usize {
        let what = format!("at most {HEADERS_MAX} headers are allowed");
        let (field, count) = (path("headers"), format!("{} or more", record.header_count));
        return Err(FieldViolation::bound(field, HEADERS_MAX, count, what).into());
    }
    if record.header_count > 0 && record.headers.iter().any(|(name, _)| is_reserved(name)) {
        return Err(RecordRefusal::ReservedHeader {
            field: path("headers"),
        }
        .into());
    }
    let (size, limit) = (record.content_bytes(), u64::from(target.record_bytes_max));
    if size > limit {
        let field = target.record_path(index);
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

/// How long groups are kept from the record; nothing where they are not.
fn delay_ms(
    target: &RecordTarget<'_>,
    index: usize,
    record: &NewRecord<'_>,
) -> Result<Option<u64>, FieldViolation> {
    let Some(delay) = &record.delay else {
        return Ok(None);
    };
    let path = format!("{}.delay", target.record_path(index));
    let delay_ms = checks::duration_ms(&path, Some(delay), DELAY)?;
    Ok(delay_ms.filter(|delay_ms| *delay_ms > 0))
}

/// The reserved header that holds the record's message id.
fn id_header<'a>(
    record: &NewRecord<'a>,
) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone + use<'a> {
    let id = (!record.message_id.is_empty()).then_some(record.message_id);
    id.into_iter()
        .map(|id| (MESSAGE_ID_HEADER.as_bytes(), Some(id.as_bytes())))
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
    if let Some(delay) = &record.delay {
        hash.number(delay.seconds.cast_unsigned());
        hash.number(u64::from(delay.nanos.cast_unsigned()));
    }
    hash.headers(record.headers.iter().chain(id_header(record)));
}
