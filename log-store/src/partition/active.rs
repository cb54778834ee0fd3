//! The segment that the writer adds to.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{STAMP_BYTES, read_header, stamped_head};
use crate::fs::{Dir, File};
use crate::layout::PartitionFile;
use crate::partition::entry::{ENTRY_HEADER_SIZE, EntryHeader, Seed};
use crate::partition::fields::size_u32;
use crate::partition::file_header::{
    FILE_HEADER_BYTES, FileKind, Identity, encode_file_header, is_segment_of,
};
use crate::partition::index::Spacing;
use crate::partition::index_file::{GrowingIndex, create_anew, write_sealed};
use crate::partition::manifest::SegmentManifest;
use crate::partition::segment::OpenSegment;
use crate::partition::shared::Shared;
use crate::partition::source::complete;
use crate::partition::stored::CommittedBatch;
use crate::partition::walk::Placed;
use crate::{Offset, WallMs};

/// Bodies up to this size are copied next to their headers; larger ones are written from where
/// they are.
const COPIED_BODY_BYTES_MAX: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Active {
    identity: Identity,
    seed: Seed,
    file: Arc<dyn File>,
    index: GrowingIndex,
    spacing: Spacing,
    open: Arc<OpenSegment>,
}

/// Why batches were not written.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// The body at this offset is no record batch of as many records as were announced.
    NotABatch(Offset),
    Io(io::Error),
}

impl From<io::Error> for AppendError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Active {
    /// Makes a segment without entries.
    pub(crate) fn create(
        folder: &dyn Dir,
        identity: Identity,
        interval_bytes: u32,
    ) -> io::Result<Self> {
        let file = create_anew(folder, &PartitionFile::Segment(identity.base).name())?;
        file.write_at(&encode_file_header(FileKind::Segment, &identity, 0), 0)?;
        let index = GrowingIndex::create(folder, &identity, &[])?;
        Ok(Self::new(
            identity,
            file,
            index,
            Spacing::new(interval_bytes),
        ))
    }

    /// Opens a segment to go on behind what `segment` says; `None` if it is not there as it says.
    pub(crate) fn reopen(
        folder: &dyn Dir,
        identity: Identity,
        segment: &SegmentManifest,
        interval_bytes: u32,
    ) -> io::Result<Option<Self>> {
        let file = match folder.open(&PartitionFile::Segment(identity.base).name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        if !is_as_stated(file.as_ref(), &identity, segment)? {
            return Ok(None);
        }
        file.set_len(segment.bytes.into())?;
        let known = complete(folder, file.as_ref(), &identity, segment.extent())?;
        let entries: Vec<_> = known.entries().collect();
        let index = GrowingIndex::reopen(folder, &identity, &entries)?;
        let spacing = Spacing::behind(interval_bytes, index.index());
        Ok(Some(Self::new(identity, file, index, spacing)))
    }

    fn new(identity: Identity, file: Arc<dyn File>, index: GrowingIndex, spacing: Spacing) -> Self {
        let seed = Seed::new(&identity);
        let open = open(&identity, &file, &index);
        Self {
            identity,
            seed,
            file,
            index,
            spacing,
            open,
        }
    }

    /// What readers use.
    pub(crate) fn open(&self) -> Arc<OpenSegment> {
        Arc::clone(&self.open)
    }

    pub(crate) fn file(&self) -> Arc<dyn File> {
        Arc::clone(&self.file)
    }

    /// Writes batches behind what `segment` says, `None` for nothing yet; returns what it then is.
    /// On an error it is what it was.
    pub(crate) fn append(
        &mut self,
        segment: Option<&SegmentManifest>,
        batches: &[CommittedBatch],
    ) -> Result<Option<SegmentManifest>, AppendError> {
        let position = segment.map_or(FILE_HEADER_BYTES, |segment| segment.bytes);
        let previous = segment.map_or(0, |segment| segment.checksum);
        let run = Run::encode(self.seed, position, previous, batches)?;
        let mut spacing = self.spacing;
        let entries: Vec<_> = run
            .placed
            .iter()
            .filter_map(|found| spacing.pass(found))
            .collect();
        if self.index.reserve(entries.len())? {
            self.open = open(&self.identity, &self.file, &self.index);
        }
        self.file.write_vectored_at(&run.parts(), position.into())?;
        for entry in &entries {
            self.index.push(entry);
        }
        self.spacing = spacing;
        Ok(run.placed.last().map(|last| SegmentManifest {
            base: self.identity.base,
            end: last.header.end(),
            bytes: last.next_position(),
            append_time_min: segment.map_or(run.time_first, |segment| segment.append_time_min),
            append_time_max: last.header.append_time,
            last_position: last.position,
            checksum: last.checksum,
            sealed: false,
        }))
    }

    /// Writes the files of its index in their final form. Where the disk refuses, the first reader
    /// builds them anew.
    pub(crate) fn seal_index(&self, shared: &Shared) {
        let folder = shared.open_folder();
        drop(folder.and_then(|f| write_sealed(f.as_ref(), &self.identity, self.index.index())));
    }
}

fn open(identity: &Identity, file: &Arc<dyn File>, index: &GrowingIndex) -> Arc<OpenSegment> {
    let (file, index) = (Arc::clone(file), index.index().clone());
    Arc::new(OpenSegment::new(
        identity.base,
        Seed::new(identity),
        file,
        index,
    ))
}

/// Whether a file holds what a manifest says of it, as its size, its header and its last entry,
/// which speaks for all before it, can show.
fn is_as_stated(
    file: &dyn File,
    identity: &Identity,
    segment: &SegmentManifest,
) -> io::Result<bool> {
    let Identity {
        folder,
        partition,
        base,
    } = *identity;
    let is_ours = is_segment_of(file, folder, partition, base)?;
    if !is_ours || file.len()? < u64::from(segment.bytes) {
        return Ok(false);
    }
    let mut last = [0; ENTRY_HEADER_SIZE];
    let read = file.read_at(&mut last, segment.last_position.into())?;
    let entry = Seed::new(identity).decode(last.get(..read).unwrap_or_default());
    Ok(entry.is_some_and(|(header, checksum)| {
        let placed = Placed {
            position: segment.last_position,
            header,
            checksum,
        };
        checksum == segment.checksum
            && header.end() == segment.end
            && placed.next_position() == segment.bytes
    }))
}

/// Batches as they go into a file: headers and small bodies in one buffer, large bodies from where
/// they are.
struct Run {
    buffer: Vec<u8>,
    pieces: Vec<Piece>,
    placed: Vec<Placed>,
    time_first: WallMs,
}

enum Piece {
    Buffered(Range<usize>),
    Shared(Bytes),
}

impl Piece {
    fn bytes<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Buffered(range) => buffer.get(range.clone()).unwrap_or_default(),
            Self::Shared(body) => body,
        }
    }
}

