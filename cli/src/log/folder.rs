//! A data folder as the newest checkpoint describes it, read only.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use varvelog_broker::core::state::State;
use varvelog_store::checkpoint::{Checkpoint, CheckpointError, CheckpointStore, DamagedCheckpoint};
use varvelog_store::fs::{Dir, OsDir};
use varvelog_store::identity::{
    FolderLock, Identity, IdentityError, LockError, lock_folder, open_or_create, read_clean_mark,
    write_clean_mark,
};
use varvelog_store::partition::{
    PartitionConfig, PartitionManifest, PartitionReader, Volume, open,
};
use varvelog_store::wal::WalError;
use varvelog_store::{FolderId, PartitionId, Sequence, TopicId, layout, recovery};

use crate::exit::Exit;
use crate::failure::Failure;

const OPEN_SEGMENTS_MAX: usize = 16;
/// What a batch may decompress to: the largest that `limits.request_bytes` can be.
pub(super) const DECOMPRESSED_BYTES_MAX: u64 = 64 << 20;

/// An open folder; while it is, no broker starts on it.
pub(super) struct Folder {
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) damaged_checkpoints: Vec<DamagedCheckpoint>,
    pub(super) partitions: Arc<dyn Dir>,
    dir: Arc<dyn Dir>,
    wal: Arc<dyn Dir>,
    clean: Option<Sequence>,
    id: FolderId,
    names: BTreeMap<TopicId, String>,
    _lock: Option<FolderLock>,
}

