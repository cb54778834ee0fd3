//! What a group gives to a member at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use varvelog_proto::v1;
use varvelog_store::batch::BatchError;

use super::ack::{Door, Extended, Settled, Settlement};
use super::decode::{View, read_batch};
use crate::admin::duration;
use crate::error::CallError;
use crate::record::ReadRecord;

/// How many deliveries a consumer may have in hand.
#[derive(Debug)]
pub(super) struct Credit {
    pub(super) limit: u32,
    /// Deliveries that arrived and were not dropped.
    pub(super) in_hand: AtomicU32,
    /// Told of each that is dropped.
    pub(super) freed: Notify,
}

impl Credit {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit,
            in_hand: AtomicU32::new(0),
            freed: Notify::new(),
        }
    }

    pub(super) fn take(self: &Arc<Self>) -> InHand {
        self.in_hand.fetch_add(1, Ordering::Relaxed);
        InHand(self.clone())
    }

    pub(super) fn in_hand(&self) -> u32 {
        self.in_hand.load(Ordering::Relaxed)
    }
}

/// A delivery's share of the credit.
#[derive(Debug)]
pub(super) struct InHand(Arc<Credit>);

impl Drop for InHand {
    fn drop(&mut self) {
        self.0.in_hand.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

/// Records of one partition, held by this member until they are settled or their time is up.
///
/// Dropping it settles nothing: its records come again when the visibility timeout has passed. It
/// makes room for the next delivery.
#[derive(Debug)]
pub struct Delivery {
    topic: String,
    partition: u32,
    records: Vec<ReadRecord>,
    /// Offsets of the records that were taken out.
    taken: Vec<i64>,
    ack_token: Bytes,
    ack_deadline_ms: i64,
    lag_records: u64,
    fence: i64,
    door: Arc<Door>,
    _in_hand: InHand,
}

impl Delivery {
    pub(super) fn new(
        mut response: v1::ConsumeResponse,
        in_hand: InHand,
        door: Arc<Door>,
    ) -> Result<Self, (i64, BatchError)> {
        let mut records = Vec::new();
        response.leased.sort_unstable_by_key(|range| range.first);
        let view = View {
            leased: &response.leased,
            from: 0,
            until: i64::MAX,
            attempt: 1,
        };
        for batch in &response.batches {
            read_batch(batch, view, &mut records).map_err(|error| (batch.base_offset, error))?;
        }
        records.extend(response.records.into_iter().map(ReadRecord::from));
        Ok(Self {
            topic: response.topic,
            partition: u32::try_from(response.partition).unwrap_or(0),
            records,
            taken: Vec::new(),
            ack_token: response.ack_token,
            ack_deadline_ms: response.ack_deadline_ms,
            lag_records: u64::try_from(response.lag_records).unwrap_or(0),
            fence: response.fence,
            door,
            _in_hand: in_hand,
        })
    }

    /// Where its records were produced, also when they come again.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// From 0.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Rising offsets.
    pub fn records(&self) -> &[ReadRecord] {
        &self.records
    }

    /// Take the records out; the delivery stays to be settled.
    pub fn take_records(&mut self) -> Vec<ReadRecord> {
        self.taken
            .extend(self.records.iter().map(|record| record.offset));
        std::mem::take(&mut self.records)
    }

    /// Until when its records are held: informative, Unix milliseconds on the broker's clock.
    pub fn ack_deadline_ms(&self) -> i64 {
        self.ack_deadline_ms
    }

    /// Unsettled records of the group in this partition, these included.
    pub fn lag_records(&self) -> u64 {
        self.lag_records
    }

    /// Rises with each hand-out, so that a store can refuse a late writer by it.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// For settling from elsewhere; empty when the group settles by itself.
    pub fn ack_token(&self) -> &Bytes {
        &self.ack_token
    }

    /// Every record is done. May be repeated. What was not settled is in
    /// [`Settled::conflicts`]; it is no error, since the rest was.
    pub async fn ack(&self) -> Result<Settled, CallError> {
        self.settle(Settlement::done()).await
    }

    /// Records up to and with this offset are done; the others stay held.
    pub async fn ack_up_to(&self, offset: i64) -> Result<Settled, CallError> {
        self.settle(Settlement::done().up_to(offset)).await
    }

    /// No record was looked at: all are given out again, uncounted.
    pub async fn release(&self) -> Result<Settled, CallError> {
        let left = self.records.iter().map(|record| record.offset);
        let all = self.taken.iter().copied().chain(left);
        self.settle(all.fold(Settlement::done(), Settlement::release))
            .await
    }

    /// Settle record by record. The answer is waited for, through broken connections, for as long
    /// as [`ack_retry`](super::GroupConsumerConfig::ack_retry) says.
    pub async fn settle(&self, settlement: Settlement) -> Result<Settled, CallError> {
        if self.ack_token.is_empty() {
            return Ok(Settled::default());
        }
        let request = settlement.request(self.ack_token.clone());
        let settled = Settled::from(self.door.ack(request).await?);
        if !settled.is_complete() {
            tracing::warn!(
                topic = self.topic,
                partition = self.partition,
                conflicts = settled.conflicts.len(),
                "records were not this member's any more when it settled them"
            );
        }
        Ok(settled)
    }

    /// Hold its records for longer: from now on for `timeout`, or as long as at delivery.
    pub async fn extend(&self, timeout: Option<Duration>) -> Result<Extended, CallError> {
        let ack_timeout = timeout.map(duration);
        let request = v1::ExtendAckRequest {
            ack_token: self.ack_token.clone(),
            ack_timeout,
        };
        let v1::ExtendAckResponse {
            ack_deadline_ms,
            capped,
        } = self.door.extend(request).await?;
        Ok(Extended {
            ack_deadline_ms,
            capped,
        })
    }
}
