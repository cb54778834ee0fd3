//! What goes out next, and what an answer means: the producer's decisions, without its I/O.
//!
//! Requests are answered in their order. A request holds at most one batch of each partition, is
//! taken or refused as a whole, and is sent again until each of its batches is appended, refused
//! for good, or out of time. Whatever the outcome, each payload given in comes out once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchError, ProducerStamp};

use super::error::{RecordError, SendError};
use super::lane::{Identity, Lane, Pending, Ready};
use crate::error::CallError;
use crate::retry::BackoffConfig;

/// What the pipeline needs of the configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct PipelineConfig {
    pub(super) in_flight: usize,
    pub(super) in_flight_per_partition: usize,
    pub(super) request_bytes: usize,
    pub(super) idempotent: bool,
    /// A new identity fences the one before, so all partitions take it at once.
    pub(super) named: bool,
    pub(super) delivery_timeout: Duration,
    pub(super) request_timeout: Duration,
    /// How long the broker may refuse producers before records are given up.
    pub(super) max_block: Duration,
    pub(super) backoff: BackoffConfig,
}

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) partition: u32,
    pub(super) offset: i64,
    pub(super) epoch: i32,
    pub(super) duplicate: bool,
    pub(super) durability: v1::Durability,
}

/// A batch that is done with.
#[derive(Debug)]
pub(super) struct Settled<T> {
    pub(super) payload: T,
    pub(super) outcome: Result<Placed, SendError>,
}

/// Makes the bytes of a batch.
pub(super) trait Encode<T> {
    fn encode(&mut self, payload: &T, stamp: Option<ProducerStamp>) -> Result<Bytes, BatchError>;
}

/// A request that was sent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) sequence: i64,
    pub(super) sent_at: Instant,
    /// Partition and batch.
    pub(super) batches: Vec<(u32, u64)>,
}

/// A request to send.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) sequence: i64,
    pub(super) batches: Vec<v1::PartitionBatch>,
}

/// All that one producer has accepted and not settled.
#[derive(Debug)]
pub(super) struct Pipeline<T> {
    pub(super) config: PipelineConfig,
    pub(super) lanes: BTreeMap<u32, Lane<T>>,
    /// Partitions with batches.
    pub(super) active: BTreeSet<u32>,
    /// Batches that were not settled: partition and deadline. Deadlines rise with the number.
    pub(super) unsettled: BTreeMap<u64, (u32, Instant)>,
    pub(super) requests: VecDeque<Request>,
    next_batch: u64,
    next_request: i64,
    /// Where the next request begins to look.
    rotation: u32,
    identity: Option<Identity>,
    identity_wanted: bool,
    pub(super) hold_until: Option<Instant>,
    /// Since when the broker refuses producers, and what it said last.
    pub(super) pressed: Option<(Instant, CallError)>,
    /// Failures since the last success.
    pub(super) failures: u32,
    /// Why nothing is taken any more.
    pub(super) ended: Option<CallError>,
    settled: Vec<Settled<T>>,
}

impl<T> Pipeline<T> {
    pub(super) fn new(config: PipelineConfig, identity: Option<Identity>) -> Self {
        Self {
            config,
            lanes: BTreeMap::new(),
            active: BTreeSet::new(),
            unsettled: BTreeMap::new(),
            requests: VecDeque::new(),
            next_batch: 0,
            next_request: 0,
            rotation: 0,
            identity,
            identity_wanted: false,
            hold_until: None,
            pressed: None,
            failures: 0,
            ended: None,
            settled: Vec::new(),
        }
    }

