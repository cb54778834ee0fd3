//! Damage on disk: whatever bit, block or length of whatever file of a small data folder is changed
//! behind the broker's back, the start is refused as damage, or everything is there, or what is not
//! there is named as damaged in the partition whose file it was, and nowhere else. Nothing is ever
//! read that was not written, and nothing panics.
//!
//! One case is let off: the newest frames of the log, which cannot be told from some that were
//! being written, or never were. Then all is as it was before these frames.
//!
//! `VARVELOG_SOAK=1` tries every case, a usual run one in [`SAMPLE`].

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use varvelog_store::batch::Records;
use varvelog_store::layout;
use varvelog_store::partition::{PartitionReader, ReadError, ReadLimit};
use varvelog_store::sim_fs::SimDisk;

use super::damage::{Damage, DataFolder, Place};
use super::deliveries::Delivery;
use super::model::{Model, Op, Seen};
use super::world::World;

/// A usual run tries one case in so many.
const SAMPLE: usize = 150;
/// Commands behind the newest checkpoint.
const LOST_MAX: usize = 4;

/// A partition as a reader finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Found {
    start: u64,
    end: u64,
    values: BTreeMap<u64, Vec<u8>>,
    damaged: BTreeSet<u64>,
}

/// Topic and partition, and the name of its folder.
type Partitions = BTreeMap<(String, u32), (String, Found)>;

/// A data folder, and what is in it.
struct Patient {
    folder: DataFolder,
    model: Model,
    partitions: Partitions,
    /// After each command, the newest last.
    history: Vec<Seen>,
    seen: Seen,
}

/// What became of the cases.
#[derive(Debug, Default)]
struct Tally {
    refused: AtomicU64,
    whole: AtomicU64,
    contained: AtomicU64,
    tail_cut: AtomicU64,
}

impl Patient {
    /// Every kind of file, with something behind the newest checkpoint.
    fn new() -> Self {
        let disk = SimDisk::new();
        let mut model = Model::default();
        let mut world = World::open(&disk).unwrap();
        let mut history = Vec::new();
        for op in ops() {
            history.push(world.see());
            assert!(world.perform(&op, &model).is_ok(), "{op:?}");
            model.apply(&op);
        }
        let seen = world.see();
        let partitions = look(&world);
        drop(world);
        Self {
            folder: DataFolder::of(disk.process_kill()),
            model,
            partitions,
            history,
            seen,
        }
    }

    /// Starts on the damaged disk and judges what is there.
    fn try_case(&self, number: usize, damage: &Damage, goes_on: bool, tally: &Tally) {
        let (disk, touched) = self.folder.with(number, damage);
        let of_partitions = |place: &&Place| {
            place
                .folders
                .first()
                .is_some_and(|name| name == layout::PARTITIONS)
        };
        let all_in_partitions = touched.iter().all(of_partitions);
        let world = match World::open(&disk) {
            Err(error) => {
                assert!(error.is_damage(), "is not taken for damage: {error}");
                assert!(
                    !all_in_partitions,
                    "stops the broker, not one partition: {error}"
                );
                tally.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(world) => world,
        };
        let found = look(&world);
        let is_cut = self.is_as_before(&world, &touched);
        let damaged = if is_cut {
            0
        } else {
            self.judge(&found, &touched)
        };
        if is_cut {
            tally.tail_cut.fetch_add(1, Ordering::Relaxed);
        } else if damaged > 0 {
            tally.contained.fetch_add(1, Ordering::Relaxed);
        } else {
            assert_eq!(
                world.see(),
                self.seen,
                "something else than records is lost"
            );
            tally.whole.fetch_add(1, Ordering::Relaxed);
        }
        if goes_on && !is_cut {
            self.go_on(world, &disk, &found);
        }
    }

    /// Whether the newest commands are not there, as after damage to the newest part of the log.
    fn is_as_before(&self, world: &World, touched: &[&Place]) -> bool {
        let newest = self.history.iter().rev().take(LOST_MAX);
        let is_of_log = |place: &&Place| place.folders == [layout::WAL];
        touched.iter().any(is_of_log)
            && catch_unwind(AssertUnwindSafe(|| world.see()))
                .is_ok_and(|seen| newest.into_iter().any(|before| seen == *before))
    }

    /// Every record is there or named as damaged, and only in a partition whose file was touched;
    /// how many are damaged.
    fn judge(&self, found: &Partitions, touched: &[&Place]) -> usize {
        let names = |all: &Partitions| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(found), names(&self.partitions), "partitions");
        let mut damaged = 0;
        for ((at, (folder, found)), (_, whole)) in found.iter().zip(self.partitions.values()) {
            assert_eq!(
                (found.start, found.end),
                (whole.start, whole.end),
                "{at:?}: range"
            );
            for (offset, value) in &whole.values {
                match found.values.get(offset) {
                    Some(read) => assert_eq!(read, value, "{at:?}: offset {offset} reads wrong"),
                    None => assert!(
                        found.damaged.contains(offset),
                        "{at:?}: {offset} is missing"
                    ),
                }
            }
            assert_eq!(
                found.values.len() + found.damaged.len(),
                whole.values.len(),
                "{at:?}"
            );
            let is_touched = touched
                .iter()
                .any(|place| place.folders.get(1) == Some(folder));
            assert!(
                found.damaged.is_empty() || is_touched,
                "{at:?} lost {:?}",
                found.damaged
            );
            damaged += found.damaged.len();
        }
        damaged
    }

