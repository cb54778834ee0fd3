//! Giving out records: grants to the edges, and what they hand on of them.

use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::candidate::{Candidate, Offer, Search};
use super::durable::{Durable, GroupFacts};
use super::fates::{How, Unprocessed};
use super::feed::Pause;
use super::group::Group;
use super::lease::{Lease, Stage};
use super::member::{MemberKey, in_turn};
use super::timers::Timer;
use super::turn::Turn;
use super::waiting::Held;
use crate::core::failure::ErrorClass;
use crate::core::request::{Grant, LeaseId, MemberMessage, StreamKey};
use crate::core::settings::{GroupMode, OnFailure};

/// Records of one retry partition beyond which its source gives out nothing new; see
/// `limits.retries`.
const RETRIES_MAX: u64 = 1_000_000;
/// Delayed records that are dealt with in one go.
const DELAYED_RUN_MAX: usize = 500;

/// What was found for a member.
enum Found {
    /// These records.
    Records(Box<Candidate>),
    /// Nothing for this member, though perhaps for another.
    NotForIt,
    /// Nothing for this member while it holds others, though perhaps for another.
    NotNow,
    /// Nothing for anybody.
    Nothing,
}

impl Group {
    /// Makes one grant to a member, if there is anything for it.
    pub(super) fn grant_next<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
    ) -> bool {
        let state = turn.state;
        let Some(facts) = state.group(&self.name) else {
            return false;
        };
        if facts.settings.paused || self.isolation_holds(key) {
            return false;
        }
        let Some(member) = self.members.get(&key) else {
            return false;
        };
        let Some(stream) = member.open_stream() else {
            return false;
        };
        let retries_first = self.share.favours_retries();
        let ready = match self.mode {
            GroupMode::Stream => member.ready_in_turn(),
            GroupMode::Queue => in_turn(&self.ready, self.served_partition),
        };
        let is_retry =
            |id: &PartitionId| self.feeds.get(id).is_some_and(super::feed::Feed::is_retry);
        let (retries, sources): (Vec<_>, Vec<_>) = ready.into_iter().partition(is_retry);
        let order = if retries_first {
            retries.into_iter().chain(sources)
        } else {
            sources.into_iter().chain(retries)
        };
        for partition in order {
            match self.candidate(turn, key, partition, &facts) {
                Found::Records(candidate) => {
                    if self
                        .grant(turn, (key, stream), partition, &candidate)
                        .is_some()
                    {
                        return true;
                    }
                }
                Found::NotForIt if self.mode == GroupMode::Queue => {}
                Found::NotNow => {}
                Found::Nothing | Found::NotForIt => {
                    self.ready.remove(&partition);
                    if let Some(member) = self.members.get_mut(&key) {
                        member.ready.remove(&partition);
                    }
                }
            }
        }
        false
    }

    /// Whether a member is given nothing for the sake of a record that is to be given out alone.
    fn isolation_holds(&mut self, key: MemberKey) -> bool {
        let Some(member) = self.members.get(&key) else {
            return true;
        };
        if member.isolated.is_some() {
            return true;
        }
        if self.isolation.draining == Some(key) {
            if !member.held.is_empty() {
                return true;
            }
            self.isolation.draining = None;
        }
        false
    }

    /// A record that is to be given out alone had to be passed over for a member that holds
    /// others. When it has waited for long, the member gets nothing more before it.
    fn passed_over<S: Durable>(
        &mut self,
        turn: &Turn<'_, S>,
        key: MemberKey,
        facts: &GroupFacts<'_>,
    ) {
        let since = *self.isolation.since.get_or_insert(turn.now);
        let patience = Duration::from_millis(facts.settings.visibility_timeout_ms);
        if since.plus(patience) <= turn.now && self.isolation.draining.is_none() {
            self.isolation.draining = Some(key);
        }
    }

    fn candidate<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        partition: PartitionId,
        facts: &GroupFacts<'_>,
    ) -> Found {
        let Some(member) = self.members.get(&key) else {
            return Found::NotForIt;
        };
        let Some(source) = self.feeds.get(&partition).map(|feed| feed.source) else {
            return Found::Nothing;
        };
        let alone = member.held.is_empty();
        let is_its = match self.mode {
            GroupMode::Queue => member.wants(source.topic),
            GroupMode::Stream => self.feeds.get(&source).and_then(|feed| feed.owner) == Some(key),
        };
        if !is_its {
            return Found::NotForIt;
        }
        if self.are_paused(turn, source, partition) {
            return Found::Nothing;
        }
        let mut skipped = false;
        let found = self.search(turn, (key, !alone, &mut skipped), partition, facts);
        if skipped {
            self.passed_over(turn, key, facts);
        }
        if let Some(candidate) = found {
            return Found::Records(Box::new(candidate));
        }
        self.sweep_parked(turn, partition);
        self.look_further(turn, partition);
        if skipped {
            Found::NotNow
        } else {
            Found::Nothing
        }
    }

    /// Whether the feeds of a partition give nothing for a while.
    fn are_paused<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        source: PartitionId,
        partition: PartitionId,
    ) -> bool {
        for id in [source, partition] {
            match self.feeds.get(&id).and_then(|feed| feed.pause) {
                Some(Pause::Handover(_)) if !self.is_held_by_others(id) => {
                    self.pause(turn, id, None);
                }
                Some(_) => return true,
                None => {}
            }
        }
        false
    }

    fn search<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (key, skip_isolated, skipped): (MemberKey, bool, &mut bool),
        partition: PartitionId,
        facts: &GroupFacts<'_>,
    ) -> Option<Candidate> {
        loop {
            let position = turn.state.position(&self.name, partition)?;
            let leased = self.feeds.get(&partition)?.leases.records();
            let most = self.fair_most(key, facts, position.undone.saturating_sub(leased));
            let most = self.first_delivery_limit(turn, partition, most, facts)?;
            let search = Search {
                state: turn.state,
                group: &self.name,
                settings: facts.settings,
                wall: turn.wall,
                most,
                skip_isolated,
                skipped: std::cell::Cell::new(false),
            };
            let offer = search.offer(self.feeds.get(&partition)?, &position);
            *skipped |= search.skipped.get();
            match offer {
                Offer::Records(candidate) => return Some(candidate),
                Offer::Nothing => return None,
                Offer::AllGiven(end) => {
                    let feed = self.feeds.get_mut(&partition)?;
                    feed.frontier = feed.frontier.max(end);
                    return None;
                }
                Offer::Delayed(at, until) => {
                    if !self.delay(turn, partition, (at, until), facts) {
                        return None;
                    }
                }
            }
        }
    }

    /// Whether somebody else than its owner holds something of a stream's feed.
    fn is_held_by_others(&self, id: PartitionId) -> bool {
        self.feeds
            .get(&id)
            .is_some_and(super::feed::Feed::is_held_by_others)
    }

    /// How many records of a partition may be given out now, for the breaker's and the retries'
    /// sake; none at all if there is no answer.
    fn first_delivery_limit<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        most: u64,
        facts: &GroupFacts<'_>,
    ) -> Option<u64> {
        if self.feeds.get(&partition)?.is_retry() {
            return Some(most);
        }
        if self.are_retries_full(turn, partition) {
            return None;
        }
        if !facts.settings.circuit_breaker {
            return Some(most);
        }
        match self.breaker.limit(turn.now) {
            Ok(limit) => Some(limit.unwrap_or(most).min(most)),
            Err(again) => {
                if self.probe_timer.is_none() {
                    self.probe_timer = Some(again);
                    turn.shared
                        .timers
                        .set(again, Timer::Probe(self.name.clone()));
                }
                None
            }
        }
    }

    /// Whether so many retries of a source partition wait that nothing new of it is given out.
    pub(super) fn are_retries_full<S: Durable>(
        &mut self,
        turn: &Turn<'_, S>,
        source: PartitionId,
    ) -> bool {
        let place = turn.state.place(&self.name, source);
        let retries = place.and_then(|place| turn.state.position(&self.name, place.retry));
        let waiting = retries.map_or(0, |position| position.undone);
        let Some(feed) = self.feeds.get_mut(&source) else {
            return false;
        };
        let enough = if feed.retries_full {
            RETRIES_MAX / 10 * 9
        } else {
            RETRIES_MAX
        };
        feed.retries_full = waiting >= enough;
        feed.retries_full
    }

    /// Deals with a delayed record that is next: it goes to the retry topic, or everything waits
    /// for it. Returns whether something else may be given out now.
    fn delay<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        (first, until): (Offset, varvelog_store::WallMs),
        facts: &GroupFacts<'_>,
    ) -> bool {
        if facts.settings.on_failure == OnFailure::Hold {
            let until = turn.mono_at(until);
            if let Some(feed) = self.feeds.get_mut(&partition) {
                feed.wait(first, Held::Until(until));
                feed.delays_seen = first.plus(1);
            }
            self.arm(turn, partition);
            return true;
        }
        let mut delayed = vec![(first, until)];
        let mut last = first;
        while let Some((at, until)) = turn.state.next_delayed(partition, last.plus(1))
            && at == last.plus(1)
            && until > turn.wall
            && delayed.len() < DELAYED_RUN_MAX
            && self.is_untouched(turn, partition, at)
        {
            delayed.push((at, until));
            last = at;
        }
        let records = delayed.into_iter().map(|(offset, until)| Unprocessed {
            offset,
            origin: offset,
            how: How::Delayed(until),
            releases: 0,
            consumer: String::new(),
        });
        self.decide_unasked(turn, partition, records.collect());
        true
    }

    /// Whether nothing became of a record yet.
    fn is_untouched<S: Durable>(&self, turn: &Turn<'_, S>, id: PartitionId, at: Offset) -> bool {
        let Some(feed) = self.feeds.get(&id) else {
            return false;
        };
        let is_back = feed.returned_within(at, at).next().is_some();
        let unheld = feed.next_unheld(turn.state, &self.name, (at, at)).is_some();
        unheld && !is_back && !feed.is_settling((at, at))
    }

    fn grant<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (key, stream): (MemberKey, StreamKey),
        partition: PartitionId,
        candidate: &Candidate,
    ) -> Option<LeaseId> {
        let id = turn.shared.next_lease();
        let message = self.grant_message(turn, key, partition, (id, candidate))?;
        let feed = self.feeds.get_mut(&partition)?;
        let member = self.members.get_mut(&key)?;
        let is_retry = feed.is_retry();
        let isolated = candidate.isolated;
        let lease = Lease {
            id,
            holder: key,
            first: candidate.first,
            last: candidate.last,
            attempt: candidate.failures.saturating_add(1),
            previous: candidate.previous,
            releases: candidate.releases,
            noted: candidate.noted,
            isolated,
            origins: candidate.origins.clone(),
            stage: Stage::Granted { stream },
        };
        feed.take(candidate);
        feed.leases.insert(lease);
        member.spend();
        member.held.insert((partition, id));
        member.served = Some(partition);
        self.served_partition = Some(partition);
        if isolated {
            member.isolated = Some(id);
            self.isolation = super::group::Isolation::default();
        }
        if !is_retry && candidate.failures == 0 {
            self.breaker.gave(turn.now);
        }
        turn.send(stream, MemberMessage::Grant(message));
        Some(id)
    }

    fn grant_message<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        key: MemberKey,
        partition: PartitionId,
        (lease, candidate): (LeaseId, &Candidate),
    ) -> Option<Grant> {
        let facts = turn.state.group(&self.name)?;
        let place = turn.state.place(&self.name, partition)?;
        let position = turn.state.position(&self.name, partition)?;
        let source = turn.state.position(&self.name, place.source)?;
        let fence = match self.mode {
            GroupMode::Stream => self.feeds.get(&place.source)?.fence,
            // Rises through restarts, for the run does; and 2^40 hand-outs are years of one run.
            GroupMode::Queue => (turn.shared.run << 40) | (lease.0 & ((1 << 40) - 1)),
        };
        Some(Grant {
            lease,
            topic: place.topic,
            partition,
            from: candidate.first,
            until: candidate.last.plus(1),
            attempt: candidate.failures.saturating_add(1),
            fence: i64::try_from(fence).unwrap_or(i64::MAX),
            group_id: facts.id,
            reset_count: position.reset_count,
            run: turn.shared.run,
            ack_timeout_ms: self.ack_timeout_ms(&facts, key),
            lag_records: source.undone,
            origins: candidate.origins.clone(),
        })
    }

    /// Visibility timeout of what a member is given.
    pub(super) fn ack_timeout_ms(&self, facts: &GroupFacts<'_>, key: MemberKey) -> u64 {
        let own = self
            .members
            .get(&key)
            .and_then(|member| member.ack_timeout_ms);
        let wanted = own.unwrap_or(facts.settings.visibility_timeout_ms);
        wanted.min(facts.settings.lease_total_max_ms)
    }

    /// What cannot reach any consumer of these limits fails for good.
    pub(super) fn undeliverable<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        lease: &Lease,
    ) {
        self.release(turn, (partition, lease.id));
        let record = Unprocessed {
            offset: lease.first,
            origin: lease.origin(lease.first),
            how: How::Unsaid(ErrorClass::Undeliverable),
            releases: 0,
            consumer: self.consumer(lease.holder).unwrap_or_default(),
        };
        self.decide_unasked(turn, partition, vec![record]);
    }
}
