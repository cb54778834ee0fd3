//! A partition and its checkpoints on a disk that stops at every call, and then loses power in
//! every way. The write-ahead log is played by the list of what was pushed: all of it is pushed
//! again after a crash, from where the checkpoint ends.

use super::samples::{ALL, FOLDER, PARTITION, as_stored, batch, offset, stamped};
use super::*;
use crate::checkpoint::{Checkpoint, CheckpointStore};
use crate::sim_fs::SimDisk;
use crate::{Offset, Sequence};

const CONFIG: PartitionConfig = PartitionConfig {
    segment_bytes: 500,
    index_interval_bytes: 200,
};

/// A step of the scenario.
#[derive(Debug, Clone, Copy)]
enum Step {
    Push(usize),
    Flush,
    Roll,
    Checkpoint,
    SetStart(u64),
}

const STEPS: [Step; 22] = [
    Step::Push(3),
    Step::Flush,
    Step::Checkpoint,
    Step::Push(2),
    Step::Flush,
    Step::Push(4),
    Step::Checkpoint,
    Step::Flush,
    Step::Push(3),
    Step::Flush,
    Step::Roll,
    Step::Push(1),
    Step::Flush,
    Step::SetStart(9),
    Step::Checkpoint,
    Step::Push(2),
    Step::Flush,
    Step::Roll,
    Step::SetStart(30),
    Step::Push(1),
    Step::Checkpoint,
    Step::Flush,
];

/// What must be there whatever happens: the commands so far, and the last checkpoint that was
/// reported written.
#[derive(Debug, Clone)]
struct Known {
    all: Vec<StoredBatch>,
    start: Offset,
    checkpoint: Option<Sequence>,
}

/// A process that uses the disk.
struct Process {
    parts: PartitionParts,
    store: CheckpointStore,
    known: Known,
}

impl Process {
    /// Starts on a disk: newest checkpoint, then all commands behind it.
    fn start(disk: &SimDisk, known: Known) -> std::io::Result<Self> {
        let root = disk.root();
        let volume = Volume::new(root.create_dir("partitions")?, FOLDER, 2);
        let folder = root.create_dir("checkpoints")?;
        root.sync()?;
        let (store, found) =
            CheckpointStore::open(folder, FOLDER).map_err(std::io::Error::other)?;
        assert!(store.damaged().is_empty(), "{:?}", store.damaged());
        let sequence = found.as_ref().map(|found| found.sequence);
        assert!(
            sequence >= known.checkpoint,
            "{sequence:?} is older than {known:?}"
        );
        let mut parts = match &found {
            Some(found) => open(&volume, &found.partitions[0], CONFIG).unwrap(),
            None => create(&volume, PARTITION, CONFIG, Offset::ZERO),
        };
        check_flushed(&parts.reader, &known);
        let end = parts.tail.end();
        for stored in known.all.iter().filter(|stored| stored.base_offset >= end) {
            let StoredBatch {
                base_offset,
                record_count,
                epoch,
                append_time,
                body,
            } = stored.clone();
            let batch = CommittedBatch {
                base_offset,
                record_count,
                epoch,
                append_time,
                body,
            };
            parts.tail.push(batch);
        }
        parts.tail.set_start(known.start);
        let mut process = Self {
            parts,
            store,
            known,
        };
        process.check();
        let retired = process.parts.writer.set_start(process.known.start);
        process
            .parts
            .writer
            .remove_retired(retired)
            .map_err(std::io::Error::other)?;
        Ok(process)
    }

