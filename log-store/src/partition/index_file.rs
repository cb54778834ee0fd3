//! The two files of an index.
//!
//! While its segment grows they are preallocated in steps that double and mapped; entries end at
//! the first word that is zero. Once the segment is sealed they are written anew, without room to
//! spare, their count in the header and a checksum behind the last word. Neither is ever synced:
//! whatever a crash leaves is judged when it is read, and built again from the segment when in
//! doubt. A file is made under a temporary name, so that none is changed while someone maps it. A
//! segment that is gone on with keeps its files: readers that still map them know how many entries
//! they have, and those are stored again as they are.

use std::io;
use std::sync::Arc;

use crate::fs::{Dir, File, read_whole};
use crate::layout::{PartitionFile, temporary};
use crate::limits::{INDEX_FILE_BYTES_MAX, INDEX_FILE_BYTES_MIN};
use crate::mapped::WORD_BYTES;
use crate::partition::fields::Fields;
use crate::partition::file_header::{
    FILE_HEADER_BYTES, FileKind, HeaderFound, Identity, encode_file_header, read_file_header,
};
use crate::partition::index::{Index, IndexEntry, Words};
use crate::partition::walk::Extent;

const KINDS: [FileKind; 2] = [FileKind::Index, FileKind::TimeIndex];

fn name(kind: FileKind, identity: &Identity) -> String {
    let file = match kind {
        FileKind::Segment => PartitionFile::Segment(identity.base),
        FileKind::Index => PartitionFile::Index(identity.base),
        FileKind::TimeIndex => PartitionFile::TimeIndex(identity.base),
    };
    file.name()
}

/// The index of a segment that grows.
#[derive(Debug)]
pub(crate) struct GrowingIndex {
    index: Index,
    files: [Arc<dyn File>; 2],
    file_bytes: u32,
}

impl GrowingIndex {
    /// Makes the files anew, with `entries` in them.
    pub(crate) fn create(
        folder: &dyn Dir,
        identity: &Identity,
        entries: &[IndexEntry],
    ) -> io::Result<Self> {
        let file_bytes = file_bytes_for(entries.len())?;
        let [offsets, times] = KINDS;
        let (offset_file, offsets) = create_mapped(folder, identity, offsets, file_bytes)?;
        let (time_file, times) = create_mapped(folder, identity, times, file_bytes)?;
        let index = Index::new(identity.base, offsets, times, 0);
        if !entries.iter().all(|entry| index.push(entry)) {
            return Err(io::Error::other("an index entry does not fit its segment"));
        }
        Ok(Self {
            index,
            files: [offset_file, time_file],
            file_bytes,
        })
    }

    /// Goes on in the files that are there with `entries`, all there is to know of the segment;
    /// makes them anew if they are not those of a growing segment or have no room.
    pub(crate) fn reopen(
        folder: &dyn Dir,
        identity: &Identity,
        entries: &[IndexEntry],
    ) -> io::Result<Self> {
        match Self::reuse(folder, identity, entries)? {
            Some(index) => Ok(index),
            None => Self::create(folder, identity, entries),
        }
    }

    fn reuse(
        folder: &dyn Dir,
        identity: &Identity,
        entries: &[IndexEntry],
    ) -> io::Result<Option<Self>> {
        let [offsets, times] = KINDS.map(|kind| open_growing(folder, identity, kind));
        let (Some((offset_file, file_bytes)), Some((time_file, time_bytes))) = (offsets, times)
        else {
            return Ok(None);
        };
        if file_bytes != time_bytes || file_bytes < file_bytes_for(entries.len())? {
            return Ok(None);
        }
        let offsets = allocate(offset_file.as_ref(), file_bytes)?;
        let times = allocate(time_file.as_ref(), file_bytes)?;
        let index = Index::new(identity.base, offsets, times, 0);
        if !entries.iter().all(|entry| index.push(entry)) {
            return Ok(None);
        }
        index.clear_rest();
        Ok(Some(Self {
            index,
            files: [offset_file, time_file],
            file_bytes,
        }))
    }

    /// What readers use; it shares the entries until the files grow.
    pub(crate) fn index(&self) -> &Index {
        &self.index
    }

