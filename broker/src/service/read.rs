//! Reading logs from an edge: what lies in memory at once, what lies on disk on another thread.

use std::io;

use varvelog_store::batch::{BatchError, RecordRef, Records};
use varvelog_store::partition::{PartitionReader, ReadError, ReadLimit, StoredBatch};
use varvelog_store::{Offset, WallMs};

use super::open_batches::{OpenBatches, OpenRecords};
use super::status::{CallFailure, ReadRefusal};
use super::transcode::{RecordSource, ReplyRecords, Taken, stored_batch};
use super::wire::Payload;
use crate::core::refusal::TopicRefusal;
use crate::names::TopicName;
use crate::view::PartitionView;

/// What a stored batch may expand to: the largest that any configuration takes in.
const STORED_BATCH_BYTES_MAX: u64 = 64 << 20;
/// Bytes of one read of a log, unless a single batch is larger.
const READ_BYTES_MAX: u32 = 1 << 20;
const READ_BYTES_MIN: u32 = 64 << 10;
/// Batches of one read.
const READ_BATCHES_MAX: u32 = 1024;

/// Runs `work` where it may wait for the disk.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        // The runtime is going down, or the work panicked; either way nothing was read.
        Err(error) => Err(ReadError::Io(io::Error::other(error))),
    }
}

/// Whole batches from `from` on.
pub(super) async fn read(
    reader: &PartitionReader,
    from: Offset,
    limit: ReadLimit,
) -> Result<Vec<StoredBatch>, ReadError> {
    if reader.is_in_memory(from) {
        return reader.read(from, limit);
    }
    let reader = reader.clone();
    on_disk(move || reader.read(from, limit)).await
}

/// The append time at an offset; nothing outside the log.
pub(super) async fn append_time_at(
    reader: &PartitionReader,
    offset: Offset,
) -> Result<Option<WallMs>, ReadError> {
    if reader.is_in_memory(offset) || offset < reader.start() {
        return reader.append_time_at(offset);
    }
    let reader = reader.clone();
    on_disk(move || reader.append_time_at(offset)).await
}

/// Why a log could not be read, for the caller.
pub(super) fn failure(
    topic: &TopicName,
    partition: &PartitionView,
    offset: Offset,
    error: &ReadError,
) -> CallFailure {
    match error {
        ReadError::OutOfRange { start, end } => TopicRefusal::OffsetOutOfRange {
            offset: offset.as_i64(),
            earliest: *start,
            latest: *end,
        }
        .into(),
        ReadError::Corrupt { first, last } => ReadRefusal::Corrupt {
            topic: topic.to_string(),
            partition: partition.id.partition,
            first: *first,
            last: *last,
        }
        .into(),
        ReadError::Io(error) => {
            tracing::error!(%error, partition = %partition.id, "a log could not be read");
            ReadRefusal::Unreadable {
                what: error.kind().to_string(),
            }
            .into()
        }
    }
}

/// Takes records into `reply` until it is full or `until` is reached. Fails only when not a
/// single record could be taken: what is wrong behind those that were is found by the next read.
pub(super) async fn fill(
    partition: &PartitionView,
    until: Offset,
    reply: &mut ReplyRecords,
) -> Result<(), ReadError> {
    fill_on(partition, until, (reply, None)).await
}

