use std::sync::Arc;

use super::*;
use crate::fs::read_whole;
use crate::partition::SegmentManifest;
use crate::sim_fs::{Call, Failure, SimDisk};
use crate::{Epoch, Offset, PartitionId, TopicId, WallMs};

const FOLDER: FolderId = FolderId([7; 16]);

fn offset(value: u64) -> Offset {
    Offset::new(value).unwrap()
}

fn manifest(partition: u32) -> PartitionManifest {
    let segment = |base: u64, sealed| SegmentManifest {
        base: offset(base),
        end: offset(base + 10),
        bytes: 5000,
        append_time_min: WallMs(i64::try_from(base).unwrap()),
        append_time_max: WallMs(i64::try_from(base).unwrap() + 9),
        last_position: 4000,
        checksum: 0xabcd,
        sealed,
    };
    PartitionManifest {
        id: PartitionId {
            topic: TopicId([1; 16]),
            partition,
        },
        start: offset(3),
        end: offset(20),
        append_time_last: WallMs(19),
        epochs: vec![(Epoch(1), offset(0)), (Epoch(4), offset(12))],
        segments: vec![segment(0, true), segment(10, false)],
    }
}

fn checkpoint_at(sequence: u64) -> Checkpoint {
    Checkpoint {
        sequence: Sequence::new(sequence),
        partitions: vec![manifest(0), manifest(1)],
        state: format!("state at {sequence}").into(),
    }
}

fn open(dir: &Arc<dyn Dir>) -> (CheckpointStore, Option<Checkpoint>) {
    CheckpointStore::open(Arc::clone(dir), FOLDER).unwrap()
}

fn content(dir: &Arc<dyn Dir>, sequence: u64) -> Vec<u8> {
    let file = dir.open(&checkpoint(Sequence::new(sequence))).unwrap();
    read_whole(file.as_ref(), 1 << 30).unwrap()
}

fn overwrite(dir: &Arc<dyn Dir>, sequence: u64, content: &[u8]) {
    let name = checkpoint(Sequence::new(sequence));
    dir.remove(&name).unwrap();
    dir.create(&name).unwrap().write_at(content, 0).unwrap();
}

#[test]
fn the_newest_two_are_kept_and_the_newest_is_read() {
    let dir = SimDisk::new().root();
    let (mut store, none) = open(&dir);
    assert_eq!(none, None);
    let mut needed = Vec::new();
    for sequence in [5, 9, 9, 30] {
        store.write(&checkpoint_at(sequence)).unwrap();
        needed.push(store.wal_needed_from().get());
        let (again, found) = open(&dir);
        assert_eq!(found, Some(checkpoint_at(sequence)));
        assert_eq!(again.wal_needed_from(), store.wal_needed_from());
    }
    assert_eq!(needed, [1, 6, 6, 10]);
    assert_eq!(
        dir.list().unwrap(),
        [9, 30].map(|kept| checkpoint(Sequence::new(kept)))
    );
}

#[test]
fn older_ones_whose_removal_a_crash_undid_go_with_the_next_write() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    let one = content(&dir, 1);
    store.write(&checkpoint_at(2)).unwrap();
    store.write(&checkpoint_at(3)).unwrap();
    dir.create(&checkpoint(Sequence::new(1)))
        .unwrap()
        .write_at(&one, 0)
        .unwrap();
    let (mut store, _) = open(&dir);
    assert_eq!(store.wal_needed_from(), Sequence::new(3));
    store.write(&checkpoint_at(4)).unwrap();
    assert_eq!(
        dir.list().unwrap(),
        [3, 4].map(|kept| checkpoint(Sequence::new(kept)))
    );
}

#[test]
#[should_panic(expected = "checkpoints never go back")]
fn an_older_checkpoint_is_not_taken() {
    let (mut store, _) = open(&SimDisk::new().root());
    store.write(&checkpoint_at(5)).unwrap();
    drop(store.write(&checkpoint_at(4)));
}