/// What the write-ahead log holds beyond the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WalTail {
    /// Commands and notes.
    pub(super) frames: u64,
    /// The last of them; that of the checkpoint if there is none.
    pub(super) last: Sequence,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        if !path.join(layout::IDENTITY).exists() {
            let message = format!("{shown} is no data folder: it has no file `identity`");
            return Err(Failure::new(Exit::NotFound, message));
        }
        let lock = lock_folder(path).map_err(|error| match error {
            LockError::Held => Failure::new(Exit::Conflict, format!("a broker is using {shown}"))
                .hint("stop it first, or look at a copy of the folder"),
            LockError::Io(error) => Failure::io(&format!("locking {shown}"), &error),
        })?;
        let dir = OsDir::open(path).map_err(|error| Failure::io(&shown.to_string(), &error))?;
        Self::read(dir, Some(lock))
    }

    /// What is in the folder `dir`.
    pub(super) fn read(dir: Arc<dyn Dir>, lock: Option<FolderLock>) -> Result<Self, Failure> {
        let io = |error: std::io::Error| Failure::io("the data folder", &error);
        let id = identity(&dir)?.folder;
        let checkpoints = dir.create_dir(layout::CHECKPOINTS).map_err(io)?;
        let (store, checkpoint) =
            CheckpointStore::open(checkpoints, id).map_err(|error| checkpoint_failure(&error))?;
        let partitions = dir.create_dir(layout::PARTITIONS).map_err(io)?;
        let wal = dir.create_dir(layout::WAL).map_err(io)?;
        let clean =
            read_clean_mark(&dir).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let names = checkpoint
            .as_ref()
            .map(names)
            .transpose()?
            .unwrap_or_default();
        let mut damaged_checkpoints = store.damaged().to_vec();
        let older = store.check_older();
        damaged_checkpoints.extend(older.map_err(|error| checkpoint_failure(&error))?);
        Ok(Self {
            checkpoint,
            damaged_checkpoints,
            partitions,
            dir,
            wal,
            clean,
            id,
            names,
            _lock: lock,
        })
    }

    /// The partitions of the checkpoint, or only the one that is named: `TOPIC/NUMBER`, where
    /// topic is a name or an id.
    pub(super) fn manifests(
        &self,
        partition: Option<&str>,
    ) -> Result<Vec<&PartitionManifest>, Failure> {
        let all = self
            .checkpoint
            .iter()
            .flat_map(|checkpoint| &checkpoint.partitions);
        let Some(wanted) = partition else {
            return Ok(all.collect());
        };
        let found: Vec<_> = all
            .filter(|manifest| self.is_called(manifest.id, wanted))
            .collect();
        if found.is_empty() {
            let message = format!("no partition {wanted} in the checkpoint");
            return Err(Failure::new(Exit::NotFound, message)
                .hint("varvelog log index FOLDER lists them, as TOPIC/NUMBER"));
        }
        Ok(found)
    }

    /// The topic's name, or its id where the checkpoint does not know the name.
    pub(super) fn topic(&self, id: PartitionId) -> String {
        self.names
            .get(&id.topic)
            .cloned()
            .unwrap_or_else(|| id.topic.to_string())
    }

    pub(super) fn volume(&self) -> Volume {
        Volume::new(Arc::clone(&self.partitions), self.id, OPEN_SEGMENTS_MAX)
    }

    pub(super) fn reader(&self, manifest: &PartitionManifest) -> Result<PartitionReader, Failure> {
        let parts = open(&self.volume(), manifest, PartitionConfig::default());
        parts
            .map(|parts| parts.reader)
            .map_err(|error| Failure::new(Exit::Damage, error.to_string()))
    }

    /// Reads the write-ahead log behind the checkpoint.
    pub(super) fn wal_tail(&self) -> Result<WalTail, WalError> {
        let contained = self.checkpoint.as_ref().map(|found| found.sequence);
        let mut tail = WalTail {
            frames: 0,
            last: contained.unwrap_or(Sequence::ZERO),
        };
        let dirs = (Arc::clone(&self.wal), self.partitions.as_ref());
        let mut reader = recovery::open_log(dirs, self.id, contained, self.clean)?;
        while let Some(frame) = reader.next_frame()? {
            tail.frames += 1;
            tail.last = frame.sequence;
        }
        Ok(tail)
    }

    /// Moves the write-ahead log aside, and marks the checkpoint of `sequence` as where a clean
    /// stop left the folder. Cut short, it can be done again. Tells what the log is called then.
    pub(super) fn give_up_wal(&self, sequence: Sequence) -> Result<String, Failure> {
        let io = |error: std::io::Error| Failure::io("moving the write-ahead log aside", &error);
        let taken = self.dir.list().map_err(io)?;
        let mut names = (1..).map(layout::given_up_wal);
        let aside = names.find(|name| !taken.contains(name)).unwrap_or_default();
        self.dir.rename(layout::WAL, &aside).map_err(io)?;
        self.dir.sync().map_err(io)?;
        write_clean_mark(&self.dir, sequence)
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        Ok(aside)
    }

    fn is_called(&self, id: PartitionId, wanted: &str) -> bool {
        let number = |topic: &str| format!("{topic}/{}", id.partition);
        wanted == number(&self.topic(id)) || wanted == number(&id.topic.to_string())
    }
}

/// The identity is there, so this reads it; a fresh one would be refused beside data.
fn identity(dir: &Arc<dyn Dir>) -> Result<Identity, Failure> {
    let unused = Identity {
        folder: FolderId([0; 16]),
        cluster: [0; 16],
        node: [0; 16],
        feature_level: 0,
    };
    open_or_create(dir, unused).map_err(|error| {
        let exit = match &error {
            IdentityError::Corrupt { .. } | IdentityError::Lost { .. } => Exit::Damage,
            IdentityError::Io { .. } | IdentityError::Version { .. } => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    })
}

fn checkpoint_failure(error: &CheckpointError) -> Failure {
    let exit = match error {
        CheckpointError::AllDamaged { .. } | CheckpointError::Foreign { .. } => Exit::Damage,
        CheckpointError::Unsupported { .. }
        | CheckpointError::TooLarge { .. }
        | CheckpointError::Io(_) => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn names(checkpoint: &Checkpoint) -> Result<BTreeMap<TopicId, String>, Failure> {
    let state = State::decode(&checkpoint.state).map_err(|error| {
        let message = format!("the state of checkpoint {}: {error}", checkpoint.sequence);
        Failure::new(Exit::Damage, message)
    })?;
    Ok(state
        .topics
        .iter()
        .map(|topic| (topic.id, topic.name.to_string()))
        .collect())
}
