//! One group: its members and the feeds of its partitions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varvelog_store::{Offset, PartitionId, TopicId};

use super::action::ProposalId;
use super::durable::Durable;
use super::feed::{Counted, Feed};
use super::lease::{Lease, Stage};
use super::member::{Link, Member, MemberKey};
use super::timers::Timer;
use super::turn::Turn;
use crate::clock::MonoMs;
use crate::core::request::{LeaseId, MemberEnd};
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
        }
    }

    /// Whether nothing of it needs to be remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.members.is_empty() && self.feeds.is_empty()
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

    /// Something may have come to be given in a partition, or room for it.
    pub(super) fn wake(&mut self, partition: PartitionId) {
        let owner = self.feeds.get(&partition).and_then(|feed| feed.owner);
        if let Some(key) = owner
            && let Some(member) = self.members.get_mut(&key)
        {
            member.ready.insert(partition);
            self.awake.insert(key);
        }
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
            if matches!((lease.stage, member.link),
                (Stage::Granted { stream }, Link::Live(live)) if stream == live)
            {
                member.refund();
            }
            self.awake.insert(lease.holder);
        }
        self.wake(partition);
    }

    /// Ends a lease; what it held can be given out again.
    pub(super) fn release<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, lease): (PartitionId, LeaseId),
        counted: Counted,
    ) {
        let feed = self.feeds.get_mut(&partition);
        if let Some(lease) = feed.and_then(|feed| feed.release(lease, counted)) {
            self.lease_over(turn, partition, &lease);
        }
    }

    /// Ends what a member holds.
    pub(super) fn release_all<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        counted: Counted,
    ) {
        let held = self.members.get(&key).map(|member| member.held.clone());
        for hold in held.unwrap_or_default() {
            self.release(turn, hold, counted);
        }
    }

    /// Takes back what was granted and is not handed on yet.
    pub(super) fn withdraw_grants<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) {
        let held = self.members.get(&key).map(|member| member.held.clone());
        for (partition, id) in held.unwrap_or_default() {
            let feed = self.feeds.get(&partition);
            if feed.is_some_and(|feed| feed.leases.granted() == Some(id)) {
                self.release(turn, (partition, id), Counted::No);
            }
        }
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
        for lease in feed.done(first, last) {
            self.lease_over(turn, partition, &lease);
        }
        self.wake(partition);
    }

    /// The low watermark may have moved, either way, by other means than settlements.
    pub(super) fn low_moved<S: Durable>(&mut self, turn: &mut Turn<'_, S>, partition: PartitionId) {
        let Some(position) = turn.state.position(&self.name, partition) else {
            return;
        };
        if let Some(feed) = self.feeds.get_mut(&partition) {
            feed.search_from(position.low);
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
            self.release(turn, (partition, id), Counted::No);
        }
        self.wake(partition);
    }

    /// A lease's deadline has come.
    pub(super) fn expire<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        id: LeaseId,
    ) {
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        let Some(lease) = feed.leases.get(id) else {
            return;
        };
        if feed.is_settling(lease) {
            let later = turn.now.plus(Duration::from_secs(1));
            feed.leases.set_deadline(id, later);
            turn.shared
                .timers
                .set(later, Timer::Lease(self.name.clone(), partition, id));
        } else {
            self.release(turn, (partition, id), Counted::Yes);
        }
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
        for lease in feed.reset(Offset::ZERO) {
            self.lease_over(turn, partition, &lease);
        }
        turn.shared.remove_reader(partition, &self.name);
    }

    /// Drops feeds that have no owner and nothing to remember.
    pub(super) fn drop_idle_feeds<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        let idle = self
            .feeds
            .values()
            .filter(|feed| feed.owner.is_none() && feed.is_idle());
        let idle: Vec<_> = idle.map(|feed| feed.id).collect();
        for partition in idle {
            self.drop_feed(turn, partition);
        }
    }

    /// The group is deleted: all its streams end.
    pub(super) fn gone<S: Durable>(mut self, turn: &mut Turn<'_, S>) {
        let partitions: Vec<_> = self.feeds.keys().copied().collect();
        for partition in partitions {
            self.drop_feed(turn, partition);
        }
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
            if let Some(owner) = feed.owner {
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
