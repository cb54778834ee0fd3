//! From a data folder to a working engine: newest valid checkpoint, then the WAL behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use varvelog_store::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, DamagedCheckpoint};
use varvelog_store::fs::Dir;
use varvelog_store::identity::{self, Identity, IdentityError};
use varvelog_store::partition::{PartitionManifest, Volume};
use varvelog_store::wal::{Bulk, ReadFrame, TailReport, WalConfig, WalError};
use varvelog_store::{PartitionId, Sequence, layout, partition, recovery};

use super::applier::{Applier, config_of};
use super::command::Command;
use super::engine::Engine;
use super::flusher::{FlushError, Flusher};
use super::state::State;
use super::topics::Topic;
use crate::clock::MonoMs;

/// How to open a data folder.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    /// Of the WAL.
    pub wal: WalConfig,
    /// Sealed segments kept open over all partitions.
    pub open_segments_max: usize,
    /// Random ids for a folder that is new.
    pub fresh: Identity,
    /// Bytes replayed into memory before they are flushed.
    pub unflushed_bytes_max: u64,
    /// Files and folders up to which a checkpoint syncs each; beyond, the whole file system.
    pub sync_each_max: usize,
}

/// What was opened.
#[derive(Debug)]
pub struct Opened {
    /// Ready for commands; [`super::command::Change::BrokerStarted`] comes first.
    pub engine: Engine,
    /// Has the writers of all partitions.
    pub flusher: Flusher,
    /// Of the folder.
    pub identity: Identity,
    /// What happened.
    pub report: RecoveryReport,
}

/// What recovery did.
#[derive(Debug, Clone)]
pub struct RecoveryReport {
    /// The process before stopped cleanly.
    pub clean: bool,
    /// Commands that the checkpoint held.
    pub checkpoint: Sequence,
    /// Commands replayed behind it.
    pub replayed: u64,
    /// What was cut from the end of the WAL.
    pub tail: TailReport,
    /// Newer checkpoints that were passed over, newest first.
    pub damaged_checkpoints: Vec<DamagedCheckpoint>,
}

/// Why a data folder could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The disk.
    #[error("cannot read the data folder: {0}")]
    Io(#[from] std::io::Error),
    /// The identity file.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The checkpoints.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The WAL.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Partition files could not be written.
    #[error(transparent)]
    Flush(#[from] FlushError),
    /// What checkpoint or WAL hold cannot be understood.
    #[error("{what} cannot be read: {reason}")]
    Content {
        /// Snapshot, or the command's sequence.
        what: String,
        /// Why.
        reason: String,
    },
    /// Partition files.
    #[error("partition {partition}: {reason}")]
    Partition {
        /// Which.
        partition: PartitionId,
        /// Why.
        reason: String,
    },
}

impl RecoverError {
    /// Whether what is on disk is damaged, rather than out of reach.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Io(_) | Self::Flush(_) => false,
            Self::Identity(error) => !matches!(error, IdentityError::Io { .. }),
            Self::Checkpoint(error) => !matches!(error, CheckpointError::Io(_)),
            Self::Wal(error) => !matches!(
                error,
                WalError::Io { .. } | WalError::NoSpace { .. } | WalError::NoDescriptor { .. }
            ),
            Self::Content { .. } | Self::Partition { .. } => true,
        }
    }
}

/// Opens a data folder; one that is new is laid out. A crash at any point leaves a folder that
/// opens again to the same state. `now` is the beginning of this run.
pub fn open(
    root: &Arc<dyn Dir>,
    options: &OpenOptions,
    now: MonoMs,
) -> Result<Opened, RecoverError> {
    let identity = identity::open_or_create(root, options.fresh)?;
    let folders = Folders::open(root)?;
    let (checkpoints, checkpoint) = CheckpointStore::open(folders.checkpoints, identity.folder)?;
    let damaged_checkpoints = checkpoints.damaged().to_vec();
    let volume = Volume {
        sync_each_max: options.sync_each_max,
        ..Volume::new(
            folders.partitions,
            identity.folder,
            options.open_segments_max,
        )
    };
    let contained = checkpoint.as_ref().map(|checkpoint| checkpoint.sequence);
    let from = contained.unwrap_or(Sequence::ZERO);
    let partitions = Arc::clone(&volume.root);
    let mut replay = Replay::begin(volume, checkpoint, checkpoints)?;
    let mark = identity::read_clean_mark(root)?;
    let folder_dirs = (folders.wal, partitions.as_ref());
    let mut reader = recovery::open_log(folder_dirs, identity.folder, contained, mark)?;
    while let Some(frame) = reader.next_frame()? {
        let sequence = frame.sequence;
        let Some(command) = replay.command_of(frame)? else {
            reader.refuse_last()?;
            break;
        };
        replay.apply(sequence, &command, options.unflushed_bytes_max)?;
    }
    let (wal, tail) = reader.into_writer(options.wal)?;
    let applied = replay.applier.applied();
    let clean = mark == Some(applied);
    let report = RecoveryReport {
        clean,
        checkpoint: from,
        replayed: applied.since(from),
        tail,
        damaged_checkpoints,
    };
    let (applied_state, flusher) = replay.finish()?;
    // Not before the log was found whole: a start that refuses damage must leave its evidence.
    identity::take_clean_mark(root)?;
    Ok(Opened {
        engine: Engine::new(applied_state, wal, now),
        flusher,
        identity,
        report,
    })
}