    /// More can be appended, everywhere, and is there after a kill, with what was there.
    fn go_on(&self, mut world: World, disk: &SimDisk, found: &Partitions) {
        let mut model = self.model.clone();
        let mut wanted = found.clone();
        for partition in 0..2 {
            let op = Op::Append("a", partition, 2);
            let values = model.next_values(2);
            assert!(
                world.perform(&op, &model).is_ok(),
                "cannot append to {partition}"
            );
            model.apply(&op);
            let (_, wanted) = wanted.get_mut(&("a".to_owned(), partition)).unwrap();
            wanted
                .values
                .extend((wanted.end..).zip(values.into_iter().map(String::into_bytes)));
            wanted.end += 2;
        }
        assert!(world.perform(&Op::Flush, &model).is_ok(), "cannot flush");
        drop(world);
        let world = World::open(&disk.process_kill()).expect("starts a second time");
        assert_eq!(look(&world), wanted, "after a second start");
    }
}

fn ops() -> Vec<Op> {
    let mut ops = vec![
        Op::CreateTopic("a", 2),
        Op::CreateGroup("g", "a"),
        Op::Append("a", 0, 6),
        Op::Append("a", 1, 3),
        Op::Flush,
        Op::Roll("a", 0),
        Op::Deliver(Delivery::Retry(0)),
        Op::Deliver(Delivery::Bury(1)),
        Op::Append("a", 0, 4),
        Op::Append("a", 0, 4),
        Op::Checkpoint,
        Op::Deliver(Delivery::Note(2)),
        Op::Append("a", 1, 3),
        Op::Flush,
        Op::Roll("a", 1),
        Op::Deliver(Delivery::Bury(2)),
        Op::Append("a", 1, 2),
        Op::Checkpoint,
        Op::Append("a", 0, 2),
    ];
    ops.extend([
        Op::Append("a", 1, 2),
        Op::Deliver(Delivery::Retry(3)),
        Op::Append("a", 0, 1),
    ]);
    ops
}

/// Reads everything, over whatever is damaged.
fn look(world: &World) -> Partitions {
    let catalog = world.engine.applier.view().catalog();
    let mut all = Partitions::new();
    for (topic, view) in &catalog.by_id {
        for (number, partition) in (0..).zip(&view.partitions) {
            let id = varvelog_store::PartitionId {
                topic: *topic,
                partition: number,
            };
            let found = look_at(&partition.reader);
            let key = (view.name.as_str().to_owned(), number);
            all.insert(key, (layout::partition_folder(id), found));
        }
    }
    all
}

fn look_at(reader: &PartitionReader) -> Found {
    let mut found = Found {
        start: reader.start().get(),
        end: reader.end().get(),
        ..Found::default()
    };
    let mut offset = reader.start();
    while offset < reader.end() {
        let limit = ReadLimit {
            bytes_max: 1 << 20,
            batches_max: 100,
            until: reader.end(),
        };
        let batches = match reader.read(offset, limit) {
            Ok(batches) => batches,
            Err(ReadError::Corrupt { first, last }) => {
                assert!(
                    first <= offset && offset <= last,
                    "{first}..={last} holds {offset}"
                );
                let range = offset.get()..=last.get().min(reader.end().get() - 1);
                found.damaged.extend(range);
                offset = last.plus(1);
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(
            !batches.is_empty(),
            "a read brings something or says why not"
        );
        for stored in &batches {
            for record in &Records::open(&stored.body, 1 << 20).unwrap() {
                let record = record.unwrap();
                let at = stored.base_offset.plus(record.offset_delta.into());
                if at >= offset {
                    found
                        .values
                        .insert(at.get(), record.value.unwrap().to_vec());
                }
            }
            offset = stored.end();
        }
    }
    found
}

/// Tries the cases of one thread.
fn try_all<'a>(patient: &Patient, cases: impl Iterator<Item = &'a (usize, Damage)>, tally: &Tally) {
    for (count, (number, damage)) in cases.enumerate() {
        let tried = catch_unwind(AssertUnwindSafe(|| {
            patient.try_case(*number, damage, count % 8 == 0, tally);
        }));
        let place = &patient.folder.files[*number].0;
        assert!(
            tried.is_ok(),
            "{}/{}: {damage:?}",
            place.folders.join("/"),
            place.name
        );
    }
}

#[test]
fn whatever_is_damaged_on_disk_is_found_and_contained_and_never_read_as_true() {
    let patient = Patient::new();
    let cases = patient.folder.cases();
    let is_soak = std::env::var_os("VARVELOG_SOAK").is_some();
    let step = if is_soak { 1 } else { SAMPLE };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let tally = Tally::default();
    std::thread::scope(|scope| {
        for first in 0..threads {
            let (patient, cases, tally) = (&patient, &cases, &tally);
            scope.spawn(move || {
                let mine = cases.iter().skip(first * step).step_by(threads * step);
                try_all(patient, mine, tally);
            });
        }
    });
    let bytes: usize = patient
        .folder
        .files
        .iter()
        .map(|(_, content)| content.len())
        .sum();
    let files = patient.folder.files.len();
    println!(
        "{files} files of {bytes} bytes, {} cases, one in {step} tried: {tally:?}",
        cases.len()
    );
    for count in [
        &tally.refused,
        &tally.whole,
        &tally.contained,
        &tally.tail_cut,
    ] {
        assert!(count.load(Ordering::Relaxed) > 0, "{tally:?}");
    }
}
