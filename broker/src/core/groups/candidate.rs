//! What a feed could give out next.

use std::cell::Cell;

use varvelog_store::{Offset, PartitionId, WallMs};

use super::durable::{Durable, Position};
use super::feed::{Feed, GRANT_RECORDS_MAX, Run};
use crate::core::durable_groups::ACK_WINDOW;
use crate::core::request::{LeaseId, RETRY_RUN_MAX};
use crate::core::settings::{GroupMode, GroupSettings, OnFailure};
use crate::names::GroupName;

/// Records to be given out alone, and among them such as are not yet, that are looked at for one
/// grant: those behind come when these are settled.
const SUSPECTS_LOOKED_AT: usize = 16;

/// Finds the first run that ends at or after an offset.
pub(super) type NextRun<'a> = &'a dyn Fn(Offset) -> Option<Run>;

/// Records that could be granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) first: Offset,
    pub(super) last: Offset,
    /// Counted failures so far, the same of all.
    pub(super) failures: u32,
    /// To be given out alone.
    pub(super) isolated: bool,
    /// Something is noted of them.
    pub(super) noted: bool,
    /// Found at the frontier, which goes on behind them.
    pub(super) fresh: bool,
    /// The last hand-out, if they were given out before.
    pub(super) previous: Option<LeaseId>,
    pub(super) releases: u32,
    /// Of records of a retry partition: their first appends.
    pub(super) origins: Vec<Offset>,
    /// Of records of a retry partition: since when the first could be given out.
    pub(super) due: Option<WallMs>,
}

/// What a feed has to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Offer {
    /// These records.
    Records(Candidate),
    /// First this delayed record has to be dealt with.
    Delayed(Offset, WallMs),
    /// Nothing: all below was given out.
    AllGiven(Offset),
    /// Nothing.
    Nothing,
}

/// What is looked at to find a candidate.
pub(super) struct Search<'a, S> {
    pub(super) state: &'a S,
    pub(super) group: &'a GroupName,
    pub(super) settings: &'a GroupSettings,
    pub(super) wall: WallMs,
    /// Most records.
    pub(super) most: u64,
    /// Records that are to be given out alone are passed over.
    pub(super) skip_isolated: bool,
    /// Whether one was.
    pub(super) skipped: Cell<bool>,
}