/// As [`fill`], for one who will read on: a batch that is taken in part is kept at hand, and so it
/// may come from there.
pub(super) async fn fill_on(
    partition: &PartitionView,
    until: Offset,
    (reply, kept): (&mut ReplyRecords, Option<&OpenBatches>),
) -> Result<(), ReadError> {
    while reply.next() < until {
        if let Some(batch) = kept.and_then(|kept| kept.find(partition.id, reply.next()))
            && reply.next() >= partition.reader.start()
        {
            let source = source(partition, (batch.base_offset, batch.append_time));
            match reply.take(&source, &batch.records) {
                Ok(Taken::All) if reply.next() >= batch.end => continue,
                Ok(Taken::All | Taken::Full) => return Ok(()),
                Err(_) if reply.count() > 0 => return Ok(()),
                Err(error) => {
                    return Err(damaged(partition, (batch.base_offset, batch.end), &error));
                }
            }
        }
        let Some(limit) = read_limit(reply, until) else {
            return Ok(());
        };
        let batches = match read(&partition.reader, reply.next(), limit).await {
            Ok(batches) => batches,
            Err(_) if reply.count() > 0 => return Ok(()),
            Err(error) => return Err(error),
        };
        if batches.is_empty() {
            return Ok(());
        }
        for batch in &batches {
            match take(partition, batch, (reply, kept)) {
                Ok(Taken::All) => {}
                Ok(Taken::Full) => return Ok(()),
                Err(_) if reply.count() > 0 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        // Passing over records by key must not keep the edge from its other calls.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// How much to read for what a reply still takes; nothing when it is full. A batch holds a record
/// at least, and reading less than a disk gives at once saves nothing.
fn read_limit(reply: &ReplyRecords, until: Offset) -> Option<ReadLimit> {
    let (records, bytes) = reply.room();
    let batches_max = u32::try_from(records)
        .unwrap_or(u32::MAX)
        .min(READ_BATCHES_MAX);
    let bytes_max = u32::try_from(bytes).unwrap_or(u32::MAX);
    let bytes_max = bytes_max.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
    (records > 0).then_some(ReadLimit {
        bytes_max,
        batches_max,
        until,
    })
}

fn take(
    partition: &PartitionView,
    batch: &StoredBatch,
    (reply, kept): (&mut ReplyRecords, Option<&OpenBatches>),
) -> Result<Taken, ReadError> {
    let end = batch.base_offset.plus(u64::from(batch.record_count));
    let taken = Records::open(&batch.body, STORED_BATCH_BYTES_MAX).and_then(|records| {
        let source = source(partition, (batch.base_offset, batch.append_time));
        let taken = reply.take(&source, &records)?;
        if let Some(kept) = kept
            && reply.next() < end
        {
            let open = OpenRecords {
                base_offset: batch.base_offset,
                end,
                append_time: batch.append_time,
                records: records.to_owned_bytes(),
            };
            kept.keep(partition.id, open);
        }
        Ok(taken)
    });
    taken.map_err(|error| damaged(partition, (batch.base_offset, end), &error))
}

fn source(partition: &PartitionView, (base_offset, append_time): (Offset, WallMs)) -> RecordSource {
    RecordSource {
        partition: partition.id,
        base_offset,
        append_time,
    }
}

/// The records of a batch that cannot be read.
fn damaged(
    partition: &PartitionView,
    (base, end): (Offset, Offset),
    error: &BatchError,
) -> ReadError {
    tracing::error!(%error, partition = %partition.id, %base, "a stored batch is damaged");
    ReadError::Corrupt {
        first: base,
        last: end.minus(1),
    }
}

/// A batch that was read for single records of it.
pub(super) struct OpenBatch {
    stored: StoredBatch,
    records: Records,
}

/// The batch that holds the record at `offset`; none if there is no such record.
pub(super) async fn record_at(
    partition: &PartitionView,
    offset: Offset,
) -> Result<Option<OpenBatch>, ReadError> {
    let limit = ReadLimit {
        bytes_max: 1,
        batches_max: 1,
        until: offset.plus(1),
    };
    let batches = read(&partition.reader, offset, limit).await?;
    let Some(stored) = batches.into_iter().next() else {
        return Ok(None);
    };
    let records = Records::open(&stored.body, STORED_BATCH_BYTES_MAX).map_err(|_damaged| {
        let records = u64::from(stored.record_count);
        ReadError::Corrupt {
            first: stored.base_offset,
            last: stored.base_offset.plus(records.saturating_sub(1)),
        }
    })?;
    let open = OpenBatch { stored, records };
    Ok(open.holds(offset).then_some(open))
}

impl OpenBatch {
    /// When it was appended.
    pub(super) fn append_time(&self) -> WallMs {
        self.stored.append_time
    }

    /// Whether the record is one of the batch.
    pub(super) fn holds(&self, offset: Offset) -> bool {
        let first = self.stored.base_offset;
        let end = first.plus(u64::from(self.stored.record_count));
        (first..end).contains(&offset)
    }

    /// The record, if it is one of the batch and not behind a damaged one.
    pub(super) fn find(&self, offset: Offset) -> Option<RecordRef<'_>> {
        if !self.holds(offset) {
            return None;
        }
        let delta = offset.since(self.stored.base_offset);
        let mut records = self.records.iter().map_while(Result::ok);
        records.find(|record| u64::from(record.offset_delta) == delta)
    }
}

/// How many whole batches a reply may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchesLimit {
    /// Records, counted by whole batches.
    pub(super) records_max: u64,
    /// Bytes; a single batch may have more.
    pub(super) bytes_max: usize,
    /// Batches that begin here or behind are left out.
    pub(super) until: Offset,
}

/// Batches that were put into a reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchesTaken {
    /// Records in them.
    pub(super) records: u64,
    /// One past the last record.
    pub(super) next: Offset,
}

/// Puts whole batches from `from` on into `reply`, as field `field`.
pub(super) async fn fill_batches(
    partition: &PartitionView,
    from: Offset,
    limit: BatchesLimit,
    (reply, field): (&mut Payload, u32),
) -> Result<BatchesTaken, ReadError> {
    let mut taken = BatchesTaken {
        records: 0,
        next: from,
    };
    let bytes_max = u32::try_from(limit.bytes_max).unwrap_or(u32::MAX);
    let read_limit = ReadLimit {
        bytes_max,
        batches_max: READ_BATCHES_MAX,
        until: limit.until,
    };
    for batch in read(&partition.reader, from, read_limit).await? {
        let records = u64::from(batch.record_count);
        let is_over = taken.records + records > limit.records_max
            || reply.len() + batch.body.len() > limit.bytes_max;
        if taken.records > 0 && is_over {
            break;
        }
        stored_batch(reply, field, &batch);
        taken.records += records;
        taken.next = batch.base_offset.plus(records);
    }
    Ok(taken)
}
