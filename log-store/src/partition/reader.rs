//! Reading a partition, from any thread.

use std::io;
use std::sync::Arc;

use crate::partition::error::ReadError;
use crate::partition::manifest::SegmentManifest;
use crate::partition::segment::{OpenSegment, SegmentError};
use crate::partition::shared::Shared;
use crate::partition::stored::{SegmentInfo, StoredBatch};
use crate::partition::take::{ReadLimit, Take};
use crate::{Offset, WallMs};

/// Sees what is committed: from the files what is flushed, from the tail what is not yet. Clones
/// are cheap and read the same partition.
#[derive(Debug, Clone)]
pub struct PartitionReader {
    shared: Arc<Shared>,
}

impl PartitionReader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The first offset that may be read.
    pub fn start(&self) -> Offset {
        self.shared.start()
    }

    /// One past the last record.
    pub fn end(&self) -> Offset {
        self.shared.end()
    }

    /// Whether a read from `offset` on touches no file: it lies in the tail, or behind the end.
    pub fn is_in_memory(&self, offset: Offset) -> bool {
        self.shared.tail().base() <= offset
    }

    /// Whole batches in order and without a gap, from the one that holds `from` on. Empty at the
    /// end; else at least one batch, whatever its size, unless `from` is not in front of
    /// `limit.until`.
    pub fn read(&self, from: Offset, limit: ReadLimit) -> Result<Vec<StoredBatch>, ReadError> {
        let start = self.start();
        let mut take = Take::new(limit);
        let mut out = Vec::new();
        // The tail first: what it has no more is in the chain by then.
        let (is_done, end) = {
            let tail = self.shared.tail();
            let is_done = from >= limit.until || tail.read(from, &mut take, &mut out);
            (is_done, tail.end())
        };
        if from < start || from > end {
            return Err(ReadError::OutOfRange { start, end });
        }
        if is_done {
            return Ok(out);
        }
        let next = self.read_chain(from, &mut take, &mut out);
        if out.is_empty() && from < self.start() {
            // What was to be read went while it was looked for.
            return Err(ReadError::OutOfRange {
                start: self.start(),
                end,
            });
        }
        let next = next?;
        if !take.is_done() && next == self.shared.chain().end() {
            self.shared.tail().read(next, &mut take, &mut out);
        }
        Ok(out)
    }

    /// The first record whose append time is at or after `time`, and that time; `None` if there is
    /// none.
    pub fn first_at_or_after(&self, time: WallMs) -> Result<Option<(Offset, WallMs)>, ReadError> {
        let start = self.start();
        let in_tail = self.shared.tail().first_at_or_after(time, start);
        let chain = self.shared.chain();
        for segment in chain
            .segments_since(time)
            .filter(|segment| segment.end > start)
        {
            let found = self.open(segment).and_then(|open| {
                open.first_at_or_after(segment.extent(), time, start)
                    .map_err(ReadError::from)
            });
            match found {
                // It went while it was searched.
                Err(_) if segment.end <= self.start() => {}
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => return Err(error),
            }
        }
        Ok(in_tail)
    }

    /// The append time of the batch that holds `offset`; `None` outside start and end.
    pub fn append_time_at(&self, offset: Offset) -> Result<Option<WallMs>, ReadError> {
        if offset < self.start() || offset >= self.end() {
            return Ok(None);
        }
        if let Some(time) = self.shared.tail().time_at(offset) {
            return Ok(Some(time));
        }
        let chain = self.shared.chain();
        let Some(segment) = chain.segments_from(offset).next() else {
            return Ok(None);
        };
        let header = self.open(segment).and_then(|open| {
            open.header_at(segment.extent(), offset)
                .map_err(ReadError::from)
        });
        match header {
            Ok(header) => Ok(Some(header.append_time)),
            Err(_) if offset < self.start() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The segments by offset; what is in the tail belongs to none yet.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.shared
            .chain()
            .segments()
            .map(SegmentManifest::info)
            .collect()
    }

    /// Bytes on disk and in the tail.
    pub fn bytes(&self) -> u64 {
        let unflushed = self.unflushed_bytes();
        self.shared.chain().bytes().saturating_add(unflushed)
    }

    /// Bytes of bodies in the tail.
    pub fn unflushed_bytes(&self) -> u64 {
        self.shared.tail().bytes()
    }

    /// Reads from the segments; returns where the next record would be.
    fn read_chain(
        &self,
        from: Offset,
        take: &mut Take,
        out: &mut Vec<StoredBatch>,
    ) -> Result<Offset, ReadError> {
        let chain = self.shared.chain();
        let mut next = from;
        for segment in chain.segments_from(from) {
            if take.is_done() || next >= take.until() {
                break;
            }
            if segment.base > next {
                return gap(next, segment, out);
            }
            let read = self.open(segment).and_then(|open| {
                open.read(segment.extent(), next, take, out)
                    .map_err(ReadError::from)
            });
            match read {
                Err(error) if out.is_empty() => return Err(error),
                Err(_) => break,
                Ok(()) => next = out.last().map_or(next, StoredBatch::end),
            }
            if next < segment.end {
                break;
            }
        }
        Ok(next)
    }

    fn open(&self, segment: &SegmentManifest) -> Result<Arc<OpenSegment>, ReadError> {
        match self.shared.open_segment(segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ReadError::Corrupt {
                first: segment.base,
                last: segment.end.minus(1),
            }),
            other => Ok(other?),
        }
    }
}

/// A hole in the chain: what was there went, or the chain is broken.
fn gap(next: Offset, segment: &SegmentManifest, out: &[StoredBatch]) -> Result<Offset, ReadError> {
    if out.is_empty() {
        Err(ReadError::Corrupt {
            first: next,
            last: segment.base.minus(1),
        })
    } else {
        Ok(next)
    }
}

impl From<SegmentError> for ReadError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Damaged(range) => Self::Corrupt {
                first: range.first,
                last: range.last,
            },
            SegmentError::Io(error) => Self::Io(error),
        }
    }
}
