//! The single writer of all partition files: moves committed batches from the tails into
//! segments, makes checkpoints, removes what retention and deletion let go.
//!
//! It runs on a thread of its own and takes its tasks in order. A checkpoint names the end that
//! each partition has in its snapshot of the state; what was flushed beyond is cut from the
//! manifest, since the WAL brings it again.

use std::collections::{BTreeSet, HashMap};

use varvelog_store::checkpoint::{Checkpoint, CheckpointError, CheckpointStore};
use varvelog_store::fs::{lacks_descriptors, lacks_room};
use varvelog_store::partition::{
    self, OffsetRange, PartitionConfig, PartitionManifest, PartitionWriter, RetiredSegment,
    SyncError, Volume, WriteError,
};
use varvelog_store::{Offset, PartitionId, Sequence, TopicId};

use super::snapshot::Snapshot;

/// What the core asks of the flusher.
#[derive(Debug)]
pub enum Task {
    /// Take over a partition's writer.
    Open(PartitionId, Box<PartitionWriter>),
    /// Write tails out.
    Flush(Vec<PartitionId>),
    /// New settings for segments made from now on.
    Configure(PartitionId, PartitionConfig),
    /// A log start moved; segments below it are retired at this running time.
    MoveStart(PartitionId, Offset, u64),
    /// Close the active segment, so that retention can let it go.
    Roll(PartitionId),
    /// Remove the files of segments retired up to this running time.
    RemoveRetired(u64),
    /// Remove files of segments below the log start that no manifest knows any more, and say which
    /// records are missing.
    Sweep(PartitionId),
    /// A topic was deleted: nothing more is written to it.
    Close(TopicId, u32),
    /// Remove the files of a deleted topic.
    RemoveTopic(TopicId, u32),
    /// Make a checkpoint of exactly this state.
    Checkpoint(CheckpointTask),
}

/// A checkpoint to make.
#[derive(Debug)]
pub struct CheckpointTask {
    /// The last command that is in it.
    pub sequence: Sequence,
    /// Where every partition ended then.
    pub ends: Vec<(PartitionId, Offset)>,
    /// The durable state.
    pub state: Snapshot,
}

/// What the flusher reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// A checkpoint is on disk; the WAL is needed from this sequence on.
    Checkpointed {
        /// The last command in it.
        sequence: Sequence,
        /// First sequence that a recovery may ask for.
        wal_needed_from: Sequence,
    },
    /// The files of a deleted topic are gone.
    TopicRemoved(TopicId),
    /// The files of a deleted topic, or some of them, are still there: ask again.
    TopicKept(TopicId),
    /// Any other task is done, or goes on with a later one.
    Performed,
    /// There is no room, or no file descriptor, for a checkpoint now.
    Postponed,
}

/// Why the flusher stopped for good.
#[derive(Debug, thiserror::Error)]
pub enum FlushError {
    /// A partition's files.
    #[error("partition {partition}: {source}")]
    Partition {
        /// Which.
        partition: PartitionId,
        /// What happened.
        source: WriteError,
    },
    /// What was flushed could not be made safe.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A checkpoint.
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
}

impl FlushError {
    /// Whether there was no room on the volume, or no file descriptor: what was asked may be asked
    /// again later. A sync that finds no room is final as any other that fails.
    pub fn is_shortage(&self) -> bool {
        match self {
            Self::Partition {
                source: WriteError::Io { source, .. },
                ..
            }
            | Self::Checkpoint(CheckpointError::Io(source)) => {
                lacks_room(source) || lacks_descriptors(source)
            }
            Self::Sync(SyncError::Partition(WriteError::Io { source, .. })) => {
                lacks_descriptors(source)
            }
            Self::Partition { .. } | Self::Sync(_) | Self::Checkpoint(_) => false,
        }
    }
}

/// The single writer of all partition files.
#[derive(Debug)]
pub struct Flusher {
    volume: Volume,
    checkpoints: CheckpointStore,
    writers: HashMap<PartitionId, PartitionWriter>,
    /// Partitions whose flush found no room, or no file descriptor: their records stay in memory
    /// and in the WAL.
    stalled: BTreeSet<PartitionId>,
    /// Whether that was said in the log.
    told: bool,
    /// Retired segments with the running time at which they left the log, in that order.
    retired: Vec<(u64, PartitionId, Vec<RetiredSegment>)>,
}

impl Flusher {
    /// A flusher without partitions.
    pub fn new(volume: Volume, checkpoints: CheckpointStore) -> Self {
        Self {
            volume,
            checkpoints,
            writers: HashMap::new(),
            stalled: BTreeSet::new(),
            told: false,
            retired: Vec::new(),
        }
    }

    /// Does one task. An error is final: the volume must not be written any more.
    pub fn perform(&mut self, task: Task) -> Result<Done, FlushError> {
        match task {
            Task::Open(id, writer) => {
                self.writers.insert(id, *writer);
            }
            Task::Flush(partitions) => self.flush(&partitions)?,
            Task::Configure(id, config) => {
                if let Some(writer) = self.writers.get_mut(&id) {
                    writer.set_config(config);
                }
            }
            Task::MoveStart(id, start, running_ms) => self.move_start(id, start, running_ms),
            Task::Roll(id) => self.with(id, |writer| {
                writer.roll();
                Ok(())
            })?,
            Task::RemoveRetired(before) => self.remove_retired(before)?,
            Task::Sweep(id) => self.sweep(id)?,
            Task::Close(topic, partitions) => self.close(topic, partitions),
            Task::RemoveTopic(topic, partitions) => {
                return match self.remove_topic(topic, partitions) {
                    Err(error) if error.is_shortage() => Ok(Done::TopicKept(topic)),
                    removed => removed.map(|()| Done::TopicRemoved(topic)),
                };
            }
            Task::Checkpoint(task) => {
                let ids: Vec<PartitionId> = task.ends.iter().map(|(id, _)| *id).collect();
                return match self.checkpoint(task) {
                    Err(error) if error.is_shortage() => {
                        self.tell(&error);
                        self.stalled.extend(ids);
                        Ok(Done::Postponed)
                    }
                    done => done,
                };
            }
        }
        Ok(Done::Performed)
    }

