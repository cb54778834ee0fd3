//! Files of the log that are gone.

use std::sync::Arc;

use super::samples::*;
use super::*;
use crate::Sequence;
use crate::fs::Dir;
use crate::layout::WalFile;
use crate::sim_fs::SimDisk;

fn is_missing(result: &Result<Vec<u64>, WalError>) -> bool {
    matches!(result, Err(WalError::Missing { .. }))
}

/// A file that was made ready, and no frame in it.
fn prepared(dir: &Arc<dyn Dir>) {
    drop(start(dir, 1).unwrap());
}

#[test]
fn a_log_without_files_is_missed_when_anything_in_it_was_wanted() {
    let dir = SimDisk::new().root();
    assert_eq!(numbers(&dir, 1).unwrap(), [0; 0], "a first start");
    for from in 2..=9 {
        let error = numbers(&dir, from).unwrap_err();
        assert!(matches!(error, WalError::Missing { wanted, .. } if wanted.get() == from));
        assert!(start(&dir, from).is_err());
    }
    assert_eq!(dir.list().unwrap(), [""; 0], "nothing was made");
}

#[test]
fn a_file_without_frames_is_a_first_start_or_a_log_that_is_gone() {
    let dir = SimDisk::new().root();
    prepared(&dir);
    assert_eq!(numbers(&dir, 1).unwrap(), [0; 0]);
    for from in 2..=9 {
        assert!(is_missing(&numbers(&dir, from)), "from {from}");
    }
    let (_disk, kept) = log_of(17);
    let (mut wal, _) = start(&kept, 17).unwrap();
    wal.prepare_job().unwrap().run().unwrap();
    drop(wal);
    for number in 1..=4 {
        kept.remove(&name(number)).unwrap();
    }
    assert_eq!(kept.list().unwrap(), [name(5).as_str()]);
    for from in 1..=19 {
        assert!(is_missing(&numbers(&kept, from)), "from {from}");
    }
}

#[test]
fn a_spare_or_a_saved_tail_says_that_there_was_a_log() {
    for left in [WalFile::Spare(3), WalFile::Torn(3)] {
        let dir = SimDisk::new().root();
        dir.create(&left.name()).unwrap();
        assert!(is_missing(&numbers(&dir, 1)), "{left:?}");
    }
    let dir = SimDisk::new().root();
    dir.create("00000000000000000001.wal.tmp").unwrap();
    start(&dir, 1).unwrap();
}

#[test]
fn a_log_that_begins_too_late_or_ends_too_early_is_missed_with_its_reach() {
    let (_disk, dir) = log_of(17);
    dir.remove(&name(1)).unwrap();
    let error = numbers(&dir, 3).unwrap_err();
    assert!(
        error.to_string().contains("begins only at command 6"),
        "{error}"
    );
    assert!(error.to_string().contains("from command 3 on"), "{error}");
    let (_disk, dir) = log_of(7);
    assert_eq!(numbers(&dir, 8).unwrap(), [0; 0], "it reaches command 7");
    for from in 9..=20 {
        let before = image(&dir);
        let error = start(&dir, from).unwrap_err();
        assert!(error.to_string().contains("ends at command 7"), "{error}");
        assert!(matches!(error, WalError::Missing { wanted, .. } if wanted.get() == from));
        assert_eq!(image(&dir), before, "nothing was changed");
    }
}

#[test]
fn what_a_clean_stop_vouches_for_need_not_be_in_the_log() {
    let (_disk, dir) = log_of(7);
    for dir in [dir, SimDisk::new().root()] {
        for (through, from, fine) in [(19, 20, true), (18, 20, false), (20, 20, false)] {
            let mut reader = reader(&dir, from).unwrap();
            reader.expect_clean_end(Sequence::new(through));
            assert_eq!(reader.next_frame().is_ok(), fine, "{through}, {from}");
        }
        let mut reader = reader(&dir, 20).unwrap();
        reader.expect_clean_end(Sequence::new(19));
        let (mut wal, report) = reader.into_writer(CONFIG).unwrap();
        assert_eq!((report.last, report.cut), (Sequence::new(19), None));
        append_synced(&mut wal, 2);
        assert_eq!(numbers(&dir, 20).unwrap(), [20, 21]);
    }
}

#[test]
fn a_torn_first_frame_behind_a_checkpoint_is_a_torn_tail() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let (mut wal, _) = start(&dir, 1).unwrap();
    append_synced(&mut wal, 5);
    wal.append(&[frame(6)]).unwrap();
    drop(wal);
    for within in [4, 60] {
        let dir = disk.process_kill().root();
        flip(&dir, &name(2), FIRST_FRAME + within, 0);
        let (wal, report) = start(&dir, 6).unwrap();
        assert_eq!((report.last.get(), report.cut.is_some()), (5, true));
        drop(wal);
        assert_eq!(numbers(&dir, 6).unwrap(), [0; 0], "and again");
    }
}
