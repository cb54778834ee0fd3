//! What one partition gives to a group, and what came back.
//!
//! Every record of a source partition that is not done is in exactly one of three places: leased,
//! returned, or at or beyond the frontier. The frontier is a mere place to search from: records
//! beyond it that are done, leased or returned are passed over, so it may be moved back at any
//! time. Records that failed and stay are returned, and may be waiting.
//!
//! A record of a retry partition that is not done is leased, waiting, or ready.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId};

use super::candidate::Candidate;
use super::durable::Durable;
use super::key_window::KeyWindow;
use super::lease::{Lease, LeaseTable, Stage};
use super::member::MemberKey;
use super::ready::Ready;
use super::underway::Underway;
use super::waiting::{Held, Waiting};
use crate::clock::MonoMs;
use crate::core::copies::ReadId;
use crate::core::request::LeaseId;
use crate::names::GroupName;

/// Most records of one grant.
pub(super) const GRANT_RECORDS_MAX: u64 = 10_000;

/// A run of offsets, both ends included.
pub(super) type Run = (Offset, Offset);

/// The live side of one partition of a group.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) id: PartitionId,
    /// Itself, or the source partition of a retry partition.
    pub(super) source: PartitionId,
    /// To whom it gives, in a stream; none between two owners.
    pub(super) owner: Option<MemberKey>,
    /// Generation at which it came to its owner.
    pub(super) fence: u64,
    pub(super) leases: LeaseTable,
    pub(super) pause: Option<Pause>,
    pub(super) waiting: Waiting,
    /// When its waiting records are looked at next.
    pub(super) due_timer: Option<MonoMs>,
    /// Of a queue that holds.
    pub(super) keys: Option<KeyWindow>,
    /// The highest low watermark seen since it moved back last.
    pub(super) low_seen: Offset,
    /// Records of parked keys are on their way into the dead-letter topic: none follows them
    /// before they are there.
    pub(super) is_parking: bool,
    /// Keys are being looked at.
    pub(super) looking: Option<ReadId>,
    pub(super) frontier: Offset,
    pub(super) returned: BTreeMap<Offset, Returned>,
    /// Of a retry partition: records that could be given out.
    pub(super) ready: Ready,
    /// So many retries wait that nothing new is given out.
    pub(super) retries_full: bool,
    /// In a stream that holds: delayed records below this were told to wait already.
    pub(super) delays_seen: Offset,
    /// What settlements on their way are about: given to nobody meanwhile.
    pub(super) underway: Underway,
}

/// Why a feed gives nothing for the time being.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// It waits for what its former owner holds, but not beyond that time.
    Handover(MonoMs),
    /// Its log could not be read.
    Unreadable(MonoMs),
}

impl Pause {
    pub(super) fn until(self) -> MonoMs {
        match self {
            Self::Handover(until) | Self::Unreadable(until) => until,
        }
    }
}

/// Records that were given out and came back unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Returned {
    pub(super) last: Offset,
    /// The last hand-out.
    pub(super) lease: Option<LeaseId>,
    /// How often they were given back since they failed last.
    pub(super) releases: u32,
}

impl Feed {
    pub(super) fn new(id: PartitionId, source: PartitionId) -> Self {
        Self {
            id,
            source,
            owner: None,
            fence: 0,
            leases: LeaseTable::default(),
            pause: None,
            waiting: Waiting::default(),
            due_timer: None,
            keys: None,
            looking: None,
            low_seen: Offset::ZERO,
            is_parking: false,
            frontier: Offset::ZERO,
            returned: BTreeMap::new(),
            ready: Ready::default(),
            retries_full: false,
            delays_seen: Offset::ZERO,
            underway: Underway::default(),
        }
    }

    /// Takes what is granted out of what could be given.
    pub(super) fn take(&mut self, granted: &Candidate) {
        let run = (granted.first, granted.last);
        self.forget_returned(run);
        if granted.fresh {
            self.frontier = granted.last.plus(1);
        }
        if let Some(keys) = &mut self.keys {
            keys.take(run);
        }
        self.ready.remove_run(run);
    }

    /// Takes what was handed out before a restart out of what could be given.
    pub(super) fn restore(&mut self, lease: &Lease) {
        let run = (lease.first, lease.last);
        self.forget_returned(run);
        self.waiting.remove_run(run);
        self.ready.remove_run(run);
        if let Some(keys) = &mut self.keys {
            keys.take(run);
        }
    }

    /// Whether it is of a retry topic.
    pub(super) fn is_retry(&self) -> bool {
        self.id != self.source
    }

