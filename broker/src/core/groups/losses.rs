//! Hand-outs that end unsettled: given back, timed out, lost with their member.

use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::durable::Durable;
use super::fates::{Court, How, Plan, Unprocessed};
use super::feed::Run;
use super::group::Group;
use super::lease::{Lease, Stage};
use super::member::MemberKey;
use super::settling::{Settling, begin};
use super::timers::Timer;
use super::turn::Turn;
use crate::core::command::{Change, HandBack};
use crate::core::failure::ErrorClass;
use crate::core::request::LeaseId;

/// Time after which the deadline of a lease is looked at again that is being settled.
const SETTLING_RECHECK: Duration = Duration::from_secs(1);

impl Group {
    /// Ends a lease uncounted; what it held can be given out again.
    pub(super) fn release<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, id): (PartitionId, LeaseId),
    ) {
        let lease = self
            .feeds
            .get(&partition)
            .and_then(|feed| feed.leases.get(id));
        let Some(lease) = lease else { return };
        let releases_max = turn
            .state
            .group(&self.name)
            .map(|it| it.settings.releases_max);
        let is_out = matches!(lease.stage, Stage::Out { .. });
        let (records, releases) = ((lease.first, lease.last), lease.releases);
        if is_out && releases_max.is_some_and(|most| releases >= most) {
            self.fail(turn, (partition, id), ErrorClass::ReleaseLoop);
            return;
        }
        let feed = self.feeds.get_mut(&partition);
        let releases = releases + u32::from(is_out);
        let Some(lease) = feed.and_then(|feed| feed.release(id, releases)) else {
            return;
        };
        self.came_free(turn, partition, records);
        self.lease_over(turn, partition, &lease);
        if is_out {
            self.note_back(turn, partition, records);
        }
    }

    fn note_back<S: Durable>(&self, turn: &mut Turn<'_, S>, partition: PartitionId, run: Run) {
        if let Some(facts) = turn.state.group(&self.name) {
            let group_id = facts.id;
            turn.note(Change::HandBack(HandBack {
                group: self.name.clone(),
                group_id,
                partition,
                ranges: vec![run],
            }));
        }
    }

    /// What a lease held is nobody's any more.
    pub(super) fn came_free<S: Durable>(
        &mut self,
        turn: &Turn<'_, S>,
        partition: PartitionId,
        run: Run,
    ) {
        if let Some(feed) = self.feeds.get_mut(&partition) {
            feed.forget_done(turn.state, &self.name, run);
        }
        self.make_ready(turn, partition, run);
    }

    /// Records of a retry partition that nobody holds any more can be given out.
    pub(super) fn make_ready<S: Durable>(
        &mut self,
        turn: &Turn<'_, S>,
        partition: PartitionId,
        (first, last): Run,
    ) {
        let Some(feed) = self
            .feeds
            .get_mut(&partition)
            .filter(|feed| feed.is_retry())
        else {
            return;
        };
        let mut from = first;
        while let Some((at, _)) = turn.state.next_retry(&self.name, partition, from)
            && at <= last
        {
            feed.make_ready(turn.state, &self.name, at);
            from = at.plus(1);
        }
    }

    /// Records of a hand-out were given back, uncounted, by a call. Some may be done by now, or
    /// another's.
    pub(super) fn came_back<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, run): (PartitionId, Run),
        (lease, releases): (Option<LeaseId>, u32),
    ) {
        let mut from = run.0;
        while let Some(feed) = self.feeds.get_mut(&partition)
            && let Some(back) = feed.next_unheld(turn.state, &self.name, (from, run.1))
        {
            feed.remember(back, lease, releases);
            from = back.1.plus(1);
        }
        self.make_ready(turn, partition, run);
        self.wake(partition);
    }

    /// Ends what a member holds, uncounted.
    pub(super) fn release_all<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) {
        let held = self.members.get(&key).map(|member| member.held.clone());
        for hold in held.unwrap_or_default() {
            self.release(turn, hold);
        }
    }

    /// A member is gone without a word: what it holds failed.
    pub(super) fn lose_all<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) {
        turn.shared.tallies.group(&self.name).sessions_lost.inc();
        let held = self.members.get(&key).map(|member| member.held.clone());
        for (partition, id) in held.unwrap_or_default() {
            self.fail(turn, (partition, id), ErrorClass::Crash);
        }
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
        if feed.is_settling((lease.first, lease.last)) {
            let later = turn.now.plus(SETTLING_RECHECK);
            feed.leases.set_deadline(id, later);
            let timer = Timer::Lease(self.name.clone(), partition, id);
            turn.shared.timers.set(later, timer);
        } else {
            self.fail(turn, (partition, id), ErrorClass::Timeout);
        }
    }

    /// Ends a lease; what it held failed. What was granted and is not handed on did not.
    pub(super) fn fail<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        (partition, id): (PartitionId, LeaseId),
        class: ErrorClass,
    ) {
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        if feed.leases.is_granted(id) {
            self.release(turn, (partition, id));
            return;
        }
        let Some(lease) = feed.release(id, 0) else {
            return;
        };
        if let Some(tally) = turn.tally(&self.name, partition) {
            tally.lost(class);
        }
        let Some(feed) = self.feeds.get_mut(&partition) else {
            return;
        };
        feed.forget_done(turn.state, &self.name, (lease.first, lease.last));
        self.lease_over(turn, partition, &lease);
        let failed = self.open_records(turn, partition, &lease);
        self.condemn(turn, partition, (&lease, class), &failed);
    }

    /// Records of a lease that are neither done nor being settled.
    fn open_records<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        partition: PartitionId,
        lease: &Lease,
    ) -> Vec<Offset> {
        let Some(feed) = self.feeds.get(&partition) else {
            return Vec::new();
        };
        let mut open = Vec::new();
        let mut at = lease.first;
        while at <= lease.last {
            let done = turn.state.next_done(&self.name, partition, at);
            let done = done.filter(|run| run.0 <= at);
            let settling = feed.next_settling(at).filter(|run| run.0 <= at);
            match (done, settling) {
                (Some(run), _) | (None, Some(run)) => at = run.1.plus(1),
                (None, None) => {
                    open.push(at);
                    at = at.plus(1);
                }
            }
        }
        open
    }

    /// Decides on records that failed without a call.
    fn condemn<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        (lease, class): (&Lease, ErrorClass),
        failed: &[Offset],
    ) {
        let consumer = self.consumer(lease.holder).unwrap_or_default();
        let records = failed.iter().map(|offset| Unprocessed {
            offset: *offset,
            origin: lease.origin(*offset),
            how: How::Unsaid(class),
            releases: lease.releases,
            consumer: consumer.clone(),
        });
        self.decide_unasked(turn, partition, records.collect());
    }

    /// Decides on records that nobody waits for, and sends on its way what follows.
    pub(super) fn decide_unasked<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        records: Vec<Unprocessed>,
    ) {
        self.decide_again(turn, partition, (records, 0));
    }

    /// Decides once more on records that nobody waits for, of which others settled some.
    pub(super) fn decide_again<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        partition: PartitionId,
        (records, tries): (Vec<Unprocessed>, u32),
    ) {
        let state = turn.state;
        let facts = state.group(&self.name);
        let position = state.position(&self.name, partition);
        let (Some(facts), Some(position)) = (facts, position) else {
            return;
        };
        if records.is_empty() {
            return;
        }
        let parks = records.iter().any(|it| matches!(it.how, How::Parked));
        if parks && let Some(feed) = self.feeds.get_mut(&partition) {
            feed.is_parking = true;
        }
        let mut plan = Plan::new(&self.name, &facts, position.reset_count, partition);
        let name = self.name.clone();
        let is_retry = self
            .feeds
            .get(&partition)
            .is_some_and(super::feed::Feed::is_retry);
        let court = Court {
            group: &name,
            settings: facts.settings,
            partition,
            is_retry,
        };
        for record in &records {
            court.decide(turn, &mut plan, record.clone());
        }
        self.breaker.settled(plan.counts.done, plan.failed);
        self.send_unasked(turn, plan, (records, tries));
    }

    /// Sends on its way what nobody waits for. With the records that were decided on, and how often
    /// they were before.
    pub(super) fn send_unasked<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        mut plan: Plan,
        (records, tries): (Vec<Unprocessed>, u32),
    ) {
        let job = plan.copy_job(turn);
        let settling = Settling {
            ticket: turn.shared.next_ticket(),
            asked: None,
            operator: None,
            unasked: records,
            left: Vec::new(),
            tries,
            failed: plan.failed,
            settle: plan.settle,
            lease: None,
            given: None,
            released: plan.released,
            answer: plan.counts,
            followers: Vec::new(),
        };
        begin(turn, Some(self), settling, job);
    }

    /// Takes back what was granted and is not handed on yet.
    pub(super) fn withdraw_grants<S: Durable>(&mut self, turn: &mut Turn<'_, S>, key: MemberKey) {
        let held = self.members.get(&key).map(|member| member.held.clone());
        for (partition, id) in held.unwrap_or_default() {
            let feed = self.feeds.get(&partition);
            if feed.is_some_and(|feed| feed.leases.is_granted(id)) {
                self.release(turn, (partition, id));
            }
        }
    }
}
