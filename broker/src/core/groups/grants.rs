//! Giving out records: grants to the edges, and what they hand on of them.

use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::durable::{Durable, GroupFacts};
use super::feed::{Bounds, Candidate, Counted, Pause};
use super::group::Group;
use super::lease::{Lease, Stage};
use super::member::MemberKey;
use super::timers::Timer;
use super::turn::{Proposal, Settling, Turn};
use crate::core::command::{Change, Settle};
use crate::core::durable_groups::ACK_WINDOW;

use crate::core::request::{Grant, LeaseId, MemberMessage, StreamKey};

/// How long a partition is left alone whose log could not be read.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(1);

impl Group {
    /// Gives out what there is to members that have room for it.
    pub(super) fn pump<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        while let Some(key) = self.awake.pop_first() {
            while self.grant_next(turn, key) {}
        }
    }

    /// Makes one grant to a member, if there is anything for it.
    fn grant_next<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) -> bool {
        let Some(facts) = turn.state.group(&self.name) else {
            return false;
        };
        if facts.settings.paused {
            return false;
        }
        loop {
            let Some(member) = self.members.get_mut(&key) else {
                return false;
            };
            let Some(stream) = member.open_stream() else {
                return false;
            };
            let Some(partition) = member.next_ready() else {
                return false;
            };
            let candidate = self.candidate(turn, key, partition, &facts);
            let granted = candidate
                .and_then(|candidate| self.grant(turn, (key, stream), partition, candidate));
            if granted.is_some() {
                return true;
            }
            if let Some(member) = self.members.get_mut(&key) {
                member.ready.remove(&partition);
            }
        }
    }

    fn candidate<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        key: MemberKey,
        partition: PartitionId,
        facts: &GroupFacts<'_>,
    ) -> Option<Candidate> {
        let feed = self
            .feeds
            .get(&partition)
            .filter(|feed| feed.owner == Some(key))?;
        match feed.pause {
            Some(Pause::Handover(_)) if !feed.is_held_by_others() => {
                self.pause(turn, partition, None);
            }
            Some(_) => return None,
            None => {}
        }
        let position = turn.state.position(&self.name, partition)?;
        let bounds = Bounds {
            low: position.low,
            end: position.end.min(position.low.plus(ACK_WINDOW)),
            in_flight_max: facts.settings.in_flight_max,
        };
        let done = |from| turn.state.next_done(&self.name, partition, from);
        self.feeds.get(&partition)?.candidate(&bounds, &done)
    }

    fn grant<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (key, stream): (MemberKey, StreamKey),
        partition: PartitionId,
        candidate: Candidate,
    ) -> Option<LeaseId> {
        let id = turn.shared.next_lease();
        let message = self.grant_message(turn, key, partition, (id, candidate))?;
        let feed = self.feeds.get_mut(&partition)?;
        let member = self.members.get_mut(&key)?;
        let Candidate {
            first,
            last,
            attempt,
            previous,
            ..
        } = candidate;
        let stage = Stage::Granted { stream };
        let lease = Lease {
            id,
            holder: key,
            first,
            last,
            attempt,
            previous,
            stage,
        };
        feed.grant(candidate, lease);
        member.spend();
        member.held.insert((partition, id));
        member.served = Some(partition);
        turn.send(stream, MemberMessage::Grant(message));
        Some(id)
    }

    fn grant_message<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        key: MemberKey,
        partition: PartitionId,
        (lease, candidate): (LeaseId, Candidate),
    ) -> Option<Grant> {
        let facts = turn.state.group(&self.name)?;
        let position = turn.state.position(&self.name, partition)?;
        Some(Grant {
            lease,
            topic: self.topic_names.get(&partition.topic)?.clone(),
            partition,
            from: candidate.first,
            until: candidate.last.plus(1),
            attempt: candidate.attempt,
            fence: i64::try_from(self.feeds.get(&partition)?.fence).unwrap_or(i64::MAX),
            group_id: facts.id,
            reset_count: position.reset_count,
            run: turn.shared.run,
            ack_timeout_ms: self.ack_timeout_ms(&facts, key),
            lag_records: position.undone,
        })
    }

    /// Visibility timeout of what a member is given.
    fn ack_timeout_ms(&self, facts: &GroupFacts<'_>, key: MemberKey) -> u64 {
        let own = self
            .members
            .get(&key)
            .and_then(|member| member.ack_timeout_ms);
        let wanted = own.unwrap_or(facts.settings.visibility_timeout_ms);
        wanted.min(facts.settings.lease_total_max_ms)
    }

    /// The edge tells what it hands on of a grant.
    pub(super) fn confirm<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (stream, key, id): (StreamKey, MemberKey, LeaseId),
        (last, skip_to): (Option<Offset>, Option<Offset>),
    ) {
        let held = self.members.get(&key).map(|member| &member.held);
        let held = held.and_then(|held| held.iter().find(|(_, lease)| *lease == id));
        let Some((partition, _)) = held.copied() else {
            return;
        };
        let lease = self
            .feeds
            .get(&partition)
            .and_then(|feed| feed.leases.get(id));
        let Some(lease) = lease.filter(|it| it.stage == (Stage::Granted { stream })) else {
            return;
        };
        let lease = lease.clone();
        match (last, skip_to) {
            (Some(last), _) => self.hand_on(turn, (partition, lease), last),
            (None, Some(to)) if to > lease.first => {
                self.pass_over(turn, (partition, lease), to);
            }
            (None, _) => {
                self.release(turn, (partition, id), Counted::No);
                let pause = Pause::Unreadable(turn.now.plus(UNREADABLE_PAUSE));
                self.pause(turn, partition, Some(pause));
            }
        }
        self.wake(partition);
    }

    fn hand_on<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, lease): (PartitionId, Lease),
        last: Offset,
    ) {
        let Some(facts) = turn.state.group(&self.name) else {
            return;
        };
        let ack_timeout_ms = self.ack_timeout_ms(&facts, lease.holder);
        let deadline = turn.now.plus(Duration::from_millis(ack_timeout_ms));
        let hold = Duration::from_millis(facts.settings.lease_total_max_ms);
        let stage = Stage::Out {
            deadline,
            hold_end: turn.now.plus(hold),
            ack_timeout_ms,
        };
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        if !feed.confirm(lease.id, last, stage) {
            self.lease_over(turn, partition, &lease);
            return;
        }
        let timer = Timer::Lease(self.name.clone(), partition, lease.id);
        turn.shared.timers.set(deadline, timer);
        if self
            .members
            .get(&lease.holder)
            .is_some_and(|member| member.auto_ack)
        {
            self.settle_unasked(turn, partition, (lease.first, last.min(lease.last)));
        }
    }

    /// Nothing of a grant can be read, nor ever will be, before `to`: those records are done.
    fn pass_over<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, lease): (PartitionId, Lease),
        to: Offset,
    ) {
        self.release(turn, (partition, lease.id), Counted::No);
        self.settle_unasked(turn, partition, (lease.first, lease.last.min(to.minus(1))));
    }

    /// Settles records without a call that waits for it.
    fn settle_unasked<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        run: (Offset, Offset),
    ) {
        let Some(facts) = turn.state.group(&self.name) else {
            return;
        };
        let Some(position) = turn.state.position(&self.name, partition) else {
            return;
        };
        let settle = Settle {
            group: self.name.clone(),
            group_id: facts.id,
            reset_count: position.reset_count,
            partition,
            ranges: vec![run],
        };
        let settling = Settling {
            group: self.name.clone(),
            partition,
            call: None,
            runs: vec![run],
            conflicts: Vec::new(),
        };
        let proposal = turn.propose(Proposal::Settle(settling), Change::Settle(settle));
        if let Some(feed) = self.feeds.get_mut(&partition) {
            feed.settle(proposal, vec![run]);
        }
    }
}
