//! Reading what a job names.

use varvelog_store::batch::{BatchError, Records};
use varvelog_store::partition::{PartitionReader, ReadError, ReadLimit, StoredBatch};
use varvelog_store::{Offset, PartitionId};

use super::super::copies::{
    Copies, CopyJob, Keys, KeysJob, ReadDone, ReadJob, ReadResult, ReadTrouble, ReplayJob, Replayed,
};
use super::building::{CopyBuilder, OpenBatch};
use super::replaying::ReplayBuilder;
use crate::view::View;

/// Bytes and batches of one read, unless a single batch is larger.
const READ_BYTES_MAX: u32 = 1 << 20;
const READ_BATCHES_MAX: u32 = 256;
/// Bytes of batches after which an answer about keys ends, and how many keys it has at most before
/// its last batch.
const KEYS_READ_BYTES_MAX: usize = 4 << 20;
const KEYS_MAX: usize = 65_536;
/// What a stored batch may expand to: the largest that any configuration takes in.
const BATCH_PLAIN_BYTES_MAX: u64 = 64 << 20;

/// A hash of a key, by which records of one key are told. An empty key is one.
pub fn hash_of_key(key: &[u8]) -> u64 {
    murmur2::murmur64a(key, 0)
}

/// Does a job.
pub fn perform(view: &View, job: &ReadJob) -> ReadDone {
    match job {
        ReadJob::Copy(job) => ReadDone {
            id: job.id,
            result: copy(reader(view, job.from).as_ref(), job).map(ReadResult::Copies),
        },
        ReadJob::Keys(job) => ReadDone {
            id: job.id,
            result: keys(reader(view, job.partition).as_ref(), job).map(ReadResult::Keys),
        },
        ReadJob::Replay(job) => ReadDone {
            id: job.id,
            result: replay(reader(view, job.from).as_ref(), job).map(ReadResult::Replay),
        },
    }
}

fn reader(view: &View, id: PartitionId) -> Option<PartitionReader> {
    let number = usize::try_from(id.partition).ok()?;
    let catalog = view.catalog();
    let partition = catalog.by_id.get(&id.topic)?.partitions.get(number)?;
    Some(partition.reader.clone())
}

/// Without a reader the partition is gone, and all of it missing.
fn copy(reader: Option<&PartitionReader>, job: &CopyJob) -> Result<Copies, ReadTrouble> {
    let mut builder = CopyBuilder::new(job);
    take(reader, job.from, &mut builder)?;
    builder.finish().map_err(|error| trouble(job.from, &error))
}

fn replay(reader: Option<&PartitionReader>, job: &ReplayJob) -> Result<Replayed, ReadTrouble> {
    let mut builder = ReplayBuilder::new(job);
    take(reader, job.from, &mut builder)?;
    builder.finish().map_err(|error| trouble(job.from, &error))
}

/// What takes records of one partition, by rising offsets.
pub(super) trait Taker {
    /// The next record to read; none when all are looked at, or the answer is full.
    fn wanted(&self) -> Option<Offset>;
    /// Up to where it is worth reading at once, exclusively.
    fn wanted_until(&self) -> Offset;
    /// Takes the records that are wanted of a batch.
    fn add(&mut self, batch: &OpenBatch) -> Result<(), BatchError>;
    /// Records that are wanted below `end` are missing.
    fn miss_until(&mut self, end: Offset);
}

/// Reads what is wanted.
fn take(
    reader: Option<&PartitionReader>,
    partition: PartitionId,
    builder: &mut impl Taker,
) -> Result<(), ReadTrouble> {
    let unwritten = |error| trouble(partition, &error);
    while let (Some(reader), Some(from)) = (reader, builder.wanted()) {
        let limit = ReadLimit {
            bytes_max: READ_BYTES_MAX,
            batches_max: READ_BATCHES_MAX,
            until: builder.wanted_until(),
        };
        match reader.read(from, limit) {
            Ok(batches) if batches.is_empty() => break,
            Ok(batches) => {
                for batch in &batches {
                    match open(partition, batch) {
                        Some(open) => builder.add(&open).map_err(unwritten)?,
                        None => builder.miss_until(batch.end()),
                    }
                }
            }
            Err(ReadError::OutOfRange { start, .. }) if from < start => builder.miss_until(start),
            Err(ReadError::OutOfRange { .. }) => break,
            Err(ReadError::Corrupt { last, .. }) => {
                builder.miss_until(last.max(from).plus(1));
            }
            Err(ReadError::Io(error)) => return Err(trouble(partition, &error)),
        }
    }
    Ok(())
}

fn keys(reader: Option<&PartitionReader>, job: &KeysJob) -> Result<Keys, ReadTrouble> {
    let mut read = Keys {
        until: job.until,
        keys: Vec::new(),
    };
    let Some(reader) = reader else {
        return Ok(read);
    };
    let mut next = job.from;
    let mut bytes = 0;
    while next < job.until && bytes < KEYS_READ_BYTES_MAX && read.keys.len() < KEYS_MAX {
        let limit = ReadLimit {
            bytes_max: READ_BYTES_MAX,
            batches_max: READ_BATCHES_MAX,
            until: job.until,
        };
        match reader.read(next, limit) {
            Ok(batches) => {
                let Some(last) = batches.last() else { break };
                let end = last.end();
                for batch in &batches {
                    bytes += batch.body.len();
                    if let Some(open) = open(job.partition, batch) {
                        add_keys(&open, job, &mut read);
                    }
                }
                next = end;
            }
            Err(ReadError::OutOfRange { start, .. }) if next < start => next = start,
            Err(ReadError::OutOfRange { .. }) => break,
            Err(ReadError::Corrupt { last, .. }) => next = last.max(next).plus(1),
            Err(ReadError::Io(error)) => return Err(trouble(job.partition, &error)),
        }
    }
    read.until = next.min(job.until);
    Ok(read)
}

fn add_keys(batch: &OpenBatch, job: &KeysJob, read: &mut Keys) {
    for record in &batch.records {
        // A record that cannot be read hides those behind it.
        let Ok(record) = record else { return };
        let offset = batch.base_offset.plus(record.offset_delta.into());
        if (job.from..job.until).contains(&offset) {
            read.keys.push((offset, record.key.map(hash_of_key)));
        }
    }
}

/// Nothing if the batch is damaged.
fn open(partition: PartitionId, batch: &StoredBatch) -> Option<OpenBatch> {
    match Records::open(&batch.body, BATCH_PLAIN_BYTES_MAX) {
        Ok(records) => Some(OpenBatch {
            base_offset: batch.base_offset,
            append_time: batch.append_time,
            records,
        }),
        Err(error) => {
            tracing::error!(%partition, offset = %batch.base_offset, %error, "a batch is damaged");
            None
        }
    }
}

fn trouble(partition: PartitionId, error: &dyn std::error::Error) -> ReadTrouble {
    tracing::error!(%partition, %error, "records could not be copied or looked at");
    ReadTrouble {
        reason: error.to_string(),
    }
}
