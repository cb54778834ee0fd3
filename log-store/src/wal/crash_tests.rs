//! Every crash of every scenario: what was synced is there, what is there was written, in order,
//! and the log goes on.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::fs::Dir;
use crate::sim_fs::{Call, Failure, SimDisk};
use crate::{FolderId, Sequence};

const FOLDER: FolderId = FolderId([7; 16]);
// Room for three to six frames.
const CONFIG: WalConfig = WalConfig { file_bytes: 8192 };

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Appends so many frames in one call.
    Append(u64),
    /// Appends one frame that fits no ordinary file.
    AppendLarge,
    /// Syncs, and notes it.
    Sync,
    /// Takes a sync, appends so many frames, then runs the sync.
    AppendMeanwhile(u64),
    /// Makes the next file ready.
    Prepare,
    /// A checkpoint holds all that is synced but for so many frames.
    Checkpoint(u64),
}
use Step::{Append, AppendLarge, AppendMeanwhile, Checkpoint, Prepare, Sync};

const PLAIN: &[Step] = &[Append(1), Sync, Append(2), Sync, Append(1), Append(1)];
const ROLL: &[Step] = &[Append(5), Sync, Append(4), Append(4), Sync, Append(1)];
const NEVER_SYNCED: &[Step] = &[Append(3), Append(9), Append(3)];
const IN_FLIGHT: &[Step] = &[
    Append(2),
    AppendMeanwhile(2),
    AppendMeanwhile(5),
    AppendMeanwhile(1),
    Sync,
];
const READY_AHEAD: &[Step] = &[
    Append(3),
    Sync,
    Prepare,
    Append(7),
    Prepare,
    Sync,
    Append(7),
];
const LARGE: &[Step] = &[
    Append(1),
    Prepare,
    AppendLarge,
    Sync,
    Append(2),
    Sync,
    Checkpoint(1),
];
const RECYCLE: &[Step] = &[
    Append(7),
    Sync,
    Append(7),
    Sync,
    Checkpoint(2),
    Append(7),
    Prepare,
    Sync,
    Checkpoint(0),
    Append(9),
    AppendMeanwhile(9),
    Sync,
    Append(2),
];

/// What must and what may be in the log.
#[derive(Debug, Clone, Default)]
struct Model {
    /// All frames that may be there; the first has sequence 1.
    frames: Vec<Frame>,
    /// So many are known to be on disk.
    synced: u64,
    /// So many were written in full.
    written: u64,
    /// The first that is not in the checkpoint.
    from: u64,
    /// Makes each frame unlike every other.
    attempts: u64,
    /// Whether the last start cut something off.
    cut: bool,
}

/// The simulated process has died.
#[derive(Debug)]
struct Dead;

fn alive<T>(result: Result<T, WalError>) -> Result<T, Dead> {
    match result {
        Ok(value) => Ok(value),
        Err(WalError::Io { source, .. }) if source.to_string().contains("has died") => Err(Dead),
        Err(error) => panic!("{error:?}"),
    }
}

fn folder_of(disk: &SimDisk) -> Result<Arc<dyn Dir>, Dead> {
    let root = disk.root();
    let made = root
        .create_dir("wal")
        .and_then(|dir| root.sync().map(|()| dir));
    alive(made.map_err(WalError::io("make", "wal")))
}

impl Model {
    fn new() -> Self {
        Self {
            from: 1,
            ..Self::default()
        }
    }

    fn next_frame(&mut self, bytes: usize) -> Frame {
        self.attempts += 1;
        let head = Bytes::from(format!("frame {} of its kind", self.attempts));
        let fill = u8::try_from(self.attempts % 251).unwrap();
        let bulk = match self.attempts % 3 {
            0 => vec![],
            1 => vec![Bulk::Inline(Bytes::from(vec![fill; bytes]))],
            _ => vec![Bulk::Inline(Bytes::from(vec![fill; bytes / 2])); 2],
        };
        Frame {
            kind: FrameKind::Command,
            head,
            bulk,
        }
    }

    fn append(&mut self, wal: &mut Wal, count: u64, bytes: usize) -> Result<(), WalError> {
        let frames: Vec<_> = (0..count).map(|_| self.next_frame(bytes)).collect();
        self.frames.extend(frames.iter().cloned());
        let last = wal.append(&frames)?;
        assert_eq!(last.get(), self.frames.len() as u64);
        self.written = last.get();
        Ok(())
    }

    fn take(&mut self, wal: &mut Wal, step: Step) -> Result<(), WalError> {
        match step {
            Append(count) => self.append(wal, count, 900),
            AppendLarge => self.append(wal, 1, 20_000),
            Sync => self.sync(wal, 0),
            AppendMeanwhile(count) => self.sync(wal, count),
            Prepare => wal.prepare_job().map_or(Ok(()), PrepareJob::run),
            Checkpoint(but) => {
                self.from = self.from.max((self.synced + 1).saturating_sub(but));
                wal.release_before(Sequence::new(self.from))
            }
        }
    }

