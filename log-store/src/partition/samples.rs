//! Partitions and batches for tests.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{BatchBuilder, Codec, stamp};
use crate::fs::{Dir, OsDir};
use crate::layout::{PartitionFile, partition_folder};
use crate::partition::{
    CommittedBatch, PartitionConfig, PartitionManifest, PartitionParts, ReadLimit, StoredBatch,
    Volume, create, open,
};
use crate::sim_fs::SimDisk;
use crate::{Epoch, FolderId, Offset, PartitionId, TopicId, WallMs};

pub(crate) const FOLDER: FolderId = FolderId([3; 16]);
pub(crate) const PARTITION: PartitionId = PartitionId {
    topic: TopicId([5; 16]),
    partition: 1,
};
pub(crate) const SMALL: PartitionConfig = PartitionConfig {
    segment_bytes: 1000,
    index_interval_bytes: 300,
};
pub(crate) const ALL: ReadLimit = ReadLimit {
    bytes_max: 1 << 24,
    batches_max: 1 << 20,
    until: Offset::MAX,
};

pub(crate) fn offset(value: u64) -> Offset {
    Offset::new(value).unwrap()
}

/// A batch of `records` records that hold `filler` bytes each, and a number that tells it from
/// others.
pub(crate) fn body(number: u64, records: u32, filler: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, 256);
    for record in 0..records {
        let value = format!("{number}.{record}:{}", "x".repeat(filler));
        let none = std::iter::empty::<(&[u8], Option<&[u8]>)>();
        builder
            .push(Some(1), None, Some(value.as_bytes()), none)
            .unwrap();
    }
    builder.finish().unwrap()
}

/// A batch that begins at `base`.
pub(crate) fn batch(base: Offset, records: u32, filler: usize, time: i64) -> CommittedBatch {
    CommittedBatch {
        base_offset: base,
        record_count: records,
        epoch: Epoch(7),
        append_time: WallMs(time),
        body: body(base.get(), records, filler),
    }
}

/// What a batch is when it has been on disk.
pub(crate) fn as_stored(batch: &CommittedBatch) -> StoredBatch {
    let mut body = batch.body.to_vec();
    stamp(&mut body, batch.base_offset, batch.epoch);
    StoredBatch {
        body: body.into(),
        ..StoredBatch::from(batch)
    }
}

/// Batches as if they had all been on disk.
pub(crate) fn stamped(batches: Vec<StoredBatch>) -> Vec<StoredBatch> {
    let stamped = |batch: StoredBatch| {
        let mut body = batch.body.to_vec();
        stamp(&mut body, batch.base_offset, batch.epoch);
        StoredBatch {
            body: body.into(),
            ..batch
        }
    };
    batches.into_iter().map(stamped).collect()
}

/// A volume for one test.
pub(crate) struct Scratch {
    pub(crate) volume: Volume,
    _folder: Option<tempfile::TempDir>,
}

impl Scratch {
    /// On a simulated disk, which is fast.
    pub(crate) fn new() -> Self {
        Self::on(&SimDisk::new())
    }

    pub(crate) fn on(disk: &SimDisk) -> Self {
        Self {
            volume: Volume::new(disk.root(), FOLDER, 4),
            _folder: None,
        }
    }

    /// On the system's disk, in a folder that goes when the test ends.
    pub(crate) fn on_system_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = OsDir::open(folder.path()).unwrap();
        Self {
            volume: Volume::new(root, FOLDER, 4),
            _folder: Some(folder),
        }
    }

    pub(crate) fn create(&self, config: PartitionConfig) -> PartitionParts {
        create(&self.volume, PARTITION, config, Offset::ZERO)
    }

    /// As after a restart: nothing is open, nothing cached.
    pub(crate) fn reopen(
        &mut self,
        manifest: &PartitionManifest,
        config: PartitionConfig,
    ) -> PartitionParts {
        self.volume = Volume::new(Arc::clone(&self.volume.root), FOLDER, 4);
        open(&self.volume, manifest, config).unwrap()
    }

    /// The folder of the partition.
    pub(crate) fn files(&self) -> Arc<dyn Dir> {
        self.volume
            .root
            .open_dir(&partition_folder(PARTITION))
            .unwrap()
    }
}

/// Pushes and flushes `count` batches of two records each; returns them as stored.
pub(crate) fn fill(parts: &mut PartitionParts, count: u32, filler: usize) -> Vec<StoredBatch> {
    let mut stored = Vec::new();
    for _ in 0..count {
        let end = parts.tail.end();
        let time = i64::try_from(end.get()).unwrap() * 10;
        let batch = batch(end, 2, filler, time);
        stored.push(as_stored(&batch));
        parts.tail.push(batch);
    }
    parts.writer.flush().unwrap();
    stored
}

/// Whether a name in the folder of a partition is a segment's.
pub(crate) fn is_segment(name: &str) -> bool {
    matches!(PartitionFile::parse(name), Some(PartitionFile::Segment(_)))
}
