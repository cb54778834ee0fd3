//! Damage, and what only looks like it.

use std::sync::Arc;

use super::samples::*;
use super::*;
use crate::fs::{Dir, read_whole};
use crate::layout::WalFile;
use crate::sim_fs::SimDisk;
use crate::{FolderId, Sequence};

#[test]
fn every_flipped_bit_is_cut_with_the_last_frame_or_is_damage_or_does_no_harm() {
    let (disk, _) = log_of(4);
    let last = FIRST_FRAME + 3 * FRAME_BYTES;
    let end = last + FRAME_BYTES;
    for at in (0..8192).filter(|at| *at < 80 || *at >= FIRST_FRAME || at % 16 == 0) {
        for bit in if at > end + 64 { 0..1 } else { 0..8 } {
            let damaged = disk.process_kill();
            let dir = damaged.root();
            flip(&dir, &name(1), at, bit);
            let before = image(&dir);
            let result = start(&dir, 1);
            let place = format!("bit {bit} of byte {at}: {result:?}");
            match result {
                Err(WalError::Corrupt { position, .. }) => {
                    let in_header = at < 68 && position == 0;
                    let in_frame = (FIRST_FRAME..last).contains(&at)
                        && position == at - (at - FIRST_FRAME) % FRAME_BYTES;
                    assert!(in_header || in_frame, "{place}");
                    assert_eq!(image(&dir), before, "{place}");
                }
                Err(error) => panic!("{place}: {error}"),
                Ok((
                    _,
                    TailReport {
                        cut: Some(cut),
                        last: kept,
                        ..
                    },
                )) => {
                    let of_last = (last..end).contains(&at);
                    let kept_all = at >= end && kept.get() == 4;
                    assert!(kept_all || (of_last && kept.get() == 3), "{place}");
                    assert_eq!(numbers(&dir, 1).unwrap().len() as u64, kept.get());
                    assert_eq!(cut.file, name(1));
                }
                Ok((_, TailReport { last: kept, .. })) => {
                    let unused = (68..FIRST_FRAME).contains(&at);
                    let filling = (FIRST_FRAME..end).contains(&at)
                        && (at - FIRST_FRAME) % FRAME_BYTES >= FRAME_BYTES - 3;
                    assert!(unused || filling, "{place}");
                    assert_eq!(kept.get(), 4, "{place}");
                }
            }
        }
    }
}

#[test]
fn every_cut_of_a_file_is_damage_or_does_no_harm() {
    let (disk, _) = log_of(4);
    let end = FIRST_FRAME + 4 * FRAME_BYTES;
    for bytes in (0..8192).filter(|bytes| bytes % 4 == 0 || *bytes < 80) {
        let damaged = disk.process_kill();
        let dir = damaged.root();
        dir.open(&name(1)).unwrap().set_len(bytes).unwrap();
        match start(&dir, 1) {
            Ok((mut wal, report)) => {
                assert_eq!((report.last.get(), report.cut), (4, None), "cut at {bytes}");
                assert!(bytes >= end + 48, "cut at {bytes}");
                append_synced(&mut wal, 3);
                assert_eq!(numbers(&dir, 1).unwrap().len(), 7);
            }
            Err(WalError::Corrupt { .. }) => assert!(bytes < end + 48, "cut at {bytes}"),
            Err(error) => panic!("cut at {bytes}: {error}"),
        }
    }
}

#[test]
fn damage_in_an_earlier_file_is_found_and_named() {
    let (disk, _) = log_of(12);
    for (file, from, wanted) in [(1, 1, 1), (2, 1, 6), (2, 6, 6)] {
        let dir = disk.process_kill().root();
        flip(&dir, &name(file), FIRST_FRAME + 100, 0);
        let error = numbers(&dir, from).unwrap_err();
        let WalError::Corrupt {
            file: found,
            position,
            sequence,
            ..
        } = error
        else {
            panic!("{error}");
        };
        let before = if file == 2 { name(1) } else { name(file) };
        assert!(found == name(file) || found == before);
        assert!(position >= FIRST_FRAME);
        assert_eq!(sequence, Sequence::new(wanted));
    }
}

#[test]
fn damage_before_what_is_wanted_does_no_harm() {
    let (disk, _) = log_of(12);
    let frames = (0..8).flat_map(|nth| [4, 60].map(|within| (nth, within)));
    for (nth, within) in frames {
        let dir = disk.process_kill().root();
        let at = FIRST_FRAME + nth % 5 * FRAME_BYTES + within;
        flip(&dir, &name(nth / 5 + 1), at, 3);
        assert_eq!(
            numbers(&dir, 9).unwrap(),
            [9, 10, 11, 12],
            "frame {}",
            nth + 1
        );
        let (wal, report) = start(&dir, 9).unwrap();
        assert_eq!((wal.next_sequence().get(), report.cut), (13, None));
    }
}

#[test]
fn a_torn_frame_takes_unsynced_frames_behind_it_with_it() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let (mut wal, _) = start(&dir, 1).unwrap();
    append_synced(&mut wal, 2);
    wal.append(&[frame(3), frame(4), frame(5), frame(6), frame(7)])
        .unwrap();
    drop(wal);
    flip(&dir, &name(1), FIRST_FRAME + 2 * FRAME_BYTES + 60, 0);
    let (_, report) = start(&dir, 1).unwrap();
    let cut = report.cut.unwrap();
    assert_eq!((report.last.get(), report.frames), (2, 2));
    assert_eq!(
        (cut.file, cut.position),
        (name(1), FIRST_FRAME + 2 * FRAME_BYTES)
    );
    assert_eq!((cut.frames, cut.bytes), (4, 5 * FRAME_BYTES));
    assert_eq!(cut.saved.len() as u64, 3 * FRAME_BYTES, "of that file");
    let saved = dir.open(&cut.saved_as.unwrap()).unwrap();
    assert_eq!(read_whole(saved.as_ref(), 1 << 20).unwrap(), cut.saved);
    assert_eq!(
        dir.list().unwrap(),
        [WalFile::Torn(1).name(), name(1)].as_slice()
    );
}

