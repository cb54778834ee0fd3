//! The batches of one partition on their way: sequences, and what to do when one is lost.
//!
//! Invariants: pending batches are in the order of their records. Those in flight come before
//! those that wait, unless one came back; then nothing is sent until the ones behind it are back
//! too. Stamped batches carry rising sequences of one identity. A sequence is used for other
//! records only when it is certain that the broker never took it; where that is not certain, the
//! lane takes a new identity, whose sequences begin at 0. The broker tells repeated batches from
//! new ones only among the last few of a producer, so none goes out that is that far from the first
//! pending one.

use std::collections::VecDeque;

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;

use crate::error::CallError;

/// Who sends: a producer id of the broker, and its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

/// A batch on its way.
#[derive(Debug)]
pub(super) struct Pending<T> {
    pub(super) id: u64,
    /// None once its sender has been told that time is up, while it is still in flight.
    pub(super) payload: Option<T>,
    pub(super) records: u32,
    pub(super) bytes: usize,
    pub(super) stamp: Option<ProducerStamp>,
    /// Which stamped batch of the lane it is; means nothing without a stamp.
    pub(super) ordinal: u64,
    /// Encoded with `stamp`; the same bytes go out again.
    pub(super) body: Option<Bytes>,
    pub(super) in_flight: bool,
    /// A try went unanswered: it may be in the log.
    pub(super) unknown: bool,
    /// Goes alone, since a request with others was refused.
    pub(super) solo: bool,
    pub(super) last_error: Option<CallError>,
}

/// How sequences go on after a batch has left without being appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    /// From this one on again: the broker never took it.
    Rewind(i32),
    /// Under another identity.
    Identity,
}

/// What a lane can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Send the batch at this index.
    Send(usize),
    /// Nothing now.
    Wait,
    /// Nothing before there is a new identity.
    WantsIdentity,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Lane<T> {
    identity: Option<Identity>,
    next_sequence: i32,
    renewal: Option<Renewal>,
    pending: VecDeque<Pending<T>>,
    /// How many of `pending` are in flight.
    in_flight: usize,
    /// Of the next batch that is stamped.
    next_ordinal: u64,
}

impl<T> Lane<T> {
    pub(super) fn new() -> Self {
        Self {
            identity: None,
            next_sequence: 0,
            renewal: None,
            pending: VecDeque::new(),
            in_flight: 0,
            next_ordinal: 0,
        }
    }

