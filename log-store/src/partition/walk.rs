//! From entry to entry of a segment, over what is damaged.
//!
//! Only headers are looked at. A header counts if its checksum is right and its offset is the one
//! that must follow; else the walk looks for the next that does and reports what lies between.

use std::io;

use crate::fs::File;
use crate::partition::entry::{ENTRY_HEADER_BYTES, EntryHeader, Seed};
use crate::partition::fields::{size, size_u32};
use crate::partition::file_header::FILE_HEADER_BYTES;
use crate::{Offset, WallMs};

/// Offsets that cannot be read, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OffsetRange {
    /// The first.
    pub first: Offset,
    /// The last.
    pub last: Offset,
}

/// An entry's place in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Where its header begins.
    pub(crate) position: u32,
    pub(crate) header: EntryHeader,
    /// The header's checksum.
    pub(crate) checksum: u32,
}

impl Placed {
    /// Where the next entry begins.
    pub(crate) fn next_position(&self) -> u32 {
        self.position.saturating_add(self.header.entry_bytes())
    }
}

/// One step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Entry(Placed),
    /// No entry could be found for these offsets; the walk goes on behind them.
    Damaged(OffsetRange),
}

/// How far a segment is known to reach: nothing at or behind either is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// One past its last offset.
    pub(crate) end: Offset,
    /// Its size.
    pub(crate) bytes: u32,
}

/// A place to start a walk: an entry begins there, if the log is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) position: u32,
    pub(crate) offset: Offset,
}

impl Spot {
    /// The first entry of the segment that begins at `base`.
    pub(crate) fn first(base: Offset) -> Self {
        Self {
            position: FILE_HEADER_BYTES,
            offset: base,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    file: &'a dyn File,
    seed: Seed,
    extent: Extent,
    at: Spot,
    window: Vec<u8>,
    window_position: u32,
    window_bytes: u32,
}

impl<'a> Walk<'a> {
    /// A walk from `at` that reads `window_bytes` at a time.
    pub(crate) fn new(
        file: &'a dyn File,
        seed: Seed,
        extent: Extent,
        at: Spot,
        window_bytes: u32,
    ) -> Self {
        let window_bytes = window_bytes.max(2 * ENTRY_HEADER_BYTES);
        Self {
            file,
            seed,
            extent,
            at,
            window: Vec::new(),
            window_position: 0,
            window_bytes,
        }
    }

    /// The append time of the entry that is expected next, if it is there.
    pub(crate) fn time_ahead(&mut self) -> io::Result<Option<WallMs>> {
        let found = self.entry_at(self.at.position)?;
        let ahead = found.filter(|found| found.header.base_offset == self.at.offset);
        Ok(ahead.map(|found| found.header.append_time))
    }

    /// The next entry, or what is damaged in front of it; `None` at the end.
    pub(crate) fn next_step(&mut self) -> io::Result<Option<Step>> {
        if self.at.offset >= self.extent.end {
            return Ok(None);
        }
        if let Some(found) = self.entry_at(self.at.position)?
            && found.header.base_offset == self.at.offset
        {
            self.pass(&found);
            return Ok(Some(Step::Entry(found)));
        }
        let first = self.at.offset;
        match self.search()? {
            Some(found) if found.header.base_offset == first => {
                self.pass(&found);
                Ok(Some(Step::Entry(found)))
            }
            Some(found) => {
                let offset = found.header.base_offset;
                self.at = Spot {
                    position: found.position,
                    offset,
                };
                Ok(Some(Step::Damaged(OffsetRange {
                    first,
                    last: offset.minus(1),
                })))
            }
            None => {
                self.at = Spot {
                    position: self.extent.bytes,
                    offset: self.extent.end,
                };
                let last = self.extent.end.minus(1);
                Ok(Some(Step::Damaged(OffsetRange { first, last })))
            }
        }
    }

    fn pass(&mut self, found: &Placed) {
        self.at = Spot {
            position: found.next_position(),
            offset: found.header.end(),
        };
    }

    /// The next header from here on that could follow, wherever it begins.
    fn search(&mut self) -> io::Result<Option<Placed>> {
        let mut position = self.at.position;
        while position.saturating_add(ENTRY_HEADER_BYTES) <= self.extent.bytes {
            if let Some(found) = self.entry_at(position)? {
                return Ok(Some(found));
            }
            if self.window_from(position).len() < size(ENTRY_HEADER_BYTES) {
                return Ok(None);
            }
            position = position.saturating_add(1);
        }
        Ok(None)
    }

    /// The entry whose header begins at `position`, if there is one that lies in the extent and is
    /// not behind the walk.
    fn entry_at(&mut self, position: u32) -> io::Result<Option<Placed>> {
        if self.window_from(position).len() < size(ENTRY_HEADER_BYTES) {
            self.fill(position)?;
        }
        let Some((header, checksum)) = self.seed.decode(self.window_from(position)) else {
            return Ok(None);
        };
        let found = Placed {
            position,
            header,
            checksum,
        };
        let within = header.base_offset >= self.at.offset
            && header.end() <= self.extent.end
            && found.next_position() <= self.extent.bytes;
        Ok(within.then_some(found))
    }

    /// What of the window lies at and behind `position`.
    fn window_from(&self, position: u32) -> &[u8] {
        let skip = position
            .checked_sub(self.window_position)
            .map_or(usize::MAX, size);
        self.window.get(skip..).unwrap_or_default()
    }

    fn fill(&mut self, position: u32) -> io::Result<()> {
        let bytes = self
            .extent
            .bytes
            .saturating_sub(position)
            .min(self.window_bytes);
        self.window.resize(size(bytes), 0);
        let read = self.file.read_at(&mut self.window, position.into())?;
        self.window.truncate(read);
        self.window_position = position;
        debug_assert!(
            size_u32(read) <= bytes,
            "a read fills no more than it was given"
        );
        Ok(())
    }
}