impl Run {
    fn encode(
        seed: Seed,
        mut position: u32,
        mut previous: u32,
        batches: &[CommittedBatch],
    ) -> Result<Self, AppendError> {
        let time_first = batches
            .first()
            .map_or(WallMs::default(), |first| first.append_time);
        let mut run = Self {
            buffer: Vec::new(),
            pieces: Vec::new(),
            placed: Vec::new(),
            time_first,
        };
        let mut piece_from = 0;
        for batch in batches {
            let header = entry_header(batch, previous)?;
            let stamped = stamped_head(&batch.body, batch.base_offset, batch.epoch)
                .ok_or(AppendError::NotABatch(batch.base_offset))?;
            previous = seed.encode(&header, &mut run.buffer);
            let placed = Placed {
                position,
                header,
                checksum: previous,
            };
            position = placed.next_position();
            run.placed.push(placed);
            run.buffer.extend_from_slice(&stamped);
            let rest = batch.body.slice(STAMP_BYTES..);
            if rest.len() <= COPIED_BODY_BYTES_MAX {
                run.buffer.extend_from_slice(&rest);
            } else {
                run.pieces
                    .push(Piece::Buffered(piece_from..run.buffer.len()));
                run.pieces.push(Piece::Shared(rest));
                piece_from = run.buffer.len();
            }
        }
        run.pieces
            .push(Piece::Buffered(piece_from..run.buffer.len()));
        Ok(run)
    }

    fn parts(&self) -> Vec<&[u8]> {
        self.pieces
            .iter()
            .map(|piece| piece.bytes(&self.buffer))
            .collect()
    }
}

fn entry_header(batch: &CommittedBatch, previous: u32) -> Result<EntryHeader, AppendError> {
    let body = read_header(&batch.body)
        .ok()
        .filter(|body| body.record_count == batch.record_count)
        .ok_or(AppendError::NotABatch(batch.base_offset))?;
    Ok(EntryHeader {
        body_bytes: size_u32(batch.body.len()),
        base_offset: batch.base_offset,
        append_time: batch.append_time,
        record_count: batch.record_count,
        epoch: batch.epoch,
        previous,
        body_crc: body.crc,
    })
}
