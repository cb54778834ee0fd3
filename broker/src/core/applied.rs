//! What applying a command gives.

use varvelog_store::{Epoch, Offset, PartitionId, TopicId, WallMs};

use super::dead_letters::JobNumber;
use super::refusal::Refusal;
use super::request::Appended;
use crate::names::GroupName;

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The answer. A refusal changed nothing.
    pub outcome: Result<Outcome, Refusal>,
    /// What is to be done outside the state, in order. None with a refusal.
    pub effects: Vec<Effect>,
}

impl Applied {
    pub(super) fn from_result(result: Result<(Outcome, Vec<Effect>), Refusal>) -> Self {
        match result {
            Ok((outcome, effects)) => Self {
                outcome: Ok(outcome),
                effects,
            },
            Err(refusal) => Self {
                outcome: Err(refusal),
                effects: Vec::new(),
            },
        }
    }
}

/// The answer to a command that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Of `Append`.
    Appended(Appended),
    /// Of `CreateTopic`, `UpdateTopic` and `AddPartitions`.
    Topic(TopicId),
    /// Of `MoveLogStart`: the first offset kept.
    LogStart(Offset),
    /// Of `InitProducer`.
    Producer {
        /// The id.
        id: i64,
        /// From 0.
        epoch: i16,
    },
    /// Of `ResetOffsets`: low watermarks before and after, in the order asked.
    Moved(Vec<(PartitionId, Offset, Offset)>),
    /// Of `NextGeneration`: the new one.
    Generation(u64),
    /// Of `StartReplay`: the job, or the one that the same request started before.
    Replay(JobNumber),
    /// Of `Discard`.
    Discarded {
        /// Entries that were dropped.
        discarded: u64,
        /// Entries that a replay has, or that were gone.
        skipped: u64,
    },
    /// Of `Settle` and `Replay`.
    Settled(Settlement),
    /// Of all others.
    Done,
}

/// What became of a settlement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settlement {
    /// One for each range, in order; empty if it was carried out before.
    pub ranges: Vec<RangeSettled>,
    /// What was appended with it.
    pub appended: Appended,
}

/// What became of one range of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeSettled {
    /// Records that this command settled.
    pub done: u64,
    /// Records that were done before.
    pub already: u64,
}

/// What is to be done outside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Push a batch to its partition's log.
    Append {
        /// Where to.
        partition: PartitionId,
        /// Of its first record.
        base_offset: Offset,
        /// At least 1.
        record_count: u32,
        /// Of the partition.
        epoch: Epoch,
        /// Never below that of the batch before.
        append_time: WallMs,
        /// Index into the parts of the command, whose body it is.
        part: usize,
    },
    /// A topic has new, empty partitions: those from `from` up to, not including, `to`. Each
    /// begins at offset 0.
    PartitionsAdded {
        /// The topic; with `from` 0 it is new.
        topic: TopicId,
        /// First number.
        from: u32,
        /// One past the last number.
        to: u32,
    },
    /// The settings of a topic are others.
    TopicUpdated {
        /// Which.
        topic: TopicId,
    },
    /// A topic is gone; its files go later, and `ForgetTopic` follows.
    TopicRemoved {
        /// Which.
        topic: TopicId,
        /// How many it had.
        partitions: u32,
    },
    /// A log begins later than before.
    LogStartMoved {
        /// Which.
        partition: PartitionId,
        /// Its first offset.
        start: Offset,
    },
    /// The epoch of every partition is one higher.
    EpochsRaised,
    /// Topics, their settings, or epochs changed: what readers see of them is to be made anew.
    CatalogChanged,
    /// A group is gone.
    GroupRemoved {
        /// Its name.
        group: GroupName,
        /// Of its creation.
        group_id: u64,
    },
    /// Tokens for this partition of the group are void.
    GroupReset {
        /// Its name.
        group: GroupName,
        /// Where.
        partition: PartitionId,
    },
}
