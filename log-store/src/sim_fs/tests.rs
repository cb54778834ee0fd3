use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use super::*;
use crate::fs::{Dir, File, VolumeSync, read_whole};

const STATES_MAX: usize = 10_000;

/// The content of the file `name` after each possible power loss.
fn contents(disk: &SimDisk, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    let states = (1..5).flat_map(|seed| disk.crash_states(seed, STATES_MAX));
    states.map(|state| content(&state, name)).collect()
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.root().open(name).ok()?;
    Some(read_whole(file.as_ref(), 1 << 20).unwrap())
}

fn bytes(text: &[u8]) -> Vec<u8> {
    text.to_vec()
}

/// A disk with one settled file.
fn disk_with(name: &str, content: &[u8]) -> (SimDisk, Arc<dyn Dir>, Arc<dyn File>) {
    let disk = SimDisk::new();
    let root = disk.root();
    let file = root.create(name).unwrap();
    file.write_at(content, 0).unwrap();
    file.sync_data().unwrap();
    root.sync().unwrap();
    (disk, root, file)
}

#[test]
fn what_is_settled_survives_and_what_is_not_may_not() {
    let (disk, _root, file) = disk_with("file", b"old");
    assert_eq!(contents(&disk, "file"), [Some(bytes(b"old"))].into());
    file.write_at(b"new", 0).unwrap();
    let after = contents(&disk, "file");
    assert!(after.contains(&Some(bytes(b"old"))) && after.contains(&Some(bytes(b"new"))));
    assert!(
        after.contains(&Some(bytes(b"\0\0\0"))),
        "zeros are possible too"
    );
    file.sync_data().unwrap();
    assert_eq!(contents(&disk, "file"), [Some(bytes(b"new"))].into());
}

#[test]
fn a_name_is_settled_by_its_folder_alone() {
    let disk = SimDisk::new();
    let root = disk.root();
    let file = root.create("file").unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(contents(&disk, "file"), [None, Some(bytes(b"x"))].into());
    root.sync().unwrap();
    assert_eq!(contents(&disk, "file"), [Some(bytes(b"x"))].into());
}

#[test]
fn a_folder_that_is_settled_settles_no_data() {
    let disk = SimDisk::new();
    let root = disk.root();
    root.create("file").unwrap().write_at(b"x", 0).unwrap();
    root.sync().unwrap();
    let after = contents(&disk, "file");
    assert!(after.contains(&Some(bytes(b""))) && after.contains(&Some(bytes(b"x"))));
    assert!(
        after.contains(&Some(bytes(b"\0"))),
        "the length without the data"
    );
    assert!(!after.contains(&None));
}

#[test]
fn a_rename_leaves_the_old_file_or_the_new_one() {
    let (disk, root, _file) = disk_with("file", b"old");
    let new = root.create("new").unwrap();
    new.write_at(b"new", 0).unwrap();
    new.sync_data().unwrap();
    root.rename("new", "file").unwrap();
    assert_eq!(
        contents(&disk, "file"),
        [Some(bytes(b"old")), Some(bytes(b"new"))].into()
    );
    root.sync().unwrap();
    assert_eq!(contents(&disk, "file"), [Some(bytes(b"new"))].into());
    assert_eq!(contents(&disk, "new"), [None].into());
}

#[test]
fn every_subset_of_a_few_names_is_tried_once() {
    let disk = SimDisk::new();
    let root = disk.root();
    let inner = root.create_dir("inner").unwrap();
    inner.create("a").unwrap();
    inner.create("b").unwrap();
    let states: Vec<_> = disk
        .crash_states(1, STATES_MAX)
        .map(|state| {
            state
                .root()
                .open_dir("inner")
                .map(|dir| dir.list().unwrap())
                .ok()
        })
        .collect();
    assert_eq!(states.len(), 8);
    let distinct: BTreeSet<_> = states.into_iter().collect();
    let names = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect());
    let all = [
        None,
        names(&[]),
        names(&["a"]),
        names(&["b"]),
        names(&["a", "b"]),
    ];
    assert_eq!(distinct, all.into());
}

#[test]
fn a_write_is_torn_at_sectors_and_touches_nothing_beside_it() {
    let (disk, _root, file) = disk_with("file", &[b'o'; 2048]);
    file.write_at(&[b'n'; 1000], 500).unwrap();
    let after = contents(&disk, "file");
    for content in &after {
        let content = content.as_ref().unwrap();
        assert_eq!(content.len(), 2048);
        assert_eq!(content[..500], [b'o'; 500]);
        assert_eq!(content[1500..], [b'o'; 548]);
    }
    let torn = |content: &&Option<Vec<u8>>| {
        let content = content.as_ref().unwrap();
        content[500..512] == [b'o'; 12]
            && content[512..1024] == [b'n'; 512]
            && content[1024..1500] == [b'o'; 476]
    };
    assert!(
        after.iter().any(|content| torn(&content)),
        "the middle sector alone"
    );
}

