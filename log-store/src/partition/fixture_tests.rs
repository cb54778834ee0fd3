//! Partitions and checkpoints on file: what was written once is read for ever.

use std::sync::Arc;

use super::samples::{ALL, FOLDER, PARTITION, Scratch, as_stored, batch, offset};
use super::*;
use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::fs::{Dir, read_whole};
use crate::layout::{self, PartitionFile};
use crate::sim_fs::SimDisk;
use crate::{Epoch, Offset, Sequence, WallMs};

const SEGMENT: &[u8] = include_bytes!("../../fixtures/segment.log");
const INDEX: &[u8] = include_bytes!("../../fixtures/segment.index");
const TIME_INDEX: &[u8] = include_bytes!("../../fixtures/segment.timeindex");
const CHECKPOINT: &[u8] = include_bytes!("../../fixtures/checkpoint.ckpt");

const CONFIG: PartitionConfig = PartitionConfig {
    segment_bytes: 1 << 20,
    index_interval_bytes: 200,
};

fn base() -> Offset {
    offset(1000)
}

/// Four batches of two records, the last of another epoch.
fn batches() -> Vec<CommittedBatch> {
    let make = |at: u32| CommittedBatch {
        epoch: Epoch(5 + at / 3),
        ..batch(
            base().plus(u64::from(at) * 2),
            2,
            10,
            1_700_000_000_000 + i64::from(at) * 7,
        )
    };
    (0..4).map(make).collect()
}

fn stored() -> Vec<StoredBatch> {
    batches().iter().map(as_stored).collect()
}

fn files() -> [(String, &'static [u8]); 3] {
    [
        (PartitionFile::Segment(base()).name(), SEGMENT),
        (PartitionFile::Index(base()).name(), INDEX),
        (PartitionFile::TimeIndex(base()).name(), TIME_INDEX),
    ]
}

fn put(dir: &Arc<dyn Dir>, name: &str, content: &[u8]) {
    dir.create(name).unwrap().write_at(content, 0).unwrap();
}

fn read_fixture_checkpoint() -> Checkpoint {
    let dir = SimDisk::new().root();
    put(&dir, &layout::checkpoint(Sequence::new(77)), CHECKPOINT);
    let (_, found) = CheckpointStore::open(dir, FOLDER).unwrap();
    found.unwrap()
}

#[test]
fn the_fixtures_are_read_as_what_was_written() {
    let checkpoint = read_fixture_checkpoint();
    assert_eq!(checkpoint.sequence, Sequence::new(77));
    assert_eq!(checkpoint.state, "the rest of the state");
    let [manifest] = checkpoint.partitions.as_slice() else {
        panic!("one partition")
    };
    assert_eq!((manifest.start, manifest.end), (offset(1001), offset(1008)));
    assert_eq!(
        manifest.epochs,
        [(Epoch(5), offset(1000)), (Epoch(6), offset(1006))]
    );
    let disk = SimDisk::new();
    let folder = disk
        .root()
        .create_dir(&layout::partition_folder(PARTITION))
        .unwrap();
    for (name, content) in files() {
        put(&folder, &name, content);
    }
    let operations = disk.operations();
    let volume = Volume::new(disk.root(), FOLDER, 4);
    let parts = open(&volume, manifest, CONFIG).unwrap();
    assert_eq!(parts.reader.read(offset(1001), ALL).unwrap(), stored());
    let found = parts
        .reader
        .first_at_or_after(WallMs(1_700_000_000_008))
        .unwrap();
    assert_eq!(found, Some((offset(1004), WallMs(1_700_000_000_014))));
    assert_eq!(
        disk.operations(),
        operations,
        "the indexes are good as they are"
    );
}

#[test]
fn the_same_is_written_today() {
    let scratch = Scratch::new();
    let mut parts = create(&scratch.volume, PARTITION, CONFIG, base());
    for batch in batches() {
        parts.tail.push(batch);
    }
    parts.writer.flush().unwrap();
    parts.writer.roll();
    parts.writer.set_start(offset(1001));
    parts.writer.sync().unwrap();
    for (name, content) in files() {
        let file = scratch.files().open(&name).unwrap();
        assert_eq!(
            read_whole(file.as_ref(), 1 << 20).unwrap(),
            content,
            "{name}"
        );
    }
    let checkpoint = Checkpoint {
        sequence: Sequence::new(77),
        partitions: vec![parts.writer.manifest()],
        state: "the rest of the state".into(),
    };
    assert_eq!(read_fixture_checkpoint(), checkpoint);
    let dir = SimDisk::new().root();
    let (mut store, _) = CheckpointStore::open(Arc::clone(&dir), FOLDER).unwrap();
    store.write(&checkpoint).unwrap();
    let file = dir.open(&layout::checkpoint(Sequence::new(77))).unwrap();
    assert_eq!(read_whole(file.as_ref(), 1 << 20).unwrap(), CHECKPOINT);
}
