//! From dead letters to the batches of their replay.

use std::collections::BTreeMap;
use std::fmt::Display;

use varvelog_store::batch::{BatchError, RecordRef, partition_for_key};
use varvelog_store::{Offset, PartitionId};

use super::super::copies::{ReplayJob, ReplayTo, Replayed};
use super::super::reserved_headers::{ReservedHeader, ReservedHeaders, is_reserved};
use super::super::retries::RetryEntry;
use super::building::{GAP_MAX, OpenBatch};
use super::parts::{Parts, record_bytes};
use super::reading::Taker;

/// Most bytes of the copies of one answer before compression, unless a single record is larger.
const REPLAY_BYTES_MAX: usize = 4 << 20;

/// What is kept of a dead letter: what it is a copy of, and its history. Its last failure is the
/// newest of the attempt log.
const KEPT: [ReservedHeader; 8] = [
    ReservedHeader::MessageId,
    ReservedHeader::OriginTopic,
    ReservedHeader::OriginPartition,
    ReservedHeader::OriginOffset,
    ReservedHeader::OriginTime,
    ReservedHeader::Queue,
    ReservedHeader::FirstFailure,
    ReservedHeader::AttemptLog,
];

/// Copies in the making, batch by batch.
#[derive(Debug)]
pub(super) struct ReplayBuilder<'j> {
    job: &'j ReplayJob,
    /// Of the next record in the job.
    next: usize,
    bytes: usize,
    is_full: bool,
    parts: BTreeMap<PartitionId, Parts<Option<RetryEntry>>>,
    done: Vec<Offset>,
    failed: Vec<(Offset, String)>,
}

