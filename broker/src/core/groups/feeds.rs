//! Feeds: opened from durable state, and kept true to it as commands are applied.

use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::durable::Durable;
use super::feed::{Feed, Pause, Run};
use super::group::Group;
use super::lease::Lease;
use super::spent::is_over;
use super::timers::Timer;
use super::turn::{Reading, Turn};
use super::waiting::Held;
use crate::core::copies::{Keys, KeysJob, ReadId, ReadJob};
use crate::core::failure::Wait;
use crate::core::request::LeaseId;
use crate::core::retries::RetryEntry;

/// Records whose keys are looked at in one go.
const KEYS_PER_LOOK: u64 = 1_000;
/// Time between two looks at all that waits for a time.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

impl Group {
    /// The feeds of a source partition and of its retry partition are there from now on.
    /// Returns those that were not.
    pub(super) fn open_feeds<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        source: PartitionId,
    ) -> Vec<PartitionId> {
        let place = turn.state.place(&self.name, source);
        let both = place.into_iter().flat_map(|it| [it.source, it.retry]);
        let missing: Vec<_> = both.filter(|id| !self.feeds.contains_key(id)).collect();
        for id in &missing {
            self.open_feed(turn, *id, source);
        }
        missing
    }

    fn open_feed<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        id: PartitionId,
        source: PartitionId,
    ) {
        let mut feed = Feed::new(id, source);
        let position = turn.state.position(&self.name, id);
        feed.low_seen = position.map_or(Offset::ZERO, |position| position.low);
        turn.shared.add_reader(id, &self.name);
        self.feeds.insert(id, feed);
        if id == source {
            self.follow_parked(turn, id);
        }
        let mut from = Offset::ZERO;
        while let Some((at, entry)) = turn.state.next_retry(&self.name, id, from) {
            self.schedule(turn, id, (at, entry));
            from = at.plus(1);
        }
        let mut from = Offset::ZERO;
        while let Some((at, note)) = turn.state.next_note(&self.name, id, from) {
            let wait = note.wait;
            self.noted(turn, id, (at, wait));
            from = at.plus(1);
        }
        self.arm(turn, id);
    }

    /// A record came to a retry partition.
    fn schedule<S: Durable>(
        &mut self,
        turn: &Turn<'_, S>,
        id: PartitionId,
        (at, entry): (Offset, RetryEntry),
    ) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        if entry.due > turn.wall {
            feed.wait(at, Held::Until(turn.mono_at(entry.due)));
        }
        feed.make_ready(turn.state, &self.name, at);
    }

    /// Something is noted of a record: nobody holds it, and it may wait. Of one that is done by
    /// now nothing is.
    pub(super) fn noted<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        id: PartitionId,
        (at, wait): (Offset, Wait),
    ) {
        let held = match wait {
            Wait::Ready => Held::No,
            Wait::Until(due) if due <= turn.wall => Held::No,
            Wait::Until(due) => Held::Until(turn.mono_at(due)),
            Wait::Room(_) | Wait::Operator(_) => Held::Open,
        };
        let note = turn.state.next_note(&self.name, id, at);
        if note.is_none_or(|(found, _)| found != at) {
            return;
        }
        self.end_around(turn, id, at);
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let lease = feed.leases.overlapping(at, at).next();
        let lease = lease.and_then(Lease::last_hand_out);
        let over = feed.trim_leases((at, at));
        if lease.is_some() || feed.returned_within(at, at).next().is_none() {
            feed.remember((at, at), lease, 0);
        }
        feed.wait(at, held);
        feed.make_ready(turn.state, &self.name, at);
        for lease in over {
            self.lease_over(turn, id, &lease);
        }
    }

    /// A lease with a record in its middle that is to be taken out of it ends: what else it holds
    /// is given back as if it had not been given out. What is done at its edges is no part of it.
    fn end_around<S: Durable>(&mut self, turn: &mut Turn<'_, S>, id: PartitionId, at: Offset) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let lease = feed.leases.overlapping(at, at).next();
        let Some(lease) = lease.filter(|lease| lease.first < at && at < lease.last) else {
            return;
        };
        let (lease_id, releases, run) = (lease.id, lease.releases, (lease.first, lease.last));
        let edges = [(run.0, at.minus(1)), (at.plus(1), run.1)];
        let is_done = |edge: &&Run| {
            let done = turn.state.next_done(&self.name, id, edge.0);
            done.is_some_and(|done| done.0 <= edge.0 && edge.1 <= done.1)
        };
        if let Some(edge) = edges.iter().find(is_done) {
            feed.trim_leases(*edge);
        } else if let Some(lease) = feed.release(lease_id, releases) {
            self.came_free(turn, id, run);
            self.lease_over(turn, id, &lease);
        }
    }

    /// Records came to a retry partition, one behind the other.
    pub(super) fn scheduled<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        id: PartitionId,
        (first, entries): (Offset, &[RetryEntry]),
    ) {
        for (delta, entry) in (0..).zip(entries) {
            self.schedule(turn, id, (first.plus(delta), *entry));
        }
        self.arm(turn, id);
        self.wake(id);
    }

    /// Records that waited are due now, as durable state has it.
    pub(super) fn made_due<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (id, at): (PartitionId, Offset),
    ) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let note = turn.state.next_note(&self.name, id, at);
        let note = note.filter(|(noted, _)| *noted == at);
        let is_over = note.is_some_and(|(_, note)| is_over(note.wait));
        if is_over || !feed.waiting.contains(at) {
            return;
        }
        // Whatever the clock says by now.
        feed.wait(at, Held::No);
        feed.make_ready(turn.state, &self.name, at);
        self.arm(turn, id);
        self.wake(id);
    }

    /// Sets the timer of what waits in a feed.
    pub(super) fn arm<S: Durable>(&mut self, turn: &mut Turn<'_, S>, id: PartitionId) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let key = (self.name.clone(), id);
        if feed.waiting.timed() == 0 {
            turn.shared.timed.remove(&key);
        } else {
            if turn.shared.timed.is_empty() {
                turn.shared.swept = turn.now;
            }
            turn.shared.timed.insert(key);
        }
        let next = feed.waiting.next_time();
        if feed.due_timer == next {
            return;
        }
        let timer = || Timer::Due(self.name.clone(), id);
        if let Some(before) = std::mem::replace(&mut feed.due_timer, next) {
            turn.shared.timers.clear(before, timer());
        }
        if let Some(next) = next {
            turn.shared.timers.set(next, timer());
        }
    }

    /// Its timer has run out.
    pub(super) fn due_timer_over(&mut self, id: PartitionId) {
        if let Some(feed) = self.feeds.get_mut(&id) {
            feed.due_timer = None;
        }
    }

    /// The breaker is asked again.
    pub(super) fn probe<S: Durable>(&mut self, turn: &Turn<'_, S>) {
        let asked = self.probe_timer.take_if(|at| *at <= turn.now);
        if asked.is_some() {
            for id in self.feeds.keys().copied().collect::<Vec<_>>() {
                self.wake(id);
            }
        }
    }

    /// The time of some that waited has come.
    pub(super) fn due<S: Durable>(&mut self, turn: &mut Turn<'_, S>, id: PartitionId) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let mut came = false;
        while let Some(at) = feed.waiting.pop_due(turn.now) {
            came = true;
            feed.wait(at, Held::No);
            feed.make_ready(turn.state, &self.name, at);
        }
        self.arm(turn, id);
        if came {
            self.wake(id);
        }
    }

    /// A call settled a hand-out up to and with `last`: nothing of it is held that far.
    pub(super) fn hand_out_over<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (id, lease): (PartitionId, LeaseId),
        last: Offset,
    ) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let Some(held) = feed.leases.get(lease) else {
            return;
        };
        let first = held.first;
        if first > last {
            return;
        }
        for lease in feed.trim_leases((first, last.min(held.last))) {
            self.lease_over(turn, id, &lease);
        }
    }

    /// Has the keys of more records looked at, if few are left that could be given out.
    pub(super) fn look_further<S: Durable>(&mut self, turn: &mut Turn<'_, S>, id: PartitionId) {
        let Some(position) = turn.state.position(&self.name, id) else {
            return;
        };
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let window = crate::core::durable_groups::ACK_WINDOW;
        let end = position.end.min(position.low.plus(window));
        let Some(keys) = feed.keys.as_ref() else {
            return;
        };
        let (from, most) = (
            keys.until().max(position.low),
            keys.room().min(KEYS_PER_LOOK),
        );
        let few = u64::try_from(keys.free_count()).unwrap_or(u64::MAX) < KEYS_PER_LOOK / 2;
        if !few || keys.is_full() || feed.looking.is_some() || feed.pause.is_some() || from >= end {
            return;
        }
        let read = turn.shared.next_read();
        feed.looking = Some(read);
        let job = ReadJob::Keys(KeysJob {
            id: read,
            partition: id,
            from,
            until: end.min(from.plus(most)),
        });
        turn.read(read, Reading::Keys(self.name.clone(), id), job);
    }

    /// Keys were looked at; none if they could not be.
    pub(super) fn looked<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        id: PartitionId,
        (read, found): (ReadId, Option<Keys>),
    ) {
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        if feed.looking != Some(read) {
            return;
        }
        feed.looking = None;
        let Some(Keys { until, keys }) = found else {
            let pause = Pause::Unreadable(turn.now.plus(SWEEP_INTERVAL));
            self.pause(turn, id, Some(pause));
            return;
        };
        let open = |at: Offset| {
            let done = turn.state.next_done(&self.name, id, at);
            done.is_none_or(|run: Run| run.0 > at)
        };
        let known: Vec<_> = keys.into_iter().filter(|(at, _)| open(*at)).collect();
        let offsets: Vec<_> = known.iter().map(|(at, _)| *at).collect();
        if let Some(window) = &mut feed.keys {
            window.extend(known.into_iter(), until);
        }
        for at in offsets {
            let delayed = turn.state.next_delayed(id, at);
            let until = delayed.filter(|(found, until)| *found == at && *until > turn.wall);
            if let Some((_, until)) = until {
                feed.wait(at, Held::Until(turn.mono_at(until)));
            }
            let leased = feed.leases.overlapping(at, at).next().is_some();
            if let Some(window) = &mut feed.keys
                && (leased || feed.waiting.contains(at))
            {
                window.take((at, at));
            }
        }
        self.arm(turn, id);
        self.sweep_parked(turn, id);
        self.wake(id);
        self.look_further(turn, id);
    }
}
