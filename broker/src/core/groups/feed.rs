//! What one partition gives to a group, and what came back.
//!
//! Every record of the partition that is not done is in exactly one of three places: leased,
//! returned, or at or beyond the frontier. The frontier is a mere place to search from: records
//! beyond it that are done, leased or returned are passed over, so it may be moved back at any
//! time.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId};

use super::action::ProposalId;
use super::lease::{Lease, LeaseTable, Stage};
use super::member::MemberKey;
use crate::clock::MonoMs;
use crate::core::request::LeaseId;

/// Most records of one grant.
pub(super) const GRANT_RECORDS_MAX: u64 = 10_000;

/// A run of offsets, both ends included.
pub(super) type Run = (Offset, Offset);
/// Finds the first run that ends at or after an offset.
pub(super) type NextRun<'a> = &'a dyn Fn(Offset) -> Option<Run>;

/// The live side of one partition of a group.
#[derive(Debug)]
pub(super) struct Feed {
    pub(super) id: PartitionId,
    /// To whom it gives; none between two owners.
    pub(super) owner: Option<MemberKey>,
    /// Generation at which it came to its owner.
    pub(super) fence: u64,
    pub(super) leases: LeaseTable,
    pub(super) pause: Option<Pause>,
    frontier: Offset,
    returned: BTreeMap<Offset, Returned>,
    /// What settlements that are being committed will mark as done: given to nobody meanwhile.
    settling: BTreeMap<ProposalId, Vec<Run>>,
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
struct Returned {
    last: Offset,
    /// Of the next hand-out.
    attempt: u32,
    /// The last hand-out.
    lease: Option<LeaseId>,
}

/// What bounds the next grant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Low watermark.
    pub(super) low: Offset,
    /// One past the last record that may be given out.
    pub(super) end: Offset,
    pub(super) in_flight_max: u32,
}

/// Records that could be granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) first: Offset,
    pub(super) last: Offset,
    pub(super) attempt: u32,
    pub(super) previous: Option<LeaseId>,
    /// Of the returned run that it is part of.
    source: Option<Offset>,
}

/// Whether an unsettled hand-out counts as an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    /// It failed: the member crashed or was too slow.
    Yes,
    /// It was given back.
    No,
}

impl Feed {
    pub(super) fn new(id: PartitionId) -> Self {
        Self {
            id,
            owner: None,
            fence: 0,
            leases: LeaseTable::default(),
            pause: None,
            frontier: Offset::ZERO,
            returned: BTreeMap::new(),
            settling: BTreeMap::new(),
        }
    }