    fn with(
        &mut self,
        partition: PartitionId,
        act: impl FnOnce(&mut PartitionWriter) -> Result<(), WriteError>,
    ) -> Result<(), FlushError> {
        let Some(writer) = self.writers.get_mut(&partition) else {
            return Ok(());
        };
        act(writer).map_err(|source| FlushError::Partition { partition, source })
    }

    /// Flushes these and what an earlier flush found no room for.
    fn flush(&mut self, partitions: &[PartitionId]) -> Result<(), FlushError> {
        self.stalled.extend(partitions);
        for id in std::mem::take(&mut self.stalled) {
            match self.with(id, |writer| writer.flush().map(drop)) {
                Err(error) if error.is_shortage() => {
                    self.tell(&error);
                    self.stalled.insert(id);
                }
                done => done?,
            }
        }
        self.told &= !self.stalled.is_empty();
        Ok(())
    }

    /// Says, once until it is over, why records stay in memory.
    fn tell(&mut self, shortage: &FlushError) {
        if !std::mem::replace(&mut self.told, true) {
            tracing::warn!(%shortage, "segments cannot be written now: records wait in memory");
        }
    }

    fn move_start(&mut self, id: PartitionId, start: Offset, running_ms: u64) {
        let Some(writer) = self.writers.get_mut(&id) else {
            return;
        };
        let segments = writer.set_start(start);
        if !segments.is_empty() {
            self.retired.push((running_ms, id, segments));
        }
    }

    fn remove_retired(&mut self, before: u64) -> Result<(), FlushError> {
        let due = self.retired.partition_point(|(at, ..)| *at <= before);
        for (at, id, segments) in self.retired.drain(..due).collect::<Vec<_>>() {
            let removed = self.with(id, |writer| writer.remove_retired(segments.clone()));
            match removed {
                Err(error) if error.is_shortage() => self.retired.push((at, id, segments)),
                removed => removed?,
            }
        }
        self.retired.sort_by_key(|(at, ..)| *at);
        Ok(())
    }

    fn sweep(&mut self, partition: PartitionId) -> Result<(), FlushError> {
        let Some(writer) = self.writers.get(&partition) else {
            return Ok(());
        };
        // What this process retired is removed in its time.
        if self.retired.iter().any(|(_, id, _)| *id == partition) {
            return Ok(());
        }
        let swept = partition::remove_below(&self.volume, &writer.manifest())
            .map_err(|source| FlushError::Partition { partition, source });
        match swept {
            // They go after the next start.
            Err(error) if error.is_shortage() => Ok(()),
            swept => {
                for OffsetRange { first, last } in swept? {
                    tracing::error!(
                        %partition, %first, %last,
                        "records are missing: their segments are not in the folder of the partition"
                    );
                }
                Ok(())
            }
        }
    }

    fn close(&mut self, topic: TopicId, partitions: u32) {
        for partition in 0..partitions {
            self.writers.remove(&PartitionId { topic, partition });
        }
        self.retired.retain(|(_, id, _)| id.topic != topic);
    }

    fn remove_topic(&mut self, topic: TopicId, partitions: u32) -> Result<(), FlushError> {
        self.close(topic, partitions);
        for partition in 0..partitions {
            let id = PartitionId { topic, partition };
            partition::remove_files(&self.volume, id).map_err(|source| FlushError::Partition {
                partition: id,
                source,
            })?;
        }
        Ok(())
    }

    /// Makes all that is flushed survive a power loss.
    fn sync(&mut self) -> Result<(), SyncError> {
        let mut writers: Vec<_> = self.writers.iter_mut().collect();
        writers.sort_unstable_by_key(|(id, _)| **id);
        let mut writers: Vec<_> = writers.into_iter().map(|(_, writer)| writer).collect();
        partition::sync_all(&self.volume, &mut writers)
    }

    fn checkpoint(&mut self, task: CheckpointTask) -> Result<Done, FlushError> {
        for (id, _) in &task.ends {
            self.with(*id, |writer| writer.flush().map(drop))?;
        }
        self.sync()?;
        let mut partitions: Vec<PartitionManifest> = Vec::with_capacity(task.ends.len());
        for (id, end) in &task.ends {
            // A topic deleted since is in the snapshot, and the WAL deletes it again.
            let mut manifest = match self.writers.get(id) {
                Some(writer) => writer.manifest(),
                None => PartitionManifest::empty(*id),
            };
            manifest.cut_to(*end);
            partitions.push(manifest);
        }
        let checkpoint = Checkpoint {
            sequence: task.sequence,
            partitions,
            state: task.state.encode(),
        };
        self.checkpoints.write(&checkpoint)?;
        Ok(Done::Checkpointed {
            sequence: task.sequence,
            wal_needed_from: self.checkpoints.wal_needed_from(),
        })
    }
}

#[cfg(test)]
#[path = "flusher_tests.rs"]
mod tests;