    /// The edge handed on a grant up to and with `last`. Returns what is left over, and whether
    /// something was handed on; what is left over can be given out again.
    pub(super) fn confirm(&mut self, id: LeaseId, last: Offset, stage: Stage) -> Option<Confirmed> {
        let mut lease = self.leases.remove(id)?;
        let granted = lease.clone();
        let mut left = None;
        if last < lease.last {
            left = Some((last.plus(1).max(lease.first), lease.last));
            self.put_back(&granted, left?, granted.releases);
        }
        if last < lease.first {
            return Some(Confirmed {
                handed_on: false,
                left,
            });
        }
        lease.trim(lease.first, last);
        lease.stage = stage;
        self.leases.insert(lease);
        Some(Confirmed {
            handed_on: true,
            left,
        })
    }

    /// Ends a lease; what it held can be given out again.
    pub(super) fn release(&mut self, id: LeaseId, releases: u32) -> Option<Lease> {
        let lease = self.leases.remove(id)?;
        self.put_back(&lease, (lease.first, lease.last), releases);
        Some(lease)
    }

    /// Remembers that a part of a lease came back. What is of a retry partition is made
    /// [ready](Self::make_ready) by who knows when it was due.
    pub(super) fn put_back(&mut self, lease: &Lease, (first, last): Run, releases: u32) {
        let hand_out = lease.last_hand_out();
        if let Some(keys) = &mut self.keys {
            keys.give_back((first, last));
        }
        if hand_out.is_none() && !self.is_retry() && self.keys.is_none() && !lease.noted {
            self.search_from(first);
        } else {
            self.returned.insert(
                first,
                Returned {
                    last,
                    lease: hand_out,
                    releases,
                },
            );
        }
    }

    /// Remembers that records came back that no lease of this feed holds.
    pub(super) fn remember(&mut self, (first, last): Run, lease: Option<LeaseId>, releases: u32) {
        self.forget_returned((first, last));
        let before = self.returned.range_mut(..first).next_back();
        let before = before.filter(|(_, it)| {
            it.last.plus(1) == first && (it.lease, it.releases) == (lease, releases)
        });
        if let Some((_, before)) = before {
            before.last = last;
        } else {
            let returned = Returned {
                last,
                lease,
                releases,
            };
            self.returned.insert(first, returned);
        }
        if let Some(keys) = &mut self.keys {
            keys.give_back((first, last));
        }
    }

    /// Nobody has this record any more: if it is open, of a retry partition, and does not wait, it
    /// can be given out.
    pub(super) fn make_ready<S: Durable>(&mut self, state: &S, group: &GroupName, at: Offset) {
        let leased = self.leases.overlapping(at, at).next().is_some();
        if leased || !self.is_retry() || self.waiting.contains(at) {
            return;
        }
        let entry = state.next_retry(group, self.id, at);
        let Some((_, entry)) = entry.filter(|(found, _)| *found == at) else {
            return;
        };
        let note = state.next_note(group, self.id, at);
        let note = note.filter(|(found, _)| *found == at);
        let suspect = note.map_or(entry.suspect, |(_, note)| note.class.is_suspect());
        self.ready.insert(at, entry.due, suspect);
    }

    /// The record waits, or not any more.
    pub(super) fn wait(&mut self, at: Offset, held: Held) {
        self.ready.remove(at);
        self.waiting.set(at, held);
        let leased = self.leases.overlapping(at, at).next().is_some();
        let Some(keys) = &mut self.keys else { return };
        if held != Held::No {
            keys.take((at, at));
        } else if !leased {
            keys.give_back((at, at));
        }
    }

    /// Looks for records from `offset` on that could be given out.
    pub(super) fn search_from(&mut self, offset: Offset) {
        self.frontier = self.frontier.min(offset);
    }

    /// These records are done: nobody holds them or is given them. Returns the leases that are
    /// over by that.
    pub(super) fn done(&mut self, first: Offset, last: Offset) -> Vec<Lease> {
        self.waiting.remove_run((first, last));
        self.ready.remove_run((first, last));
        if let Some(keys) = &mut self.keys {
            keys.done((first, last));
        }
        self.forget_returned((first, last));
        self.trim_leases((first, last))
    }

    /// Nobody holds these records any more, unless they lie within a lease of others as well.
    pub(super) fn trim_leases(&mut self, (first, last): Run) -> Vec<Lease> {
        let touched: Vec<_> = self
            .leases
            .overlapping(first, last)
            .map(|lease| lease.id)
            .collect();
        let mut over = Vec::new();
        for id in touched {
            let Some(mut lease) = self.leases.remove(id) else {
                continue;
            };
            if lease.first >= first && lease.last <= last {
                over.push(lease);
                continue;
            }
            if lease.first >= first {
                lease.trim(last.plus(1), lease.last);
            } else if lease.last <= last {
                lease.trim(lease.first, first.minus(1));
            }
            self.leases.insert(lease);
        }
        over
    }

    /// Forgets what is known of hand-outs of these records.
    pub(super) fn forget_returned(&mut self, (first, last): Run) {
        let touched: Vec<_> = self
            .returned_within(first, last)
            .map(|(at, _)| at)
            .collect();
        for at in touched {
            if let Some(returned) = self.returned.remove(&at) {
                self.put_around((at, returned), (first, last));
            }
        }
    }