#[test]
fn a_few_saved_tails_are_kept() {
    let disk = SimDisk::new();
    let dir = disk.root();
    for _ in 0..8 {
        let (mut wal, _) = start(&dir, 1).unwrap();
        append_synced(&mut wal, 5);
        wal.append(&[frame(0)]).unwrap();
        drop(wal);
        let newest = dir.list().unwrap().pop().unwrap();
        flip(&dir, &newest, FIRST_FRAME + 60, 0);
    }
    assert_eq!(count(&dir, ".torn"), 4);
}

#[test]
fn a_clean_stop_vouches_for_every_frame() {
    let (disk, _) = log_of(4);
    let last = FIRST_FRAME + 3 * FRAME_BYTES;
    let expect = |dir: &Arc<dyn Dir>, through| {
        let mut reader = reader(dir, 1).unwrap();
        reader.expect_clean_end(Sequence::new(through));
        reader
            .into_writer(CONFIG)
            .map(|(_, report)| report.last.get())
    };
    assert_eq!(expect(&disk.process_kill().root(), 4).unwrap(), 4);
    let error = expect(&disk.process_kill().root(), 5).unwrap_err();
    assert!(matches!(error, WalError::Corrupt { .. }));
    let dir = disk.process_kill().root();
    flip(&dir, &name(1), last + 60, 0);
    assert!(
        matches!(expect(&dir, 4).unwrap_err(), WalError::Corrupt { position, .. }
        if position == last)
    );
    let empty = SimDisk::new().root();
    assert!(matches!(
        expect(&empty, 4).unwrap_err(),
        WalError::Missing { .. }
    ));
}

#[test]
fn a_file_that_is_gone_is_missed() {
    let (disk, _) = log_of(17);
    let dir = disk.process_kill().root();
    dir.remove(&name(1)).unwrap();
    let error = numbers(&dir, 1).unwrap_err();
    let WalError::Missing { wanted, reach } = error else {
        panic!("{error}")
    };
    assert_eq!((wanted.get(), reach), (1, Reach::From(Sequence::new(6))));
    assert_eq!(numbers(&dir, 6).unwrap().len(), 12);
    let mut oldest = WalReader::open_at_oldest(Arc::clone(&dir), FOLDER).unwrap();
    assert_eq!(read_all(&mut oldest).unwrap().len(), 12);

    dir.remove(&name(3)).unwrap();
    let error = numbers(&dir, 6).unwrap_err();
    assert!(matches!(error, WalError::Corrupt { sequence, .. } if sequence.get() == 11));
    assert_eq!(numbers(&dir, 16).unwrap(), [16, 17]);
}

#[test]
fn a_file_of_another_folder_or_name_or_release_is_refused() {
    let (disk, dir) = log_of(2);
    let other = WalReader::open(Arc::clone(&dir), FolderId([8; 16]), Sequence::ZERO);
    let error = other.unwrap_err();
    assert!(
        matches!(&error, WalError::Foreign { file, .. } if *file == name(1)),
        "{error}"
    );

    let moved = disk.process_kill().root();
    moved.rename(&name(1), &name(2)).unwrap();
    assert!(matches!(
        reader(&moved, 1).unwrap_err(),
        WalError::Corrupt { position: 0, .. }
    ));

    let file = dir.open(&name(1)).unwrap();
    let mut header = [0; 68];
    file.read_at(&mut header, 0).unwrap();
    header[8] = 2;
    let checksum = crc32fast::hash(&header[..64]).to_le_bytes();
    header[64..].copy_from_slice(&checksum);
    file.write_at(&header, 0).unwrap();
    let error = reader(&dir, 1).unwrap_err();
    assert!(error.to_string().contains("version 2"), "{error}");
}

#[test]
fn a_frame_that_does_not_follow_the_one_before_is_damage() {
    let position = FIRST_FRAME + 2 * FRAME_BYTES;
    let previous = u32::try_from(position - FRAME_BYTES).unwrap();
    for (sequence, previous, good) in [(3, previous, true), (3, 4096, false), (4, previous, false)]
    {
        let (_disk, dir) = log_of(2);
        let frame = Frame {
            bulk: vec![],
            head: bytes::Bytes::new(),
            ..frame(3)
        };
        let place = frame::FramePlace {
            position,
            previous,
            sequence: Sequence::new(sequence),
            durable: Sequence::ZERO,
            payload_bytes: 0,
        };
        let mut written = Vec::new();
        frame::encode(
            &frame,
            place,
            &frame::Chain::new(FOLDER, 1, 1),
            &mut written,
        );
        dir.open(&name(1))
            .unwrap()
            .write_at(&written, position)
            .unwrap();
        match numbers(&dir, 1) {
            Ok(numbers) => assert!(good && numbers == [1, 2, 3]),
            Err(WalError::Corrupt { position: at, .. }) => assert!(!good && at == position),
            Err(error) => panic!("{error}"),
        }
    }
}
