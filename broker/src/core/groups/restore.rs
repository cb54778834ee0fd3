//! What a restart knows of hand-outs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::durable::Durable;
use super::group::Group;
use super::lease::{Lease, Stage};
use super::member::{Link, Member, MemberKey, Room};
use super::sessions::Groups;
use super::timers::Timer;
use super::turn::Turn;
use crate::core::handed_out::{HandOuts, HandedOut};
use crate::names::GroupName;

/// Leases again what was noted as handed out and is not settled.
pub(super) fn restore<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>) {
    for name in turn.state.group_names() {
        let open = open_hand_outs(turn, &name);
        if open.is_empty() {
            continue;
        }
        let generation = turn.state.group(&name).map_or(0, |facts| facts.generation);
        let group = groups.entry(&name, generation);
        group.take_settings(turn);
        for (source, id, first, out) in open {
            group.open_feeds(turn, source);
            group.restore(turn, id, (first, &out));
        }
        group.await_restored(turn);
    }
}

type Open = (PartitionId, PartitionId, Offset, HandedOut);

fn open_hand_outs<S: Durable>(turn: &Turn<'_, S>, name: &GroupName) -> Vec<Open> {
    let mut open = Vec::new();
    for topic in turn.state.group_topics(name) {
        for partition in 0..topic.partitions {
            let source = PartitionId {
                topic: topic.id,
                partition,
            };
            let Some(place) = turn.state.place(name, source) else {
                continue;
            };
            for id in [place.source, place.retry] {
                let outs = turn.state.handed_out(name, id);
                let outs = outs.into_iter().flat_map(HandOuts::iter);
                open.extend(outs.map(|(first, out)| (source, id, first, out.clone())));
            }
        }
    }
    open
}

impl Group {
    fn restore<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        id: PartitionId,
        (first, out): (Offset, &HandedOut),
    ) {
        let key = self.restored_member(turn, &out.member);
        let lease_total_ms = turn
            .state
            .group(&self.name)
            .map_or(out.ack_timeout_ms, |facts| {
                facts.settings.lease_total_max_ms
            });
        let deadline = turn.now.plus(Duration::from_millis(out.ack_timeout_ms));
        let total = Duration::from_millis(lease_total_ms.max(out.ack_timeout_ms));
        let mut origins = Vec::new();
        let mut from = first;
        while let Some((at, entry)) = turn.state.next_retry(&self.name, id, from)
            && at <= out.last
        {
            origins.push(entry.origin);
            from = at.plus(1);
        }
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        let lease = Lease {
            id: turn.shared.restored_lease((out.run, out.lease)),
            holder: key,
            first,
            last: out.last,
            attempt: out.attempt,
            previous: None,
            releases: 0,
            noted: false,
            isolated: false,
            origins,
            stage: Stage::Out {
                deadline,
                hold_end: turn.now.plus(total),
                ack_timeout_ms: out.ack_timeout_ms,
                since: turn.now,
            },
        };
        let timer = Timer::Lease(self.name.clone(), id, lease.id);
        turn.shared.timers.set(deadline, timer);
        feed.restore(&lease);
        if let Some(member) = self.members.get_mut(&key) {
            member.held.insert((id, lease.id));
        }
        feed.leases.insert(lease);
    }

    /// The member of that id, which is waited for as one whose connection went silent.
    fn restored_member<S: Durable>(&mut self, turn: &mut Turn<'_, S>, id: &str) -> MemberKey {
        if let Some(key) = self.by_id.get(id) {
            return *key;
        }
        let key = turn.shared.next_member();
        let member = Member {
            id: id.to_owned(),
            name: None,
            address: String::new(),
            joined: turn.wall,
            topics: Some(BTreeSet::new()),
            ack_timeout_ms: None,
            auto_ack: false,
            link: Link::Lost(turn.now),
            credit: Room::Explicit(0),
            introduced: false,
            told_generation: None,
            restarted: false,
            assigned: BTreeSet::new(),
            ready: BTreeSet::new(),
            served: None,
            held: BTreeSet::new(),
            isolated: None,
            records_max: 1,
            restored: true,
        };
        self.by_id.insert(id.to_owned(), key);
        self.members.insert(key, member);
        key
    }

    /// Waits for restored members for a session timeout, and no shorter than for their leases.
    fn await_restored<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        let session_ms = turn
            .state
            .group(&self.name)
            .map_or(0, |facts| facts.settings.session_timeout_ms);
        let session = turn.now.plus(Duration::from_millis(session_ms));
        let mut until = BTreeMap::new();
        for feed in self.feeds.values() {
            for lease in feed.leases.iter() {
                let deadline = lease.deadline().unwrap_or(session).max(session);
                let latest = until.entry(lease.holder).or_insert(deadline);
                *latest = deadline.max(*latest);
            }
        }
        for (key, deadline) in until {
            if let Some(member) = self.members.get_mut(&key).filter(|member| member.restored) {
                member.link = Link::Lost(deadline);
                let timer = Timer::Session(self.name.clone(), key);
                turn.shared.timers.set(deadline, timer);
            }
        }
    }
}
