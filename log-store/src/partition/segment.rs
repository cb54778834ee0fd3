//! A segment that is open for reading.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::fs::File;
use crate::limits::READ_CHUNK_BYTES;
use crate::partition::body;
use crate::partition::entry::{ENTRY_HEADER_BYTES, EntryHeader, Seed};
use crate::partition::fields::{size, size_u32};
use crate::partition::index::Index;
use crate::partition::stored::StoredBatch;
use crate::partition::take::Take;
use crate::partition::walk::{Extent, OffsetRange, Placed, Spot, Step, Walk};
use crate::{Offset, WallMs};

/// Bytes that a look-up reads at a time: two index intervals.
const LOOKUP_WINDOW_BYTES: u32 = 8 * 1024;

/// Why a segment could not be read.
#[derive(Debug)]
pub(crate) enum SegmentError {
    /// These offsets are damaged; others may be whole.
    Damaged(OffsetRange),
    Io(io::Error),
}

impl From<io::Error> for SegmentError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// See the module. Every read says how far the segment reaches: nothing behind is looked at.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    base: Offset,
    seed: Seed,
    file: Arc<dyn File>,
    index: Index,
    /// Where a read ended, as a word of the index: the next one of a reader that goes on there
    /// needs no look-up. A guess that is checked like any other.
    resume: AtomicU64,
}

/// What a piece of the log brought.
enum Chunk {
    /// At least one batch; the next entry begins there.
    Next(u32),
    /// The next batch was not admitted.
    Full,
    /// The first entry is not whole, or not the one expected.
    Damaged,
}

impl OpenSegment {
    pub(crate) fn new(base: Offset, seed: Seed, file: Arc<dyn File>, index: Index) -> Self {
        Self {
            base,
            seed,
            file,
            index,
            resume: AtomicU64::new(0),
        }
    }

    /// Adds whole batches, from the one that holds `from` on, to `out`, as `take` admits. Damage is
    /// an error only where `out` is empty.
    pub(crate) fn read(
        &self,
        extent: Extent,
        from: Offset,
        take: &mut Take,
        out: &mut Vec<StoredBatch>,
    ) -> Result<(), SegmentError> {
        let guess = self.guess(from);
        let mut is_guess = guess.is_some();
        let mut at = guess.map_or_else(|| self.find_spot(extent, from), Ok)?;
        while !take.is_done() && at.offset < extent.end && at.offset < take.until() {
            match self.read_chunk(extent, at, take, out)? {
                Chunk::Next(position) => {
                    let offset = out.last().map_or(at.offset, StoredBatch::end);
                    at = Spot { position, offset };
                }
                Chunk::Damaged if is_guess => at = self.find_spot(extent, from)?,
                Chunk::Damaged if out.is_empty() => return Err(self.damage_at(extent, at)?),
                Chunk::Full | Chunk::Damaged => break,
            }
            is_guess = false;
        }
        self.resume.store(self.word(at), Ordering::Relaxed);
        Ok(())
    }

    /// The header of the entry that holds `offset`.
    pub(crate) fn header_at(
        &self,
        extent: Extent,
        offset: Offset,
    ) -> Result<EntryHeader, SegmentError> {
        self.find(extent, offset).map(|found| found.header)
    }

    /// The first record at or behind `from` whose append time is at or after `time`. Damage is an
    /// error only where the answer may lie in it.
    pub(crate) fn first_at_or_after(
        &self,
        extent: Extent,
        time: WallMs,
        from: Offset,
    ) -> Result<Option<(Offset, WallMs)>, SegmentError> {
        let by_time = self.index.before_time(time);
        let by_offset = self.index.up_to_offset(from);
        let mut walk = self.walk_from(extent, by_time.max(by_offset))?;
        let mut doubt = None;
        while let Some(step) = walk.next_step()? {
            match step {
                Step::Damaged(range) if range.last >= from => doubt = doubt.or(Some(range)),
                Step::Damaged(_) => {}
                Step::Entry(found) if found.header.append_time < time => doubt = None,
                Step::Entry(found) if found.header.end() <= from => doubt = None,
                Step::Entry(found) => {
                    let offset = found.header.base_offset.max(from);
                    let answer = Ok(Some((offset, found.header.append_time)));
                    return doubt.map_or(answer, |range| Err(SegmentError::Damaged(range)));
                }
            }
        }
        doubt.map_or(Ok(None), |range| Err(SegmentError::Damaged(range)))
    }

    /// The last entry in front of `offset`, which must be the end of one.
    pub(crate) fn last_before(
        &self,
        extent: Extent,
        offset: Offset,
    ) -> Result<Placed, SegmentError> {
        self.find(extent, offset.minus(1))
    }

    fn find_spot(&self, extent: Extent, offset: Offset) -> Result<Spot, SegmentError> {
        let found = self.find(extent, offset)?;
        Ok(Spot {
            position: found.position,
            offset: found.header.base_offset,
        })
    }

    /// The entry that holds `offset`.
    fn find(&self, extent: Extent, offset: Offset) -> Result<Placed, SegmentError> {
        let mut walk = self.walk_from(extent, self.index.up_to_offset(offset))?;
        while let Some(step) = walk.next_step()? {
            match step {
                Step::Entry(found) if found.header.end() > offset => return Ok(found),
                Step::Damaged(range) if range.last >= offset => {
                    return Err(SegmentError::Damaged(range));
                }
                Step::Entry(_) | Step::Damaged(_) => {}
            }
        }
        Err(SegmentError::Damaged(OffsetRange {
            first: offset,
            last: offset,
        }))
    }