    /// Makes room for `entries` more; true if the files grew and readers need the new
    /// [`GrowingIndex::index`]. Nothing changes if the disk is full.
    pub(crate) fn reserve(&mut self, entries: usize) -> io::Result<bool> {
        let room = usize::try_from(self.index.room()).map_err(io::Error::other)?;
        if entries <= room {
            return Ok(false);
        }
        let count = self.index.count();
        let needed = usize::try_from(count)
            .map_err(io::Error::other)?
            .saturating_add(entries);
        let file_bytes = file_bytes_for(needed)?.max(self.file_bytes);
        let [offsets, times] = &self.files;
        let offsets = allocate(offsets.as_ref(), file_bytes)?;
        let times = allocate(times.as_ref(), file_bytes)?;
        self.index = Index::new(self.index.base(), offsets, times, count);
        self.file_bytes = file_bytes;
        Ok(true)
    }

    /// Adds an entry that [`GrowingIndex::reserve`] made room for.
    pub(crate) fn push(&self, entry: &IndexEntry) {
        let fits = self.index.push(entry);
        debug_assert!(fits, "room was reserved");
    }
}

fn create_mapped(
    folder: &dyn Dir,
    identity: &Identity,
    kind: FileKind,
    bytes: u32,
) -> io::Result<(Arc<dyn File>, Words)> {
    let name = name(kind, identity);
    let file = create_anew(folder, &temporary(&name))?;
    let words = allocate(file.as_ref(), bytes)?;
    file.write_at(&encode_file_header(kind, identity, 0), 0)?;
    folder.rename(&temporary(&name), &name)?;
    Ok((file, words))
}

/// The file of a growing segment and its size, if it is one and has a size that such files have.
/// It is read as a whole: a page that cannot be read must not be met first in its map.
fn open_growing(
    folder: &dyn Dir,
    identity: &Identity,
    kind: FileKind,
) -> Option<(Arc<dyn File>, u32)> {
    let file = folder.open(&name(kind, identity)).ok()?;
    let content = read_whole(file.as_ref(), INDEX_FILE_BYTES_MAX.into()).ok()?;
    let bytes = u32::try_from(content.len()).ok()?;
    let is_ours = matches!(
        read_file_header(kind, identity, &content),
        HeaderFound::Ours { count: 0 }
    );
    let is_a_step = bytes >= INDEX_FILE_BYTES_MIN && bytes.is_power_of_two();
    (is_ours && is_a_step).then_some((file, bytes))
}

fn allocate(file: &dyn File, bytes: u32) -> io::Result<Words> {
    file.allocate(bytes.into())?;
    file.map(bytes.into()).map(Words::of_file)
}

/// Makes an empty file, in place of what an interrupted attempt left.
pub(crate) fn create_anew(folder: &dyn Dir, name: &str) -> io::Result<Arc<dyn File>> {
    match folder.create(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            folder.remove(name)?;
            folder.create(name)
        }
        made => made,
    }
}

/// The smallest size, from the first one doubling, that holds so many entries.
fn file_bytes_for(entries: usize) -> io::Result<u32> {
    let words = u64::try_from(entries).map_err(io::Error::other)?;
    let needed = u64::from(FILE_HEADER_BYTES).saturating_add(words.saturating_mul(WORD_BYTES));
    let mut bytes = INDEX_FILE_BYTES_MIN;
    while u64::from(bytes) < needed {
        bytes = bytes.saturating_mul(2);
    }
    if bytes > INDEX_FILE_BYTES_MAX {
        return Err(io::Error::other("an index outgrew its largest size"));
    }
    Ok(bytes)
}

