//! Changes of topics, groups and positions.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, TopicId};

use crate::core::dead_letters::JobNumber;
use crate::core::replay_command::{Discard, JobControl, StartReplay};
use crate::core::settings::{GroupSettings, TopicSettings};
use crate::names::{GroupName, TopicName};

/// A change that an edge asks for; the core fills in ids, times and positions.
#[derive(Debug, Clone)]
pub enum ChangeRequest {
    /// Make a topic.
    CreateTopic {
        /// Not a derived name.
        name: TopicName,
        /// 1 to 10,000.
        partitions: u32,
        /// All filled in.
        settings: TopicSettings,
    },
    /// Replace settings.
    UpdateTopic {
        /// Which.
        name: TopicName,
        /// Whole.
        settings: TopicSettings,
    },
    /// Grow.
    AddPartitions {
        /// Which.
        name: TopicName,
        /// In all.
        total: u32,
    },
    /// Delete.
    DeleteTopic {
        /// Which.
        name: TopicName,
        /// Though dead letters are left.
        force: bool,
    },
    /// Move a log start up by hand.
    DeleteRecords {
        /// Which.
        name: TopicName,
        /// Its number.
        partition: u32,
        /// At most the end.
        before: Offset,
    },
    /// A producer id.
    InitProducer {
        /// Empty: a new one.
        name: String,
    },
    /// Make a group.
    CreateGroup {
        /// Its name.
        name: GroupName,
        /// At least one, none derived.
        topics: Vec<TopicName>,
        /// All filled in.
        settings: GroupSettings,
        /// Where to begin.
        start: StartAt,
    },
    /// Replace settings.
    UpdateGroup {
        /// Which.
        name: GroupName,
        /// Whole.
        settings: GroupSettings,
    },
    /// Delete a group.
    DeleteGroup {
        /// Which.
        name: GroupName,
        /// Its dead-letter topics too.
        purge_dead_letters: bool,
    },
    /// Set positions by hand; an unknown group is made.
    CommitOffsets {
        /// Which.
        group: GroupName,
        /// By topic name, partition number, position and the caller's own text.
        offsets: Vec<CommitRequest>,
        /// Member id and generation, if the caller is a member.
        member: Option<(String, u64)>,
    },
    /// Move positions as an operator.
    ResetOffsets {
        /// Which.
        group: GroupName,
        /// New positions, each within its log.
        positions: Vec<(PartitionId, Offset)>,
        /// Though it has live members or leases.
        force: bool,
    },
    /// Let records of a group that wait for their next delivery be due now; those that do not
    /// wait are passed over.
    MakeDue {
        /// Which.
        group: GroupName,
        /// Of topics that the group reads, and of its retry topics.
        records: Vec<(PartitionId, Offset)>,
    },
    /// Start a replay of dead letters.
    StartReplay(StartReplay),
    /// Hold, continue or end a replay.
    ControlReplay {
        /// Which.
        job: JobNumber,
        /// What is done to it.
        control: JobControl,
    },
    /// Drop dead letters.
    Discard(Discard),
}

/// One position to commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitRequest {
    /// Of the group; added to a group that is made by this call.
    pub topic: TopicName,
    /// Its number.
    pub partition: u32,
    /// The next one to read.
    pub offset: Offset,
    /// At most 4 KiB.
    pub metadata: String,
}

/// What a change answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeDone {
    /// Done.
    Done,
    /// A topic made or changed.
    Topic(TopicId),
    /// Where a log starts now.
    LogStart(Offset),
    /// A producer id and epoch.
    Producer {
        /// The id.
        id: i64,
        /// From 0.
        epoch: i16,
    },
    /// A replay that was started, now or by the same request before.
    Replay(JobNumber),
    /// Of a discard.
    Discarded {
        /// Entries that were dropped.
        discarded: u64,
        /// Entries that a replay has, or that were gone.
        skipped: u64,
    },
    /// Positions before and after, in the order asked.
    Moved(Vec<(PartitionId, Offset, Offset)>),
}

/// Where a group begins in a topic that is new to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StartAt {
    /// At each log start.
    #[default]
    Earliest,
    /// At offsets that the edge looked up; partitions that are not listed begin at their log
    /// start.
    Offsets(BTreeMap<PartitionId, Offset>),
}
