//! Settlements: what a member says of what it was given, and what comes of it.

use varvelog_store::{Offset, PartitionId, WallMs};

use super::appends::{AppendRequestPart, Appended};
use super::groups::LeaseId;
use crate::core::command::AppendPart;
use crate::core::failure::FailureText;
use crate::names::GroupName;

/// Settle what one response brought.
#[derive(Debug, Clone)]
pub struct SettleRequest {
    /// Of the response.
    pub token: AckToken,
    /// Only records up to and with this one, by its first append.
    pub up_to: Option<Offset>,
    /// Records that were not processed; every offset once.
    pub failures: Vec<RecordFailure>,
    /// Appended in the same command.
    pub outputs: Option<Outputs>,
}

impl SettleRequest {
    /// Bytes of what it brings: records to append, and error texts.
    pub fn bytes(&self) -> usize {
        let parts = self.outputs.iter().flat_map(|outputs| &outputs.parts);
        let texts = self.failures.iter().map(|failure| &failure.text);
        let texts = texts.map(|text| text.code.len() + text.message.len() + text.stack.len());
        parts.map(|part| part.body.len()).sum::<usize>() + texts.sum::<usize>()
    }
}

/// A record that was not processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFailure {
    /// Of its first append, as in the response.
    pub offset: Offset,
    /// What shall become of it.
    pub action: FailureAction,
    /// What went wrong, within its bounds.
    pub text: FailureText,
    /// Instead of the policy's delay, ms, without jitter: 0 to 24 h.
    pub retry_after_ms: Option<u64>,
}

/// What shall become of a record that was not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAction {
    /// The policy decides by the error code.
    ByPolicy,
    /// Try again.
    Retry,
    /// Never again.
    DeadLetter,
    /// Give it back, uncounted.
    Release,
}

/// Batches that are appended with a settlement, checked by the edge.
#[derive(Debug, Clone)]
pub struct Outputs {
    /// In order; no part has a producer.
    pub parts: Vec<AppendRequestPart>,
    /// Of token and content: a repeated call has the same.
    pub content_hash: u64,
}

impl Outputs {
    /// As parts of a command that is sequenced now.
    pub(in crate::core) fn parts(&self, now: WallMs) -> Vec<AppendPart> {
        let parts = self.parts.iter().cloned();
        parts.map(|part| part.into_command(now)).collect()
    }
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
    /// Of records from the retry topic: the offsets of their first appends, one for each record
    /// from `first` to `last`, rising. Else empty.
    pub origins: Vec<Offset>,
}

impl AckToken {
    /// The first append of the record at `offset` of its partition.
    pub fn origin(&self, offset: Offset) -> Offset {
        let at = usize::try_from(offset.since(self.first)).ok();
        let origin = at.and_then(|at| self.origins.get(at));
        origin.copied().unwrap_or(offset)
    }

    /// Where the record lies in its partition whose first append is `origin`; none if the token
    /// is not of it.
    pub fn place_of(&self, origin: Offset) -> Option<Offset> {
        if self.origins.is_empty() {
            return (self.first <= origin && origin <= self.last).then_some(origin);
        }
        let at = self.origins.binary_search(&origin).ok()?;
        Some(self.first.plus(u64::try_from(at).ok()?))
    }
}

/// Most records of one hand-out from a retry topic.
pub const RETRY_RUN_MAX: usize = 500;

/// What a settlement did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Records processed, as this call says.
    pub done: u32,
    /// Records that will be given out again later.
    pub retried: u32,
    /// Records that are dead letters now, those that wait for room included.
    pub dead_lettered: u32,
    /// Of those, how many wait for room in the dead-letter topic.
    pub dead_letters_waiting: u32,
    /// Records given back.
    pub released: u32,
    /// Records settled the same way before.
    pub already_settled: u32,
    /// Records that this call did not settle, by the offset of their first append.
    pub conflicts: Vec<(Offset, Conflict)>,
    /// Of the outputs; on a repeated call the first ones.
    pub outputs: Option<Appended>,
}

/// Why a record was not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// The deadline passed, and another holds it.
    LeaseLost,
    /// It was settled before, with another outcome.
    SettledOtherwise,
    /// No such record in the token, the group was reset or made again, or the topic is gone.
    Unknown,
}
