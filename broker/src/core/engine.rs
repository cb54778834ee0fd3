//! Applier and WAL in one hand: writes commands, and applies them when they are committed. No
//! threads and no waiting: the loop drives it in the broker, a test drives it on a simulated disk.

use varvelog_store::wal::{Bulk, Frame, FrameKind, PrepareJob, SyncJob, Wal, WalError};
use varvelog_store::{PartitionId, Sequence, WallMs};

use super::applied::{Applied, Outcome};
use super::applier::Applier;
use super::command::{Change, Command, Stamp};
use super::refusal::Refusal;
use crate::clock::MonoMs;

/// Applier and WAL.
#[derive(Debug)]
pub struct Engine {
    /// Committed state and what follows from it.
    pub applier: Applier,
    wal: Wal,
    /// Bytes of the log that the start read behind its checkpoint.
    replayed_bytes: u64,
    stamp: Stamp,
    /// Running time when this run began, and the monotonic time of that moment.
    began: (u64, MonoMs),
}

/// Commands that were written together and are not applied yet.
#[derive(Debug)]
pub struct Round {
    first: Sequence,
    /// In order.
    pub commands: Vec<Command>,
}

impl Engine {
    /// An engine that goes on behind what `applier` has applied; `now` is the beginning of this
    /// run.
    pub fn new(applier: Applier, wal: Wal, now: MonoMs) -> Self {
        assert_eq!(
            wal.next_sequence(),
            applier.applied().next(),
            "the WAL goes on from the state"
        );
        let stamp = applier.stamp();
        Self {
            applier,
            replayed_bytes: wal.bytes_since_checkpoint(),
            wal,
            stamp,
            began: (stamp.running_ms, now),
        }
    }

    /// The stamp of a command that is sequenced now. Neither of its times ever falls.
    pub fn stamp(&mut self, wall: WallMs, mono: MonoMs) -> Stamp {
        let (base, began) = self.began;
        let run = u64::try_from(mono.since(began).as_millis()).unwrap_or(u64::MAX);
        self.stamp = Stamp {
            wall: self.stamp.wall.max(wall),
            running_ms: self.stamp.running_ms.max(base.saturating_add(run)),
        };
        self.stamp
    }

    /// Writes commands to the WAL. They are committed, and may be applied, when the sync policy
    /// is met. With an error nothing was written, if it is not [final](WalError::is_final), and
    /// the commands come back.
    pub fn write(&mut self, commands: Vec<Command>) -> Result<Round, (WalError, Vec<Command>)> {
        let first = self.wal.next_sequence();
        let frames: Vec<Frame> = commands.iter().map(frame_of).collect();
        match self.wal.append(&frames) {
            Ok(_last) => Ok(Round { first, commands }),
            Err(error) => Err((error, commands)),
        }
    }

    /// Makes the next WAL file ready, if it is time; for a thread that may block.
    pub fn prepare_job(&mut self) -> Option<PrepareJob> {
        self.wal.prepare_job()
    }

    /// Writes, syncs and applies one change at once; for the first command of a run and for
    /// tests. Blocks.
    pub fn commit_now(
        &mut self,
        change: Change,
        wall: WallMs,
        mono: MonoMs,
    ) -> Result<Result<Outcome, Refusal>, WalError> {
        let stamp = self.stamp(wall, mono);
        let round = self
            .write(vec![Command { stamp, change }])
            .map_err(|(error, _)| error)?;
        let through = self.sync_job().run()?;
        self.note_durable(through);
        let mut outcome = None;
        self.apply(&round, |_, _, applied, _| outcome = Some(applied.outcome));
        match outcome {
            Some(outcome) => Ok(outcome),
            None => unreachable!("a round of one command has one outcome"),
        }
    }

    /// What makes all that was written durable; it may run on another thread.
    pub fn sync_job(&mut self) -> SyncJob {
        self.wal.sync_job()
    }

    /// Notes that everything up to `through` is durable.
    pub fn note_durable(&mut self, through: Sequence) {
        self.wal.note_durable(through);
    }

    /// Bytes of the WAL behind the checkpoint that this run began with: what the start read of it,
    /// and what was written since.
    pub fn wal_bytes(&self) -> u64 {
        self.replayed_bytes + self.wal.written_bytes()
    }

    /// Lets go of WAL files that no recovery needs any more.
    pub fn release_wal(&mut self, needed_from: Sequence) -> Result<(), WalError> {
        self.wal.release_before(needed_from)
    }

    /// Applies a committed round, command by command, and shows readers what it made visible.
    /// `each` is told every command and what became of it. Returns the partitions that got
    /// records.
    pub fn apply(
        &mut self,
        round: &Round,
        mut each: impl FnMut(usize, &Command, Applied, &Applier),
    ) -> Vec<PartitionId> {
        let mut moved = Vec::new();
        let mut sequence = round.first;
        for (index, command) in round.commands.iter().enumerate() {
            let applied = self.applier.apply(sequence, command, &mut moved);
            each(index, command, applied, &self.applier);
            sequence = sequence.next();
        }
        self.applier.publish_ends(&mut moved);
        moved
    }
}

fn frame_of(command: &Command) -> Frame {
    let (head, bulk) = command.encode();
    let kind = if command.change.is_lazy() {
        FrameKind::Lazy
    } else {
        FrameKind::Command
    };
    Frame {
        kind,
        head,
        bulk: bulk.into_iter().map(Bulk::Inline).collect(),
    }
}
