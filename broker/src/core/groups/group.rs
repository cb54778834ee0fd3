//! One group: its members and the feeds of its partitions.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, PartitionId, TopicId};

use super::action::ProposalId;
use super::breaker::Breaker;
use super::durable::Durable;
use super::feed::Feed;
use super::lease::{Lease, Stage};
use super::member::{Link, Member, MemberKey};
use super::share::Share;
use super::timers::Timer;
use super::turn::Turn;
use crate::clock::MonoMs;
use crate::core::request::{LeaseId, MemberEnd};
use crate::core::settings::{GroupMode, OnFailure};
use crate::names::{GroupName, TopicName};

/// The live side of a group.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: GroupName,
    pub(super) generation: u64,
    pub(super) members: BTreeMap<MemberKey, Member>,
    pub(super) by_id: BTreeMap<String, MemberKey>,
    /// Static members.
    pub(super) by_name: BTreeMap<String, MemberKey>,
    pub(super) feeds: BTreeMap<PartitionId, Feed>,
    /// Names of the topics in any member's assignment, those of deleted ones too.
    pub(super) topic_names: BTreeMap<TopicId, TopicName>,
    /// The next generation, while it is being committed.
    pub(super) beginning: Option<ProposalId>,
    /// Members that may be given something.
    pub(super) awake: BTreeSet<MemberKey>,
    /// As its settings say.
    pub(super) mode: GroupMode,
    pub(super) on_failure: OnFailure,
    /// Of a queue: who was given something last.
    pub(super) served: Option<MemberKey>,
    /// Of a queue: partitions that may have something to give.
    pub(super) ready: BTreeSet<PartitionId>,
    /// Of a queue: given out last.
    pub(super) served_partition: Option<PartitionId>,
    pub(super) share: Share,
    pub(super) breaker: Breaker,
    /// When the breaker is asked next.
    pub(super) probe_timer: Option<MonoMs>,
    pub(super) isolation: Isolation,
}

/// Records that are to be given out alone, while none of the members is without records.
#[derive(Debug, Default)]
pub(super) struct Isolation {
    /// Since when one waits for that.
    pub(super) since: Option<MonoMs>,
    /// Who is given nothing else until it holds nothing.
    pub(super) draining: Option<MemberKey>,
}

impl Group {
    pub(super) fn new(name: GroupName, generation: u64) -> Self {
        Self {
            name,
            generation,
            members: BTreeMap::new(),
            by_id: BTreeMap::new(),
            by_name: BTreeMap::new(),
            feeds: BTreeMap::new(),
            topic_names: BTreeMap::new(),
            beginning: None,
            awake: BTreeSet::new(),
            mode: GroupMode::Stream,
            on_failure: OnFailure::Overtake,
            served: None,
            ready: BTreeSet::new(),
            served_partition: None,
            share: Share::default(),
            breaker: Breaker::default(),
            probe_timer: None,
            isolation: Isolation::default(),
        }
    }