/// Writes the files of a segment that is sealed, in place of those it had.
pub(crate) fn write_sealed(folder: &dyn Dir, identity: &Identity, index: &Index) -> io::Result<()> {
    let mut words = [Vec::new(), Vec::new()];
    for entry in index.entries() {
        let pair = index.words_of(&entry).into_iter().flatten();
        for (column, word) in words.iter_mut().zip(pair) {
            column.extend_from_slice(&word.to_le_bytes());
        }
    }
    for (kind, words) in KINDS.into_iter().zip(words) {
        let name = name(kind, identity);
        let mut content = encode_file_header(kind, identity, index.count());
        content.extend_from_slice(&words);
        content.extend_from_slice(&u64::from(crc32fast::hash(&words)).to_le_bytes());
        let file = create_anew(folder, &temporary(&name))?;
        file.write_at(&content, 0)?;
        folder.rename(&temporary(&name), &name)?;
    }
    Ok(())
}

/// Maps the files of a sealed segment, if they are whole and can be those of such a segment.
pub(crate) fn map_sealed(folder: &dyn Dir, identity: &Identity, extent: Extent) -> Option<Index> {
    let [offsets, times] = KINDS;
    let (offsets, count) = map_checked(folder, identity, offsets)?;
    let (times, time_count) = map_checked(folder, identity, times)?;
    let index = Index::new(identity.base, offsets, times, count);
    // A reader may know the segment from before it was sealed, and shorter.
    index.truncate(plausible(&index, extent));
    (count == time_count && index.count() > 0).then_some(index)
}

fn map_checked(folder: &dyn Dir, identity: &Identity, kind: FileKind) -> Option<(Words, u32)> {
    let file = folder.open(&name(kind, identity)).ok()?;
    let mut header = [0; 64];
    let read = file.read_at(&mut header, 0).ok()?;
    let found = read_file_header(kind, identity, header.get(..read)?);
    let HeaderFound::Ours { count: count @ 1.. } = found else {
        return None;
    };
    let bytes = u64::from(FILE_HEADER_BYTES) + (u64::from(count) + 1) * WORD_BYTES;
    if bytes > u64::from(INDEX_FILE_BYTES_MAX) || file.len().ok()? != bytes {
        return None;
    }
    let words = Words::of_file(file.map(bytes).ok()?);
    let mut crc = crc32fast::Hasher::new();
    for at in 0..count {
        crc.update(&words.load(at)?.to_le_bytes());
    }
    (words.load(count)? == u64::from(crc.finalize())).then_some((words, count))
}

/// The entries that the files of a growing segment have in front of the first that cannot be one.
pub(crate) fn read_growing(
    folder: &dyn Dir,
    identity: &Identity,
    extent: Extent,
) -> io::Result<Index> {
    let none = || Index::in_memory(identity.base, 1);
    let [offsets, times] = KINDS.map(|kind| read_words(folder, identity, kind));
    let (Some(offsets), Some(times)) = (offsets, times) else {
        return none();
    };
    let count = offsets.count().min(times.count());
    let index = Index::new(identity.base, offsets, times, count);
    let good = plausible(&index, extent);
    index.truncate(good);
    Ok(index)
}

/// The words of a growing file, copied; `None` if it has none.
fn read_words(folder: &dyn Dir, identity: &Identity, kind: FileKind) -> Option<Words> {
    let file = folder.open(&name(kind, identity)).ok()?;
    let content = read_whole(file.as_ref(), INDEX_FILE_BYTES_MAX.into()).ok()?;
    let found = read_file_header(kind, identity, &content);
    let HeaderFound::Ours { count: 0 } = found else {
        return None;
    };
    let mut fields = Fields::new(content.get(64..)?);
    let words = Words::in_memory(u32::try_from(fields.remaining() / 8).ok()?).ok()?;
    let mut at = 0;
    while let Some(word) = fields.u64() {
        words.store(at, word);
        at += 1;
    }
    Some(words)
}

/// How many entries from the front rise as they must and lie in the segment.
fn plausible(index: &Index, extent: Extent) -> u32 {
    let mut count = 0;
    let mut last: Option<IndexEntry> = None;
    for entry in index.entries() {
        let rises = last.map_or(entry.spot.position == FILE_HEADER_BYTES, |last| {
            entry.spot.offset > last.spot.offset
                && entry.spot.position > last.spot.position
                && entry.time >= last.time
        });
        if !rises || entry.spot.offset >= extent.end || entry.spot.position >= extent.bytes {
            break;
        }
        last = Some(entry);
        count += 1;
    }
    count
}