    fn sync(&mut self, wal: &mut Wal, meanwhile: u64) -> Result<(), WalError> {
        let job = wal.sync_job();
        if meanwhile > 0 {
            self.append(wal, meanwhile, 900)?;
        }
        let through = job.run()?;
        self.synced = through.get();
        wal.note_durable(through);
        Ok(())
    }

    /// Opens what is there and checks it.
    fn recover(&mut self, disk: &SimDisk) -> Result<Wal, Dead> {
        let from = Sequence::new(self.from);
        let mut reader = alive(WalReader::open(folder_of(disk)?, FOLDER, from))?;
        let mut next = self.from;
        while let Some(read) = alive(reader.next_frame())? {
            assert_eq!(read.sequence.get(), next);
            let index = usize::try_from(next - 1).unwrap();
            let written = self.frames.get(index).expect("a frame that nobody wrote");
            let ReadFrame {
                kind, head, bulk, ..
            } = read;
            assert_eq!(*written, Frame { kind, head, bulk });
            next += 1;
        }
        assert!(
            next > self.synced,
            "{} frames were synced, {} are there",
            self.synced,
            next - 1
        );
        let (wal, report) = alive(reader.into_writer(CONFIG))?;
        assert_eq!(report.last.get(), next - 1);
        self.cut = report.cut.is_some();
        assert_eq!(wal.next_sequence().get(), next);
        self.frames.truncate(usize::try_from(next - 1).unwrap());
        self.synced = next - 1;
        self.written = next - 1;
        Ok(wal)
    }

    fn play(&mut self, disk: &SimDisk, steps: &[Step]) -> Result<(), Dead> {
        let mut wal = self.recover(disk)?;
        steps
            .iter()
            .try_for_each(|step| alive(self.take(&mut wal, *step)))
    }
}

/// How much is tried at each place.
#[derive(Debug, Clone, Copy)]
struct Effort {
    states_max: usize,
    /// Steps after the first crash, each of whose operations crashes again.
    then: &'static [Step],
    /// Of so many states one crashes again.
    again_every: usize,
}

/// Crashes at every operation of `steps`; the answer is the number of states.
fn enumerate(steps: &[Step], effort: Effort) -> usize {
    let whole = SimDisk::new();
    Model::new().play(&whole, steps).unwrap();
    let mut states = 0;
    for stop in 1..=whole.operations() + 1 {
        let disk = SimDisk::new();
        disk.stop_at(stop);
        let mut model = Model::new();
        let died = model.play(&disk, steps).is_err();
        assert_eq!(died, stop <= whole.operations());
        states += crash(&disk, &model, stop, effort);
    }
    states
}

fn crash(disk: &SimDisk, model: &Model, seed: u64, effort: Effort) -> usize {
    let killed = disk.process_kill();
    let mut after_kill = Model {
        synced: model.written,
        ..model.clone()
    };
    after_kill.play(&killed, &[]).unwrap();
    assert!(!after_kill.cut, "nothing was torn");
    let mut states = 1;
    for state in killed.crash_states(seed, 6) {
        after_kill.clone().play(&state, &[]).unwrap();
        states += 1;
    }
    after_kill.play(&killed, &[Append(6), Sync]).unwrap();
    for state in killed.crash_states(seed, 6) {
        after_kill.clone().play(&state, &[]).unwrap();
        states += 1;
    }
    for (nth, state) in disk.crash_states(seed, effort.states_max).enumerate() {
        let mut after = model.clone();
        let again = nth % effort.again_every == 0;
        if again {
            states += crash_again(&state, model, seed, effort.then);
        }
        after.play(&state, &[Append(2), Sync, Append(4)]).unwrap();
        Model {
            synced: after.written,
            ..after
        }
        .play(&state.process_kill(), &[])
        .unwrap();
        states += 2;
    }
    states
}

/// Crashes at every operation of the recovery, and of what comes after it.
fn crash_again(state: &SimDisk, model: &Model, seed: u64, then: &[Step]) -> usize {
    let mut states = 0;
    for stop in 1.. {
        let disk = state.process_kill();
        disk.stop_at(stop);
        let mut second = model.clone();
        let died = second.play(&disk, then).is_err();
        for third in disk.crash_states(seed ^ stop, 6) {
            second.clone().play(&third, &[Append(1), Sync]).unwrap();
            states += 1;
        }
        if !died {
            break;
        }
    }
    states
}

const EFFORT: Effort = Effort {
    states_max: 60,
    then: &[Append(3), Sync],
    again_every: 29,
};

