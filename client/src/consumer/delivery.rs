//! What a group gives to a member at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use varvelog_proto::v1;
use varvelog_store::batch::BatchError;

use super::ack::Door;
use super::credit::InHand;
use super::decode::{View, read_batch};
use super::failure::Failure;
use super::settlement::{Extended, Settled, Settlement};
use crate::admin::duration;
use crate::error::CallError;
use crate::record::ReadRecord;

/// Of which membership something is, and which one is in force.
#[derive(Debug, Clone)]
pub(super) struct Incarnation {
    pub(super) own: u32,
    pub(super) current: Arc<AtomicU32>,
}

impl Incarnation {
    /// False: the membership lapsed, and what it held was given to others.
    pub(super) fn is_current(&self) -> bool {
        self.own == self.current.load(Ordering::Acquire)
    }
}

/// What this side knows of a delivery beside its contents.
#[derive(Debug)]
pub(super) struct Holding {
    pub(super) in_hand: InHand,
    pub(super) incarnation: Incarnation,
    pub(super) arrived: Instant,
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
    /// Settled up to and with this offset, by parts; below all of its own if none are.
    settled_to: AtomicI64,
    door: Arc<Door>,
    holding: Holding,
}

impl Delivery {
    pub(super) fn new(
        mut response: v1::ConsumeResponse,
        holding: Holding,
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
            settled_to: AtomicI64::new(-1),
            door,
            holding,
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

    /// The record at this offset failed; those before it are done, those behind it stay held. To
    /// say more about several, see [`settle`](Self::settle).
    pub async fn fail(&self, offset: i64, failure: Failure) -> Result<Settled, CallError> {
        self.settle(Settlement::done().fail(offset, failure).up_to(offset))
            .await
    }

    /// Every record that is not settled yet failed for the same reason.
    pub async fn fail_all(&self, failure: Failure) -> Result<Settled, CallError> {
        let each = |settlement: Settlement, offset| settlement.fail(offset, failure.clone());
        self.settle(self.open_offsets().fold(Settlement::done(), each))
            .await
    }

    /// No record was looked at: all that are not settled yet are given out again, uncounted.
    pub async fn release(&self) -> Result<Settled, CallError> {
        self.settle(
            self.open_offsets()
                .fold(Settlement::done(), Settlement::release),
        )
        .await
    }

    fn open_offsets(&self) -> impl Iterator<Item = i64> {
        let settled_to = self.settled_to.load(Ordering::Relaxed);
        let left = self.records.iter().map(|record| record.offset);
        let all = self.taken.iter().copied().chain(left);
        all.filter(move |offset| *offset > settled_to)
    }

    /// Settle record by record. The answer is waited for, through broken connections, for as long
    /// as [`ack_retry`](super::GroupConsumerConfig::ack_retry) says.
    pub async fn settle(&self, settlement: Settlement) -> Result<Settled, CallError> {
        if self.ack_token.is_empty() {
            return Ok(Settled::default());
        }
        let settled_to = settlement.limit().unwrap_or(i64::MAX);
        let request = settlement.request(self.ack_token.clone());
        let settled = Settled::from(self.door.ack(request).await?);
        self.settled_to.fetch_max(settled_to, Ordering::Relaxed);
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

    /// When it came, on this side's clock.
    pub(crate) fn arrived(&self) -> Instant {
        self.holding.arrived
    }

    /// Whether the membership that it was given to is still in force.
    pub(crate) fn is_current(&self) -> bool {
        self.holding.incarnation.is_current()
    }

    /// Only so many of its records are still worked on: others may come for the rest.
    pub(crate) fn keep_credit(&self, records: u32) {
        self.holding.in_hand.keep(records);
    }
}
