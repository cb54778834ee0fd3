//! Committed batches that are in memory only, and the end that readers see.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::partition::shared::Shared;
use crate::partition::stored::{CommittedBatch, StoredBatch};
use crate::partition::take::Take;
use crate::{Offset, WallMs};

/// The batches behind the flushed end, without a gap. Guarded by a mutex that is held for no longer
/// than it takes to move pointers.
#[derive(Debug)]
pub(crate) struct Tail {
    /// Where it begins: the flushed end.
    base: Offset,
    end: Offset,
    /// Append time of the last batch in front of the tail.
    base_time: WallMs,
    /// Append time of the last batch.
    end_time: WallMs,
    bytes: u64,
    batches: VecDeque<CommittedBatch>,
}

impl Tail {
    pub(crate) fn new(base: Offset, base_time: WallMs) -> Self {
        let batches = VecDeque::new();
        Self {
            base,
            end: base,
            base_time,
            end_time: base_time,
            bytes: 0,
            batches,
        }
    }

    pub(crate) fn base(&self) -> Offset {
        self.base
    }

    pub(crate) fn base_time(&self) -> WallMs {
        self.base_time
    }

    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// Bytes of the bodies.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn push(&mut self, mut batch: CommittedBatch) {
        assert_eq!(
            batch.base_offset, self.end,
            "a batch begins where the partition ends"
        );
        assert!(batch.record_count > 0, "a batch holds records");
        self.end_time = self.end_time.max(batch.append_time);
        batch.append_time = self.end_time;
        self.end = batch.end();
        self.bytes += batch.body_bytes();
        self.batches.push_back(batch);
    }

    /// The first batches, of about `bytes_max` in all, at least one if there is any.
    pub(crate) fn front(&self, batches_max: usize, bytes_max: u64) -> Vec<CommittedBatch> {
        let mut bytes = 0;
        let mut run = Vec::new();
        for batch in self.batches.iter().take(batches_max) {
            bytes += batch.body_bytes();
            if bytes > bytes_max && !run.is_empty() {
                break;
            }
            run.push(batch.clone());
        }
        run
    }

    /// Drops what lies wholly in front of `until`; returns the bytes of the bodies.
    pub(crate) fn drop_front(&mut self, until: Offset) -> u64 {
        let mut dropped = 0;
        while let Some(batch) = self.batches.front()
            && batch.end() <= until
        {
            dropped += batch.body_bytes();
            self.base = batch.end();
            self.base_time = batch.append_time;
            self.batches.pop_front();
        }
        self.bytes -= dropped;
        dropped
    }

    /// Adds the batches from the one that holds `from` on, if it is not in front of the tail;
    /// false if it is.
    pub(crate) fn read(&self, from: Offset, take: &mut Take, out: &mut Vec<StoredBatch>) -> bool {
        if from < self.base {
            return false;
        }
        let first = self.batches.partition_point(|batch| batch.end() <= from);
        for batch in self.batches.range(first..) {
            if take.is_done() || !take.admit(batch.base_offset, batch.body.len()) {
                break;
            }
            out.push(batch.into());
        }
        true
    }

    /// The first batch whose append time is at or after `time` and that ends behind `from`.
    pub(crate) fn first_at_or_after(&self, time: WallMs, from: Offset) -> Option<(Offset, WallMs)> {
        let at = self
            .batches
            .partition_point(|batch| batch.append_time < time || batch.end() <= from);
        let batch = self.batches.get(at)?;
        Some((batch.base_offset.max(from), batch.append_time))
    }

    /// The append time of the batch that holds `offset`.
    pub(crate) fn time_at(&self, offset: Offset) -> Option<WallMs> {
        let at = self.batches.partition_point(|batch| batch.end() <= offset);
        let batch = self.batches.get(at)?;
        (batch.base_offset <= offset).then_some(batch.append_time)
    }
}

/// The side of a partition that committed batches come in by. One owner, who applies commands; it
/// never waits for the disk.
#[derive(Debug)]
pub struct TailAppender {
    shared: Arc<Shared>,
}

impl TailAppender {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Adds a batch, which readers see at once.
    ///
    /// Panics if it does not begin at [`TailAppender::end`]: then the state that assigned its
    /// offset is not the state of this log.
    pub fn push(&mut self, batch: CommittedBatch) {
        let bytes = batch.body_bytes();
        let mut tail = self.shared.tail();
        tail.push(batch);
        self.shared.publish_end(tail.end());
        drop(tail);
        self.shared.count_unflushed(bytes);
    }

    /// One past the last record.
    pub fn end(&self) -> Offset {
        self.shared.end()
    }

    /// Moves the start that readers see, at once and never back. Files follow when the writer is
    /// told.
    pub fn set_start(&mut self, start: Offset) {
        self.shared.raise_start(start);
    }

    /// Bytes of bodies that are not flushed.
    pub fn unflushed_bytes(&self) -> u64 {
        self.shared.tail().bytes()
    }
}
