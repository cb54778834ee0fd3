//! From an offset or a time to a place in a segment, or a little before it.
//!
//! About every 4 KiB of log has an entry: one word holds its offset, relative to the segment, and
//! its position; the word at the same place of the time index holds its append time. The writer
//! stores both words and then the count, which lives in memory; a reader loads the count first. An
//! index proves nothing: whoever follows it checks the entry that it finds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapped::{Mapped, WORD_BYTES};
use crate::partition::file_header::FILE_HEADER_BYTES;
use crate::partition::walk::{Placed, Spot};
use crate::{Offset, WallMs};

/// What the index knows of one entry of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) spot: Spot,
    pub(crate) time: WallMs,
}

/// The words of an index file, behind its header.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    mapped: Mapped,
    skip: u64,
}

impl Words {
    /// Of a mapped file.
    pub(crate) fn of_file(mapped: Mapped) -> Self {
        Self {
            mapped,
            skip: u64::from(FILE_HEADER_BYTES) / WORD_BYTES,
        }
    }

    /// Zeros in memory.
    pub(crate) fn in_memory(count: u32) -> io::Result<Self> {
        let mapped = Mapped::in_memory(u64::from(count.max(1)) * WORD_BYTES)?;
        Ok(Self { mapped, skip: 0 })
    }

    pub(crate) fn load(&self, at: u32) -> Option<u64> {
        self.mapped.load(self.skip + u64::from(at))
    }

    /// Sets a word; false if there is none.
    pub(crate) fn store(&self, at: u32, word: u64) -> bool {
        self.mapped.store(self.skip + u64::from(at), word).is_ok()
    }

    pub(crate) fn count(&self) -> u32 {
        let count = self.mapped.len_words().saturating_sub(self.skip);
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

/// See the module. Clones share the entries.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    base: Offset,
    offsets: Words,
    times: Words,
    count: Arc<AtomicU32>,
}

impl Index {
    /// An index whose first `count` entries are in `offsets` and `times`.
    pub(crate) fn new(base: Offset, offsets: Words, times: Words, count: u32) -> Self {
        Self {
            base,
            offsets,
            times,
            count: Arc::new(AtomicU32::new(count)),
        }
    }

    /// An index without entries and with room for `capacity`.
    pub(crate) fn in_memory(base: Offset, capacity: u32) -> io::Result<Self> {
        Ok(Self::new(
            base,
            Words::in_memory(capacity)?,
            Words::in_memory(capacity)?,
            0,
        ))
    }

    pub(crate) fn base(&self) -> Offset {
        self.base
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Acquire)
    }

    /// How many more fit.
    pub(crate) fn room(&self) -> u32 {
        self.offsets
            .count()
            .min(self.times.count())
            .saturating_sub(self.count())
    }

    /// The words of the two files, for one entry each.
    pub(crate) fn words_of(&self, entry: &IndexEntry) -> Option<[u64; 2]> {
        let relative = u32::try_from(entry.spot.offset.since(self.base)).ok()?;
        let place = (u64::from(relative) << 32) | u64::from(entry.spot.position);
        Some([place, u64::from_le_bytes(entry.time.0.to_le_bytes())])
    }

    /// Adds an entry, by the single writer; false if it does not fit.
    pub(crate) fn push(&self, entry: &IndexEntry) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        let stored = self.words_of(entry).is_some_and(|[place, time]| {
            self.offsets.store(count, place) && self.times.store(count, time)
        });
        if stored {
            self.count.store(count.saturating_add(1), Ordering::Release);
        }
        stored
    }

    /// Sets all words behind the entries to zero, by the single writer.
    pub(crate) fn clear_rest(&self) {
        for words in [&self.offsets, &self.times] {
            for at in self.count()..words.count() {
                if words.load(at) != Some(0) {
                    words.store(at, 0);
                }
            }
        }
    }

    /// Forgets the entries from `count` on; only before anyone shares the index.
    pub(crate) fn truncate(&self, count: u32) {
        self.count.fetch_min(count, Ordering::AcqRel);
    }

    /// The entry at a place, from 0; what lies behind the count may be anything.
    pub(crate) fn get(&self, at: u32) -> Option<IndexEntry> {
        let place = self.offsets.load(at)?;
        let time = WallMs(i64::from_le_bytes(self.times.load(at)?.to_le_bytes()));
        let offset = self.base.plus(place >> 32);
        let position = u32::try_from(place & u64::from(u32::MAX)).ok()?;
        Some(IndexEntry {
            spot: Spot { position, offset },
            time,
        })
    }

    /// The entries in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = IndexEntry> {
        (0..self.count()).map_while(|at| self.get(at))
    }

    /// How many entries from the front are at or before `offset`.
    pub(crate) fn up_to_offset(&self, offset: Offset) -> u32 {
        self.partition_point(|entry| entry.spot.offset <= offset)
    }

    /// How many entries from the front are earlier than `time`.
    pub(crate) fn before_time(&self, time: WallMs) -> u32 {
        self.partition_point(|entry| entry.time < time)
    }

    fn partition_point(&self, holds: impl Fn(&IndexEntry) -> bool) -> u32 {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle).is_some_and(|entry| holds(&entry)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Which entries of the log the index has: the first, and then the first of each interval.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spacing {
    interval_bytes: u32,
    /// From where on an entry is indexed.
    due: u32,
}

impl Spacing {
    /// From the front of a segment.
    pub(crate) fn new(interval_bytes: u32) -> Self {
        Self {
            interval_bytes,
            due: 0,
        }
    }

    /// Goes on behind the last entry of `index`.
    pub(crate) fn behind(interval_bytes: u32, index: &Index) -> Self {
        let last = index.count().checked_sub(1).and_then(|at| index.get(at));
        let due = last.map_or(0, |last| last.spot.position.saturating_add(interval_bytes));
        Self {
            interval_bytes,
            due,
        }
    }

    /// What the index has to say about `found`, if anything.
    pub(crate) fn pass(&mut self, found: &Placed) -> Option<IndexEntry> {
        (found.position >= self.due).then(|| {
            self.due = found.position.saturating_add(self.interval_bytes);
            let spot = Spot {
                position: found.position,
                offset: found.header.base_offset,
            };
            IndexEntry {
                spot,
                time: found.header.append_time,
            }
        })
    }
}
