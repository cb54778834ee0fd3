//! The single writer of a partition's log.

use std::io;
use std::sync::Arc;

use crate::fs::{Dir, File};
use crate::layout;
use crate::limits::{EPOCHS_MAX, SEGMENT_BYTES_MAX, WRITE_RUN_BATCHES, WRITE_RUN_BYTES};
use crate::partition::active::{Active, AppendError};
use crate::partition::chain::Chain;
use crate::partition::entry::ENTRY_HEADER_BYTES;
use crate::partition::error::WriteError;
use crate::partition::fields::{size, size_u32, size_u64};
use crate::partition::file_header::FILE_HEADER_BYTES;
use crate::partition::manifest::{PartitionManifest, SegmentManifest};
use crate::partition::repair::RepairReport;
use crate::partition::shared::Shared;
use crate::partition::stored::{CommittedBatch, PartitionConfig};
use crate::{Epoch, Offset};

/// Moves the tail into segments, and looks after them. One owner. What is flushed is safe from a
/// power loss only after [`PartitionWriter::sync`].
#[derive(Debug)]
pub struct PartitionWriter {
    pub(super) shared: Arc<Shared>,
    config: PartitionConfig,
    /// As published, but for the files of the active segment.
    pub(super) chain: Chain,
    epochs: Vec<(Epoch, Offset)>,
    active: Option<Active>,
    pub(super) unsynced: Unsynced,
    /// What the first write found and did; nothing is written before.
    pub(super) repaired: Option<RepairReport>,
    is_fenced: bool,
}

/// What the next sync has to settle.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    segments: Vec<(Offset, Arc<dyn File>)>,
    pub(super) folder: bool,
    root: bool,
}

/// What a flush did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flushed {
    /// Bytes of the bodies that it moved to segments.
    pub bytes: u64,
    /// Batches that it moved.
    pub batches: u64,
    /// Segments that it sealed because they were full.
    pub rolled: u32,
}

/// A segment that is no longer part of the log, and whose files are still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetiredSegment {
    /// Its first offset.
    pub base: Offset,
    /// One past its last offset.
    pub end: Offset,
    /// Its size.
    pub bytes: u32,
}

impl PartitionWriter {
    pub(super) fn new(
        shared: Arc<Shared>,
        config: PartitionConfig,
        chain: Chain,
        epochs: Vec<(Epoch, Offset)>,
    ) -> Self {
        shared.publish_chain(chain.clone());
        Self {
            shared,
            config,
            chain,
            epochs,
            active: None,
            unsynced: Unsynced::default(),
            repaired: None,
            is_fenced: false,
        }
    }

    /// Moves the whole tail into segments. On an error a part may have been moved; the rest stays
    /// in the tail, and nothing becomes unreadable.
    pub fn flush(&mut self) -> Result<Flushed, WriteError> {
        let mut done = Flushed::default();
        loop {
            let run = self.shared.tail().front(WRITE_RUN_BATCHES, WRITE_RUN_BYTES);
            let mut rest = run.as_slice();
            if rest.is_empty() {
                return Ok(done);
            }
            self.check_fence()?;
            while let Some(first) = rest.first() {
                if !self.has_room(first) {
                    self.roll();
                    done.rolled += 1;
                }
                self.open_active(first.base_offset)?;
                let (now, later) = rest.split_at(self.fitting(rest));
                self.append(now)?;
                done.batches += size_u64(now.len());
                done.bytes += now.iter().map(CommittedBatch::body_bytes).sum::<u64>();
                rest = later;
            }
        }
    }

    /// Makes what is flushed survive a power loss. An error is final: what is on disk is unknown,
    /// and the writer refuses everything that would add to it. Where nothing was flushed since the
    /// last sync the partition is quiet, and its files are closed.
    pub fn sync(&mut self) -> Result<(), WriteError> {
        self.check_fence()?;
        if !self.is_dirty() {
            self.close_files();
            return Ok(());
        }
        let folder = self.unsynced.folder.then(|| self.shared.open_folder());
        // Nothing was synced yet, so that this may be tried again.
        let folder = folder.transpose().map_err(|source| self.io(source))?;
        let result = self
            .unsynced
            .sync(folder.as_ref(), &self.shared.volume.root);
        self.is_fenced = result.is_err();
        result.map_err(|source| self.io(source))
    }

    /// Files and folders that [`PartitionWriter::sync`] would sync.
    pub(super) fn unsynced_count(&self) -> usize {
        self.unsynced.segments.len()
            + usize::from(self.unsynced.folder)
            + usize::from(self.unsynced.root)
    }