    pub(super) fn push(&mut self, batch: Pending<T>) {
        self.pending.push_back(batch);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn get(&self, id: u64) -> Option<&Pending<T>> {
        self.pending.iter().find(|batch| batch.id == id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Pending<T>> {
        self.pending.iter_mut().find(|batch| batch.id == id)
    }

    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Pending<T>> {
        self.pending.get_mut(index)
    }

    /// The batch at `index` goes out.
    pub(super) fn sent(&mut self, index: usize) {
        if let Some(batch) = self.pending.get_mut(index).filter(|batch| !batch.in_flight) {
            batch.in_flight = true;
            self.in_flight += 1;
        }
    }

    /// A batch was answered, and stays.
    pub(super) fn came_back(&mut self, id: u64) -> Option<&mut Pending<T>> {
        let batch = self.pending.iter_mut().find(|batch| batch.id == id)?;
        self.in_flight -= usize::from(batch.in_flight);
        batch.in_flight = false;
        Some(batch)
    }

    /// Whether a sequence gap at this batch is no surprise: something before it is not settled.
    pub(super) fn expects_gap(&self, id: u64) -> bool {
        self.renewal.is_some() || self.pending.front().is_some_and(|first| first.id != id)
    }

    /// Whether every batch is where it is known to be: none in flight, none unanswered.
    pub(super) fn is_drained(&self) -> bool {
        self.pending
            .iter()
            .all(|batch| !batch.in_flight && !batch.unknown)
    }

    /// Give up the present identity, once all that was sent under it is answered.
    pub(super) fn renew_identity(&mut self) {
        if self.identity.is_some() {
            self.renewal = Some(Renewal::Identity);
        }
    }

    /// What to send next, when at most `in_flight_max` may be unanswered. `shared` is the
    /// producer's identity, if batches are stamped at all and it has one.
    pub(super) fn ready(
        &mut self,
        stamped: bool,
        shared: Option<Identity>,
        in_flight_max: usize,
    ) -> Ready {
        if stamped && !self.take_identity(shared) {
            return Ready::WantsIdentity;
        }
        // Before a renewal only what must be asked about again goes out.
        let renewing = self.renewal.is_some();
        let next = |batch: &Pending<T>| !batch.in_flight && (!renewing || batch.unknown);
        let Some(index) = self.pending.iter().position(next) else {
            return Ready::Wait;
        };
        let before = self
            .pending
            .iter()
            .take(index)
            .filter(|batch| batch.in_flight)
            .count();
        if self.in_flight >= in_flight_max || self.in_flight > before {
            return Ready::Wait;
        }
        let stampable = |batch: &Pending<T>| batch.stamp.is_some() || self.has_room(batch.records);
        if stamped && !self.is_remembered(index, in_flight_max) {
            return Ready::Wait;
        }
        if stamped && !self.pending.get(index).is_some_and(stampable) {
            self.renewal = Some(Renewal::Identity);
            return Ready::Wait;
        }
        Ready::Send(index)
    }

    /// Stamp the batch at `index` if it has no stamp yet.
    pub(super) fn stamp(&mut self, index: usize) {
        let (Some(identity), Some(batch)) = (self.identity, self.pending.get_mut(index)) else {
            return;
        };
        if batch.stamp.is_some() {
            return;
        }
        let base_sequence = self.next_sequence;
        let Some(next) = advance(base_sequence, batch.records) else {
            return;
        };
        let Identity { id, epoch } = identity;
        batch.stamp = Some(ProducerStamp {
            id,
            epoch,
            base_sequence,
        });
        batch.ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        self.next_sequence = next;
    }

    /// A batch was appended, and leaves.
    pub(super) fn appended(&mut self, id: u64) -> Option<Pending<T>> {
        let index = self.pending.iter().position(|batch| batch.id == id)?;
        let batch = self.pending.remove(index)?;
        self.in_flight -= usize::from(batch.in_flight);
        Some(batch)
    }

    /// A batch leaves without being appended, or without that being known.
    pub(super) fn give_up(&mut self, id: u64) -> Option<Pending<T>> {
        let batch = self.appended(id)?;
        if let Some(stamp) = batch.stamp {
            let renewal = if batch.unknown || batch.in_flight {
                Renewal::Identity
            } else {
                Renewal::Rewind(stamp.base_sequence)
            };
            self.renewal = Some(match (self.renewal, renewal) {
                (Some(Renewal::Identity), _) | (_, Renewal::Identity) => Renewal::Identity,
                (Some(Renewal::Rewind(a)), Renewal::Rewind(b)) => Renewal::Rewind(a.min(b)),
                (None, rewind) => rewind,
            });
        }
        Some(batch)
    }

    /// The stream broke: nothing is in flight any more. `sent` says whether what was may have
    /// arrived. Abandoned batches leave.
    pub(super) fn broke_off(&mut self, sent: bool) {
        let mut abandoned = Vec::new();
        self.in_flight = 0;
        for batch in self.pending.iter_mut().filter(|batch| batch.in_flight) {
            batch.in_flight = false;
            batch.unknown |= sent;
            if batch.payload.is_none() {
                abandoned.push(batch.id);
            }
        }
        for id in abandoned {
            self.give_up(id);
        }
    }

    /// Every batch leaves.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Pending<T>> {
        if self.pending.iter().any(|batch| batch.stamp.is_some()) {
            self.renewal = Some(Renewal::Identity);
        }
        self.in_flight = 0;
        std::mem::take(&mut self.pending).into_iter()
    }

    /// Whether the broker, which remembers so many batches, will still know the first pending one
    /// when it has taken the one at `index`, whatever of what lies between it has taken already.
    fn is_remembered(&self, index: usize, batches_remembered: usize) -> bool {
        let ordinal = |batch: &Pending<T>| match batch.stamp {
            Some(_) => batch.ordinal,
            None => self.next_ordinal,
        };
        let first = self.pending.front().map_or(self.next_ordinal, ordinal);
        let this = self.pending.get(index).map_or(self.next_ordinal, ordinal);
        usize::try_from(this.saturating_sub(first)).is_ok_and(|apart| apart < batches_remembered)
    }

    fn has_room(&self, records: u32) -> bool {
        advance(self.next_sequence, records).is_some()
    }

    /// Does what renewal is due, and says whether the lane has an identity to send under.
    fn take_identity(&mut self, shared: Option<Identity>) -> bool {
        if self.identity.is_none() {
            self.identity = shared;
            return self.identity.is_some();
        }
        let Some(renewal) = self.renewal.filter(|_| self.is_drained()) else {
            return true;
        };
        match renewal {
            Renewal::Rewind(sequence) => {
                let stamped = self.pending.iter().filter_map(|batch| batch.stamp);
                let lowest = stamped.map(|stamp| stamp.base_sequence).min();
                self.next_sequence = lowest.map_or(sequence, |lowest| lowest.min(sequence));
            }
            Renewal::Identity if shared.is_none() || shared == self.identity => return false,
            Renewal::Identity => {
                self.identity = shared;
                self.next_sequence = 0;
            }
        }
        self.renewal = None;
        for batch in &mut self.pending {
            batch.stamp = None;
            batch.body = None;
        }
        true
    }
}

/// The sequence after `records`; none when they run out.
fn advance(sequence: i32, records: u32) -> Option<i32> {
    sequence.checked_add(i32::try_from(records).ok()?)
}