#[test]
fn every_flipped_bit_and_every_cut_makes_a_start_fall_back_to_the_older_one() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    store.write(&checkpoint_at(2)).unwrap();
    let whole = content(&dir, 2);
    let file = dir.open(&checkpoint(Sequence::new(2))).unwrap();
    let falls_back = |what: usize| {
        let (store, found) = open(&dir);
        assert_eq!(found, Some(checkpoint_at(1)), "{what}");
        assert_eq!(store.damaged().len(), 1);
        assert_eq!(store.damaged()[0].sequence, Sequence::new(2));
        assert_eq!(
            store.wal_needed_from(),
            Sequence::new(1),
            "nothing is released yet"
        );
    };
    for bit in 0..whole.len() * 8 {
        let at = bit / 8;
        file.write_at(&[whole[at] ^ (1 << (bit % 8))], at as u64)
            .unwrap();
        falls_back(bit);
        file.write_at(&whole[at..=at], at as u64).unwrap();
    }
    for bytes in 0..whole.len() {
        overwrite(&dir, 2, &whole[..bytes]);
        falls_back(bytes);
    }
    overwrite(&dir, 2, &whole);
    assert_eq!(open(&dir).1, Some(checkpoint_at(2)));
}

#[test]
fn a_damaged_checkpoint_is_reported_and_left_where_it_is() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    store.write(&checkpoint_at(2)).unwrap();
    overwrite(&dir, 2, b"");
    let (mut store, found) = open(&dir);
    assert_eq!(found, Some(checkpoint_at(1)));
    let damaged = DamagedCheckpoint {
        sequence: Sequence::new(2),
        damage: Damage::Checksum,
    };
    assert_eq!(store.damaged(), [damaged]);
    store.write(&checkpoint_at(3)).unwrap();
    store.write(&checkpoint_at(4)).unwrap();
    let names = [2, 3, 4].map(|kept| checkpoint(Sequence::new(kept)));
    assert_eq!(dir.list().unwrap(), names);
    assert_eq!(store.wal_needed_from(), Sequence::new(4));
}

#[test]
fn when_none_is_whole_the_start_is_refused_and_nothing_is_deleted() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    store.write(&checkpoint_at(2)).unwrap();
    for sequence in [1, 2] {
        let mut damaged = content(&dir, sequence);
        damaged[70] ^= 1;
        overwrite(&dir, sequence, &damaged);
    }
    let refusal = CheckpointStore::open(Arc::clone(&dir), FOLDER).unwrap_err();
    let CheckpointError::AllDamaged { newest, .. } = refusal else {
        panic!("{refusal}")
    };
    assert_eq!(newest, Sequence::new(2));
    assert!(
        refusal.to_string().contains("00000000000000000002.ckpt"),
        "{refusal}"
    );
    assert_eq!(dir.list().unwrap().len(), 2);
}

#[test]
fn a_later_version_and_another_folder_are_refused_and_not_passed_over() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    store.write(&checkpoint_at(2)).unwrap();
    let other = CheckpointStore::open(Arc::clone(&dir), FolderId([8; 16]));
    assert!(matches!(other, Err(CheckpointError::Foreign { .. })));
    let mut later = content(&dir, 2);
    later[8] = 9;
    let end = later.len() - 4;
    let checksum = crc32fast::hash(&later[..end]).to_le_bytes();
    later[end..].copy_from_slice(&checksum);
    overwrite(&dir, 2, &later);
    let refusal = CheckpointStore::open(Arc::clone(&dir), FOLDER).unwrap_err();
    assert!(
        matches!(refusal, CheckpointError::Unsupported { version: 9, .. }),
        "{refusal}"
    );
}

#[test]
fn a_checkpoint_under_the_name_of_another_is_damaged() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    store.write(&checkpoint_at(2)).unwrap();
    let one = content(&dir, 1);
    overwrite(&dir, 2, &one);
    let (store, found) = open(&dir);
    assert_eq!(found, Some(checkpoint_at(1)));
    assert_eq!(store.damaged()[0].damage, Damage::Name);
}

