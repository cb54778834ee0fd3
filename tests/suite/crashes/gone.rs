//! Files that are gone: whatever is removed from the folders of the log and of the checkpoints of a
//! broker that was killed, the start is refused as damage, or everything acknowledged is there.
//!
//! One case is let off: the newest files of the log, where nothing that is left says that there
//! were more. Such a log is like one that was never longer.

use varvelog_store::layout::{self, WalFile};
use varvelog_store::sim_fs::SimDisk;

use super::model::{Model, Op};
use super::scenarios::{self, Scenario};
use super::world::World;

/// Sets of files are tried up to this many files.
const FILES_MAX: usize = 7;

/// Runs a scenario to its end, kills the broker, and tells what must be there.
fn killed_after(ops: &[Op]) -> (SimDisk, Model) {
    let disk = SimDisk::new();
    let mut model = Model::default();
    let mut world = World::open(&disk).unwrap();
    for op in ops {
        assert!(world.perform(op, &model).is_ok(), "{op:?}");
        model.apply(op);
    }
    drop(world);
    (disk.process_kill(), model)
}

/// The files of the log and the checkpoints: folder, name.
fn files(disk: &SimDisk) -> Vec<(&'static str, String)> {
    let root = disk.root();
    let named = |folder: &'static str| {
        let names = root.open_dir(folder).unwrap().list().unwrap();
        names.into_iter().map(move |name| (folder, name))
    };
    let logs = named(layout::WAL)
        .filter(|(_, name)| matches!(WalFile::parse(name), Some(WalFile::Log(_))));
    logs.chain(named(layout::CHECKPOINTS)).collect()
}

fn without(disk: &SimDisk, removed: &[&(&'static str, String)]) -> SimDisk {
    let disk = disk.process_kill();
    for (folder, name) in removed {
        disk.root().open_dir(folder).unwrap().remove(name).unwrap();
    }
    disk
}

/// Whether the newest file of the log is gone, and not all of it.
fn is_newest_of_log(all: &[(&'static str, String)], removed: &[&(&'static str, String)]) -> bool {
    let logs: Vec<_> = all
        .iter()
        .filter(|(folder, _)| *folder == layout::WAL)
        .collect();
    let newest = logs.iter().max_by(|one, other| one.1.cmp(&other.1));
    newest.is_some_and(|file| removed.contains(file))
        && logs.iter().any(|file| !removed.contains(file))
}

/// A log of several files, the checkpoint in the second.
fn long_log() -> Scenario {
    let mut ops = vec![Op::CreateTopic("a", 1)];
    for part in 0..4 {
        ops.extend((0..3).map(|_| Op::Append("a", 0, 150)));
        ops.extend((part == 1).then_some(Op::Checkpoint));
    }
    ("a long log", ops)
}

#[test]
fn files_of_log_and_checkpoints_that_are_gone_are_missed_or_not_needed() {
    let (mut refused, mut whole, mut let_off) = (0, 0, 0);
    for (name, ops) in scenarios::all().into_iter().chain([long_log()]) {
        let (disk, model) = killed_after(&ops);
        let files = files(&disk);
        let files = &files[..files.len().min(FILES_MAX)];
        for set in 1_u32..1 << files.len() {
            let is_in = |number: &usize| set & 1 << number != 0;
            let numbers = (0..files.len()).filter(is_in);
            let removed: Vec<_> = numbers.map(|number| &files[number]).collect();
            let what = format!("{name} without {removed:?}");
            match World::open(&without(&disk, &removed)) {
                Err(error) => {
                    assert!(error.is_damage(), "{what}: {error}");
                    refused += 1;
                }
                Ok(world) if world.see() == model.visible() => whole += 1,
                Ok(_) => {
                    assert!(is_newest_of_log(files, &removed), "{what} is started on");
                    let_off += 1;
                }
            }
        }
    }
    println!("{refused} refused, {whole} whole, {let_off} let off");
    assert!(refused > 40 && whole > 10);
    assert!((1..30).contains(&let_off), "{let_off} let off");
}
