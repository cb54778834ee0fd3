//! Where readers get segments from.

use std::io;
use std::sync::Arc;

use crate::fs::{Dir, File};
use crate::layout::PartitionFile;
use crate::limits::INDEX_INTERVAL_BYTES;
use crate::partition::entry::Seed;
use crate::partition::file_header::{FileKind, HeaderFound, Identity, read_file_header};
use crate::partition::index::{Index, Spacing};
use crate::partition::index_file::{map_sealed, read_growing, write_sealed};
use crate::partition::manifest::SegmentManifest;
use crate::partition::segment::OpenSegment;
use crate::partition::shared::Shared;
use crate::partition::walk::{Extent, Spot, Step, Walk};

/// Bytes that a scan reads at a time.
const SCAN_WINDOW_BYTES: u32 = 64 * 1024;

impl Shared {
    /// The files of a segment: the writer's if it is being written, else those that are open
    /// already, else freshly opened ones.
    pub(crate) fn open_segment(&self, segment: &SegmentManifest) -> io::Result<Arc<OpenSegment>> {
        if let Some(open) = self.chain().open_active(segment.base) {
            return Ok(Arc::clone(open));
        }
        let files = &self.volume.files;
        let (base, extent) = (segment.base, segment.extent());
        if let Some(open) = files.get(self.token, base, extent) {
            return Ok(open);
        }
        let identity = self.identity(base);
        let folder = self.open_folder()?;
        let file = folder.open(&PartitionFile::Segment(base).name())?;
        check_version(file.as_ref(), &identity)?;
        let index = self.index_of(folder.as_ref(), file.as_ref(), &identity, segment)?;
        let open = Arc::new(OpenSegment::new(base, Seed::new(&identity), file, index));
        files.put(self.token, base, extent, Arc::clone(&open));
        if !self.is_listed(segment) {
            files.forget(self.token, base);
        }
        Ok(open)
    }

    /// Whether the chain still has the segment as it is known.
    fn is_listed(&self, segment: &SegmentManifest) -> bool {
        self.chain().segments_from(segment.base).next() == Some(segment)
    }

    /// The index of a segment from its files, or built anew. That of a sealed segment is then
    /// written, unless the segment is being removed; a disk that refuses it costs the next reader
    /// the same time again, and nothing else.
    fn index_of(
        &self,
        folder: &dyn Dir,
        file: &dyn File,
        identity: &Identity,
        segment: &SegmentManifest,
    ) -> io::Result<Index> {
        if let Some(index) = sealed_index(folder, file, identity, segment.extent())? {
            return Ok(index);
        }
        let _one_scans = self.index_scan();
        if let Some(index) = sealed_index(folder, file, identity, segment.extent())? {
            return Ok(index);
        }
        let index = complete(folder, file, identity, segment.extent())?;
        let _nothing_is_removed = self.index_files();
        if segment.sealed && self.is_listed(segment) {
            drop(write_sealed(folder, identity, &index));
        }
        Ok(index)
    }
}

/// The index as its files have it, if they are those of a sealed segment and not wrong.
fn sealed_index(
    folder: &dyn Dir,
    file: &dyn File,
    identity: &Identity,
    extent: Extent,
) -> io::Result<Option<Index>> {
    match map_sealed(folder, identity, extent) {
        Some(index) if last_is_true(file, Seed::new(identity), extent, &index)? => Ok(Some(index)),
        Some(_) | None => Ok(None),
    }
}

/// What the files of a growing segment know, and a scan of the rest.
pub(crate) fn complete(
    folder: &dyn Dir,
    file: &dyn File,
    identity: &Identity,
    extent: Extent,
) -> io::Result<Index> {
    let seed = Seed::new(identity);
    let known = read_growing(folder, identity, extent)?;
    while known.count() > 0 && !last_is_true(file, seed, extent, &known)? {
        known.truncate(known.count() / 2);
    }
    let mut entries: Vec<_> = known.entries().collect();
    let mut spacing = Spacing::behind(INDEX_INTERVAL_BYTES, &known);
    let from = entries
        .last()
        .map_or(Spot::first(identity.base), |last| last.spot);
    let mut walk = Walk::new(file, seed, extent, from, SCAN_WINDOW_BYTES);
    while let Some(step) = walk.next_step()? {
        if let Step::Entry(found) = step {
            entries.extend(spacing.pass(&found));
        }
    }
    let index = Index::in_memory(
        identity.base,
        u32::try_from(entries.len()).unwrap_or(u32::MAX),
    )?;
    for entry in &entries {
        index.push(entry);
    }
    Ok(index)
}

fn last_is_true(file: &dyn File, seed: Seed, extent: Extent, index: &Index) -> io::Result<bool> {
    let last = index.count().checked_sub(1).and_then(|at| index.get(at));
    let Some(last) = last else { return Ok(false) };
    let ahead = Walk::new(file, seed, extent, last.spot, 0).time_ahead()?;
    Ok(ahead == Some(last.time))
}

/// Refuses a segment of a later version. A header that is damaged, or another segment's, needs no
/// refusal: each entry proves by itself whose it is.
fn check_version(file: &dyn File, identity: &Identity) -> io::Result<()> {
    let mut bytes = [0; 64];
    let read = file.read_at(&mut bytes, 0)?;
    let found = bytes.get(..read).unwrap_or_default();
    match read_file_header(FileKind::Segment, identity, found) {
        HeaderFound::Unsupported { version } => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "segment {} has version {version}, which is not known here",
                identity.base
            ),
        )),
        HeaderFound::Ours { .. } | HeaderFound::Foreign | HeaderFound::Damaged => Ok(()),
    }
}
