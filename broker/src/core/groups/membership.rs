//! Coming, going and coming back.

use std::collections::BTreeSet;
use std::time::Duration;

use varvelog_store::TopicId;

use super::durable::Durable;
use super::feed::Feed;
use super::group::Group;
use super::join::Joining;
use super::member::{Link, Member, MemberKey};
use super::timers::Timer;
use super::turn::Turn;
use crate::core::refusal::{GroupRefusal, QuotaRefusal, Refusal};
use crate::core::request::{GroupReply, MemberEnd, StreamEnd};
use crate::core::settings::GroupMode;

/// The longest that a dynamic member is waited for whose connection was seen to end.
const DYNAMIC_RETURN_MS: u64 = 5_000;

/// How a membership ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    /// By the member's will: what it holds is given back.
    Said,
    /// Without a word: what it holds failed.
    None,
}

/// How a join relates to the members that are there.
enum Found {
    /// The same one, which knows what it holds.
    Same(MemberKey),
    /// A static one whose program was restarted.
    Restarted(MemberKey),
    Nobody,
}

impl Group {
    /// Lets a member in whose group and topics are there. `wanted`: none for whatever the group
    /// reads.
    pub(super) fn admit<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        joining: Joining,
        wanted: Option<BTreeSet<TopicId>>,
    ) {
        let key = match self.find(&joining) {
            Found::Same(key) => {
                self.unlink(turn, key);
                key
            }
            Found::Restarted(key) => {
                self.unlink(turn, key);
                self.lose_all(turn, key);
                if let Some(member) = self.members.get_mut(&key) {
                    member.restarted |= member.told_generation.take().is_some();
                }
                key
            }
            Found::Nobody => {
                if let Some(refusal) = self.refuse_more(turn) {
                    turn.reply(joining.call, Err(refusal.into()));
                    return;
                }
                self.enrol(turn, &joining)
            }
        };
        self.take_settings(turn);
        self.link(turn, key, joining, wanted);
        self.rebalance(turn);
    }

    fn find(&self, joining: &Joining) -> Found {
        let request = &joining.request;
        if let Some(key) = request.member_id.as_ref().and_then(|id| self.by_id.get(id))
            && self
                .members
                .get(key)
                .is_some_and(|member| member.restored || member.name == request.member_name)
        {
            return Found::Same(*key);
        }
        let named = request
            .member_name
            .as_ref()
            .and_then(|name| self.by_name.get(name));
        named.map_or(Found::Nobody, |key| Found::Restarted(*key))
    }

    fn refuse_more<S: Durable>(&self, turn: &Turn<'_, S>) -> Option<Refusal> {
        let limit = turn.shared.limits.members_max;
        (self.members.len() >= limit).then(|| members_refusal(limit, self.members.len()))
    }

    fn enrol<S: Durable>(&mut self, turn: &mut Turn<'_, S>, joining: &Joining) -> MemberKey {
        let key = turn.shared.next_member();
        let request = &joining.request;
        let member = Member {
            id: joining.fresh_id.clone(),
            name: request.member_name.clone(),
            address: request.address.clone(),
            joined: turn.wall,
            topics: None,
            ack_timeout_ms: None,
            auto_ack: false,
            link: Link::Lost(turn.now),
            credit: request.credit.into(),
            introduced: false,
            told_generation: None,
            restarted: false,
            assigned: BTreeSet::new(),
            ready: BTreeSet::new(),
            served: None,
            held: BTreeSet::new(),
            isolated: None,
            records_max: 1,
            restored: false,
        };
        self.by_id.insert(member.id.clone(), key);
        if let Some(name) = &member.name {
            self.by_name.insert(name.clone(), key);
        }
        self.members.insert(key, member);
        key
    }

    /// Opens a member's stream.
    fn link<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        joining: Joining,
        wanted: Option<BTreeSet<TopicId>>,
    ) {
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        let stream = turn.shared.next_stream();
        turn.shared.streams.insert(stream, (self.name.clone(), key));
        member.link = Link::Live(stream);
        member.address = joining.request.address;
        if std::mem::take(&mut member.restored) {
            member.name.clone_from(&joining.request.member_name);
            if let Some(name) = &member.name {
                self.by_name.insert(name.clone(), key);
            }
        }
        member.topics = wanted;
        member.records_max = joining.request.records_max.max(1).into();
        member.ack_timeout_ms = joining.request.ack_timeout_ms;
        member.auto_ack = joining.request.auto_ack;
        member.credit = joining.request.credit.into();
        member.introduced = false;
        turn.reply(joining.call, Ok(GroupReply::Joined(stream)));
        self.make_all_ready(key);
    }

    /// All that a member may be given is looked at anew.
    pub(super) fn make_all_ready(&mut self, key: MemberKey) {
        if self.mode == GroupMode::Queue {
            self.ready.extend(self.feeds.keys().copied());
            self.awake.insert(key);
            return;
        }
        let owned = |feed: &&Feed| {
            let owner = self.feeds.get(&feed.source).and_then(|source| source.owner);
            owner == Some(key)
        };
        let ready = self
            .feeds
            .values()
            .filter(owned)
            .map(|feed| feed.id)
            .collect();
        if let Some(member) = self.members.get_mut(&key) {
            member.ready = ready;
            self.awake.insert(key);
        }
    }

    /// Ends the way by which a member was reached: its older stream loses, or it is no longer
    /// waited for.
    fn unlink<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) {
        match self.members.get(&key).map(|member| member.link) {
            Some(Link::Live(stream)) => {
                self.withdraw_grants(turn, key);
                turn.end(
                    stream,
                    MemberEnd::Fenced {
                        generation: self.generation,
                    },
                );
            }
            Some(Link::Lost(deadline)) => {
                turn.shared
                    .timers
                    .clear(deadline, Timer::Session(self.name.clone(), key));
            }
            None => {}
        }
    }

    /// A member's stream is over.
    pub(super) fn stream_ended<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        how: StreamEnd,
    ) {
        self.withdraw_grants(turn, key);
        let Some(member) = self.members.get_mut(&key) else {
            return;
        };
        let session_ms = turn
            .state
            .group(&self.name)
            .map(|it| it.settings.session_timeout_ms);
        // Before its first event it was no member; a restarted one was one already.
        let was_member = member.told_generation.is_some() || member.restarted;
        let wait_ms = match how {
            _ if !was_member => None,
            StreamEnd::Clean => None,
            StreamEnd::Broken if member.name.is_none() => {
                session_ms.map(|session_ms| session_ms.min(DYNAMIC_RETURN_MS))
            }
            StreamEnd::Broken | StreamEnd::Silent => session_ms,
        };
        let Some(wait_ms) = wait_ms else {
            self.remove(turn, key, Farewell::Said);
            return;
        };
        let deadline = turn.now.plus(Duration::from_millis(wait_ms));
        member.link = Link::Lost(deadline);
        turn.shared
            .timers
            .set(deadline, Timer::Session(self.name.clone(), key));
    }

    /// A member did not come back in time.
    pub(super) fn session_over<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) {
        let lost = self.members.get(&key).map(|member| member.link);
        if matches!(lost, Some(Link::Lost(deadline)) if deadline <= turn.now) {
            self.remove(turn, key, Farewell::None);
        }
    }

    /// A member leaves by its own will; one that is none any more is no error.
    pub(super) fn leave<S: Durable>(&mut self, turn: &mut Turn<'_, S>, member_id: &str) {
        let Some(key) = self.by_id.get(member_id).copied() else {
            return;
        };
        match self.members.get(&key).map(|member| member.link) {
            Some(Link::Live(stream)) => turn.end(stream, MemberEnd::Left),
            Some(Link::Lost(deadline)) => {
                turn.shared
                    .timers
                    .clear(deadline, Timer::Session(self.name.clone(), key));
            }
            None => {}
        }
        self.remove(turn, key, Farewell::Said);
    }

    /// Ends a membership whose stream is over.
    pub(super) fn remove<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        farewell: Farewell,
    ) {
        match farewell {
            Farewell::Said => self.release_all(turn, key),
            Farewell::None => self.lose_all(turn, key),
        }
        let Some(member) = self.members.remove(&key) else {
            return;
        };
        self.by_id.remove(&member.id);
        if let Some(name) = &member.name
            && self.by_name.get(name) == Some(&key)
        {
            self.by_name.remove(name);
        }
        self.awake.remove(&key);
        if self.isolation.draining == Some(key) {
            self.isolation.draining = None;
        }
        for feed in self
            .feeds
            .values_mut()
            .filter(|feed| feed.owner == Some(key))
        {
            feed.owner = None;
        }
        if self.members.is_empty() {
            self.topic_names.clear();
            self.drop_idle_feeds(turn);
        }
        self.rebalance(turn);
    }

    /// A topic is deleted: nobody reads it any more, and who read nothing else is done.
    pub(super) fn topic_gone<S: Durable>(&mut self, turn: &mut Turn<'_, S>, topic: TopicId) {
        let of = self
            .feeds
            .values()
            .filter(|feed| feed.source.topic == topic);
        let partitions: Vec<_> = of.map(|feed| feed.id).collect();
        for partition in partitions {
            self.drop_feed(turn, partition);
        }
        let Some(name) = self.topic_names.get(&topic).cloned() else {
            return;
        };
        let left: BTreeSet<_> = turn
            .state
            .group_topics(&self.name)
            .into_iter()
            .map(|topic| topic.id)
            .collect();
        let bereft = |member: &Member| match &member.topics {
            None => left.is_empty(),
            Some(topics) => topics.is_disjoint(&left),
        };
        let over = self.members.iter().filter(|(_, member)| bereft(member));
        let over: Vec<_> = over.map(|(key, member)| (*key, member.link)).collect();
        for (key, link) in over {
            match link {
                Link::Live(stream) => {
                    turn.end(
                        stream,
                        MemberEnd::TopicGone {
                            topic: name.clone(),
                        },
                    );
                }
                Link::Lost(deadline) => {
                    let timer = Timer::Session(self.name.clone(), key);
                    turn.shared.timers.clear(deadline, timer);
                }
            }
            self.remove(turn, key, Farewell::Said);
        }
        self.rebalance(turn);
    }

    /// Whether a member's last event was of this generation.
    pub(super) fn check_member(
        &self,
        member_id: &str,
        generation: u64,
    ) -> Result<(), GroupRefusal> {
        let member = self
            .by_id
            .get(member_id)
            .and_then(|key| self.members.get(key));
        if member.is_some_and(|member| member.told_generation == Some(generation)) {
            return Ok(());
        }
        Err(GroupRefusal::MemberFenced {
            generation: self.generation,
        })
    }
}

/// The refusal of one member more.
pub(super) fn members_refusal(limit: usize, current: usize) -> Refusal {
    let count = |value| u64::try_from(value).unwrap_or(u64::MAX);
    QuotaRefusal {
        what: "members",
        limit: count(limit),
        current: count(current),
    }
    .into()
}