#[test]
fn every_crash_of_plain_appends_keeps_what_was_synced_and_invents_nothing() {
    assert!(
        enumerate(
            PLAIN,
            Effort {
                states_max: 400,
                ..EFFORT
            }
        ) > 1000
    );
}

#[test]
fn every_crash_of_a_roll_keeps_what_was_synced_and_invents_nothing() {
    assert!(enumerate(ROLL, EFFORT) > 1000);
}

#[test]
fn every_crash_without_a_sync_leaves_a_prefix() {
    assert!(enumerate(NEVER_SYNCED, EFFORT) > 1000);
}

#[test]
fn every_crash_with_a_sync_in_flight_keeps_what_was_synced_and_invents_nothing() {
    assert!(enumerate(IN_FLIGHT, EFFORT) > 1000);
}

#[test]
fn every_crash_with_a_file_ready_ahead_keeps_what_was_synced_and_invents_nothing() {
    assert!(enumerate(READY_AHEAD, EFFORT) > 1000);
}

#[test]
fn every_crash_with_a_large_frame_keeps_what_was_synced_and_invents_nothing() {
    assert!(enumerate(LARGE, EFFORT) > 1000);
}

#[test]
fn every_crash_of_recycled_files_keeps_what_was_synced_and_invents_nothing() {
    assert!(
        enumerate(
            RECYCLE,
            Effort {
                states_max: 40,
                ..EFFORT
            }
        ) > 1000
    );
}

#[test]
fn a_process_that_dies_within_a_write_leaves_whole_frames() {
    let whole = SimDisk::new();
    Model::new().play(&whole, ROLL).unwrap();
    for stop in 1..=whole.operations() {
        for bytes in [1, 40, 48, 100, 600, 1200, 4000] {
            let disk = SimDisk::new();
            disk.stop_inside(stop, bytes);
            let mut model = Model::new();
            assert!(model.play(&disk, ROLL).is_err());
            let killed = disk.process_kill();
            model.synced = model.written;
            model.play(&killed, &[Append(1), Sync]).unwrap();
        }
    }
}

/// Plays `steps` with one failure and answers what was promised before it.
fn play_with(steps: &[Step], call: Call, nth: u64, failure: Failure) -> (SimDisk, Model, bool) {
    let disk = SimDisk::new();
    let mut model = Model::new();
    let mut wal = model.recover(&disk).unwrap();
    disk.fail(call, nth, failure);
    for step in steps {
        if model.take(&mut wal, *step).is_err() {
            let refused = [
                wal.append(&[]).map(drop),
                wal.sync_job().run().map(drop),
                wal.release_before(Sequence::ZERO),
            ];
            for refused in refused {
                assert!(matches!(refused, Err(WalError::Io { .. })), "{refused:?}");
            }
            assert!(wal.prepare_job().is_none());
            return (disk, model, true);
        }
    }
    (disk, model, false)
}

#[test]
fn the_first_failure_of_the_disk_is_final_and_breaks_no_promise() {
    let calls = [
        Call::Write,
        Call::Allocate,
        Call::Sync,
        Call::SyncDir,
        Call::Create,
        Call::Rename,
        Call::Remove,
    ];
    for call in calls {
        let mut failed = 0;
        for nth in 1..40 {
            let (disk, model, met) = play_with(RECYCLE, call, nth, Failure::Broken);
            failed += u64::from(met);
            model
                .clone()
                .play(&disk.process_kill(), &[Append(1), Sync])
                .unwrap();
            for state in disk.crash_states(nth, 20) {
                model.clone().play(&state, &[Append(1), Sync]).unwrap();
            }
        }
        assert!(failed > 0 || call == Call::Remove, "{call:?} was never met");
    }
}

#[test]
fn short_and_interrupted_writes_are_no_failures() {
    for failure in [Failure::Short, Failure::Interrupted] {
        for nth in 1..20 {
            let (disk, model, met) = play_with(RECYCLE, Call::Write, nth, failure);
            assert!(!met);
            Model {
                synced: model.written,
                ..model
            }
            .play(&disk.process_kill(), &[])
            .unwrap();
        }
    }
}

#[test]
fn what_a_failed_sync_lost_is_not_served_by_the_next_start() {
    let disk = SimDisk::new();
    let mut model = Model::new();
    let mut wal = model.recover(&disk).unwrap();
    for step in [Append(2), Sync, Append(3)] {
        model.take(&mut wal, step).unwrap();
    }
    disk.fail(Call::Sync, 1, Failure::Broken);
    let failed = wal.sync_job().run();
    assert!(matches!(failed, Err(WalError::Io { action: "sync", .. })));
    let killed = disk.process_kill();
    model.recover(&killed).unwrap();
    assert_eq!(model.frames.len(), 2, "the cache had five");
    let plays = |state| model.clone().play(&state, &[Append(1), Sync]).is_ok();
    assert!(killed.crash_states(1, 100).all(plays));
}
