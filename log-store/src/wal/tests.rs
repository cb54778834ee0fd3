use bytes::Bytes;

use super::samples::*;
use super::*;
use crate::Sequence;
use crate::fs::OsDir;
use crate::sim_fs::SimDisk;

#[test]
fn what_was_appended_is_read_again_across_files_and_starts() {
    let temp = tempfile::tempdir().unwrap();
    let dir = OsDir::open(temp.path()).unwrap();
    let mut written = Vec::new();
    for _ in 0..5 {
        let mut reader = reader(&dir, 1).unwrap();
        let heads = read_all(&mut reader).unwrap();
        let heads: Vec<_> = heads.iter().map(|frame| frame.head.clone()).collect();
        assert_eq!(heads, written);
        let (mut wal, report) = reader.into_writer(CONFIG).unwrap();
        assert_eq!(report.cut, None);
        assert_eq!(report.frames, written.len() as u64);
        for _ in 0..7 {
            let frames = [1, 2, 3].map(|n| frame(wal.next_sequence().get() + n));
            wal.append(&frames).unwrap();
            written.extend(frames.into_iter().map(|frame| frame.head));
        }
        assert_eq!(
            wal.sync_job().run().unwrap(),
            Sequence::new(written.len() as u64)
        );
    }
    let kept = dir.list().unwrap();
    assert_eq!(
        kept.len(),
        21,
        "one hundred and five frames, five to a file: {kept:?}"
    );
}

#[test]
fn placed_batches_and_lazy_frames_read_back() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let (mut wal, _) = start(&dir, 1).unwrap();
    let lazy = Frame {
        kind: FrameKind::Lazy,
        head: Bytes::new(),
        bulk: vec![],
    };
    wal.append(&[placed(1), lazy.clone(), frame(3)]).unwrap();
    let read = read_all(&mut reader(&dir, 1).unwrap()).unwrap();
    let back = |frame: &ReadFrame| Frame {
        kind: frame.kind,
        head: frame.head.clone(),
        bulk: frame.bulk.clone(),
    };
    assert_eq!(
        read.iter().map(back).collect::<Vec<_>>(),
        [placed(1), lazy, frame(3)]
    );
}

#[test]
fn reading_begins_where_it_is_asked_to() {
    let (_disk, dir) = log_of(12);
    for from in 0..=13 {
        let expected: Vec<_> = (from.max(1)..=12).collect();
        assert_eq!(numbers(&dir, from).unwrap(), expected);
    }
}

#[test]
fn names_that_are_not_ours_are_left_alone() {
    let (_disk, dir) = log_of(2);
    dir.create("notes.txt").unwrap();
    dir.create("00000000000000000009.wal.tmp").unwrap();
    start(&dir, 1).unwrap();
    assert_eq!(dir.list().unwrap(), [name(1).as_str(), "notes.txt"]);
}

#[test]
fn a_refused_frame_ends_the_log_before_it() {
    for refused in 3..=7 {
        let disk = SimDisk::new();
        let dir = disk.root();
        let (mut wal, _) = start(&dir, 1).unwrap();
        append_synced(&mut wal, 2);
        let frames: Vec<_> = (3..=7).map(placed).collect();
        wal.append(&frames).unwrap();
        drop(wal);
        let mut reader = reader(&dir, 1).unwrap();
        while reader.next_frame().unwrap().unwrap().sequence.get() < refused {}
        reader.refuse_last().unwrap();
        assert_eq!(reader.next_frame().unwrap(), None);
        let (mut wal, report) = reader.into_writer(CONFIG).unwrap();
        let cut = report.cut.unwrap();
        assert_eq!(report.last.get(), refused - 1);
        assert_eq!((cut.reason, cut.frames), (CutReason::Refused, 7 - refused));
        append_synced(&mut wal, 1);
        assert_eq!(numbers(&dir, 1).unwrap(), (1..=refused).collect::<Vec<_>>());
    }
}

#[test]
fn a_frame_that_was_on_disk_with_all_it_names_is_not_refused() {
    let (_disk, dir) = log_of(7);
    let before = image(&dir);
    let mut reader = reader(&dir, 1).unwrap();
    while reader.next_frame().unwrap().unwrap().sequence.get() < 4 {}
    let error = reader.refuse_last().unwrap_err();
    assert!(matches!(error, WalError::Corrupt { sequence, .. } if sequence.get() == 4));
    assert_eq!(image(&dir), before);
}

#[test]
fn a_start_does_not_vouch_for_placed_batches() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let (mut wal, _) = start(&dir, 1).unwrap();
    wal.append(&[frame(1), placed(2), frame(3)]).unwrap();
    drop(wal);
    let (mut wal, _) = start(&dir, 1).unwrap();
    wal.append(&[frame(4)]).unwrap();
    drop(wal);
    let mut again = reader(&dir, 1).unwrap();
    while again.next_frame().unwrap().unwrap().sequence.get() < 2 {}
    again.refuse_last().unwrap();
}

#[test]
fn files_are_released_when_no_frame_of_them_is_needed() {
    for keep_from in 0..=18 {
        let disk = SimDisk::new();
        let dir = disk.root();
        let (mut wal, _) = start(&dir, 1).unwrap();
        append_synced(&mut wal, 17);
        let kept_before = wal.kept_bytes();
        assert_eq!(kept_before, 4 * 8192);
        wal.release_before(Sequence::new(keep_from)).unwrap();
        let released = keep_from.saturating_sub(1).min(15) / 5;
        assert_eq!(wal.kept_bytes(), kept_before - released * 8192);
        assert_eq!(count(&dir, ".spare") as u64, released);
        let from = keep_from.max(1);
        assert_eq!(
            numbers(&dir, from).unwrap(),
            (from..=17).collect::<Vec<_>>()
        );
        let made = disk.operations();
        append_synced(&mut wal, 5);
        assert!(
            released == 0 || disk.operations() - made < 20,
            "spare files are used"
        );
    }
}
