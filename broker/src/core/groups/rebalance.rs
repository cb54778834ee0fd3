//! Who gets which partition, one generation after the other.
//!
//! A generation begins when the assignment is to change: its command is committed first, then the
//! assignment is made anew from whoever is there by then, and only members whose part changed are
//! told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varvelog_store::PartitionId;

use super::action::ProposalId;
use super::assignment::{Assignment, assign};
use super::durable::Durable;
use super::feed::Pause;
use super::group::Group;
use super::member::{Link, MemberKey};
use super::turn::{Proposal, Turn};
use crate::core::command::Change;
use crate::core::request::{MemberEvent, MemberMessage};
use crate::core::settings::GroupMode;
use crate::names::TopicName;

impl Group {
    /// Begins the next generation if the assignment is to change; else introduces the streams that
    /// wait for it.
    pub(super) fn rebalance<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        if self.mode == GroupMode::Queue {
            self.open_queue(turn);
            self.introduce(turn);
            return;
        }
        if self.beginning.is_some() {
            return;
        }
        let restarted = self.members.values().any(|member| member.restarted);
        if !restarted && self.plan(turn) == self.assignment() {
            self.introduce(turn);
            return;
        }
        let proposal = Proposal::Generation(self.name.clone());
        let change = Change::NextGeneration {
            group: self.name.clone(),
        };
        self.beginning = Some(turn.propose(proposal, change));
    }

    /// The feeds of all that a queue's members may be given are there.
    fn open_queue<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        for member in self.members.values_mut() {
            member.restarted = false;
        }
        if self.members.is_empty() {
            return;
        }
        for topic in turn.state.group_topics(&self.name) {
            for partition in 0..topic.partitions {
                let source = PartitionId {
                    topic: topic.id,
                    partition,
                };
                for id in self.open_feeds(turn, source) {
                    self.wake(id);
                }
            }
        }
        let topics = turn.state.group_topics(&self.name);
        self.topic_names = topics.into_iter().map(|it| (it.id, it.name)).collect();
    }

    /// A generation was committed, or refused.
    pub(super) fn generation_begun<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        proposal: ProposalId,
        generation: Option<u64>,
    ) {
        if self.beginning != Some(proposal) {
            return;
        }
        self.beginning = None;
        let Some(generation) = generation else { return };
        turn.shared.tallies.group(&self.name).rebalances.inc();
        self.generation = generation;
        let assignment = self.plan(turn);
        self.hand_over(turn, &assignment);
        let mut parts: BTreeMap<MemberKey, BTreeSet<PartitionId>> = self
            .members
            .keys()
            .map(|key| (*key, BTreeSet::new()))
            .collect();
        for (partition, key) in assignment {
            parts.entry(key).or_default().insert(partition);
        }
        for (key, part) in parts {
            self.tell(turn, key, part);
        }
        let kept = turn.state.group_topics(&self.name);
        self.topic_names
            .retain(|id, _| kept.iter().any(|topic| topic.id == *id));
        self.drop_idle_feeds(turn);
    }

    /// The assignment as members know it.
    fn assignment(&self) -> Assignment {
        let of = |(key, member): (&MemberKey, &super::member::Member)| {
            let key = *key;
            let assigned: Vec<_> = member.assigned.iter().copied().collect();
            assigned.into_iter().map(move |partition| (partition, key))
        };
        self.members.iter().flat_map(of).collect()
    }

    /// The assignment as it should be.
    fn plan<S: Durable>(&mut self, turn: &Turn<'_, S>) -> Assignment {
        let topics = turn.state.group_topics(&self.name);
        let partitions = topics
            .iter()
            .map(|topic| (topic.id, topic.partitions))
            .collect();
        let all: BTreeSet<_> = topics.iter().map(|topic| topic.id).collect();
        self.topic_names
            .extend(topics.into_iter().map(|topic| (topic.id, topic.name)));
        let wanted = self
            .members
            .iter()
            .map(|(key, member)| (*key, member.topics.clone().unwrap_or_else(|| all.clone())));
        assign(&self.assignment(), &wanted.collect(), &partitions)
    }

    /// Gives each feed its owner.
    fn hand_over<S: Durable>(&mut self, turn: &mut Turn<'_, S>, assignment: &Assignment) {
        for feed in self.feeds.values_mut() {
            if !assignment.contains_key(&feed.source) {
                feed.owner = None;
            }
        }
        let session_ms = turn
            .state
            .group(&self.name)
            .map(|it| it.settings.session_timeout_ms);
        let patience = turn
            .now
            .plus(Duration::from_millis(session_ms.unwrap_or(0)));
        for (partition, key) in assignment {
            self.open_feeds(turn, *partition);
            let Some(feed) = self.feeds.get_mut(partition) else {
                continue;
            };
            let restarted = self.members.get(key).is_some_and(|member| member.restarted);
            if feed.owner == Some(*key) && !restarted {
                continue;
            }
            feed.owner = Some(*key);
            feed.fence = self.generation;
            // In order: what is out comes first, but nobody is waited for beyond the time that a
            // lost member is given, however often the owner changes meanwhile.
            let patience = match feed.pause {
                Some(Pause::Handover(until)) => until.min(patience),
                Some(Pause::Unreadable(_)) | None => patience,
            };
            let pause = feed.is_held_by_others().then(|| {
                let open = feed
                    .leases
                    .iter()
                    .map(|it| it.deadline().unwrap_or(patience))
                    .max();
                Pause::Handover(open.unwrap_or(patience).min(patience))
            });
            self.pause(turn, *partition, pause);
            for id in self.feeds_from(turn, *partition) {
                if let Some(feed) = self.feeds.get_mut(&id) {
                    feed.owner = Some(*key);
                }
            }
        }
    }

    /// Tells a member what is its own from now on.
    fn tell<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        part: BTreeSet<PartitionId>,
    ) {
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        let revoked: Vec<_> = member.assigned.difference(&part).copied().collect();
        let changed = member.assigned != part || member.restarted;
        member.restarted = false;
        member.assigned = part;
        self.make_all_ready(key);
        if changed || !self.is_introduced(key) {
            self.send_event(turn, key, &revoked);
        }
    }

    /// Sends the first event to streams that had none.
    fn introduce<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        let waiting: Vec<_> = self
            .members
            .keys()
            .copied()
            .filter(|key| !self.is_introduced(*key))
            .collect();
        for key in waiting {
            self.send_event(turn, key, &[]);
        }
    }

    fn is_introduced(&self, key: MemberKey) -> bool {
        self.members
            .get(&key)
            .is_none_or(|member| member.introduced || matches!(member.link, Link::Lost(_)))
    }

    /// A member without a stream is told nothing: it keeps the generation of its last event, and
    /// gets the present one when it comes back.
    fn send_event<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        revoked: &[PartitionId],
    ) {
        let Some(member) = self.members.get(&key) else {
            return;
        };
        let Link::Live(stream) = member.link else {
            return;
        };
        let event = MemberEvent {
            member_id: member.id.clone(),
            generation: self.generation,
            assigned: self.named(&member.assigned),
            revoked: self.named(revoked),
        };
        turn.send(stream, MemberMessage::Event(event));
        if let Some(member) = self.members.get_mut(&key) {
            member.introduced = true;
            member.told_generation = Some(self.generation);
        }
        self.awake.insert(key);
    }

    /// By topic name and number.
    pub(super) fn named<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a PartitionId>,
    ) -> Vec<(TopicName, u32)> {
        let name = |id: &PartitionId| {
            self.topic_names
                .get(&id.topic)
                .map(|name| (name.clone(), id.partition))
        };
        let mut named: Vec<_> = partitions.into_iter().filter_map(name).collect();
        named.sort();
        named
    }
}
