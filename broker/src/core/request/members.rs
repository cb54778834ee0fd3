//! What the core sends to a member's stream.

use varvelog_store::{Offset, PartitionId};

use super::groups::LeaseId;
use crate::names::TopicName;

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
/// answers with [`GroupRequest::Confirm`](super::GroupRequest::Confirm), and only then sends the
/// response.
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
    /// Records of the source partition that are not done, at the time of the grant.
    pub lag_records: u64,
    /// Of records from the retry topic, where `partition` is its: the offsets of their first
    /// appends, one for each record from `from` to `until`, rising. Else empty.
    pub origins: Vec<Offset>,
}
