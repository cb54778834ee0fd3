use bytes::Bytes;

use super::*;
use crate::batch::{BatchBuilder, Codec};
use crate::fs::OsDir;
use crate::{Epoch, FolderId, Offset, PartitionId, TopicId, WallMs};

fn body(records: u32, text: &str) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, 256);
    for record in 0..records {
        let value = format!("{text}-{record}");
        let none = std::iter::empty::<(&[u8], Option<&[u8]>)>();
        builder
            .push(Some(1), None, Some(value.as_bytes()), none)
            .unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn batches_are_read_from_the_tail_from_disk_and_after_a_reopen() {
    let folder = tempfile::tempdir().unwrap();
    let root = OsDir::open(folder.path()).unwrap();
    let volume = Volume::new(root, FolderId([3; 16]), 8);
    let id = PartitionId {
        topic: TopicId([5; 16]),
        partition: 1,
    };
    let config = PartitionConfig {
        segment_bytes: 1000,
        index_interval_bytes: 200,
    };
    let mut parts = create(&volume, id, config, Offset::ZERO);
    let mut model = Vec::new();
    let limit = ReadLimit {
        bytes_max: 1 << 20,
        batches_max: 1000,
        until: Offset::MAX,
    };
    for round in 0..50_u32 {
        let end = parts.tail.end();
        let batch = CommittedBatch {
            base_offset: end,
            record_count: 1 + round % 3,
            epoch: Epoch(0),
            append_time: WallMs(i64::from(round)),
            body: body(1 + round % 3, &"x".repeat(round as usize)),
        };
        model.push(batch.clone());
        parts.tail.push(batch);
        if round % 4 == 0 {
            parts.writer.flush().unwrap();
        }
        let read = parts.reader.read(Offset::ZERO, limit).unwrap();
        assert_eq!(read.len(), model.len());
    }
    parts.writer.flush().unwrap();
    parts.writer.sync().unwrap();
    assert!(parts.reader.segments().len() > 5);
    let manifest = parts.writer.manifest();
    let mut encoded = Vec::new();
    manifest.encode(&mut encoded);
    assert_eq!(PartitionManifest::decode(&encoded).unwrap(), manifest);
    drop(parts);
    let parts = open(&volume, &manifest, config).unwrap();
    let read = parts.reader.read(Offset::ZERO, limit).unwrap();
    assert_eq!(read.len(), model.len());
    for (read, model) in read.iter().zip(&model) {
        assert_eq!(read.base_offset, model.base_offset);
        assert_eq!(read.body[16..], model.body[16..]);
    }
}
