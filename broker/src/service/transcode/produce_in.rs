//! The outer fields of `ProduceRequest` and `ProduceStreamRequest`, and the fast door.

use bytes::Bytes;
use varvelog_store::batch::{self, BatchRules, ProducerStamp};
use varvelog_store::limits::BATCH_RECORDS_MAX;

use super::content_hash::ContentHash;
use crate::core::refusal::TopicRefusal;
use crate::service::status::{CallFailure, FieldViolation, RecordRefusal};
use crate::service::wire::{Fields, Malformed};

/// Most records, and most batches, of one request.
pub(super) const REQUEST_RECORDS_MAX: u32 = BATCH_RECORDS_MAX;
const REQUEST_ID_BYTES_MAX: usize = 128;

pub(super) const RECORDS: u32 = 2;
const BATCHES: u32 = 5;

/// What a produce request says beside its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProduceHead<'a> {
    /// As sent.
    pub topic: &'a str,
    /// The enum's number, as sent.
    pub acks: i32,
    /// At most 128 bytes; empty: none.
    pub request_id: &'a str,
    /// Records of the easy door: at most 10,000.
    pub records: u32,
    /// Batches of the fast door: at most 10,000; one of the two counts is 0.
    pub batches: u32,
}

impl<'a> ProduceHead<'a> {
    /// Walks the outer fields once. Fields come in any order, so records are looked at later; a
    /// request with too many of them is refused at the first one too many.
    pub fn read(wire: &'a [u8]) -> Result<Self, CallFailure> {
        let mut head = Self {
            topic: "",
            acks: 0,
            request_id: "",
            records: 0,
            batches: 0,
        };
        let mut fields = Fields::new(wire);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => head.topic = field.text()?,
                RECORDS => {
                    field.bytes()?;
                    head.records = one_more(head.records, "records")?;
                }
                3 => head.acks = field.int32()?,
                4 => head.request_id = field.text()?,
                BATCHES => {
                    field.bytes()?;
                    head.batches = one_more(head.batches, "batches")?;
                }
                _ => {}
            }
        }
        head.check()?;
        Ok(head)
    }

    fn check(&self) -> Result<(), FieldViolation> {
        match (self.records, self.batches) {
            (0, 0) => Err(FieldViolation::new(
                "records",
                "records or batches must be given",
            )),
            (1.., 1..) => Err(FieldViolation::new(
                "batches",
                "records and batches exclude each other",
            )),
            _ if self.request_id.len() > REQUEST_ID_BYTES_MAX => Err(FieldViolation::bound(
                "request_id",
                REQUEST_ID_BYTES_MAX,
                self.request_id.len(),
                format!("at most {REQUEST_ID_BYTES_MAX} bytes are allowed"),
            )),
            _ => Ok(()),
        }
    }
}

fn one_more(count: u32, field: &'static str) -> Result<u32, FieldViolation> {
    if count < REQUEST_RECORDS_MAX {
        return Ok(count + 1);
    }
    let what = format!("at most {REQUEST_RECORDS_MAX} are allowed in one request");
    Err(FieldViolation::bound(
        field,
        REQUEST_RECORDS_MAX,
        u64::from(count) + 1,
        what,
    ))
}

/// A `ProduceStreamRequest`.
#[derive(Debug, Clone)]
pub struct StreamProduceIn {
    /// The caller's.
    pub sequence: i64,
    /// The `ProduceRequest` in it, not yet walked; it must be there.
    pub request: Option<Bytes>,
}

impl StreamProduceIn {
    /// Walks the outer fields. A request in two pieces, which the wire format would merge, is
    /// refused.
    pub fn read(wire: &Bytes) -> Result<Self, Malformed> {
        let (mut sequence, mut request) = (0, None);
        let mut fields = Fields::new(wire);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => sequence = field.int64()?,
                2 if request.is_some() => {
                    return Err(Malformed::new(String::from("request is given twice")));
                }
                2 => request = Some(wire.slice_ref(field.bytes()?)),
                _ => {}
            }
        }
        Ok(Self { sequence, request })
    }
}

/// What the fast door may bring.
#[derive(Debug, Clone, Copy)]
pub struct BatchLimits<'a> {
    /// Name of the topic, for refusals.
    pub topic: &'a str,
    /// Partitions of the topic.
    pub partitions: u32,
    /// For each batch.
    pub rules: BatchRules,
    /// Bytes that all batches together may expand to.
    pub expanded_bytes_max: u64,
    /// Whether a hash of the content is wanted.
    pub is_hashed: bool,
}

/// A batch of the fast door, checked.
#[derive(Debug, Clone)]
pub struct BatchIn {
    /// Of the topic.
    pub partition: u32,
    /// At least 1.
    pub record_count: u32,
    /// Of an idempotent producer.
    pub producer: Option<ProducerStamp>,
    /// As it came; shares the request's memory.
    pub body: Bytes,
}

/// The batches of a request, each walked once, and a hash of them if one is wanted.
pub fn batches_in(
    wire: &Bytes,
    limits: &BatchLimits<'_>,
) -> Result<(Vec<BatchIn>, u64), CallFailure> {
    let mut batches: Vec<BatchIn> = Vec::new();
    let mut hash = ContentHash::new();
    let mut limits = *limits;
    let mut fields = Fields::new(wire);
    while let Some(field) = fields.next_field()? {
        if field.number == BATCHES {
            let (batch, expanded) = batch_in(wire, field.bytes()?, batches.len(), &limits)?;
            limits.expanded_bytes_max = limits.expanded_bytes_max.saturating_sub(expanded);
            if limits.is_hashed {
                hash.number(u64::from(batch.partition));
                hash.bytes(&batch.body);
            }
            batches.push(batch);
        }
    }
    Ok((batches, hash.finish()))
}

fn batch_in(
    request: &Bytes,
    wire: &[u8],
    index: usize,
    limits: &BatchLimits<'_>,
) -> Result<(BatchIn, u64), CallFailure> {
    let (mut partition, mut body) = (0, [].as_slice());
    let mut fields = Fields::new(wire);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => partition = field.int32()?,
            2 => body = field.bytes()?,
            _ => {}
        }
    }
    let path = || format!("batches[{index}].partition");
    let partition = checked_partition(partition, limits.topic, limits.partitions, path)?;
    let body = request.slice_ref(body);
    let mut rules = limits.rules;
    rules.decompressed_bytes_max = rules.decompressed_bytes_max.min(limits.expanded_bytes_max);
    let (header, expanded) = batch::validate_sized(&body, &rules).map_err(|error| {
        let (field, what) = (format!("batches[{index}].batch"), error.to_string());
        RecordRefusal::BatchInvalid { field, what }
    })?;
    let batch = BatchIn {
        partition,
        record_count: header.record_count,
        producer: header.producer,
        body,
    };
    Ok((batch, expanded as u64))
}

/// A partition that a request names.
pub(super) fn checked_partition(
    partition: i32,
    topic: &str,
    partitions: u32,
    path: impl FnOnce() -> String,
) -> Result<u32, CallFailure> {
    match u32::try_from(partition) {
        Ok(partition) if partition < partitions => Ok(partition),
        Ok(_) => {
            let (topic, partition) = (topic.to_owned(), i64::from(partition));
            Err(TopicRefusal::PartitionNotFound {
                topic,
                partition,
                partitions,
            }
            .into())
        }
        Err(_) => Err(FieldViolation::bound(path(), 0, partition, "must not be negative").into()),
    }
}
