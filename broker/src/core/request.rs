//! What the edges ask of the core, and what they get.

use std::collections::BTreeMap;

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;
use varvelog_store::{Epoch, Offset, PartitionId, TopicId, WallMs};

use super::command::RequestId;
use super::settings::{GroupSettings, TopicSettings};
use crate::names::{GroupName, TopicName};

/// Batches to append, checked by the edge; all or none.
#[derive(Debug, Clone)]
pub struct AppendRequest {
    /// Makes it safe to send again.
    pub request: Option<RequestId>,
    /// In request order; several may name one partition.
    pub parts: Vec<AppendRequestPart>,
}

/// One batch.
#[derive(Debug, Clone)]
pub struct AppendRequestPart {
    /// Where to.
    pub partition: PartitionId,
    /// At least 1.
    pub record_count: u32,
    /// Of an idempotent producer.
    pub producer: Option<ProducerStamp>,
    /// A valid record batch, magic 2.
    pub body: Bytes,
}

/// What became of an append request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// One for each part, in order.
    pub parts: Vec<PartAppended>,
    /// All of it had been appended before.
    pub duplicate: bool,
}

/// What became of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartAppended {
    /// Where it went.
    pub partition: PartitionId,
    /// Of its first record.
    pub base_offset: Offset,
    /// Of the partition.
    pub epoch: Epoch,
    /// It had been appended before; `base_offset` is where.
    pub duplicate: bool,
}

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

/// A member's stream wants in.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    /// Made with default settings if unknown.
    pub group: GroupName,
    /// What the member wants; empty: the group's own.
    pub topics: Vec<TopicName>,
    /// For topics new to the group.
    pub start: StartAt,
    /// Of a static member.
    pub member_name: Option<String>,
    /// Of an earlier event.
    pub member_id: Option<String>,
    /// Peer address, for people.
    pub address: String,
    /// Visibility timeout of this member's leases, ms; none: the group's.
    pub ack_timeout_ms: Option<u64>,
    /// Settled when handed to the transport.
    pub auto_ack: bool,
    /// How many responses may be out.
    pub credit: Credit,
}

/// How many responses may be out unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credit {
    /// So many; one settled makes room for another (`Consume`).
    Window(u32),
    /// So many more, as given by [`GroupRequest::AddCredit`] (`ConsumeSession`); begins at 0.
    Explicit,
}

/// One live stream of a member, for the core. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey(pub u64);

/// A hand-out, for the core and in ack tokens. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u64);

/// What the edges ask of the group machine.
#[derive(Debug, Clone)]
pub enum GroupRequest {
    /// Open a stream. Answered by [`GroupReply::Joined`].
    Join(JoinRequest),
    /// What was read of a grant. No answer.
    Confirm {
        /// Whose.
        stream: StreamKey,
        /// Which grant.
        lease: LeaseId,
        /// The last offset that goes out; none: nothing of it could be read, and `skip_to` says
        /// where the log goes on.
        last: Option<Offset>,
        /// Where to go on when nothing was read (log start moved, damaged range); else unused.
        skip_to: Option<Offset>,
    },
    /// More responses may be sent. No answer.
    AddCredit {
        /// Whose.
        stream: StreamKey,
        /// Above 0.
        responses: u32,
    },
    /// The stream is over. No answer.
    StreamEnded {
        /// Whose.
        stream: StreamKey,
        /// How.
        how: StreamEnd,
    },
    /// End a membership at once. Answered by [`GroupReply::Left`].
    Leave {
        /// Must be there.
        group: GroupName,
        /// Of an event; unknown ones are no error.
        member_id: String,
    },
    /// Settle what one response brought. Answered by [`GroupReply::Settled`].
    Settle(SettleRequest),
    /// Hold for longer. Answered by [`GroupReply::Extended`].
    Extend {
        /// Of the response.
        token: AckToken,
        /// From now, ms: 1 s to 12 h; none: as at delivery.
        ack_timeout_ms: Option<u64>,
    },
}

/// How a member's stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// Half-close, or the stream ended while its connection lived on: leases are released and the
    /// membership is over.
    Clean,
    /// The connection was seen to end.
    Broken,
    /// The connection went silent.
    Silent,
}

/// Settle what one response brought.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// Of the response.
    pub token: AckToken,
    /// Only records up to and with this one.
    pub up_to: Option<Offset>,
}

/// What an ack token says, decoded. Opaque to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckToken {
    /// Name of the group.
    pub group: GroupName,
    /// Of the group's creation.
    pub group_id: u64,
    /// Resets of the partition when it was given out.
    pub reset_count: u64,
    /// Where the records lie.
    pub partition: PartitionId,
    /// First record of the response.
    pub first: Offset,
    /// Last record of the response, included.
    pub last: Offset,
    /// The hand-out.
    pub lease: LeaseId,
    /// Epoch of the broker's run that gave it out: a `lease` of another run is unknown here.
    pub run: u64,
    /// 1 on first delivery.
    pub attempt: u32,
}

/// What the group machine answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupReply {
    /// The stream is open; its messages follow.
    Joined(StreamKey),
    /// The membership is over.
    Left,
    /// Counts, and records that were not settled.
    Settled(Settled),
    /// Held until then.
    Extended {
        /// Of the broker's wall clock; informative.
        deadline: WallMs,
        /// It cannot be moved again.
        capped: bool,
    },
}

/// What a settlement did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Records settled by this call.
    pub done: u32,
    /// Records settled the same way before.
    pub already_settled: u32,
    /// Records that this call did not settle.
    pub conflicts: Vec<(Offset, Conflict)>,
}

/// Why a record was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The deadline passed, and another holds it.
    LeaseLost,
    /// No such record in the token, the group was reset or made again, or the topic is gone.
    Unknown,
}

/// What a member's stream is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberMessage {
    /// Who it is and what it has: first of all, and at each change.
    Event(MemberEvent),
    /// Records to read and hand on.
    Grant(Grant),
    /// The stream ends.
    End(MemberEnd),
}

/// Why a member's stream ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEnd {
    /// It left: status OK.
    Left,
    /// A second stream of the same member won.
    Fenced {
        /// The present generation.
        generation: u64,
    },
    /// The group was deleted.
    GroupGone,
    /// The last topic that it reads was deleted.
    TopicGone {
        /// Its name.
        topic: TopicName,
    },
}

/// Who a member is and what it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEvent {
    /// For a reconnect.
    pub member_id: String,
    /// Of the assignment.
    pub generation: u64,
    /// All that it now has, by topic name and partition.
    pub assigned: Vec<(TopicName, u32)>,
    /// What it no longer has.
    pub revoked: Vec<(TopicName, u32)>,
}

/// Records that a member may read and hand on. The edge reads whole or part of it from the log,
/// answers with [`GroupRequest::Confirm`], and only then sends the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its id.
    pub lease: LeaseId,
    /// Name of the topic.
    pub topic: TopicName,
    /// Where.
    pub partition: PartitionId,
    /// First offset to read.
    pub from: Offset,
    /// One past the last that may be handed on.
    pub until: Offset,
    /// 1 on first delivery.
    pub attempt: u32,
    /// Rises with each hand-out of the partition to a member.
    pub fence: i64,
    /// For the token.
    pub group_id: u64,
    /// For the token.
    pub reset_count: u64,
    /// For the token.
    pub run: u64,
    /// Visibility timeout, ms.
    pub ack_timeout_ms: u64,
    /// Records of the partition that are not done, at the time of the grant.
    pub lag_records: u64,
}
