//! What the edges hand on of grants.

use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::durable::Durable;
use super::fates::Plan;
use super::feed::{Pause, Run};
use super::group::Group;
use super::lease::{Lease, Stage};
use super::member::MemberKey;
use super::timers::Timer;
use super::turn::Turn;
use crate::core::command::{Change, HandOut};
use crate::core::handed_out::HandedOut;
use crate::core::request::{LeaseId, StreamKey};

/// How long a partition is left alone whose log could not be read.
const UNREADABLE_PAUSE: Duration = Duration::from_secs(1);

/// What an edge made of a grant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Made {
    /// The last record that goes out.
    pub(super) last: Option<Offset>,
    /// Where the log goes on.
    pub(super) skip_to: Option<Offset>,
    /// The first record is too large.
    pub(super) undeliverable: bool,
}

impl Group {
    /// The edge tells what it hands on of a grant.
    pub(super) fn confirm<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (stream, key, id): (StreamKey, MemberKey, LeaseId),
        made: Made,
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
        match (made.last, made.skip_to) {
            _ if made.undeliverable => self.undeliverable(turn, partition, &lease),
            (Some(last), _) => self.hand_on(turn, (partition, lease), last),
            (None, Some(to)) if to > lease.first => {
                self.pass_over(turn, (partition, lease), to);
            }
            (None, _) => {
                self.release(turn, (partition, id));
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
            since: turn.now,
        };
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        let Some(confirmed) = feed.confirm(lease.id, last, stage) else {
            return;
        };
        if let Some(left) = confirmed.left {
            self.came_free(turn, partition, left);
        }
        if !confirmed.handed_on {
            self.lease_over(turn, partition, &lease);
            return;
        }
        let timer = Timer::Lease(self.name.clone(), partition, lease.id);
        turn.shared.timers.set(deadline, timer);
        let run = (lease.first, last.min(lease.last));
        let is_retry = !lease.origins.is_empty();
        let share = facts.settings.retry_share_permille;
        let records = run.1.plus(1).since(run.0);
        self.share.gave(records, is_retry, share);
        if let Some(tally) = turn.tally(&self.name, partition) {
            tally.gave(records, lease.attempt <= 1, lease.isolated);
        }
        let member = self.members.get(&lease.holder);
        if member.is_some_and(|member| member.auto_ack) {
            self.settle_unasked(turn, partition, run);
        } else {
            self.note_out(turn, partition, (&lease, run), ack_timeout_ms);
        }
    }

    /// Notes a hand-out, so that a restart knows of it.
    fn note_out<S: Durable>(
        &self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        (lease, (first, last)): (&Lease, Run),
        ack_timeout_ms: u64,
    ) {
        let facts = turn.state.group(&self.name);
        let position = turn.state.position(&self.name, partition);
        let member = self.members.get(&lease.holder);
        let (Some(facts), Some(position), Some(member)) = (facts, position, member) else {
            return;
        };
        let hand_out = HandOut {
            group: self.name.clone(),
            group_id: facts.id,
            reset_count: position.reset_count,
            partition,
            first,
            out: HandedOut {
                last,
                attempt: lease.attempt,
                lease: lease.id,
                run: turn.shared.run,
                member: member.id.clone(),
                ack_timeout_ms,
            },
        };
        turn.note(Change::HandOut(hand_out));
    }

    /// Nothing of a grant can be read, nor ever will be, before `to`: those records are done.
    fn pass_over<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, lease): (PartitionId, Lease),
        to: Offset,
    ) {
        self.release(turn, (partition, lease.id));
        let run = (lease.first, lease.last.min(to.minus(1)));
        self.settle_unasked(turn, partition, run);
    }

    /// Settles records without a call that waits for it.
    fn settle_unasked<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        run: Run,
    ) {
        let state = turn.state;
        let facts = state.group(&self.name);
        let position = state.position(&self.name, partition);
        let (Some(facts), Some(position)) = (facts, position) else {
            return;
        };
        let mut plan = Plan::new(&self.name, &facts, position.reset_count, partition);
        plan.done(run);
        self.send_unasked(turn, plan, (Vec::new(), 0));
    }
}
