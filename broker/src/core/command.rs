//! Every command: what changes durable state. Self-contained: whatever varies (time, random ids,
//! chosen partitions, resolved positions) is already in it.

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::settings::{GroupSettings, TopicSettings};
use crate::names::{GroupName, TopicName};

/// A change and the time at which the core sequenced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// When.
    pub stamp: Stamp,
    /// What.
    pub change: Change,
}

/// The two times that apply may use. Neither ever falls from one command to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The broker's wall clock, never below the stamp before: append times come from it.
    pub wall: WallMs,
    /// Milliseconds that brokers have run on this data folder in all: time that a stop or a step
    /// of the wall clock does not touch.
    pub running_ms: u64,
}

/// What changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Append batches to partitions of one or several topics, all or none.
    Append(Append),
    /// Make a topic.
    CreateTopic(CreateTopic),
    /// Replace a topic's settings.
    UpdateTopic {
        /// Which.
        topic: TopicId,
        /// The new ones, whole.
        settings: TopicSettings,
    },
    /// Let a topic, and the derived topics of its groups, grow to `total` partitions.
    AddPartitions {
        /// Which.
        topic: TopicId,
        /// Not below what there are.
        total: u32,
    },
    /// Delete a topic with its groups' derived topics.
    DeleteTopic {
        /// Which.
        topic: TopicId,
        /// Also with dead letters in it.
        force: bool,
    },
    /// The files of a deleted topic are gone.
    ForgetTopic {
        /// Which.
        topic: TopicId,
    },
    /// Move a log start up, by retention or by hand. Never moves it down.
    MoveLogStart {
        /// Which.
        partition: PartitionId,
        /// The new first offset; beyond the end is refused.
        start: Offset,
    },
    /// Give out a producer id, or the next epoch of a named one.
    InitProducer {
        /// Empty: a new id.
        name: String,
    },
    /// Forget producers that appended nothing since then.
    ExpireProducers {
        /// Wall time of the last use that is still kept.
        used_since: WallMs,
    },
    /// Make a group with its derived topics.
    CreateGroup(CreateGroup),
    /// Let a group read more topics.
    AddGroupTopics {
        /// Which.
        group: GroupName,
        /// Those it lacks, each with the start of every partition and the ids of its derived
        /// topics.
        topics: Vec<GroupTopic>,
    },
    /// Replace a group's settings.
    UpdateGroup {
        /// Which.
        group: GroupName,
        /// The new ones, whole.
        settings: GroupSettings,
    },
    /// Delete a group and its retry topics.
    DeleteGroup {
        /// Which.
        group: GroupName,
        /// Its dead-letter topics too.
        purge_dead_letters: bool,
    },
    /// Begin the next generation of a group's assignment.
    NextGeneration {
        /// Which.
        group: GroupName,
    },
    /// Set low watermarks by hand.
    CommitOffsets(CommitOffsets),
    /// Mark records of a group as done.
    Settle(Settle),
    /// An operator moves low watermarks, either way; tokens given out before are void.
    ResetOffsets {
        /// Which.
        group: GroupName,
        /// Where to.
        positions: Vec<(PartitionId, Offset)>,
    },
    /// A broker began to work on this folder.
    BrokerStarted {
        /// Whether the one before stopped cleanly; if not, every partition's epoch rises.
        clean: bool,
    },
}

/// Batches to append, all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Append {
    /// Makes the request safe to send again.
    pub request: Option<RequestId>,
    /// In request order; several may name one partition.
    pub parts: Vec<AppendPart>,
}

/// A caller's id of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId {
    /// The topic within which it counts.
    pub topic: TopicId,
    /// 1 to 128 bytes.
    pub id: String,
    /// A hash of the content: the same id with other content is refused.
    pub content_hash: u64,
}

/// One batch for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendPart {
    /// Where to.
    pub partition: PartitionId,
    /// At least 1.
    pub record_count: u32,
    /// Of an idempotent producer.
    pub producer: Option<ProducerStamp>,
    /// The offset that the first record will get, as known when the command was sequenced; none if
    /// the part was to append nothing (a duplicate). Apply asserts it.
    pub predicted: Option<Offset>,
    /// A record batch, magic 2.
    pub body: Bytes,
}

/// A topic to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTopic {
    /// Fresh.
    pub topic: TopicId,
    /// Not taken, not derived.
    pub name: TopicName,
    /// 1 to 10,000.
    pub partitions: u32,
    /// All filled in.
    pub settings: TopicSettings,
}

/// A group to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateGroup {
    /// Not taken.
    pub group: GroupName,
    /// All filled in.
    pub settings: GroupSettings,
    /// At least one.
    pub topics: Vec<GroupTopic>,
}

/// A topic as it comes to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupTopic {
    /// Which; not a derived one.
    pub topic: TopicId,
    /// Start of each partition, by number; those beyond the list start at their log start.
    pub start: Vec<Offset>,
    /// Fresh id of its retry topic.
    pub retry: TopicId,
    /// Fresh id of its dead-letter topic; not used when a kept one is adopted.
    pub dead_letter: TopicId,
}

/// Positions that a program keeps by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOffsets {
    /// Which; must be there.
    pub group: GroupName,
    /// All or none.
    pub offsets: Vec<OffsetCommit>,
    /// Whether they may move back: the caller is a live member of the present generation.
    pub may_move_back: bool,
}

/// One position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetCommit {
    /// Of the group.
    pub partition: PartitionId,
    /// The next one to read; at most the end.
    pub offset: Offset,
    /// The caller's own; at most 4 KiB.
    pub metadata: String,
}

/// Records that were processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// Which.
    pub group: GroupName,
    /// Of the group's creation: a group made again under the name is another.
    pub group_id: u64,
    /// Rises with each reset of the partition: a settlement from before is void.
    pub reset_count: u64,
    /// Where.
    pub partition: PartitionId,
    /// First and last offset, both included, rising and apart.
    pub ranges: Vec<(Offset, Offset)>,
}
