//! Calls on the group machine, and what it answers.

use varvelog_store::{Offset, PartitionId, WallMs};

use super::changes::StartAt;
use super::settling::{AckToken, SettleRequest, Settled};
use crate::names::{GroupName, TopicName};

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
    /// Most records of one response: 1 to 10,000.
    pub records_max: u32,
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
        /// The first record is too large for the member's limits: it fails as undeliverable, and
        /// nothing went out.
        undeliverable: bool,
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
    /// An operator settles records, whoever holds them. Answered by [`GroupReply::Operated`].
    SettleRecords {
        /// Must be there.
        group: GroupName,
        /// By partition of a topic that the group reads and offset of the first append, each
        /// once; records that are done, those not there included, are passed over. One whose copy
        /// lies in the retry topic is meant there.
        records: Vec<(PartitionId, Offset)>,
        /// What becomes of them.
        action: OperatorAction,
        /// Of the operator, for the record's history; at most 512 bytes.
        note: String,
    },
}

/// What an operator decides about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorAction {
    /// It is done, without having been processed.
    Skip,
    /// It is a dead letter, with the reason `operator`.
    DeadLetter,
    /// It can be given out at once, and its failures are counted from 0 again.
    Retry,
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
    /// Records that an operator settled.
    Operated {
        /// Those of the call that were not done before.
        settled: u64,
    },
}
