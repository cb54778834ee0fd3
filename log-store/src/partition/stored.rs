//! What goes into a partition and what comes out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::fs::Dir;
use crate::limits::{INDEX_INTERVAL_BYTES, SEGMENT_BYTES_DEFAULT, SYNC_EACH_MAX};
use crate::partition::fields::size_u64;
use crate::partition::open_files::OpenFiles;
use crate::{Epoch, FolderId, Offset, WallMs};

/// How a partition's log is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionConfig {
    /// A segment that holds so many bytes is full; the batch that fills it may reach beyond.
    pub segment_bytes: u32,
    /// Bytes of log between two entries of its indexes.
    pub index_interval_bytes: u32,
}

impl Default for PartitionConfig {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            index_interval_bytes: INDEX_INTERVAL_BYTES,
        }
    }
}

/// What the partitions of a data folder share. Clones are the same volume.
#[derive(Debug, Clone)]
pub struct Volume {
    /// The folder of all partitions.
    pub root: Arc<dyn Dir>,
    /// Identity of the data folder, which every file carries.
    pub folder: FolderId,
    /// Sealed segments that are open, bounded over all partitions.
    pub files: Arc<OpenFiles>,
    /// Bytes of bodies that no partition has flushed yet. The owner of the volume bounds it: a
    /// push never waits.
    pub unflushed_bytes: Arc<AtomicU64>,
    /// Files and folders up to which a checkpoint syncs each; beyond, the whole file system.
    pub sync_each_max: usize,
}

impl Volume {
    /// A volume whose partitions keep at most `open_segments_max` sealed segments open.
    pub fn new(root: Arc<dyn Dir>, folder: FolderId, open_segments_max: usize) -> Self {
        let files = Arc::new(OpenFiles::new(open_segments_max));
        Self {
            root,
            folder,
            files,
            unflushed_bytes: Arc::default(),
            sync_each_max: SYNC_EACH_MAX,
        }
    }

    /// Bytes of bodies that are in memory only.
    pub fn unflushed_bytes(&self) -> u64 {
        self.unflushed_bytes.load(Ordering::Relaxed)
    }
}

/// A batch whose command is committed, on its way into the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedBatch {
    /// Offset of its first record: the end of the partition.
    pub base_offset: Offset,
    /// How many records, at least 1.
    pub record_count: u32,
    /// Epoch of the partition.
    pub epoch: Epoch,
    /// The broker's time; one that is earlier than the batch before is lifted to its time.
    pub append_time: WallMs,
    /// A record batch as produced; its offset and epoch fields may hold anything.
    pub body: Bytes,
}

impl CommittedBatch {
    /// One past its last record.
    pub fn end(&self) -> Offset {
        self.base_offset.plus(self.record_count.into())
    }

    /// Size of its body.
    pub(crate) fn body_bytes(&self) -> u64 {
        size_u64(self.body.len())
    }
}

/// A batch as read. The offset and epoch fields within `body` are filled in only if it came from a
/// file; whoever passes the body on stamps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBatch {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// How many records, at least 1.
    pub record_count: u32,
    /// Epoch of the partition when it was appended.
    pub epoch: Epoch,
    /// When it was appended, by the broker's clock; never falls within a partition.
    pub append_time: WallMs,
    /// The record batch.
    pub body: Bytes,
}

impl StoredBatch {
    /// One past its last record.
    pub fn end(&self) -> Offset {
        self.base_offset.plus(self.record_count.into())
    }
}

impl From<&CommittedBatch> for StoredBatch {
    fn from(batch: &CommittedBatch) -> Self {
        let CommittedBatch {
            base_offset,
            record_count,
            epoch,
            append_time,
            ref body,
        } = *batch;
        Self {
            base_offset,
            record_count,
            epoch,
            append_time,
            body: body.clone(),
        }
    }
}

/// A segment as retention and operators see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its first offset.
    pub base: Offset,
    /// One past its last offset.
    pub end: Offset,
    /// Its size, header included.
    pub bytes: u32,
    /// Append time of its last batch.
    pub append_time_max: WallMs,
    /// Append time of its first batch.
    pub append_time_min: WallMs,
    /// Nothing is added to it any more.
    pub sealed: bool,
}