    /// A walk from the last of the first `entries` of the index that tells the truth, sought in
    /// steps that double; from the front of the segment if none does.
    fn walk_from(&self, extent: Extent, entries: u32) -> io::Result<Walk<'_>> {
        let mut back = 1;
        while let Some(entry) = entries.checked_sub(back).and_then(|at| self.index.get(at)) {
            let mut walk = self.walk(extent, entry.spot);
            if walk.time_ahead()? == Some(entry.time) {
                return Ok(walk);
            }
            back = back.saturating_mul(2);
        }
        Ok(self.walk(extent, Spot::first(self.base)))
    }

    fn walk(&self, extent: Extent, from: Spot) -> Walk<'_> {
        Walk::new(
            self.file.as_ref(),
            self.seed,
            extent,
            from,
            LOOKUP_WINDOW_BYTES,
        )
    }

    /// What is damaged at `at`, where an entry should begin.
    fn damage_at(&self, extent: Extent, at: Spot) -> io::Result<SegmentError> {
        let range = match self.walk(extent, at).next_step()? {
            Some(Step::Damaged(range)) => range,
            Some(Step::Entry(found)) => OffsetRange {
                first: found.header.base_offset,
                last: found.header.last(),
            },
            None => OffsetRange {
                first: at.offset,
                last: at.offset,
            },
        };
        Ok(SegmentError::Damaged(range))
    }

    /// Reads a piece of the log that begins at `at`, and adds what is whole in it.
    fn read_chunk(
        &self,
        extent: Extent,
        at: Spot,
        take: &mut Take,
        out: &mut Vec<StoredBatch>,
    ) -> io::Result<Chunk> {
        let wanted = take
            .bytes_left()
            .saturating_add(LOOKUP_WINDOW_BYTES)
            .min(self.bytes_up_to(at, take.until()))
            .min(READ_CHUNK_BYTES);
        let mut chunk = self.read_bytes(extent, at.position, wanted)?;
        if let Some((first, _)) = self.seed.decode(&chunk)
            && size_u32(chunk.len()) < first.entry_bytes()
        {
            chunk = self.read_bytes(extent, at.position, first.entry_bytes())?;
        }
        let mut passed = 0;
        let mut next = at.offset;
        while let Some((header, body)) = self.entry_in(&chunk, passed) {
            let is_next = header.base_offset == next && header.end() <= extent.end;
            if !is_next || !body::is_whole(&body, &header) {
                break;
            }
            if !take.admit(header.base_offset, body.len()) {
                return Ok(if passed == 0 {
                    Chunk::Full
                } else {
                    next_chunk(at, passed)
                });
            }
            next = header.end();
            passed = passed.saturating_add(header.entry_bytes());
            out.push(stored(&header, body));
        }
        Ok(if passed == 0 {
            Chunk::Damaged
        } else {
            next_chunk(at, passed)
        })
    }

    /// Bytes from `at` to where, as the index has it, nothing begins any more that lies in front of
    /// `until`; at least a look-up's window. One that is wrong costs another read.
    fn bytes_up_to(&self, at: Spot, until: Offset) -> u32 {
        let in_front = self.index.up_to_offset(until.minus(1).max(at.offset));
        let behind = self.index.get(in_front);
        behind.map_or(u32::MAX, |entry| {
            let bytes = entry.spot.position.saturating_sub(at.position);
            bytes.max(LOOKUP_WINDOW_BYTES)
        })
    }

    /// The entry whose header begins `passed` bytes into `chunk`, if all of it is there.
    fn entry_in(&self, chunk: &Bytes, passed: u32) -> Option<(EntryHeader, Bytes)> {
        let (header, _) = self.seed.decode(chunk.get(size(passed)..)?)?;
        let from = passed.saturating_add(ENTRY_HEADER_BYTES);
        let until = passed.saturating_add(header.entry_bytes());
        (size(until) <= chunk.len()).then(|| (header, chunk.slice(size(from)..size(until))))
    }

    /// Up to `bytes` of the log at `position`; fewer where it ends.
    fn read_bytes(&self, extent: Extent, position: u32, bytes: u32) -> io::Result<Bytes> {
        let bytes = bytes.min(extent.bytes.saturating_sub(position));
        let mut chunk = vec![0; size(bytes)];
        let read = self.file.read_at(&mut chunk, position.into())?;
        chunk.truncate(read);
        Ok(chunk.into())
    }

    /// Where `offset` begins, if the last read ended there.
    fn guess(&self, offset: Offset) -> Option<Spot> {
        let word = self.resume.load(Ordering::Relaxed);
        let position = u32::try_from(word & u64::from(u32::MAX)).ok()?;
        (word != 0 && self.base.plus(word >> 32) == offset).then_some(Spot { position, offset })
    }

    fn word(&self, spot: Spot) -> u64 {
        (spot.offset.since(self.base) << 32) | u64::from(spot.position)
    }
}

fn next_chunk(at: Spot, passed: u32) -> Chunk {
    Chunk::Next(at.position.saturating_add(passed))
}

fn stored(header: &EntryHeader, body: Bytes) -> StoredBatch {
    StoredBatch {
        base_offset: header.base_offset,
        record_count: header.record_count,
        epoch: header.epoch,
        append_time: header.append_time,
        body,
    }
}