impl<S: Durable> Search<'_, S> {
    fn done(&self, partition: PartitionId, from: Offset) -> Option<Run> {
        self.state.next_done(self.group, partition, from)
    }

    /// Failures of a record, whether it is to be given out alone, and whether something is noted.
    fn history(&self, feed: &Feed, offset: Offset) -> (u32, bool, bool) {
        let note = self.state.next_note(self.group, feed.id, offset);
        if let Some((at, note)) = note
            && at == offset
        {
            let suspect = note.class.is_suspect();
            return (
                note.failures,
                self.is_isolated(note.failures, suspect),
                true,
            );
        }
        let entry = self.entry(feed, offset);
        entry.map_or((0, false, false), |entry| {
            let isolated = self.is_isolated(entry.failures, entry.suspect);
            (entry.failures, isolated, false)
        })
    }

    fn entry(&self, feed: &Feed, offset: Offset) -> Option<crate::core::retries::RetryEntry> {
        if !feed.is_retry() {
            return None;
        }
        let (at, entry) = self.state.next_retry(self.group, feed.id, offset)?;
        (at == offset).then_some(entry)
    }

    fn is_isolated(&self, failures: u32, suspect: bool) -> bool {
        suspect && failures >= self.settings.isolate_after
    }

    /// The first record from `from` on that must not be given out before a time to come.
    fn delayed(&self, partition: PartitionId, from: Offset) -> Option<(Offset, WallMs)> {
        let mut from = from;
        loop {
            let (at, until) = self.state.next_delayed(partition, from)?;
            if until > self.wall {
                return Some((at, until));
            }
            from = at.plus(1);
        }
    }

    /// The records of `run` from its first on that have the same history and may go together.
    fn alike(&self, feed: &Feed, run: Run) -> Candidate {
        let (failures, isolated, noted) = self.history(feed, run.0);
        let mut last = run.0;
        if !isolated {
            last = run.1;
            if failures == 0 && !noted {
                let next = self.state.next_note(self.group, feed.id, run.0);
                if let Some((at, _)) = next {
                    last = last.min(at.minus(1));
                }
            } else {
                let mut at = run.0;
                while at < last && self.history(feed, at.plus(1)) == (failures, isolated, noted) {
                    at = at.plus(1);
                }
                last = at;
            }
        }
        let known = feed.returned_within(run.0, run.0).next();
        let (previous, releases) = known.map_or((None, 0), |(_, it)| (it.lease, it.releases));
        if let Some((_, returned)) = known {
            last = last.min(returned.last);
        } else if let Some((at, _)) = feed.next_returned(run.0) {
            last = last.min(at.minus(1).max(run.0));
        }
        Candidate {
            first: run.0,
            last,
            failures,
            isolated,
            noted,
            fresh: false,
            previous,
            releases,
            origins: Vec::new(),
            due: None,
        }
    }

    /// The ready record of a retry partition that is due the longest.
    fn longest_due(&self, feed: &Feed) -> Option<(WallMs, Offset)> {
        let is_free = |at: Offset| !feed.is_settling((at, at));
        let plain = feed.ready.plain().find(|(_, at)| is_free(*at));
        let mut suspects = feed.ready.suspect().take(SUSPECTS_LOOKED_AT);
        let suspect = suspects
            .find(|(_, at)| is_free(*at) && !self.passes_over(&self.alike(feed, (*at, *at))));
        plain.into_iter().chain(suspect).min()
    }

    /// What a feed could give out next; `position` is of its partition.
    pub(super) fn offer(&self, feed: &Feed, position: &Position) -> Offer {
        let in_flight_max = u64::from(self.settings.in_flight_max);
        let room = in_flight_max.saturating_sub(feed.leases.records());
        let room = room.min(GRANT_RECORDS_MAX).min(self.most);
        if room == 0 {
            return Offer::Nothing;
        }
        let is_stream = self.settings.mode == GroupMode::Stream;
        // What failed comes before what is new, as soon as that it failed is committed.
        if is_stream && (feed.leases.granted().is_some() || feed.underway.is_failing()) {
            return Offer::Nothing;
        }
        if feed.is_retry() {
            return self
                .retries(feed, room)
                .map_or(Offer::Nothing, Offer::Records);
        }
        if feed.keys.is_some() && !is_stream {
            return self
                .keyed(feed, room)
                .map_or(Offer::Nothing, Offer::Records);
        }
        if self.settings.on_failure == OnFailure::Hold {
            return self.held(feed, position, room);
        }
        if let Some(found) = self.came_back(feed, room) {
            return Offer::Records(found);
        }
        self.fresh(feed, position, room)
    }

    /// What came back and could be given out again.
    fn came_back(&self, feed: &Feed, room: u64) -> Option<Candidate> {
        let done = |from| self.done(feed.id, from);
        let settling = |from| feed.next_settling(from);
        let waiting = |from| feed.waiting.next_from(from);
        for (at, returned) in &feed.returned {
            let mut from = *at;
            while let Some(run) = free(from, returned.last, &[&done, &settling, &waiting]) {
                let found = self.alike(feed, (run.0, cut(run, room)));
                if !self.passes_over(&found) {
                    return Some(found);
                }
                from = found.last.plus(1);
            }
        }
        None
    }

    /// Whether a candidate is to be given out alone, and is not now.
    fn passes_over(&self, candidate: &Candidate) -> bool {
        let passes = self.skip_isolated && candidate.isolated;
        if passes {
            self.skipped.set(true);
        }
        passes
    }

    /// What was not given out yet.
    fn fresh(&self, feed: &Feed, position: &Position, room: u64) -> Offer {
        let end = position.end.min(position.low.plus(ACK_WINDOW));
        let from = feed.frontier.max(position.low);
        if from >= end {
            return Offer::Nothing;
        }
        let done = |from| self.done(feed.id, from);
        let settling = |from| feed.next_settling(from);
        let leased = |from| {
            let lease = feed.leases.next(from);
            lease.map(|lease| (lease.first, lease.last))
        };
        let returned = |from| feed.next_returned(from);
        let waiting = |from| feed.waiting.next_from(from);
        let noted = |from| {
            let next = self.state.next_note(self.group, feed.id, from);
            next.map(|(at, _)| (at, at))
        };
        let blocked: [NextRun<'_>; 6] = [&done, &settling, &leased, &returned, &waiting, &noted];
        let Some(run) = free(from, end.minus(1), &blocked) else {
            return Offer::AllGiven(end);
        };
        let mut last = cut(run, room);
        if let Some((at, until)) = self.delayed(feed.id, run.0)
            && at <= last
        {
            if at == run.0 {
                return Offer::Delayed(at, until);
            }
            last = at.minus(1);
        }
        Offer::Records(Candidate {
            fresh: true,
            ..self.alike(feed, (run.0, last))
        })
    }

    /// In a stream that holds nothing goes out beyond a record that failed, and nothing beside
    /// what is out.
    fn held(&self, feed: &Feed, position: &Position, room: u64) -> Offer {
        let mut end = position.end.min(position.low.plus(ACK_WINDOW));
        // Where keys are parked, those of what is given out are known.
        end = feed.keys.as_ref().map_or(end, |keys| end.min(keys.until()));
        let done = |from| self.done(feed.id, from);
        if feed.leases.len() > 0 || position.low >= end {
            return Offer::Nothing;
        }
        let Some(run) = free(position.low, end.minus(1), &[&done]) else {
            return Offer::Nothing;
        };
        let parked = feed.keys.as_ref();
        let parked = parked.and_then(|keys| keys.parked_from(run.0).next());
        let blocked = feed.waiting.contains(run.0)
            || feed.is_settling((run.0, run.0))
            || parked == Some(run.0);
        if blocked {
            return Offer::Nothing;
        }
        let delays_from = run.0.max(feed.delays_seen);
        if let Some((at, until)) = self.delayed(feed.id, delays_from)
            && at == run.0
        {
            return Offer::Delayed(at, until);
        }
        let mut last = cut(run, room);
        let waiting = feed.waiting.next_from(run.0).map(|run| run.0);
        let settling = feed.next_settling(run.0).map(|run| run.0);
        let delayed = self.delayed(feed.id, delays_from).map(|(at, _)| at);
        for at in [waiting, settling, delayed, parked].into_iter().flatten() {
            last = last.min(at.minus(1));
        }
        let found = self.alike(feed, (run.0, last));
        if self.passes_over(&found) {
            return Offer::Nothing;
        }
        Offer::Records(found)
    }

    fn keyed(&self, feed: &Feed, room: u64) -> Option<Candidate> {
        let is_free = |offset| {
            let isolated = self.skip_isolated && self.history(feed, offset).1;
            if isolated {
                self.skipped.set(true);
            }
            !isolated && !feed.waiting.contains(offset) && !feed.is_settling((offset, offset))
        };
        let run = feed.keys.as_ref()?.next_free(room, is_free)?;
        Some(self.alike(feed, run))
    }

    /// The record that is due the longest, with its neighbours if they can go with it.
    fn retries(&self, feed: &Feed, room: u64) -> Option<Candidate> {
        let (due, first) = self.longest_due(feed)?;
        let room = room.min(u64::try_from(RETRY_RUN_MAX).unwrap_or(u64::MAX));
        let mut candidate = self.alike(feed, (first, first));
        candidate.due = Some(due);
        let mut origin = self.entry(feed, first)?.origin;
        candidate.origins.push(origin);
        while !candidate.isolated && candidate.last.plus(1).since(first) < room {
            let next = candidate.last.plus(1);
            let Some(entry) = self.entry(feed, next) else {
                break;
            };
            let is_ready = feed.ready.contains(next);
            let other = self.alike(feed, (next, next));
            let is_alike = Candidate {
                first,
                last: first,
                due: candidate.due,
                origins: Vec::new(),
                ..other
            } == Candidate {
                last: first,
                origins: Vec::new(),
                ..candidate.clone()
            };
            if !is_ready || !is_alike || entry.origin <= origin || feed.is_settling((next, next)) {
                break;
            }
            origin = entry.origin;
            candidate.origins.push(origin);
            candidate.last = next;
        }
        Some(candidate)
    }
}

/// The last of a run's first `room` records.
fn cut((first, last): Run, room: u64) -> Offset {
    last.min(first.plus(room - 1))
}

impl Feed {
    /// The first run within another that is neither done nor leased.
    pub(super) fn next_unheld<S: Durable>(
        &self,
        state: &S,
        group: &GroupName,
        (from, last): Run,
    ) -> Option<Run> {
        let done = |from| state.next_done(group, self.id, from);
        let leased = |from| {
            let lease = self.leases.next(from);
            lease.map(|lease| (lease.first, lease.last))
        };
        free(from, last, &[&done, &leased])
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
