//! Batches in the making for one partition.

use varvelog_store::PartitionId;
use varvelog_store::batch::{BatchBuilder, BatchError, Codec, HEADER_BYTES, RecordRef};

use super::super::command::AppendPart;
use super::super::message_ids::PartIds;

/// Most bytes of a part before compression, unless a single record is larger.
pub const PART_BYTES_MAX: usize = 4 << 20;
/// Most records of a part.
pub const PART_RECORDS_MAX: usize = 10_000;

/// Smaller batches are not worth compressing.
const COMPRESSED_FROM_BYTES: usize = 4 << 10;
/// Room of a batch that begins.
const ROOM_BYTES: usize = 4 << 10;
/// What a record takes beside its content, at most: seven numbers, and two for each header.
const RECORD_FRAME_BYTES: usize = 40;
const HEADER_FRAME_BYTES: usize = 10;

/// Parts for one partition, in order, with an `E` for each record.
#[derive(Debug)]
pub(super) struct Parts<E> {
    partition: PartitionId,
    open: BatchBuilder,
    entries: Vec<E>,
    done: Vec<(AppendPart, Vec<E>)>,
}

/// What a record takes in a batch, at most.
pub(super) fn record_bytes<'h>(
    record: &RecordRef<'_>,
    headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)>,
) -> usize {
    let bytes = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = headers.map(|(name, value)| name.len() + bytes(value) + HEADER_FRAME_BYTES);
    bytes(record.key) + bytes(record.value) + headers.sum::<usize>() + RECORD_FRAME_BYTES
}

impl<E> Parts<E> {
    pub(super) fn new(partition: PartitionId) -> Self {
        Self {
            partition,
            open: empty(),
            entries: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Adds a record that takes `bytes`, and what goes with it.
    pub(super) fn push<'h>(
        &mut self,
        record: &RecordRef<'_>,
        headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
        bytes: usize,
        entry: E,
    ) -> Result<(), BatchError> {
        let count = usize::try_from(self.open.record_count()).unwrap_or(usize::MAX);
        if count > 0 && (count >= PART_RECORDS_MAX || self.open.bytes() + bytes > PART_BYTES_MAX) {
            self.close()?;
        }
        if let Err(error) = self.add(record, headers.clone()) {
            // Timestamps that are too far apart for one batch are not for two.
            if self.open.record_count() == 0 {
                return Err(error);
            }
            self.close()?;
            self.add(record, headers)?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// All of them.
    pub(super) fn finish(mut self) -> Result<Vec<(AppendPart, Vec<E>)>, BatchError> {
        self.close()?;
        Ok(self.done)
    }

    fn add<'h>(
        &mut self,
        record: &RecordRef<'_>,
        headers: impl Iterator<Item = (&'h [u8], Option<&'h [u8]>)> + Clone,
    ) -> Result<(), BatchError> {
        let timestamp_ms = Some(record.timestamp_ms);
        self.open
            .push(timestamp_ms, record.key, record.value, headers)
    }

    fn close(&mut self) -> Result<(), BatchError> {
        let record_count = self.open.record_count();
        if record_count == 0 {
            return Ok(());
        }
        let mut batch = std::mem::replace(&mut self.open, empty());
        if batch.bytes() >= COMPRESSED_FROM_BYTES {
            batch.set_codec(Codec::Lz4);
        }
        let part = AppendPart {
            partition: self.partition,
            record_count,
            producer: None,
            predicted: None,
            delays: Vec::new(),
            ids: PartIds::default(),
            body: batch.finish()?,
        };
        self.done.push((part, std::mem::take(&mut self.entries)));
        Ok(())
    }
}

fn empty() -> BatchBuilder {
    BatchBuilder::new(Codec::None, ROOM_BYTES)
}

const _: () = assert!(HEADER_BYTES < COMPRESSED_FROM_BYTES);