    /// Forgets what came back of records that were done meanwhile within a lease of others.
    pub(super) fn forget_done<S: Durable>(
        &mut self,
        state: &S,
        group: &GroupName,
        (first, last): Run,
    ) {
        let mut from = first;
        while let Some(done) = state.next_done(group, self.id, from)
            && done.0 <= last
        {
            self.forget_returned((done.0.max(first), done.1.min(last)));
            if done.1 >= last {
                return;
            }
            from = done.1.plus(1);
        }
    }

    /// Forgets all leases and what came back, and begins again at `low`.
    pub(super) fn reset(&mut self, low: Offset) -> Vec<Lease> {
        (self.frontier, self.low_seen) = (low, low);
        self.returned.clear();
        self.ready.clear();
        self.delays_seen = Offset::ZERO;
        self.waiting = Waiting::default();
        self.looking = None;
        if let Some(keys) = &mut self.keys {
            *keys = KeyWindow::starting_at(low);
        }
        let ids: Vec<_> = self.leases.iter().map(|lease| lease.id).collect();
        ids.into_iter()
            .filter_map(|id| self.leases.remove(id))
            .collect()
    }

    /// Whether a settlement of some of a run is on its way.
    pub(super) fn is_settling(&self, (first, last): Run) -> bool {
        self.next_settling(first).is_some_and(|(at, _)| at <= last)
    }

    /// Runs within `first` to `last` that came back and whose last hand-out was not `lease`.
    pub(super) fn given_since(
        &self,
        lease: LeaseId,
        first: Offset,
        last: Offset,
    ) -> impl Iterator<Item = Run> {
        let within = self.returned_within(first, last);
        let since =
            within.filter(move |(_, returned)| returned.lease.is_some_and(|it| it != lease));
        since.map(|(at, returned)| (at, returned.last))
    }

    /// Whether there is nothing to remember: nothing is out or on its way, of nothing that came
    /// back it matters who had it, and nothing waits, or waited, whose time another look at the
    /// wall clock could move.
    pub(super) fn is_idle(&self) -> bool {
        let was_out = |returned: &Returned| returned.lease.is_some();
        let forgettable = !self.returned.values().any(was_out);
        let is_untimed = self.waiting.timed() == 0 && self.ready.is_empty();
        self.leases.len() == 0 && self.underway.is_empty() && forgettable && is_untimed
    }

    /// Whether someone else than the owner holds something.
    pub(super) fn is_held_by_others(&self) -> bool {
        self.leases
            .iter()
            .any(|lease| Some(lease.holder) != self.owner)
    }

    pub(super) fn next_settling(&self, from: Offset) -> Option<Run> {
        self.underway.next(from)
    }

    pub(super) fn next_returned(&self, from: Offset) -> Option<Run> {
        let (at, returned) = self.returned_within(from, Offset::MAX).next()?;
        Some((at, returned.last))
    }

    pub(super) fn returned_within(
        &self,
        first: Offset,
        last: Offset,
    ) -> impl Iterator<Item = (Offset, &Returned)> {
        let before = self.returned.range(..first).next_back();
        let before = before.filter(move |(_, returned)| returned.last >= first);
        let within = (first <= last).then(|| self.returned.range(first..=last));
        let all = before.into_iter().chain(within.into_iter().flatten());
        all.map(|(at, returned)| (*at, returned))
    }

    /// Puts back what of a returned run lies outside `hole`.
    pub(super) fn put_around(&mut self, (first, returned): (Offset, Returned), hole: Run) {
        if first < hole.0 {
            let last = returned.last.min(hole.0.minus(1));
            self.returned.insert(first, Returned { last, ..returned });
        }
        if returned.last > hole.1 {
            self.returned.insert(first.max(hole.1.plus(1)), returned);
        }
    }

    pub(super) fn check_invariants(&self) {
        self.leases.check_invariants();
        self.waiting.check_invariants();
        if let Some(keys) = &self.keys {
            keys.check_invariants();
        }
        let mut end = Offset::ZERO;
        for (at, returned) in &self.returned {
            assert!(
                *at >= end && *at <= returned.last,
                "returned runs are apart: {self:?}"
            );
            let leased = self.leases.overlapping(*at, returned.last).next();
            assert!(leased.is_none(), "what came back is not leased: {self:?}");
            end = returned.last.plus(1);
        }
        for offset in self.ready.offsets() {
            let leased = self.leases.overlapping(offset, offset).next();
            assert!(leased.is_none(), "what is ready is not leased: {self:?}");
            assert!(
                !self.waiting.contains(offset),
                "what is ready does not wait"
            );
        }
    }
}

/// What came of a grant.
#[derive(Debug)]
pub(super) struct Confirmed {
    pub(super) handed_on: bool,
    /// Not handed on.
    pub(super) left: Option<Run>,
}
