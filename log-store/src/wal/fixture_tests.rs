//! Files of every format that was ever written stay readable, and what is written today is the
//! format of today.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::fs::{Dir, read_whole};
use crate::identity::{Identity, open_or_create, read_clean_mark, write_clean_mark};
use crate::layout::{CLEAN, IDENTITY, WalFile};
use crate::sim_fs::SimDisk;
use crate::{FolderId, Offset, PartitionId, Sequence, TopicId};

const WAL_V1: &[u8] = include_bytes!("../../fixtures/wal-v1.bin");
const IDENTITY_V1: &[u8] = include_bytes!("../../fixtures/identity-v1.bin");
const CLEAN_V1: &[u8] = include_bytes!("../../fixtures/clean-v1.bin");
const CONFIG: WalConfig = WalConfig { file_bytes: 8192 };

fn identity() -> Identity {
    Identity {
        folder: FolderId(*b"folder-of-sample"),
        cluster: *b"cluster-of-sampl",
        node: *b"node-of-a-sample",
        feature_level: 3,
    }
}

fn frames() -> Vec<Frame> {
    let place = Place {
        partition: PartitionId {
            topic: TopicId(*b"topic-of-samples"),
            partition: 2,
        },
        segment: Offset::new(1000).unwrap(),
        position: 4096,
        bytes: 131_072,
        checksum: 0xdead_beef,
    };
    let inline = Bulk::Inline(Bytes::from_static(b"a batch"));
    let frame = |kind, head: &'static [u8], bulk| Frame {
        kind,
        head: Bytes::from_static(head),
        bulk,
    };
    vec![
        frame(FrameKind::Command, b"create a topic", vec![]),
        frame(
            FrameKind::Command,
            b"append",
            vec![inline.clone(), Bulk::Placed(place), inline],
        ),
        frame(FrameKind::Lazy, b"hand out", vec![]),
    ]
}

fn file_of(dir: &Arc<dyn Dir>, name: &str) -> Vec<u8> {
    read_whole(dir.open(name).unwrap().as_ref(), 1 << 20).unwrap()
}

fn dir_with(name: &str, content: &[u8]) -> Arc<dyn Dir> {
    let dir = SimDisk::new().root();
    dir.create(name).unwrap().write_at(content, 0).unwrap();
    dir
}

#[test]
fn a_log_is_written_as_the_fixture() {
    let dir = SimDisk::new().root();
    let reader = WalReader::open(Arc::clone(&dir), identity().folder, Sequence::ZERO).unwrap();
    let (mut wal, _) = reader.into_writer(CONFIG).unwrap();
    for frame in frames() {
        let through = wal.append(&[frame]).unwrap();
        wal.note_durable(through);
    }
    assert!(file_of(&dir, &WalFile::Log(1).name()) == WAL_V1);
}

#[test]
fn a_log_of_version_1_is_read_and_goes_on() {
    let dir = dir_with(&WalFile::Log(1).name(), WAL_V1);
    let mut reader = WalReader::open(dir, identity().folder, Sequence::ZERO).unwrap();
    for (written, number) in frames().into_iter().zip(1..) {
        let ReadFrame {
            sequence,
            kind,
            head,
            bulk,
        } = reader.next_frame().unwrap().unwrap();
        assert_eq!(
            (sequence, Frame { kind, head, bulk }),
            (Sequence::new(number), written)
        );
    }
    let (wal, report) = reader.into_writer(CONFIG).unwrap();
    assert_eq!((wal.next_sequence().get(), report.cut), (4, None));
}

#[test]
fn an_identity_is_written_as_the_fixture_and_version_1_is_read() {
    let dir = SimDisk::new().root();
    open_or_create(&dir, identity()).unwrap();
    assert_eq!(file_of(&dir, IDENTITY), IDENTITY_V1);
    let other = Identity {
        feature_level: 0,
        ..identity()
    };
    assert_eq!(
        open_or_create(&dir_with(IDENTITY, IDENTITY_V1), other).unwrap(),
        identity()
    );
}

#[test]
fn a_clean_mark_is_written_as_the_fixture_and_version_1_is_read() {
    let dir = SimDisk::new().root();
    write_clean_mark(&dir, Sequence::new(41)).unwrap();
    assert_eq!(file_of(&dir, CLEAN), CLEAN_V1);
    assert_eq!(
        read_clean_mark(&dir_with(CLEAN, CLEAN_V1)).unwrap(),
        Some(Sequence::new(41))
    );
}