#[test]
fn lengths_that_lie_under_a_right_checksum_are_refused() {
    let dir = SimDisk::new().root();
    let (mut store, _) = open(&dir);
    store.write(&checkpoint_at(1)).unwrap();
    store.write(&checkpoint_at(2)).unwrap();
    let whole = content(&dir, 2);
    for at in [12, 40, 48] {
        for lie in [0, 1, 0x7fff_ffff, u32::MAX] {
            let mut lying = whole.clone();
            lying[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            let end = lying.len() - 4;
            let checksum = crc32fast::hash(&lying[..end]).to_le_bytes();
            lying[end..].copy_from_slice(&checksum);
            overwrite(&dir, 2, &lying);
            let (store, found) = open(&dir);
            assert_eq!(found, Some(checkpoint_at(1)), "{lie} at {at}");
            assert_ne!(store.damaged()[0].damage, Damage::Checksum);
        }
    }
}

#[test]
fn a_large_state_reads_back() {
    let dir = SimDisk::new().root();
    for bytes in [
        CHUNK_BYTES - 60,
        CHUNK_BYTES - 52,
        CHUNK_BYTES,
        3 * CHUNK_BYTES + 7,
    ] {
        let (mut store, _) = open(&dir);
        let state: Vec<u8> = (0..=250_u8).cycle().take(bytes).collect();
        let sequence = store.kept.last().map_or(Sequence::ZERO, |last| last.next());
        let written = Checkpoint {
            sequence,
            partitions: Vec::new(),
            state: state.into(),
        };
        store.write(&written).unwrap();
        assert_eq!(open(&dir).1, Some(written));
    }
}

#[test]
fn a_write_that_fails_at_any_call_leaves_what_was_there() {
    for call in [
        Call::Write,
        Call::Create,
        Call::Sync,
        Call::Rename,
        Call::SyncDir,
    ] {
        for failure in [Failure::NoSpace, Failure::Broken] {
            let disk = SimDisk::new();
            let dir = disk.root();
            let (mut store, _) = open(&dir);
            store.write(&checkpoint_at(1)).unwrap();
            store.write(&checkpoint_at(2)).unwrap();
            disk.fail(call, 1, failure);
            let refusal = store.write(&checkpoint_at(3)).unwrap_err();
            assert!(
                matches!(refusal, CheckpointError::Io(_)),
                "{call:?}: {refusal}"
            );
            let (mut store, found) = open(&dir);
            let found = found.unwrap().sequence.get();
            assert!(found == 2 || (found == 3 && call == Call::SyncDir));
            store.write(&checkpoint_at(4)).unwrap();
            assert_eq!(open(&dir).1, Some(checkpoint_at(4)));
        }
    }
}

#[test]
fn a_crash_at_any_moment_of_a_write_leaves_the_old_or_the_new() {
    let mut states = 0;
    for stop in 1.. {
        let disk = SimDisk::new();
        let (mut store, _) = open(&disk.root());
        for sequence in [1, 2] {
            store.write(&checkpoint_at(sequence)).unwrap();
        }
        disk.stop_at(disk.operations() + stop);
        let done = store.write(&checkpoint_at(3)).is_ok();
        for crashed in disk.crash_states(stop, 200).chain([disk.process_kill()]) {
            states += 1;
            let dir = crashed.root();
            let (mut store, found) = open(&dir);
            let sequence = found.as_ref().unwrap().sequence.get();
            assert!(sequence == 3 || (sequence == 2 && !done));
            assert_eq!(found, Some(checkpoint_at(sequence)));
            assert_eq!(store.damaged(), []);
            store.write(&checkpoint_at(4)).unwrap();
            assert_eq!(open(&dir).1, Some(checkpoint_at(4)));
        }
        if done {
            break;
        }
    }
    assert!(states > 50, "{states}");
}