impl<'j> ReplayBuilder<'j> {
    /// Nothing copied yet.
    pub(super) fn new(job: &'j ReplayJob) -> Self {
        Self {
            job,
            next: 0,
            bytes: 0,
            is_full: false,
            parts: BTreeMap::new(),
            done: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The answer.
    pub(super) fn finish(mut self) -> Result<Replayed, BatchError> {
        self.miss_until(Offset::MAX);
        let mut replayed = Replayed {
            done: self.done,
            failed: self.failed,
            ..Replayed::default()
        };
        for parts in self.parts.into_values() {
            for (part, entries) in parts.finish()? {
                let index = u32::try_from(replayed.parts.len()).unwrap_or(u32::MAX);
                let entries: Vec<RetryEntry> = entries.into_iter().flatten().collect();
                if !entries.is_empty() {
                    replayed.retries.push((index, entries));
                }
                replayed.parts.push(part);
            }
        }
        Ok(replayed)
    }

    /// Copies the record that is wanted, if there is room.
    fn copy(&mut self, record: &RecordRef<'_>, offset: Offset) -> Result<(), BatchError> {
        let said = ReservedHeaders::of(record.headers);
        let (to, entry) = match self.destination(record, &said) {
            Ok(to) => to,
            Err(why) => {
                self.failed.push((offset, why));
                self.next += 1;
                return Ok(());
            }
        };
        let written = self.written(&said, offset);
        let own = record.headers.iter().filter(|(name, _)| !is_reserved(name));
        let reserved = written.iter().map(|(header, value)| {
            let (name, value) = (header.name().as_bytes(), value.as_bytes());
            (name, Some(value))
        });
        let headers = own.chain(reserved);
        let bytes = record_bytes(record, headers.clone());
        if self.bytes > 0 && self.bytes + bytes > REPLAY_BYTES_MAX {
            self.is_full = true;
            return Ok(());
        }
        let parts = self.parts.entry(to).or_insert_with(|| Parts::new(to));
        parts.push(record, headers, bytes, entry)?;
        self.bytes += bytes;
        self.done.push(offset);
        self.next += 1;
        Ok(())
    }

    /// Where a record goes, and what becomes of it there; or why it cannot.
    fn destination(
        &self,
        record: &RecordRef<'_>,
        said: &ReservedHeaders<'_>,
    ) -> Result<(PartitionId, Option<RetryEntry>), String> {
        match self.job.to {
            ReplayTo::Retry(partition) => {
                let origin = said
                    .origin()
                    .ok_or("its headers do not say where it came from")?;
                let entry = RetryEntry {
                    due: self.job.due,
                    origin: origin.offset,
                    failures: 0,
                    suspect: false,
                };
                Ok((partition, Some(entry)))
            }
            ReplayTo::Topic {
                topic,
                partitions,
                keeps_partition,
                record_bytes_max,
            } => {
                let size = own_bytes(record);
                if size > u64::from(record_bytes_max) {
                    return Err(format!(
                        "the target takes records up to {record_bytes_max} bytes, it has {size}"
                    ));
                }
                let number = self.job.from.partition;
                let partition = match record.key {
                    Some(key) if !keeps_partition => partition_for_key(key, partitions),
                    Some(_) | None => number % partitions.max(1),
                };
                Ok((PartitionId { topic, partition }, None))
            }
        }
    }

    /// The reserved headers of a copy, in their order.
    fn written(&self, said: &ReservedHeaders<'_>, offset: Offset) -> Vec<(ReservedHeader, String)> {
        let mut written = Vec::with_capacity(KEPT.len() + 4);
        let kept = KEPT.iter().filter_map(|header| {
            let value = said.text(*header)?;
            Some((*header, value.to_owned()))
        });
        written.extend(kept);
        let mut put = |header: ReservedHeader, value: &dyn Display| {
            let mut value = value.to_string();
            let most = header.bytes_max(false);
            value.truncate(value.floor_char_boundary(most));
            written.push((header, value));
        };
        let count = said.count(ReservedHeader::ReplayCount).unwrap_or(0);
        let ReplayJob { queue, from, .. } = self.job;
        put(ReservedHeader::Attempt, &0);
        put(ReservedHeader::ReplayCount, &count.saturating_add(1));
        put(ReservedHeader::ReplayJob, &self.job.job.id());
        let place = format_args!("{queue}/{}/{offset}", from.partition);
        put(ReservedHeader::ReplayedFrom, &place);
        written.sort_by_key(|(header, _)| *header);
        written
    }
}

impl Taker for ReplayBuilder<'_> {
    fn wanted(&self) -> Option<Offset> {
        let offset = self.job.offsets.get(self.next).copied();
        offset.filter(|_| !self.is_full)
    }

    fn wanted_until(&self) -> Offset {
        let mut until = self.wanted().unwrap_or_default();
        for offset in self.job.offsets.iter().skip(self.next) {
            if offset.since(until) > GAP_MAX {
                break;
            }
            until = offset.plus(1);
        }
        until
    }

    fn add(&mut self, batch: &OpenBatch) -> Result<(), BatchError> {
        for record in &batch.records {
            // A record that cannot be read hides those behind it.
            let Ok(record) = record else { break };
            let offset = batch.base_offset.plus(record.offset_delta.into());
            self.miss_until(offset);
            if self.wanted() == Some(offset) {
                self.copy(&record, offset)?;
            }
            if self.wanted().is_none_or(|wanted| wanted >= batch.end()) {
                return Ok(());
            }
        }
        self.miss_until(batch.end());
        Ok(())
    }

    fn miss_until(&mut self, end: Offset) {
        while let Some(wanted) = self.wanted().filter(|wanted| *wanted < end) {
            let why = "its record is not there any more, or is damaged".to_owned();
            self.failed.push((wanted, why));
            self.next += 1;
        }
    }
}

/// Key, value and headers of the producer.
fn own_bytes(record: &RecordRef<'_>) -> u64 {
    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let own = record.headers.iter().filter(|(name, _)| !is_reserved(name));
    let headers = own.map(|(name, value)| name.len() + length(value));
    let bytes = length(record.key) + length(record.value) + headers.sum::<usize>();
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
