//! Every command: what changes durable state. Self-contained: whatever varies (time, random ids,
//! chosen partitions, resolved positions) is already in it.

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::dead_letters::{Death, JobNumber};
use super::failure::{Ending, FailureNote};
use super::handed_out::HandedOut;
use super::message_ids::PartIds;
use super::replay_command::{Discard, JobControl, ReplayStep, StartReplay};
use super::retries::RetryEntry;
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
    /// Forget producers that appended nothing since then and whose last batches are gone.
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
    /// Records of a group are done, or failed; copies and outputs are appended with it.
    Settle(Settle),
    /// Note that records were given out. May be lost: no reply waits for it.
    HandOut(HandOut),
    /// Note that records were given back uncounted. May be lost.
    HandBack(HandBack),
    /// Records that wait for their next delivery are due now.
    MakeDue(MakeDue),
    /// Start a replay of dead letters.
    StartReplay(StartReplay),
    /// Dead letters are given out again: their copies are appended, and they are gone.
    Replay(ReplayStep),
    /// Hold, continue or end a replay.
    ControlReplay {
        /// Which.
        job: JobNumber,
        /// What is done to it.
        control: JobControl,
    },
    /// Drop dead letters.
    Discard(Discard),
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

impl Change {
    /// Whether it is noted for a restart only, so that it may be lost and nobody waits for it.
    pub fn is_lazy(&self) -> bool {
        matches!(self, Self::HandOut(_) | Self::HandBack(_))
    }

    /// What it appends, if it is of a kind that does.
    pub fn append(&self) -> Option<&Append> {
        if let Self::Append(append) = self {
            Some(append)
        } else if let Self::Settle(settle) = self {
            Some(&settle.append)
        } else if let Self::Replay(step) = self {
            Some(&step.append)
        } else {
            None
        }
    }

    /// What it appends, to fill in predictions or bodies.
    pub fn append_mut(&mut self) -> Option<&mut Append> {
        if let Self::Append(append) = self {
            Some(append)
        } else if let Self::Settle(settle) = self {
            Some(&mut settle.append)
        } else if let Self::Replay(step) = self {
            Some(&mut step.append)
        } else {
            None
        }
    }
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
    /// Of the batch; 0, and then there is none, if each of its records was appended before.
    pub record_count: u32,
    /// Of an idempotent producer.
    pub producer: Option<ProducerStamp>,
    /// The offset that the first record will get, as known when the command was sequenced; none if
    /// the part was to append nothing (a duplicate). Apply asserts it.
    pub predicted: Option<Offset>,
    /// Records that groups are not given before their time, by their number in the batch, rising.
    pub delays: Vec<(u32, WallMs)>,
    /// Message ids that count within the topic's window.
    pub ids: PartIds,
    /// A record batch, magic 2.
    pub body: Bytes,
}

impl AppendPart {
    /// How many of its records are delayed to a time after `now`.
    pub fn delays_after(&self, now: WallMs) -> u64 {
        let later = self.delays.iter().filter(|(_, due)| *due > now).count();
        u64::try_from(later).unwrap_or(u64::MAX)
    }
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

/// Most bytes of batches in one settlement.
pub const SETTLE_BYTES_MAX: u64 = 32 << 20;
/// Most batches in one settlement.
pub const SETTLE_PARTS_MAX: u64 = 4_096;

/// How records of one partition end, or what is noted of those that do not.
///
/// With something to append it is all or none: refused if one of its records is done already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settle {
    /// Which.
    pub group: GroupName,
    /// Of the group's creation: a group made again under the name is another.
    pub group_id: u64,
    /// Rises with each reset of the partition: a settlement from before is void. 0 in a retry
    /// partition, which is never reset.
    pub reset_count: u64,
    /// Of a topic that the group reads, or of its retry topic.
    pub partition: PartitionId,
    /// These are done: first and last offset, both included, rising and apart.
    pub ranges: Vec<(Offset, Offset)>,
    /// Those within the ranges that were not simply processed, rising.
    pub endings: Vec<(Offset, Ending)>,
    /// What is noted of records that failed and stay; rising, none of them in a range.
    pub notes: Vec<(Offset, FailureNote)>,
    /// Hashes of the keys of those that go to the dead-letter topic, if later records of these
    /// keys are to follow; rising.
    pub parked: Vec<u64>,
    /// Copies for the retry and dead-letter topics, and outputs; no part has a producer.
    pub append: Append,
    /// By index of a part that goes to the group's retry topic, rising: what becomes of each of
    /// its records.
    pub retries: Vec<(u32, Vec<RetryEntry>)>,
    /// By index of a part that goes to the group's dead-letter topic, rising: how each of its
    /// records died.
    pub deaths: Vec<(u32, Vec<Death>)>,
}

impl Settle {
    /// Whether it appends, so that it is all or none.
    pub fn appends(&self) -> bool {
        !self.append.parts.is_empty() || self.append.request.is_some()
    }

    /// Later records of these keys, by their hashes, are to follow into the dead-letter topic.
    pub fn park(&mut self, keys: Vec<u64>) {
        self.parked.extend(keys);
        self.parked.sort_unstable();
        self.parked.dedup();
    }

    /// A settlement without ranges, notes and copies.
    pub fn of(group: GroupName, group_id: u64, reset_count: u64, partition: PartitionId) -> Self {
        Self {
            group,
            group_id,
            reset_count,
            partition,
            ranges: Vec::new(),
            endings: Vec::new(),
            notes: Vec::new(),
            parked: Vec::new(),
            append: Append {
                request: None,
                parts: Vec::new(),
            },
            retries: Vec::new(),
            deaths: Vec::new(),
        }
    }
}

/// Records of one partition that a member was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOut {
    /// Which.
    pub group: GroupName,
    /// Of the group's creation.
    pub group_id: u64,
    /// Of the partition.
    pub reset_count: u64,
    /// Of a topic that the group reads, or of its retry topic.
    pub partition: PartitionId,
    /// First offset.
    pub first: Offset,
    /// The rest.
    pub out: HandedOut,
}

/// Records of one partition that nobody has any more, though they are not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandBack {
    /// Which.
    pub group: GroupName,
    /// Of the group's creation.
    pub group_id: u64,
    /// Of a topic that the group reads, or of its retry topic.
    pub partition: PartitionId,
    /// First and last offset, both included.
    pub ranges: Vec<(Offset, Offset)>,
}

/// Waiting records of a group that are due now. Those that do not wait are passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MakeDue {
    /// Which.
    pub group: GroupName,
    /// Of topics that the group reads, and of its retry topics.
    pub records: Vec<(PartitionId, Offset)>,
}