    pub(super) fn push(
        &mut self,
        now: Instant,
        partition: u32,
        payload: T,
        records: u32,
        bytes: usize,
    ) {
        if let Some(error) = self.ended.clone() {
            let refused = SendError::Refused {
                error,
                may_have_applied: false,
            };
            self.settled.push(Settled {
                payload,
                outcome: Err(refused),
            });
            return;
        }
        let id = self.next_batch;
        self.next_batch += 1;
        self.unsettled
            .insert(id, (partition, now + self.config.delivery_timeout));
        self.active.insert(partition);
        self.lanes
            .entry(partition)
            .or_insert_with(Lane::new)
            .push(Pending {
                id,
                payload: Some(payload),
                records,
                bytes,
                stamp: None,
                ordinal: 0,
                body: None,
                in_flight: false,
                unknown: false,
                solo: false,
                last_error: None,
            });
    }

    /// What has been settled since the last call, in order.
    pub(super) fn take_settled(&mut self) -> Vec<Settled<T>> {
        std::mem::take(&mut self.settled)
    }

    /// Number that the next batch gets; all before it are settled when
    /// [`settled_below`](Self::settled_below) reaches it.
    pub(super) fn next_batch(&self) -> u64 {
        self.next_batch
    }

    pub(super) fn settled_below(&self) -> u64 {
        self.unsettled
            .first_key_value()
            .map_or(self.next_batch, |(id, _)| *id)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Whether there is something to have a stream for.
    pub(super) fn wants_stream(&self, now: Instant) -> bool {
        !self.unsettled.is_empty() && self.hold_until.is_none_or(|until| until <= now)
    }

    /// Whether another producer took over: nothing is taken any more.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(super) fn wants_identity(&self) -> bool {
        self.identity_wanted
    }

    pub(super) fn set_identity(&mut self, identity: Identity) {
        self.identity = Some(identity);
        self.identity_wanted = false;
    }