    fn run(&mut self, steps: &[Step]) -> Result<(), Box<dyn std::error::Error>> {
        for step in steps {
            match *step {
                Step::Push(count) => (0..count).for_each(|_| self.push()),
                Step::Flush => drop(self.parts.writer.flush()?),
                Step::Roll => drop(self.parts.writer.roll()),
                Step::Checkpoint => self.checkpoint()?,
                Step::SetStart(start) => {
                    self.known.start = offset(start).max(self.known.start);
                    self.parts.tail.set_start(self.known.start);
                    let retired = self.parts.writer.set_start(self.known.start);
                    self.parts.writer.remove_retired(retired)?;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self) {
        let end = self.parts.tail.end();
        let next = batch(end, 2, 40, i64::try_from(end.get()).unwrap());
        self.known.all.push(as_stored(&next));
        self.parts.tail.push(next);
    }

    /// A checkpoint whose state knows half of the tail; all is flushed by the time it is written.
    fn checkpoint(&mut self) -> Result<(), Box<dyn std::error::Error>> {
        let flushed = self.parts.writer.manifest().end;
        let unflushed = self
            .known
            .all
            .iter()
            .filter(|batch| batch.base_offset >= flushed);
        let count = unflushed.clone().count();
        let end = unflushed
            .take(count.div_ceil(2))
            .last()
            .map_or(flushed, StoredBatch::end);
        self.parts.writer.flush()?;
        self.parts.writer.sync()?;
        let mut manifest = self.parts.writer.manifest();
        manifest.cut_to(end);
        let sequence = Sequence::new(end.get());
        let partitions = vec![manifest];
        self.store.write(&Checkpoint {
            sequence,
            partitions,
            state: "state".into(),
        })?;
        self.known.checkpoint = Some(sequence);
        Ok(())
    }

    /// Everything that is known can be read.
    fn check(&self) {
        let reader = &self.parts.reader;
        let end = self.known.all.last().map_or(Offset::ZERO, StoredBatch::end);
        assert_eq!(
            (reader.start(), reader.end()),
            (self.known.start.min(end), end)
        );
        let read = stamped(reader.read(reader.start(), ALL).unwrap());
        let due = self
            .known
            .all
            .iter()
            .filter(|batch| batch.end() > self.known.start);
        assert_eq!(read, due.cloned().collect::<Vec<_>>());
    }
}

/// What the checkpoint says is flushed can be read, unless a start that it does not know of made
/// it go.
fn check_flushed(reader: &PartitionReader, known: &Known) {
    let from = reader.start().max(known.start);
    if from < reader.end() {
        let read = reader.read(from, ALL).unwrap();
        let is_flushed = |batch: &&StoredBatch| from < batch.end() && batch.end() <= reader.end();
        assert_eq!(
            read,
            known
                .all
                .iter()
                .filter(is_flushed)
                .cloned()
                .collect::<Vec<_>>()
        );
    }
}

fn nothing() -> Known {
    Known {
        all: Vec::new(),
        start: Offset::ZERO,
        checkpoint: None,
    }
}

/// Starts, goes on and starts again.
fn recover_and_go_on(disk: &SimDisk, known: &Known) {
    let mut process = Process::start(disk, known.clone()).unwrap();
    process.check();
    process
        .run(&[
            Step::Push(3),
            Step::Flush,
            Step::Checkpoint,
            Step::Push(1),
            Step::Flush,
        ])
        .unwrap();
    process.check();
    let Process { known, .. } = process;
    let process = Process::start(&disk.process_kill(), known).unwrap();
    process.check();
}

#[test]
fn whatever_a_crash_leaves_is_recovered() {
    let mut states = 0;
    for stop in 1.. {
        let disk = SimDisk::new();
        disk.stop_at(stop);
        let mut known = nothing();
        let mut done = false;
        if let Ok(mut process) = Process::start(&disk, nothing()) {
            done = process.run(&STEPS).is_ok();
            process.check();
            known = process.known;
        }
        for crashed in disk.crash_states(stop, 40).chain([disk.process_kill()]) {
            states += 1;
            recover_and_go_on(&crashed, &known);
        }
        if done {
            break;
        }
    }
    assert!(states > 1000, "{states}");
}

#[test]
fn a_crash_within_the_recovery_from_a_crash_is_recovered() {
    let disk = SimDisk::new();
    let mut process = Process::start(&disk, nothing()).unwrap();
    process.run(&STEPS).unwrap();
    let known = process.known;
    let mut states = 0;
    for first in disk.crash_states(1, 12).chain([disk.process_kill()]) {
        for stop in 1.. {
            let second = first.process_kill();
            second.stop_at(stop);
            let mut known = known.clone();
            let mut done = false;
            if let Ok(mut process) = Process::start(&second, known.clone()) {
                done = process
                    .run(&[Step::Flush, Step::Push(2), Step::Checkpoint])
                    .is_ok();
                known = process.known;
            }
            for crashed in second.crash_states(stop, 6) {
                states += 1;
                recover_and_go_on(&crashed, &known);
            }
            if done {
                break;
            }
        }
    }
    assert!(states > 500, "{states}");
}