/// The folders of a data folder.
struct Folders {
    wal: Arc<dyn Dir>,
    checkpoints: Arc<dyn Dir>,
    partitions: Arc<dyn Dir>,
}

impl Folders {
    fn open(root: &Arc<dyn Dir>) -> Result<Self, RecoverError> {
        let folders = Self {
            wal: root.create_dir(layout::WAL)?,
            checkpoints: root.create_dir(layout::CHECKPOINTS)?,
            partitions: root.create_dir(layout::PARTITIONS)?,
        };
        root.sync()?;
        Ok(folders)
    }
}

/// A recovery under way.
struct Replay {
    applier: Applier,
    flusher: Flusher,
    volume: Volume,
}

impl Replay {
    fn begin(
        volume: Volume,
        checkpoint: Option<Checkpoint>,
        checkpoints: CheckpointStore,
    ) -> Result<Self, RecoverError> {
        let flusher = Flusher::new(volume.clone(), checkpoints);
        let Some(checkpoint) = checkpoint else {
            let applier = Applier::new(State::new(), volume.clone());
            return Ok(Self {
                applier,
                flusher,
                volume,
            });
        };
        let state = State::decode(&checkpoint.state).map_err(|error| RecoverError::Content {
            what: format!(
                "the state in the checkpoint of command {}",
                checkpoint.sequence
            ),
            reason: error.to_string(),
        })?;
        let applier = Applier::new(state, volume.clone());
        let mut replay = Self {
            applier,
            flusher,
            volume,
        };
        replay.open_partitions(checkpoint.partitions)?;
        Ok(replay)
    }

    /// Opens every partition of the state as its manifest has it.
    fn open_partitions(&mut self, manifests: Vec<PartitionManifest>) -> Result<(), RecoverError> {
        let mut manifests: BTreeMap<PartitionId, PartitionManifest> = manifests
            .into_iter()
            .map(|manifest| (manifest.id, manifest))
            .collect();
        let ids: Vec<PartitionId> = self
            .applier
            .state()
            .topics
            .iter()
            .flat_map(Topic::partition_ids)
            .collect();
        for id in ids {
            let Some(manifest) = manifests.remove(&id) else {
                let reason = "the checkpoint has no manifest of it".to_owned();
                return Err(RecoverError::Partition {
                    partition: id,
                    reason,
                });
            };
            let config = config_of(self.applier.state(), id.topic);
            let parts = partition::open(&self.volume, &manifest, config).map_err(|error| {
                RecoverError::Partition {
                    partition: id,
                    reason: error.to_string(),
                }
            })?;
            self.applier.adopt(id, parts);
        }
        Ok(())
    }

    /// The command of a frame; none if a batch that it placed is not there, so that nothing from
    /// here on was ever acknowledged.
    fn command_of(&self, frame: ReadFrame) -> Result<Option<Command>, RecoverError> {
        let mut bulk: Vec<Bytes> = Vec::with_capacity(frame.bulk.len());
        for item in frame.bulk {
            match item {
                Bulk::Inline(bytes) => bulk.push(bytes),
                Bulk::Placed(place) => {
                    let root = &self.volume.root;
                    let placed = recovery::read_placed(root, self.volume.folder, &place)?;
                    match placed {
                        Some(bytes) => bulk.push(bytes),
                        None => return Ok(None),
                    }
                }
            }
        }
        let command = Command::decode(frame.head, bulk).map_err(|error| RecoverError::Content {
            what: format!("command {} of the write-ahead log", frame.sequence),
            reason: error.to_string(),
        })?;
        Ok(Some(command))
    }

    fn apply(
        &mut self,
        sequence: Sequence,
        command: &Command,
        unflushed_bytes_max: u64,
    ) -> Result<(), RecoverError> {
        let mut moved = Vec::new();
        self.applier.apply(sequence, command, &mut moved);
        self.applier.publish_ends(&mut moved);
        if self.applier.unflushed_bytes() > unflushed_bytes_max {
            self.applier.request_flush(true);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), RecoverError> {
        for task in self.applier.take_tasks() {
            self.flusher.perform(task)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Applier, Flusher), RecoverError> {
        self.flush()?;
        self.applier.publish_catalog();
        Ok((self.applier, self.flusher))
    }
}