    /// What to give out next: what came back first, then what is new.
    pub(super) fn candidate(&self, bounds: &Bounds, done: NextRun<'_>) -> Option<Candidate> {
        let room = u64::from(bounds.in_flight_max).saturating_sub(self.leases.records());
        let room = room.min(GRANT_RECORDS_MAX);
        if room == 0 || self.leases.granted().is_some() {
            return None;
        }
        let settling = |from| self.next_settling(from);
        for (source, returned) in &self.returned {
            if let Some((first, last)) = free(*source, returned.last, &[done, &settling]) {
                return Some(Candidate {
                    first,
                    last: last.min(first.plus(room - 1)),
                    attempt: returned.attempt,
                    previous: returned.lease,
                    source: Some(*source),
                });
            }
        }
        let leased = |from| {
            self.leases
                .next(from)
                .map(|lease| (lease.first, lease.last))
        };
        let returned = |from| self.next_returned(from);
        let from = self.frontier.max(bounds.low);
        if from >= bounds.end {
            return None;
        }
        let blocked: [NextRun<'_>; 4] = [done, &settling, &leased, &returned];
        let (first, last) = free(from, bounds.end.minus(1), &blocked)?;
        let last = last.min(first.plus(room - 1));
        Some(Candidate {
            first,
            last,
            attempt: 1,
            previous: None,
            source: None,
        })
    }

    /// Takes a candidate out of what could be given.
    pub(super) fn grant(&mut self, candidate: Candidate, lease: Lease) {
        let Candidate {
            first,
            last,
            source,
            ..
        } = candidate;
        match source.and_then(|source| self.returned.remove_entry(&source)) {
            Some((source, returned)) => self.put_around((source, returned), (first, last)),
            None => self.frontier = last.plus(1),
        }
        self.leases.insert(lease);
    }

    /// The edge handed on a grant up to and with `last`. Returns whether something of it is left;
    /// the rest can be given out again.
    pub(super) fn confirm(&mut self, id: LeaseId, last: Offset, stage: Stage) -> bool {
        let Some(mut lease) = self.leases.remove(id) else {
            return false;
        };
        if last < lease.first {
            self.give_back(&lease, lease.first, Counted::No);
            return false;
        }
        if last < lease.last {
            self.give_back(&lease, last.plus(1), Counted::No);
            lease.last = last;
        }
        lease.stage = stage;
        self.leases.insert(lease);
        true
    }

    /// Ends a lease; what it held can be given out again.
    pub(super) fn release(&mut self, id: LeaseId, counted: Counted) -> Option<Lease> {
        let lease = self.leases.remove(id)?;
        self.give_back(&lease, lease.first, counted);
        Some(lease)
    }

    fn give_back(&mut self, lease: &Lease, first: Offset, counted: Counted) {
        let (attempt, hand_out) = match (lease.stage, counted) {
            (Stage::Granted { .. }, _) => (lease.attempt, lease.previous),
            (Stage::Out { .. }, Counted::No) => (lease.attempt, Some(lease.id)),
            (Stage::Out { .. }, Counted::Yes) => (lease.attempt.saturating_add(1), Some(lease.id)),
        };
        if attempt == 1 && hand_out.is_none() {
            self.search_from(first);
        } else {
            let returned = Returned {
                last: lease.last,
                attempt,
                lease: hand_out,
            };
            self.returned.insert(first, returned);
        }
    }

    /// Looks for records from `offset` on that could be given out.
    pub(super) fn search_from(&mut self, offset: Offset) {
        self.frontier = self.frontier.min(offset);
    }

    /// These records are done: nobody holds them or is given them. Returns the leases that are
    /// over by that.
    pub(super) fn done(&mut self, first: Offset, last: Offset) -> Vec<Lease> {
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
                lease.first = last.plus(1);
            } else if lease.last <= last {
                lease.last = first.minus(1);
            }
            self.leases.insert(lease);
        }
        let touched: Vec<_> = self
            .returned_within(first, last)
            .map(|(at, _)| at)
            .collect();
        for at in touched {
            if let Some(returned) = self.returned.remove(&at) {
                self.put_around((at, returned), (first, last));
            }
        }
        over
    }

    /// Forgets all leases and what came back, and begins again at `low`.
    pub(super) fn reset(&mut self, low: Offset) -> Vec<Lease> {
        self.frontier = low;
        self.returned.clear();
        let ids: Vec<_> = self.leases.iter().map(|lease| lease.id).collect();
        ids.into_iter()
            .filter_map(|id| self.leases.remove(id))
            .collect()
    }

    /// A settlement is being committed.
    pub(super) fn settle(&mut self, proposal: ProposalId, runs: Vec<Run>) {
        self.settling.insert(proposal, runs);
    }

    /// A settlement is over, one way or the other.
    pub(super) fn settled(&mut self, proposal: ProposalId) {
        for (first, _) in self.settling.remove(&proposal).unwrap_or_default() {
            // Passed over meanwhile; if it was refused they are to be given out.
            self.search_from(first);
        }
    }

    /// Whether a settlement of some of a lease is being committed.
    pub(super) fn is_settling(&self, lease: &Lease) -> bool {
        self.next_settling(lease.first)
            .is_some_and(|(first, _)| first <= lease.last)
    }

    /// Runs within `first` to `last` that came back and whose last hand-out was not `lease`.
    pub(super) fn given_since(
        &self,
        lease: LeaseId,
        first: Offset,
        last: Offset,
    ) -> impl Iterator<Item = Run> {
        let within = self.returned_within(first, last);
        let since = within.filter(move |(_, returned)| returned.lease != Some(lease));
        since.map(|(at, returned)| (at, returned.last))
    }

    /// The lowest record that was given out and is not settled, and its present or next attempt.
    pub(super) fn lowest_pinned(&self) -> Option<(Offset, u32, Option<MemberKey>)> {
        let leased = self.leases.iter().find(|lease| !lease.is_granted());
        let leased = leased.map(|lease| (lease.first, lease.attempt, Some(lease.holder)));
        let returned = self.returned.first_key_value();
        let returned = returned.map(|(at, returned)| (*at, returned.attempt, None));
        leased.into_iter().chain(returned).min()
    }

    /// Whether there is nothing to remember: nothing is out and nothing came back.
    pub(super) fn is_idle(&self) -> bool {
        self.leases.len() == 0 && self.settling.is_empty() && self.returned.is_empty()
    }

    /// Whether someone else than the owner holds something.
    pub(super) fn is_held_by_others(&self) -> bool {
        self.leases
            .iter()
            .any(|lease| Some(lease.holder) != self.owner)
    }

    fn next_settling(&self, from: Offset) -> Option<Run> {
        let runs = self.settling.values().flatten().copied();
        runs.filter(|(_, last)| *last >= from).min()
    }

    fn next_returned(&self, from: Offset) -> Option<Run> {
        let (at, returned) = self.returned_within(from, Offset::MAX).next()?;
        Some((at, returned.last))
    }

    fn returned_within(
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
    fn put_around(&mut self, (first, returned): (Offset, Returned), hole: Run) {
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
    }
}

/// The first run within `from` to `last` that none of `blocked` touches.
fn free(from: Offset, last: Offset, blocked: &[NextRun<'_>]) -> Option<Run> {
    let mut from = from;
    'search: while from <= last {
        let mut until = last;
        for next in blocked {
            match next(from) {
                Some((first, last)) if first <= from => {
                    from = last.plus(1);
                    continue 'search;
                }
                Some((first, _)) => until = until.min(first.minus(1)),
                None => {}
            }
        }
        return Some((from, until));
    }
    None
}

/// The first offset within `from` to `last` that none of `known` covers.
pub(super) fn first_missing(from: Offset, last: Offset, known: &[NextRun<'_>]) -> Option<Offset> {
    free(from, last, known).map(|(first, _)| first)
}