    /// Whether the oldest request has waited too long for its answer.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.overdue_at().is_some_and(|at| at <= now)
    }

    fn overdue_at(&self) -> Option<Instant> {
        self.requests
            .front()
            .map(|request| request.sent_at + self.config.request_timeout)
    }

    /// When time alone changes something.
    pub(super) fn next_wakeup(&self, now: Instant) -> Option<Instant> {
        let deadline = self
            .unsettled
            .first_key_value()
            .map(|(_, (_, deadline))| *deadline);
        let hold = self
            .hold_until
            .filter(|until| *until > now && !self.unsettled.is_empty());
        [deadline, hold, self.overdue_at(), self.pressed_out_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next request to send, if one may be sent.
    pub(super) fn next_request(
        &mut self,
        now: Instant,
        encoder: &mut impl Encode<T>,
    ) -> Option<Outgoing> {
        let held = self.hold_until.is_some_and(|until| until > now);
        if held || self.requests.len() >= self.config.in_flight {
            return None;
        }
        let from = self.active.range(self.rotation..);
        let order: Vec<u32> = from
            .chain(self.active.range(..self.rotation))
            .copied()
            .collect();
        let (mut wire, mut batches, mut bytes) = (Vec::new(), Vec::new(), 0_usize);
        for partition in order {
            let room = self.config.request_bytes.saturating_sub(bytes);
            match self.take_from(partition, wire.is_empty(), room, encoder) {
                Taken::Nothing => {}
                Taken::Full => break,
                Taken::Batch {
                    id,
                    bytes: taken,
                    batch,
                    solo,
                } => {
                    bytes += taken;
                    wire.push(batch);
                    batches.push((partition, id));
                    self.rotation = partition.saturating_add(1);
                    if solo {
                        break;
                    }
                }
            }
        }
        if wire.is_empty() {
            return None;
        }
        let sequence = self.next_request;
        self.next_request += 1;
        self.requests.push_back(Request {
            sequence,
            sent_at: now,
            batches,
        });
        Some(Outgoing {
            sequence,
            batches: wire,
        })
    }

    fn take_from(
        &mut self,
        partition: u32,
        first: bool,
        room: usize,
        encoder: &mut impl Encode<T>,
    ) -> Taken {
        let (stamped, shared) = (self.config.idempotent, self.identity);
        let in_flight_max = self.config.in_flight_per_partition;
        let Some(lane) = self.lanes.get_mut(&partition) else {
            return Taken::Nothing;
        };
        let index = match lane.ready(stamped, shared, in_flight_max) {
            Ready::Send(index) => index,
            Ready::Wait => return Taken::Nothing,
            Ready::WantsIdentity => {
                self.want_identity();
                return Taken::Nothing;
            }
        };
        match lane.at_mut(index) {
            Some(batch) if !first && (batch.solo || batch.bytes > room) => return Taken::Full,
            Some(_) => lane.stamp(index),
            None => return Taken::Nothing,
        }
        let Some(batch) = lane.at_mut(index) else {
            return Taken::Nothing;
        };
        let body = match (&batch.body, &batch.payload) {
            (Some(body), _) => Ok(body.clone()),
            (None, Some(payload)) => encoder.encode(payload, batch.stamp),
            (None, None) => return Taken::Nothing,
        };
        let id = batch.id;
        match body {
            Ok(body) => {
                batch.body = Some(body.clone());
                let wire = v1::PartitionBatch {
                    partition: wire_partition(partition),
                    batch: body,
                };
                let (bytes, solo) = (batch.bytes, batch.solo);
                lane.sent(index);
                Taken::Batch {
                    id,
                    bytes,
                    batch: wire,
                    solo,
                }
            }
            Err(error) => {
                self.fail(partition, id, RecordError::Encoding(error).into());
                Taken::Nothing
            }
        }
    }

    /// A named producer's new identity ends the old one everywhere: all must be answered first.
    fn want_identity(&mut self) {
        if self.config.named {
            self.lanes.values_mut().for_each(Lane::renew_identity);
            self.identity_wanted = self.lanes.values().all(Lane::is_drained);
        } else {
            self.identity_wanted = true;
        }
        if self.identity_wanted {
            self.identity = None;
        }
    }

    /// Settle what is out of time.
    pub(super) fn expire(&mut self, now: Instant) {
        self.give_up_pressed(now);
        while let Some((&id, &(partition, deadline))) = self.unsettled.first_key_value()
            && deadline <= now
        {
            let after = self.config.delivery_timeout;
            let lane = self.lanes.get_mut(&partition);
            let Some(batch) = lane.and_then(|lane| lane.get_mut(id)) else {
                self.unsettled.remove(&id);
                continue;
            };
            let may_have_applied = batch.in_flight || batch.unknown;
            let last = batch.last_error.clone();
            let timed_out = SendError::TimedOut {
                after,
                may_have_applied,
                last,
            };
            if batch.in_flight {
                // Its answer still tells how the sequences go on.
                self.unsettled.remove(&id);
                if let Some(payload) = batch.payload.take() {
                    self.settled.push(Settled {
                        payload,
                        outcome: Err(timed_out),
                    });
                }
            } else {
                self.fail(partition, id, timed_out);
            }
        }
    }

    pub(super) fn fail(&mut self, partition: u32, id: u64, error: SendError) {
        let lane = self.lanes.get_mut(&partition);
        if let Some(batch) = lane.and_then(|lane| lane.give_up(id)) {
            self.settle(partition, batch, Err(error));
        }
    }

    pub(super) fn settle(
        &mut self,
        partition: u32,
        batch: Pending<T>,
        outcome: Result<Placed, SendError>,
    ) {
        self.unsettled.remove(&batch.id);
        if let Some(payload) = batch.payload {
            self.settled.push(Settled { payload, outcome });
        }
        self.rest(partition);
    }

    /// A partition without batches is active no more.
    pub(super) fn rest(&mut self, partition: u32) {
        if self.lanes.get(&partition).is_none_or(Lane::is_empty) {
            self.active.remove(&partition);
        }
    }
}

/// What a partition gives for a request.
enum Taken {
    Nothing,
    Full,
    Batch {
        id: u64,
        bytes: usize,
        batch: v1::PartitionBatch,
        solo: bool,
    },
}

fn wire_partition(partition: u32) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}