    /// Whether nothing of it needs to be remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.feeds.values().all(Feed::is_idle)
    }

    /// Whether it has to do with a topic: a member may be assigned it, or something of it is out
    /// or came back.
    pub(super) fn reads(&self, topic: TopicId) -> bool {
        self.topic_names.contains_key(&topic) || self.feeds_of(topic).next().is_some()
    }

    pub(super) fn feeds_of(&self, topic: TopicId) -> impl Iterator<Item = PartitionId> {
        let first = PartitionId {
            topic,
            partition: 0,
        };
        let last = PartitionId {
            topic,
            partition: u32::MAX,
        };
        self.feeds.range(first..=last).map(|(id, _)| *id)
    }

    /// The feed of a source partition and that of its retry partition.
    pub(super) fn feeds_from<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        source: PartitionId,
    ) -> Vec<PartitionId> {
        let place = turn.state.place(&self.name, source);
        let both = place.into_iter().flat_map(|it| [it.source, it.retry]);
        both.filter(|id| self.feeds.contains_key(id)).collect()
    }

    /// Takes in what its settings are now. Feeds work one way or the other, so with the rules
    /// they begin anew.
    pub(super) fn take_settings<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        let Some(facts) = turn.state.group(&self.name) else {
            return;
        };
        let (mode, on_failure) = (facts.settings.mode, facts.settings.on_failure);
        if (mode, on_failure) != (self.mode, self.on_failure) && self.members.is_empty() {
            for partition in self.feeds.keys().copied().collect::<Vec<_>>() {
                self.drop_feed(turn, partition);
            }
        }
        self.mode = mode;
        self.on_failure = on_failure;
    }

    /// Something may have come to be given in a partition, or room for it.
    pub(super) fn wake(&mut self, partition: PartitionId) {
        if self.mode == GroupMode::Queue {
            self.ready.insert(partition);
            return;
        }
        let source = self.feeds.get(&partition).map(|feed| feed.source);
        let owner = source.and_then(|source| self.feeds.get(&source)?.owner);
        if let Some(key) = owner
            && let Some(member) = self.members.get_mut(&key)
        {
            member.ready.insert(partition);
            self.awake.insert(key);
        }
    }

    /// Member name, else id, of a member.
    pub(super) fn consumer(&self, key: MemberKey) -> Option<String> {
        let member = self.members.get(&key)?;
        Some(member.name.clone().unwrap_or_else(|| member.id.clone()))
    }

    /// A lease is no longer in its feed.
    pub(super) fn lease_over<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        lease: &Lease,
    ) {
        if let Some(deadline) = lease.deadline() {
            let timer = Timer::Lease(self.name.clone(), partition, lease.id);
            turn.shared.timers.clear(deadline, timer);
        }
        if let Some(member) = self.members.get_mut(&lease.holder) {
            member.held.remove(&(partition, lease.id));
            member.isolated = member.isolated.filter(|id| *id != lease.id);
            if matches!((lease.stage, member.link),
                (Stage::Granted { stream }, Link::Live(live)) if stream == live)
            {
                member.refund();
            }
            self.awake.insert(lease.holder);
        }
        self.wake(partition);
    }

    /// These records are done.
    pub(super) fn done<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        (first, last): (Offset, Offset),
    ) {
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        let source = feed.source;
        let over = feed.done(first, last);
        // What came back may have records in it that were done before.
        let low = turn.state.position(&self.name, partition).map(|it| it.low);
        if let Some(low) = low.filter(|low| *low > Offset::ZERO) {
            feed.forget_returned((Offset::ZERO, low.minus(1)));
            feed.low_seen = feed.low_seen.max(low);
        }
        for lease in over {
            self.lease_over(turn, partition, &lease);
        }
        self.wake(partition);
        let feed = self.feeds.get(&source);
        if partition != source && feed.is_some_and(|feed| feed.retries_full) {
            self.wake(source);
        }
    }

    /// The low watermark may have moved, either way, by other means than settlements.
    pub(super) fn low_moved<S: Durable>(&mut self, turn: &mut Turn<'_, S>, partition: PartitionId) {
        let Some(position) = turn.state.position(&self.name, partition) else {
            return;
        };
        if let Some(feed) = self.feeds.get_mut(&partition) {
            feed.search_from(position.low);
            if position.low < feed.low_seen {
                // What was done is to be done again: its keys are looked at once more.
                feed.low_seen = position.low;
                (feed.keys, feed.looking) = (None, None);
                self.follow_parked(turn, partition);
            }
        }
        if position.low > Offset::ZERO {
            self.done(turn, partition, (Offset::ZERO, position.low.minus(1)));
        }
        self.wake(partition);
    }

    /// Positions were reset: what is out is void.
    pub(super) fn reset<S: Durable>(&mut self, turn: &mut Turn<'_, S>, partition: PartitionId) {
        let Some(position) = turn.state.position(&self.name, partition) else {
            return;
        };
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        for lease in feed.reset(position.low) {
            self.lease_over(turn, partition, &lease);
        }
        self.arm(turn, partition);
        self.wake(partition);
    }

    /// A feed gives nothing for a while.
    pub(super) fn pause<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        pause: Option<super::feed::Pause>,
    ) {
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        let timer = || Timer::Feed(self.name.clone(), partition);
        if let Some(before) = std::mem::replace(&mut feed.pause, pause) {
            turn.shared.timers.clear(before.until(), timer());
        }
        if let Some(pause) = pause {
            turn.shared.timers.set(pause.until(), timer());
        }
    }

    /// The time for which a feed paused is over.
    pub(super) fn pause_over<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
    ) {
        self.pause(turn, partition, None);
        let Some(feed) = self.feeds.get(&partition) else {
            return;
        };
        // What a former owner was granted and has not handed on holds up the new one no longer.
        let granted = feed.leases.granted().and_then(|id| feed.leases.get(id));
        if let Some(lease) = granted.filter(|lease| Some(lease.holder) != feed.owner) {
            let id = lease.id;
            self.release(turn, (partition, id));
        }
        self.wake(partition);
    }

    /// Moves the deadline of a lease.
    pub(super) fn set_deadline<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, id): (PartitionId, LeaseId),
        to: MonoMs,
    ) {
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        if let Some(before) = feed.leases.set_deadline(id, to) {
            let timer = || Timer::Lease(self.name.clone(), partition, id);
            turn.shared.timers.clear(before, timer());
            turn.shared.timers.set(to, timer());
        }
    }

    /// Drops a feed whose partition is gone, or that holds nothing to remember.
    pub(super) fn drop_feed<S: Durable>(&mut self, turn: &mut Turn<'_, S>, partition: PartitionId) {
        self.pause(turn, partition, None);
        let Some(mut feed) = self.feeds.remove(&partition) else {
            return;
        };
        if let Some(due) = feed.due_timer.take() {
            let timer = Timer::Due(self.name.clone(), partition);
            turn.shared.timers.clear(due, timer);
        }
        turn.shared.timed.remove(&(self.name.clone(), partition));
        self.ready.remove(&partition);
        for lease in feed.reset(Offset::ZERO) {
            self.lease_over(turn, partition, &lease);
        }
        turn.shared.remove_reader(partition, &self.name);
    }

    /// Drops feeds that nobody reads and that have nothing to remember.
    pub(super) fn drop_idle_feeds<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        if self.mode == GroupMode::Queue && !self.members.is_empty() {
            return;
        }
        let owner = |feed: &Feed| self.feeds.get(&feed.source).and_then(|source| source.owner);
        let idle = self
            .feeds
            .values()
            .filter(|feed| owner(feed).is_none() && feed.is_idle());
        let idle: Vec<_> = idle.map(|feed| feed.id).collect();
        for partition in idle {
            self.drop_feed(turn, partition);
        }
    }

    /// Leaves no timer and no entry behind.
    pub(super) fn close<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        let partitions: Vec<_> = self.feeds.keys().copied().collect();
        for partition in partitions {
            self.drop_feed(turn, partition);
        }
        if let Some(probe) = self.probe_timer.take() {
            turn.shared
                .timers
                .clear(probe, Timer::Probe(self.name.clone()));
        }
    }

    /// The group is deleted: all its streams end.
    pub(super) fn gone<S: Durable>(mut self, turn: &mut Turn<'_, S>) {
        self.close(turn);
        for (key, member) in &self.members {
            match member.link {
                Link::Live(stream) => turn.end(stream, MemberEnd::GroupGone),
                Link::Lost(deadline) => {
                    turn.shared
                        .timers
                        .clear(deadline, Timer::Session(self.name.clone(), *key));
                }
            }
        }
    }

    pub(super) fn check_invariants(&self) {
        let mut held = BTreeSet::new();
        for (partition, feed) in &self.feeds {
            feed.check_invariants();
            for lease in feed.leases.iter() {
                let holder = self.members.get(&lease.holder);
                let known = holder.is_some_and(|it| it.held.contains(&(*partition, lease.id)));
                assert!(known, "a lease's holder knows of it: {lease:?}");
                held.insert((*partition, lease.id));
            }
            if let Some(owner) = feed.owner.filter(|_| !feed.is_retry()) {
                let owner = self.members.get(&owner);
                assert!(owner.is_some_and(|member| member.assigned.contains(partition)));
            }
        }
        let mut assigned = BTreeSet::new();
        for member in self.members.values() {
            assert!(member.held.is_subset(&held), "what a member holds is there");
            for partition in &member.assigned {
                assert!(assigned.insert(*partition), "a partition has one owner");
            }
        }
        assert_eq!(self.by_id.len(), self.members.len());
    }
}