    /// What was flushed is synced, by a sync of the whole file system.
    pub(super) fn note_synced(&mut self) {
        if !self.is_dirty() {
            self.close_files();
        }
        self.unsynced = Unsynced::default();
    }

    /// Refuses everything that would add to what is on disk, from now on.
    pub(super) fn fence(&mut self) {
        self.is_fenced = true;
    }

    /// What is flushed. For a checkpoint, [`PartitionWriter::sync`] must have succeeded since the
    /// last flush, and a state that knows less than was flushed needs
    /// [`PartitionManifest::cut_to`].
    pub fn manifest(&self) -> PartitionManifest {
        PartitionManifest {
            id: self.shared.id,
            start: self.shared.start().min(self.chain.end()),
            end: self.chain.end(),
            append_time_last: self.shared.tail().base_time(),
            epochs: self.epochs.clone(),
            segments: self.chain.segments().copied().collect(),
        }
    }

    /// Whether something is flushed that no sync has settled yet.
    pub fn is_dirty(&self) -> bool {
        self.unsynced_count() > 0
    }

    /// Moves the start, never back and never beyond the end. Segments wholly in front of it leave
    /// the log at once; their files stay until [`PartitionWriter::remove_retired`].
    pub fn set_start(&mut self, start: Offset) -> Vec<RetiredSegment> {
        let start = start.min(self.shared.end());
        self.shared.raise_start(start);
        let start = self.shared.start();
        let retired = self.chain.retire(start);
        if retired
            .last()
            .is_some_and(|last| self.chain.end() == last.end)
        {
            self.active = None;
        }
        if start > self.chain.end() {
            let mut tail = self.shared.tail();
            let dropped = tail.drop_front(start);
            self.chain.skip_to(tail.base());
            drop(tail);
            self.shared.count_flushed(dropped);
        }
        let ended = self
            .epochs
            .partition_point(|(_, first)| *first <= start)
            .saturating_sub(1);
        self.epochs.drain(..ended);
        self.unsynced
            .segments
            .retain(|(base, _)| retired.iter().all(|gone| gone.base != *base));
        self.shared.publish_chain(self.chain.clone());
        for segment in &retired {
            self.shared
                .volume
                .files
                .forget(self.shared.token, segment.base);
        }
        retired.iter().map(RetiredSegment::from).collect()
    }

    /// The settings for what is flushed from now on.
    pub fn set_config(&mut self, config: PartitionConfig) {
        self.config = config;
    }

    /// Seals the segment that is written to, so that the next flush begins another; false if there
    /// is none.
    pub fn roll(&mut self) -> bool {
        if let Some(active) = self.active.take() {
            active.seal_index(&self.shared);
        }
        let rolled = self.chain.seal();
        self.shared.publish_chain(self.chain.clone());
        rolled
    }

    /// Whether the segment that is written to is open.
    pub fn has_open_files(&self) -> bool {
        self.active.is_some()
    }

    /// Closes the files of a partition that is not written to for a while; the next flush opens
    /// them again.
    pub fn close_files(&mut self) {
        self.active = None;
        self.chain.close_active();
        self.shared.publish_chain(self.chain.clone());
    }

    /// Whether `next` still belongs into the segment that is written to.
    fn has_room(&self, next: &CommittedBatch) -> bool {
        self.chain.active().is_none_or(|segment| {
            segment.bytes < self.segment_bytes() && is_near(segment.base, next)
        })
    }

    /// How many of `batches` go into the segment that is written to; at least one.
    fn fitting(&self, batches: &[CommittedBatch]) -> usize {
        let active = self.chain.active();
        let mut position = active.map_or(FILE_HEADER_BYTES, |segment| segment.bytes);
        let base = active
            .map(|segment| segment.base)
            .or(batches.first().map(|b| b.base_offset));
        let fits = |batch: &&CommittedBatch| {
            let begins = position;
            position = position.saturating_add(entry_bytes(batch));
            begins < self.segment_bytes() && base.is_none_or(|base| is_near(base, batch))
        };
        batches.iter().take_while(fits).count().max(1)
    }

    fn segment_bytes(&self) -> u32 {
        self.config.segment_bytes.min(SEGMENT_BYTES_MAX)
    }

