//! Topics and producers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use tonic::Code;
use varvelog_client::proto as v1;
use varvelog_store::batch::{BatchHeader, Records};

use super::metadata;

/// Largest value taken.
pub(crate) const VALUE_BYTES_MAX: usize = 1_000;

/// Value of a record that is never taken.
pub(crate) const POISON: &[u8] = b"poison";

pub(crate) fn refusal(code: Code, reason: &str, pairs: &[(&str, i64)]) -> v1::StreamError {
    v1::StreamError {
        code: code as i32,
        reason: reason.to_owned(),
        message: format!("refused with {reason}"),
        metadata: metadata(pairs).into_iter().collect(),
        retry_after: None,
    }
}

#[derive(Debug, Default)]
struct Sequences {
    epoch: i16,
    next: i32,
    recent: VecDeque<(i32, i64)>,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Batches by partition.
    pub(crate) topics: BTreeMap<String, Vec<Vec<v1::StoredBatch>>>,
    /// Log start of every partition.
    pub(crate) earliest: i64,
    producers: BTreeMap<i64, i16>,
    names: BTreeMap<String, i64>,
    sequences: BTreeMap<(i64, i32), Sequences>,
    pub(crate) duplicates: u32,
    pub(crate) inits: u32,
}

enum Verdict {
    New,
    Duplicate(i64),
}

impl Log {
    pub(crate) fn init_producer(&mut self, name: &str) -> (i64, i16) {
        self.inits += 1;
        let fresh = 1_000 + i64::from(self.inits);
        let id = if name.is_empty() {
            fresh
        } else {
            *self.names.entry(name.to_owned()).or_insert(fresh)
        };
        let epoch = *self
            .producers
            .entry(id)
            .and_modify(|epoch| *epoch += 1)
            .or_insert(0);
        (id, epoch)
    }

    pub(crate) fn forget_producers(&mut self) {
        self.producers.clear();
        self.sequences.clear();
    }

    pub(crate) fn latest(&self, topic: &str, partition: usize) -> i64 {
        let last = self.topics[topic][partition].last();
        last.map_or(0, |batch| batch.base_offset + i64::from(batch.record_count))
    }

    pub(crate) fn append(&mut self, topic: &str, partition: usize, batch: Bytes) -> i64 {
        let base_offset = self.latest(topic, partition);
        let header = varvelog_store::batch::read_header(&batch).expect("a valid batch");
        let stored = v1::StoredBatch {
            base_offset,
            append_time_ms: 1_700_000_000_000,
            record_count: header.record_count.cast_signed(),
            batch,
        };
        let partitions = self.topics.get_mut(topic).expect("the topic is there");
        partitions[partition].push(stored);
        base_offset
    }

    /// All or nothing.
    pub(crate) fn produce(
        &mut self,
        request: &v1::ProduceRequest,
    ) -> Result<v1::ProduceResponse, v1::StreamError> {
        let mut verdicts = Vec::new();
        let mut partitions = BTreeSet::new();
        for batch in &request.batches {
            assert!(
                partitions.insert(batch.partition),
                "one batch of each partition"
            );
            verdicts.push(self.judge(&request.topic, batch)?);
        }
        let mut results = Vec::new();
        for (batch, verdict) in request.batches.iter().zip(verdicts) {
            let (offset, duplicate) = match verdict {
                Verdict::Duplicate(offset) => (offset, true),
                Verdict::New => (self.take(&request.topic, batch), false),
            };
            self.duplicates += u32::from(duplicate);
            let partition = batch.partition;
            results.push(v1::AppendResult {
                partition,
                offset,
                epoch: 1,
                duplicate,
            });
        }
        let durability = v1::Durability::Synced.into();
        Ok(v1::ProduceResponse {
            results,
            duplicate: false,
            durability,
        })
    }

    fn judge(&self, topic: &str, batch: &v1::PartitionBatch) -> Result<Verdict, v1::StreamError> {
        let partitions = self.topics.get(topic).map(Vec::len);
        let partitions =
            partitions.ok_or_else(|| refusal(Code::NotFound, "TOPIC_NOT_FOUND", &[]))?;
        if usize::try_from(batch.partition).is_ok_and(|number| number >= partitions) {
            return Err(refusal(Code::NotFound, "PARTITION_NOT_FOUND", &[]));
        }
        let header = checked(&batch.batch)?;
        let Some(stamp) = header.producer else {
            return Ok(Verdict::New);
        };
        match self.producers.get(&stamp.id) {
            None => return Err(refusal(Code::FailedPrecondition, "PRODUCER_UNKNOWN", &[])),
            Some(epoch) if *epoch > stamp.epoch => {
                return Err(refusal(Code::Aborted, "PRODUCER_FENCED", &[]));
            }
            Some(_) => {}
        }
        let got = stamp.base_sequence;
        let known = self.sequences.get(&(stamp.id, batch.partition));
        let known = known.filter(|known| known.epoch == stamp.epoch);
        let recent = known.and_then(|known| known.recent.iter().find(|(base, _)| *base == got));
        let expected = known.map_or(0, |known| known.next);
        match recent {
            Some((_, offset)) => Ok(Verdict::Duplicate(*offset)),
            None if got == expected => Ok(Verdict::New),
            None => {
                let pairs = [("expected", expected.into()), ("got", got.into())];
                Err(refusal(Code::FailedPrecondition, "SEQUENCE_GAP", &pairs))
            }
        }
    }

    fn take(&mut self, topic: &str, batch: &v1::PartitionBatch) -> i64 {
        let partition = usize::try_from(batch.partition).expect("judged");
        let offset = self.append(topic, partition, batch.batch.clone());
        let header = varvelog_store::batch::read_header(&batch.batch).expect("judged");
        if let Some(stamp) = header.producer {
            let known = self
                .sequences
                .entry((stamp.id, batch.partition))
                .or_default();
            if known.epoch != stamp.epoch {
                known.recent.clear();
            }
            known.epoch = stamp.epoch;
            known.next = stamp.base_sequence + header.record_count.cast_signed();
            known.recent.push_back((stamp.base_sequence, offset));
            if known.recent.len() > 5 {
                known.recent.pop_front();
            }
        }
        offset
    }
}

fn checked(batch: &Bytes) -> Result<BatchHeader, v1::StreamError> {
    let invalid = |_| refusal(Code::InvalidArgument, "BATCH_INVALID", &[]);
    let records = Records::open(batch, 1 << 24).map_err(invalid)?;
    for record in &records {
        let value = record.map_err(invalid)?.value.unwrap_or_default();
        if value.len() > VALUE_BYTES_MAX || value == POISON {
            return Err(refusal(Code::InvalidArgument, "RECORD_TOO_LARGE", &[]));
        }
    }
    Ok(*records.header())
}
