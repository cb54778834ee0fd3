//! Appends.

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;
use varvelog_store::{Epoch, Offset, PartitionId, WallMs};

use crate::core::command::{AppendPart, RequestId};
use crate::core::message_ids::{IdHash, PartIds};

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
    /// Records that groups are not given before so many ms after their append, by their number in
    /// the batch, rising: to 30 d each.
    pub delays_ms: Vec<(u32, u64)>,
    /// Message ids of records, by their number in the batch, rising; none where the topic has no
    /// window for them.
    pub ids: Vec<(u32, IdHash)>,
    /// A valid record batch, magic 2.
    pub body: Bytes,
}

impl AppendRequestPart {
    /// As a part of a command that is sequenced now; its offset is still to be predicted.
    pub(in crate::core) fn into_command(self, now: WallMs) -> AppendPart {
        let due = |delay_ms: u64| {
            let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
            WallMs(now.0.saturating_add(delay_ms))
        };
        let delays = self.delays_ms.iter();
        AppendPart {
            partition: self.partition,
            record_count: self.record_count,
            producer: self.producer,
            predicted: None,
            delays: delays
                .map(|(delta, delay_ms)| (*delta, due(*delay_ms)))
                .collect(),
            ids: PartIds {
                fresh: self.ids,
                repeated: Vec::new(),
            },
            body: self.body,
        }
    }
}

/// What became of an append request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Appended {
    /// One for each part, in order.
    pub parts: Vec<PartAppended>,
    /// Records that are not in their part because they were appended before, in order.
    pub repeats: Vec<Repeat>,
    /// All of it had been appended before.
    pub duplicate: bool,
}

/// What became of one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartAppended {
    /// Where it went.
    pub partition: PartitionId,
    /// Of its first record; if each of them was appended before by its message id, of the first of
    /// the first ones.
    pub base_offset: Offset,
    /// Of the partition.
    pub epoch: Epoch,
    /// It had been appended before; `base_offset` is where.
    pub duplicate: bool,
}

/// A record whose message id was appended to the topic before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeat {
    /// Index of the part that it was sent in.
    pub part: u32,
    /// Its number in the batch as it was sent.
    pub number: u32,
    /// Where the first one lies.
    pub partition: u32,
    /// Of the first one.
    pub offset: Offset,
    /// In which the first one was appended.
    pub epoch: Epoch,
}
