use super::*;
use crate::fs::OsDir;
use crate::sim_fs::{Call, Failure, SimDisk};

fn fresh() -> Identity {
    Identity {
        folder: FolderId([1; 16]),
        cluster: [2; 16],
        node: [3; 16],
        feature_level: 4,
    }
}

fn folder() -> (tempfile::TempDir, Arc<dyn Dir>) {
    let temp = tempfile::tempdir().unwrap();
    let dir = OsDir::open(temp.path()).unwrap();
    (temp, dir)
}

#[test]
fn a_new_folder_gets_an_identity_and_keeps_it() {
    let (_temp, dir) = folder();
    assert_eq!(open_or_create(&dir, fresh()).unwrap(), fresh());
    let other = Identity {
        folder: FolderId([9; 16]),
        ..fresh()
    };
    assert_eq!(open_or_create(&dir, other).unwrap(), fresh());
}

#[test]
fn every_flipped_bit_and_every_cut_of_an_identity_is_refused() {
    let whole = encode(&fresh());
    for at in 0..whole.len() {
        assert!(decode(&whole[..at]).is_err(), "cut at {at}");
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(decode(&bytes).is_err(), "bit {bit} of byte {at}");
        }
    }
    let longer = [whole, vec![0]].concat();
    assert!(matches!(
        decode(&longer),
        Err(IdentityError::Corrupt { .. })
    ));
}

#[test]
fn an_identity_of_another_version_is_refused_by_its_number() {
    let mut bytes = encode(&fresh());
    bytes[8] = 2;
    bytes.truncate(IDENTITY_BYTES - 4);
    assert!(matches!(
        decode(&seal(bytes)),
        Err(IdentityError::Version { found: 2 })
    ));
}

#[test]
fn a_folder_with_data_and_no_identity_is_refused() {
    for name in [WAL, CHECKPOINTS, PARTITIONS] {
        let (_temp, dir) = folder();
        let inner = dir.create_dir(name).unwrap();
        open_or_create(&dir, fresh()).unwrap();
        dir.remove(IDENTITY).unwrap();
        inner.create("something").unwrap();
        let error = open_or_create(&dir, fresh()).unwrap_err();
        assert!(matches!(error, IdentityError::Lost { found } if found == name));
    }
}

#[test]
fn a_clean_mark_is_taken_once() {
    let (_temp, dir) = folder();
    assert_eq!(take_clean_mark(&dir).unwrap(), None);
    write_clean_mark(&dir, Sequence::new(7)).unwrap();
    write_clean_mark(&dir, Sequence::new(8)).unwrap();
    assert_eq!(read_clean_mark(&dir).unwrap(), Some(Sequence::new(8)));
    assert_eq!(take_clean_mark(&dir).unwrap(), Some(Sequence::new(8)));
    assert_eq!(take_clean_mark(&dir).unwrap(), None);
}

#[test]
fn a_damaged_clean_mark_is_taken_away_and_not_believed() {
    let (_temp, dir) = folder();
    for content in [&b"nonsense"[..], &[0; 28], &[7; 5000]] {
        dir.create(CLEAN).unwrap().write_at(content, 0).unwrap();
        assert_eq!(read_clean_mark(&dir).unwrap(), None);
        assert_eq!(take_clean_mark(&dir).unwrap(), None);
        assert_eq!(dir.list().unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_folder_is_locked_by_one_at_a_time() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("data");
    let lock = lock_folder(&path).unwrap();
    assert!(matches!(lock_folder(&path), Err(LockError::Held)));
    drop(lock);
    lock_folder(&path).unwrap();
}

/// Runs `act` with a crash at each of its operations, and shows each state to `check` with
/// whether `act` was done.
fn crash_everywhere(
    disk: &SimDisk,
    act: impl Fn(&Arc<dyn Dir>) -> Result<(), IdentityError>,
    check: impl Fn(&Arc<dyn Dir>, bool),
) {
    for stop in 1.. {
        let crashed = disk.process_kill();
        crashed.stop_at(stop);
        let done = act(&crashed.root()).is_ok();
        check(&crashed.process_kill().root(), done);
        for state in crashed.crash_states(stop, 500) {
            check(&state.root(), done);
        }
        if done {
            break;
        }
    }
}

#[test]
fn every_crash_of_a_first_start_leaves_one_identity_for_ever() {
    let other = Identity {
        folder: FolderId([9; 16]),
        ..fresh()
    };
    let act = |dir: &Arc<dyn Dir>| open_or_create(dir, fresh()).map(drop);
    crash_everywhere(&SimDisk::new(), act, |dir, done| {
        let found = open_or_create(dir, other).unwrap();
        assert!(found == fresh() || (found == other && !done));
        assert_eq!(open_or_create(dir, fresh()).unwrap(), found);
    });
}

#[test]
fn every_crash_of_a_clean_stop_leaves_a_true_mark_or_none() {
    let act = |dir: &Arc<dyn Dir>| write_clean_mark(dir, Sequence::new(7));
    crash_everywhere(&SimDisk::new(), act, |dir, done| {
        let mark = take_clean_mark(dir).unwrap();
        assert!(mark == Some(Sequence::new(7)) || (mark.is_none() && !done));
    });
}

#[test]
fn every_crash_of_a_start_leaves_the_mark_or_takes_it_for_good() {
    let disk = SimDisk::new();
    write_clean_mark(&disk.root(), Sequence::new(7)).unwrap();
    let act = |dir: &Arc<dyn Dir>| take_clean_mark(dir).map(drop);
    crash_everywhere(&disk, act, |dir, done| {
        let mark = take_clean_mark(dir).unwrap();
        assert!(mark.is_none() || (mark == Some(Sequence::new(7)) && !done));
    });
}

#[test]
fn a_disk_that_fails_is_told_from_damage() {
    let disk = SimDisk::new();
    open_or_create(&disk.root(), fresh()).unwrap();
    disk.fail(Call::Read, 1, Failure::Broken);
    let error = open_or_create(&disk.root(), fresh()).unwrap_err();
    assert!(matches!(error, IdentityError::Io { action: "read", .. }));
}
