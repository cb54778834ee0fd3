//! From the records of a job to the batches of its copies.

use std::collections::BTreeSet;

use varvelog_store::batch::{BatchError, Records};
use varvelog_store::{Offset, WallMs};

use super::super::copies::{Copies, Copy, CopyJob, CopyTo};
use super::super::dead_letters::Death;
use super::super::failure::DeadReason;
use super::super::retries::RetryEntry;
use super::header_set::{HeaderSet, Placed};
use super::parts::{Parts, record_bytes};
use super::reading::{Taker, hash_of_key};

/// Most bytes of the copies of one answer before compression. One command holds them, and a frame
/// of the write-ahead log that.
pub const COPIES_BYTES_MAX: usize = 32 << 20;

/// Offsets that are read though nobody asked for them, where reading them apart would cost more.
pub(super) const GAP_MAX: u64 = 64;

/// A batch as it was read, decompressed.
#[derive(Debug, Clone)]
pub struct OpenBatch {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// When it was appended.
    pub append_time: WallMs,
    /// What is in it.
    pub records: Records,
}

impl OpenBatch {
    /// One past its last record.
    pub fn end(&self) -> Offset {
        let last = self.records.header().last_offset_delta;
        self.base_offset.plus(u64::from(last) + 1)
    }
}

/// Copies the records of `job` that `batches` hold, which come by rising offsets. Those that they
/// do not hold are missing. Fails when a copy cannot be written, which is not the record's fault.
pub fn build<'b>(
    job: &CopyJob,
    batches: impl IntoIterator<Item = &'b OpenBatch>,
) -> Result<Copies, BatchError> {
    let mut builder = CopyBuilder::new(job);
    for batch in batches {
        builder.add(batch)?;
    }
    builder.finish()
}

/// Copies in the making, batch by batch.
#[derive(Debug)]
pub struct CopyBuilder<'j> {
    job: &'j CopyJob,
    /// Of the next copy in the job.
    next: usize,
    bytes: usize,
    is_full: bool,
    retry: Parts<RetryEntry>,
    dead_letter: Parts<Death>,
    headers: HeaderSet,
    missing: Vec<Offset>,
    aged: Vec<Offset>,
    dead_keys: BTreeSet<u64>,
}

impl<'j> CopyBuilder<'j> {
    /// Nothing copied yet.
    pub fn new(job: &'j CopyJob) -> Self {
        Self {
            job,
            next: 0,
            bytes: 0,
            is_full: false,
            retry: Parts::new(job.retry),
            dead_letter: Parts::new(job.dead_letter),
            headers: HeaderSet::default(),
            missing: Vec::new(),
            aged: Vec::new(),
            dead_keys: BTreeSet::new(),
        }
    }

    /// The answer. What was not looked at is missing, or left where the answer is full.
    pub fn finish(mut self) -> Result<Copies, BatchError> {
        self.miss_until(Offset::MAX);
        let rest = self.job.copies.iter().skip(self.next);
        let mut copies = Copies {
            missing: self.missing,
            aged: self.aged,
            dead_keys: self.dead_keys.into_iter().collect(),
            left: rest.map(|copy| copy.offset).collect(),
            ..Copies::default()
        };
        for (index, (part, entries)) in (0..).zip(self.retry.finish()?) {
            copies.parts.push(part);
            copies.retries.push((index, entries));
        }
        let retried = u32::try_from(copies.parts.len()).unwrap_or(u32::MAX);
        for (index, (part, deaths)) in (retried..).zip(self.dead_letter.finish()?) {
            copies.parts.push(part);
            copies.deaths.push((index, deaths));
        }
        Ok(copies)
    }

    /// Copies the record that is wanted, if there is room.
    fn copy(&mut self, placed: &Placed<'_>) -> Result<(), BatchError> {
        let Some(copy) = self.job.copies.get(self.next) else {
            return Ok(());
        };
        let record = &placed.record;
        let asked = copy.to;
        let copy = &self.judged(copy, placed);
        if copy.to == CopyTo::InPlace {
            self.next += 1;
            return Ok(());
        }
        if asked == CopyTo::InPlace && self.job.halts {
            self.aged.push(copy.offset);
            self.next += 1;
            return Ok(());
        }
        self.headers.set(self.job, copy, placed);
        let headers = self.headers.all(record);
        let bytes = record_bytes(record, headers.clone());
        if self.bytes > 0 && self.bytes + bytes > COPIES_BYTES_MAX {
            self.is_full = true;
            return Ok(());
        }
        match copy.to {
            CopyTo::Retry(entry) => self.retry.push(record, headers, bytes, entry)?,
            CopyTo::DeadLetter(reason) => {
                // What an operator takes out leaves the rest of its key to go on.
                let tells_key = self.job.tells_keys && reason != DeadReason::Operator;
                let parked_key = record.key.filter(|_| tells_key).map(hash_of_key);
                let death = Death {
                    at: self.job.at,
                    bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                    cause: self.headers.cause(),
                    replays: self.headers.replays(),
                    replayed_by: self.headers.replayed_by(),
                    parked_key,
                };
                self.dead_letter.push(record, headers, bytes, death)?;
                self.dead_keys.extend(parked_key);
            }
            CopyTo::InPlace => {}
        }
        if asked != copy.to {
            self.aged.push(copy.offset);
        }
        self.bytes += bytes;
        self.next += 1;
        Ok(())
    }

    /// The copy as it is to be made: a record that failed and is too old is dead.
    fn judged(&self, copy: &Copy, placed: &Placed<'_>) -> Copy {
        let mut copy = copy.clone();
        let is_retry = !matches!(copy.to, CopyTo::DeadLetter(_)) && copy.failed.is_some();
        if let Some(before) = self.job.dead_before.filter(|_| is_retry)
            && placed.first_append(self.job) < before
        {
            copy.to = CopyTo::DeadLetter(DeadReason::MaxAge);
        }
        copy
    }
}

impl Taker for CopyBuilder<'_> {
    fn wanted(&self) -> Option<Offset> {
        let copy = self.job.copies.get(self.next);
        copy.filter(|_| !self.is_full).map(|copy| copy.offset)
    }

    fn wanted_until(&self) -> Offset {
        let wanted = self.job.copies.iter().skip(self.next);
        let mut until = self.wanted().unwrap_or_default();
        for copy in wanted {
            if copy.offset.since(until) > GAP_MAX {
                break;
            }
            until = copy.offset.plus(1);
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
                let append_time = batch.append_time;
                self.copy(&Placed {
                    record,
                    offset,
                    append_time,
                })?;
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
            self.missing.push(wanted);
            self.next += 1;
        }
    }
}