    /// Opens the segment that is written to, or makes one that begins at `base`. One that is not on
    /// disk what it should be is left as it is, for what can still be read of it.
    fn open_active(&mut self, base: Offset) -> Result<(), WriteError> {
        if self.active.is_some() {
            return Ok(());
        }
        self.repair()?;
        let folder = self.make_folder().map_err(|source| self.io(source))?;
        let interval = self.config.index_interval_bytes;
        if let Some(segment) = self.chain.active().copied() {
            let identity = self.shared.identity(segment.base);
            self.active = Active::reopen(folder.as_ref(), identity, &segment, interval)
                .map_err(|source| self.io(source))?;
            if self.active.is_some() {
                self.shared
                    .volume
                    .files
                    .forget(self.shared.token, segment.base);
                return Ok(());
            }
            self.chain.seal();
        }
        let made = Active::create(folder.as_ref(), self.shared.identity(base), interval);
        self.active = Some(made.map_err(|source| self.io(source))?);
        self.unsynced.folder = true;
        Ok(())
    }

    fn make_folder(&mut self) -> io::Result<Arc<dyn Dir>> {
        // One that is there already may be left from before a crash, and not settled.
        self.unsynced.root |= self.chain.segments().next().is_none();
        match self.shared.open_folder() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.unsynced.root = true;
                let name = layout::partition_folder(self.shared.id);
                self.shared.volume.root.create_dir(&name)
            }
            opened => opened,
        }
    }

    /// Writes batches into the open segment, publishes them there, and only then takes them out of
    /// the tail: a reader that finds them gone from the tail finds them in the chain.
    fn append(&mut self, batches: &[CommittedBatch]) -> Result<(), WriteError> {
        let active = self.active.as_mut().expect("the segment was opened before");
        let appended = active.append(self.chain.active(), batches);
        let (file, open) = (active.file(), active.open());
        let Some(segment) = appended.map_err(|error| self.append_error(error))? else {
            return Ok(());
        };
        if self
            .unsynced
            .segments
            .iter()
            .all(|(base, _)| *base != segment.base)
        {
            self.unsynced.segments.push((segment.base, file));
        }
        self.note_epochs(batches);
        self.chain.set_active(segment, Some(open));
        self.shared.publish_chain(self.chain.clone());
        let flushed = self.shared.tail().drop_front(segment.end);
        self.shared.count_flushed(flushed);
        Ok(())
    }

    fn note_epochs(&mut self, batches: &[CommittedBatch]) {
        for batch in batches {
            if self
                .epochs
                .last()
                .is_none_or(|(last, _)| *last < batch.epoch)
            {
                self.epochs.push((batch.epoch, batch.base_offset));
            }
        }
        let excess = self.epochs.len().saturating_sub(size(EPOCHS_MAX));
        self.epochs.drain(..excess);
    }

    pub(super) fn check_fence(&self) -> Result<(), WriteError> {
        if self.is_fenced {
            Err(WriteError::Fenced {
                partition: self.shared.id,
            })
        } else {
            Ok(())
        }
    }

    pub(super) fn io(&self, source: io::Error) -> WriteError {
        WriteError::Io {
            partition: self.shared.id,
            source,
        }
    }

    fn append_error(&self, error: AppendError) -> WriteError {
        match error {
            AppendError::NotABatch(offset) => WriteError::NotABatch {
                partition: self.shared.id,
                offset,
            },
            AppendError::Io(source) => self.io(source),
        }
    }
}

impl Unsynced {
    /// Segments before the names that lead to them.
    fn sync(&mut self, folder: Option<&Arc<dyn Dir>>, root: &Arc<dyn Dir>) -> io::Result<()> {
        while let Some((_, file)) = self.segments.last() {
            file.sync_data()?;
            self.segments.pop();
        }
        if let Some(folder) = folder {
            folder.sync()?;
            self.folder = false;
        }
        if self.root {
            root.sync()?;
            self.root = false;
        }
        Ok(())
    }
}

/// Whether the offsets of `batch` can be counted from `base` in 32 bits.
pub(super) fn is_near(base: Offset, batch: &CommittedBatch) -> bool {
    u32::try_from(batch.end().since(base)).is_ok()
}

fn entry_bytes(batch: &CommittedBatch) -> u32 {
    ENTRY_HEADER_BYTES.saturating_add(size_u32(batch.body.len()))
}

impl From<&SegmentManifest> for RetiredSegment {
    fn from(segment: &SegmentManifest) -> Self {
        Self {
            base: segment.base,
            end: segment.end,
            bytes: segment.bytes,
        }
    }
}