#[test]
fn many_operations_have_their_corners_tried() {
    let (disk, _root, file) = disk_with("file", &[0; 20]);
    for at in 0..20 {
        file.write_at(&[1], at).unwrap();
    }
    let after: BTreeSet<Vec<u8>> = contents(&disk, "file").into_iter().flatten().collect();
    assert!(after.contains(&vec![0; 20]) && after.contains(&vec![1; 20]));
    for at in 0..20 {
        let mut all_but_one = vec![1; 20];
        all_but_one[at] = 0;
        assert!(after.contains(&all_but_one));
    }
    let states = disk.crash_states(1, STATES_MAX).count();
    assert!((100..2000).contains(&states), "{states} states");
    assert_eq!(disk.crash_states(1, 7).count(), 7);
}

#[test]
fn the_same_seed_gives_the_same_states() {
    let (disk, _root, file) = disk_with("file", &[b'o'; 2048]);
    file.write_at(&[b'n'; 2048], 0).unwrap();
    let states = |seed| -> Vec<_> {
        disk.crash_states(seed, 50)
            .map(|state| content(&state, "file"))
            .collect()
    };
    assert_eq!(states(1), states(1));
    assert_ne!(states(1), states(2));
}

#[test]
fn a_killed_process_loses_nothing_but_settles_nothing_either() {
    let (disk, root, file) = disk_with("file", b"old");
    file.write_at(b"new", 0).unwrap();
    root.create("other").unwrap();
    let killed = disk.process_kill();
    assert_eq!(content(&killed, "file"), Some(bytes(b"new")));
    assert_eq!(content(&killed, "other"), Some(bytes(b"")));
    killed
        .root()
        .open("other")
        .unwrap()
        .write_at(b"more", 0)
        .unwrap();
    assert!(contents(&killed, "file").contains(&Some(bytes(b"old"))));
    assert!(contents(&killed, "other").contains(&None));
    killed.root().open("file").unwrap().sync_data().unwrap();
    assert_eq!(contents(&killed, "file"), [Some(bytes(b"new"))].into());
}

#[test]
fn after_a_failed_sync_the_cache_tells_lies_until_it_is_dropped() {
    let (disk, _root, file) = disk_with("file", b"old");
    file.write_at(b"new", 0).unwrap();
    disk.fail(Call::Sync, 1, Failure::Broken);
    assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(5));
    file.sync_data().unwrap();
    assert_eq!(content(&disk, "file"), Some(bytes(b"new")));
    assert_eq!(contents(&disk, "file"), [Some(bytes(b"old"))].into());
    let killed = disk.process_kill();
    let again = killed.root().open("file").unwrap();
    assert_eq!(content(&killed, "file"), Some(bytes(b"new")));
    again.drop_cache().unwrap();
    assert_eq!(content(&killed, "file"), Some(bytes(b"old")));
}

#[test]
fn the_process_dies_at_the_operation_named() {
    let (disk, root, file) = disk_with("file", b"old");
    let before = disk.operations();
    disk.stop_at(before + 2);
    file.write_at(b"n", 0).unwrap();
    assert!(file.write_at(b"e", 1).is_err());
    assert!(root.sync().is_err() && root.create("x").is_err() && file.sync_data().is_err());
    assert_eq!(content(&disk.process_kill(), "file"), Some(bytes(b"nld")));
    assert!(
        disk.process_kill().root().create("x").is_ok(),
        "another process lives"
    );
}

#[test]
fn the_process_may_die_within_a_write() {
    let (disk, _root, file) = disk_with("file", b"old");
    disk.stop_inside(disk.operations() + 1, 2);
    assert!(file.write_at(b"new", 0).is_err());
    assert_eq!(content(&disk.process_kill(), "file"), Some(bytes(b"ned")));
}

#[test]
fn short_and_interrupted_calls_are_continued_and_others_fail() {
    let (disk, root, file) = disk_with("file", b"");
    disk.fail(Call::Write, 1, Failure::Short);
    disk.fail(Call::Write, 2, Failure::Interrupted);
    disk.fail(Call::Read, 1, Failure::Short);
    file.write_vectored_at(&[b"one", b"two", b"three"], 0)
        .unwrap();
    assert_eq!(content(&disk, "file"), Some(bytes(b"onetwothree")));
    disk.fail(Call::Write, 2, Failure::NoSpace);
    file.write_at(b"1", 0).unwrap();
    assert_eq!(
        file.write_at(b"2", 0).unwrap_err().kind(),
        io::ErrorKind::StorageFull
    );
    file.write_at(b"3", 0).unwrap();
    for (call, failed) in [
        (Call::Read, file.read_at(&mut [0], 0).map(drop)),
        (Call::SetLen, file.set_len(1)),
        (Call::Allocate, file.allocate(1)),
        (Call::SyncDir, root.sync()),
        (Call::Create, root.create("other").map(drop)),
        (Call::Rename, root.rename("other", "another")),
        (Call::Remove, root.remove("another")),
    ] {
        failed.unwrap();
        disk.fail(call, 1, Failure::Broken);
    }
    root.create("other").unwrap_err();
    root.create("other").unwrap();
    let again = [
        file.read_at(&mut [0], 0).map(drop),
        file.set_len(1),
        file.allocate(1),
        root.sync(),
        root.rename("other", "another"),
        root.remove("other"),
    ];
    for failed in again {
        assert_eq!(failed.unwrap_err().raw_os_error(), Some(5));
    }
}

#[test]
fn a_full_volume_refuses_more() {
    let (disk, root, file) = disk_with("file", &[1; 100]);
    disk.limit_space(150);
    assert_eq!(root.space().unwrap().free, 50);
    file.write_at(&[1; 50], 50).unwrap();
    for refused in [
        file.write_at(&[1; 51], 100),
        file.set_len(151),
        file.allocate(151),
    ] {
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
    file.allocate(150).unwrap();
    root.remove("file").unwrap();
    assert_eq!(root.space().unwrap().free, 150);
}

#[test]
fn words_of_a_mapped_file_are_read_back_and_each_is_old_or_new_after_a_power_loss() {
    let (disk, _root, file) = disk_with("file", &[0; 8192]);
    let map = file.map(4096).unwrap();
    map.store(0, 1).unwrap();
    map.store(511, 2).unwrap();
    let mut word = [0; 8];
    file.read_at(&mut word, 4088).unwrap();
    assert_eq!(u64::from_le_bytes(word), 2);
    file.write_at(&7_u64.to_le_bytes(), 8).unwrap();
    assert_eq!(map.load(1), Some(7));

    let ends: BTreeSet<_> = contents(&disk, "file")
        .into_iter()
        .map(|content| content.map(|content| (content[0], content[4088])))
        .collect();
    assert_eq!(ends, [(0, 0), (0, 2), (1, 0), (1, 2)].map(Some).into());
    assert_eq!(content(&disk.process_kill(), "file").unwrap()[0], 1);

    file.sync_data().unwrap();
    let wider = file.map(8192).unwrap();
    map.store(2, 9).unwrap();
    assert_eq!(wider.load(2), Some(9));
    assert!(
        contents(&disk, "file")
            .iter()
            .all(|content| content.as_ref().unwrap()[0] == 1)
    );
}

#[test]
fn a_file_that_was_mapped_keeps_its_length() {
    let (_disk, _root, file) = disk_with("file", &[0; 4096]);
    drop(file.map(4096).unwrap());
    assert_eq!(
        file.set_len(10).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
    assert_eq!(
        file.map(8192).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

#[test]
fn a_sync_of_the_volume_settles_data_and_names_everywhere() {
    let disk = SimDisk::new();
    let inner = disk.root().create_dir("folder").unwrap();
    inner.create("file").unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(inner.sync_volume().unwrap(), VolumeSync::Settled);
    for state in disk.crash_states(1, STATES_MAX) {
        let folder = state.root().open_dir("folder").unwrap();
        let file = folder.open("file").unwrap();
        assert_eq!(read_whole(file.as_ref(), 10).unwrap(), b"x");
    }
}

#[test]
fn a_failed_sync_of_the_volume_loses_what_was_pending_and_each_file_says_so_once() {
    let (disk, root, file) = disk_with("file", b"old");
    let untouched = root.create("other").unwrap();
    file.write_at(b"new", 0).unwrap();
    disk.fail(Call::SyncVolume, 1, Failure::Broken);
    assert!(root.sync_volume().is_err());
    assert!(untouched.sync_data().is_ok());
    assert!(file.sync_data().is_err());
    assert!(file.sync_data().is_ok());
    assert_eq!(contents(&disk, "file"), [Some(bytes(b"old"))].into());
}
