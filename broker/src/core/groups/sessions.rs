//! All groups: which call and which change concerns which.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{PartitionId, TopicId};

use super::action::{Actions, CallId, ProposalId};
use super::calls::{leave, on_stream, proceed};
use super::changes::{changed, resume};
use super::confirms::Made;
use super::describe::GroupDescription;
use super::durable::Durable;
use super::extend::extend;
use super::feeds::SWEEP_INTERVAL;
use super::group::Group;
use super::join::Joining;
use super::operate::operate;
use super::restore::restore;
use super::settle;
use super::settling;
use super::tally::GroupTally;
use super::timers::Timer;
use super::turn::{Now, SessionLimits, Shared, Turn};
use crate::clock::MonoMs;
use crate::core::applied::Outcome;
use crate::core::command::Change;
use crate::core::copies::ReadDone;
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::core::request::GroupRequest;
#[cfg(test)]
use crate::core::request::{AckToken, LeaseId};
use crate::names::GroupName;

/// Soft state of all groups: members, assignments, leases. Knows no clock and no dice: both come
/// as arguments, and what is to be done comes out as [`Actions`].
#[derive(Debug)]
pub struct Sessions {
    groups: Groups,
    shared: Shared,
}

/// Groups, and which of them this turn looked at.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_name: BTreeMap<GroupName, Group>,
    touched: BTreeSet<GroupName>,
}

impl Groups {
    /// A group, if anything of it is alive.
    pub(super) fn get_mut(&mut self, name: &GroupName) -> Option<&mut Group> {
        let group = self.by_name.get_mut(name)?;
        if !self.touched.contains(name) {
            self.touched.insert(name.clone());
        }
        Some(group)
    }

    /// A group that is there from now on at the latest.
    pub(super) fn entry(&mut self, name: &GroupName, generation: u64) -> &mut Group {
        self.touched.insert(name.clone());
        let fresh = || Group::new(name.clone(), generation);
        self.by_name.entry(name.clone()).or_insert_with(fresh)
    }

    pub(super) fn remove(&mut self, name: &GroupName) -> Option<Group> {
        self.by_name.remove(name)
    }

    /// Groups that have to do with a topic.
    pub(super) fn readers_of(&self, topic: TopicId) -> Vec<GroupName> {
        let readers = self.by_name.iter().filter(|(_, group)| group.reads(topic));
        readers.map(|(name, _)| name.clone()).collect()
    }

    /// Ends a turn: whatever can be given out is, and groups without life are forgotten.
    fn finish<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        for name in std::mem::take(&mut self.touched) {
            let Some(group) = self.by_name.get_mut(&name) else {
                continue;
            };
            group.pump(turn);
            if cfg!(debug_assertions) {
                group.check_invariants();
            }
            if group.is_idle() {
                group.close(turn);
                self.by_name.remove(&name);
            }
        }
    }
}

impl Sessions {
    /// No members, no leases. `run` counts the broker's starts: it tells tokens of this one from
    /// those of earlier ones.
    pub fn new(run: u64) -> Self {
        Self::with_limits(run, SessionLimits::default())
    }

    /// As [`Self::new`] with other bounds than the usual ones.
    pub fn with_limits(run: u64, limits: SessionLimits) -> Self {
        Self {
            groups: Groups::default(),
            shared: Shared::new(run, limits),
        }
    }

    /// A call of an edge.
    pub fn handle<S: Durable>(
        &mut self,
        state: &S,
        call: CallId,
        request: GroupRequest,
        now: Now<'_>,
    ) -> Actions {
        self.turn(state, now, |groups, turn| match request {
            GroupRequest::Join(request) => {
                let joining = Joining::new(call, request, turn.dice);
                proceed(groups, turn, joining);
            }
            GroupRequest::Confirm {
                stream,
                lease,
                last,
                skip_to,
                undeliverable,
            } => {
                let made = Made {
                    last,
                    skip_to,
                    undeliverable,
                };
                on_stream(groups, turn, stream, |group, turn, key| {
                    group.confirm(turn, (stream, key, lease), made);
                });
            }
            GroupRequest::AddCredit { stream, responses } => {
                on_stream(groups, turn, stream, |group, _, key| {
                    if let Some(member) = group.members.get_mut(&key) {
                        member.add_credit(responses);
                        group.awake.insert(key);
                    }
                });
            }
            GroupRequest::StreamEnded { stream, how } => {
                on_stream(groups, turn, stream, |group, turn, key| {
                    turn.shared.streams.remove(&stream);
                    group.stream_ended(turn, key, how);
                });
            }
            GroupRequest::Leave { group, member_id } => {
                let left = leave(groups, turn, &group, &member_id);
                turn.reply(call, left.map_err(Into::into));
            }
            GroupRequest::Settle(request) => {
                let group = groups.get_mut(&request.token.group);
                settle::settle(turn, group, (call, request, 0));
            }
            GroupRequest::Extend {
                token,
                ack_timeout_ms,
            } => {
                let group = groups.get_mut(&token.group);
                let answer = extend(turn, group, &token, ack_timeout_ms);
                turn.reply(call, answer);
            }
            GroupRequest::SettleRecords {
                group,
                records,
                action,
                note: _,
            } => operate(groups, turn, call, (&group, &records, action)),
        })
    }

    /// A command was applied; `proposal` is set for one that this machine proposed. To be told of
    /// every command but appends that others asked for.
    pub fn applied<S: Durable>(
        &mut self,
        state: &S,
        (change, outcome, proposal): (&Change, &Result<Outcome, Refusal>, Option<ProposalId>),
        now: Now<'_>,
    ) -> Actions {
        self.turn(state, now, |groups, turn| {
            if let Ok(outcome) = outcome {
                changed(groups, turn, (change, outcome));
            }
            if let Some(proposal) = proposal {
                resume(groups, turn, proposal, outcome);
            }
        })
    }

    /// Records became visible in these partitions.
    pub fn ends_moved<S: Durable>(
        &mut self,
        state: &S,
        partitions: &[PartitionId],
        now: Now<'_>,
    ) -> Actions {
        self.turn(state, now, |groups, turn| {
            for partition in partitions {
                for name in turn.shared.readers_of(*partition) {
                    if let Some(group) = groups.get_mut(&name) {
                        group.wake(*partition);
                    }
                }
            }
        })
    }

    /// Does what is due.
    pub fn tick<S: Durable>(&mut self, state: &S, now: Now<'_>) -> Actions {
        self.turn(state, now, |groups, turn| {
            while let Some(timer) = turn.shared.timers.pop_due(turn.now) {
                match timer {
                    Timer::Lease(name, partition, lease) => {
                        if let Some(group) = groups.get_mut(&name) {
                            group.expire(turn, partition, lease);
                        }
                    }
                    Timer::Session(name, member) => {
                        if let Some(group) = groups.get_mut(&name) {
                            group.session_over(turn, member);
                        }
                    }
                    Timer::Feed(name, partition) => {
                        if let Some(group) = groups.get_mut(&name) {
                            group.pause_over(turn, partition);
                        }
                    }
                    Timer::Due(name, partition) => {
                        if let Some(group) = groups.get_mut(&name) {
                            group.due_timer_over(partition);
                            group.due(turn, partition);
                        }
                    }
                    Timer::Probe(name) => {
                        if let Some(group) = groups.get_mut(&name) {
                            group.probe(turn);
                        }
                    }
                    Timer::Reread(id) => settling::reread(turn, id),
                }
            }
            sweep(groups, turn);
        })
    }

    /// Something that was to be read is read, or could not be.
    pub fn read<S: Durable>(&mut self, state: &S, done: ReadDone, now: Now<'_>) -> Actions {
        self.turn(state, now, |groups, turn| {
            settling::read(groups, turn, done);
        })
    }

    /// What was noted of hand-outs before a restart is leased again, for a whole visibility
    /// timeout each. For a machine that was told nothing yet.
    pub fn restore<S: Durable>(&mut self, state: &S, now: Now<'_>) -> Actions {
        self.turn(state, now, restore)
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<MonoMs> {
        let swept = (!self.shared.timed.is_empty()).then(|| self.shared.swept.plus(SWEEP_INTERVAL));
        self.shared.timers.next().into_iter().chain(swept).min()
    }

    /// Members of a group, those that are waited for included.
    pub fn live_members(&self, group: &GroupName) -> u32 {
        let count = self
            .groups
            .by_name
            .get(group)
            .map_or(0, |group| group.members.len());
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Hand-outs of a group that are neither settled nor given back.
    pub fn open_leases(&self, group: &GroupName) -> u32 {
        let feeds = self
            .groups
            .by_name
            .get(group)
            .into_iter()
            .flat_map(|group| group.feeds.values());
        u32::try_from(feeds.map(|feed| feed.leases.len()).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// What people see of a group; none if nothing of it is alive.
    pub fn describe(&self, group: &GroupName) -> Option<GroupDescription> {
        self.groups.by_name.get(group).map(Group::describe)
    }

    /// What was done for a group since the start of this process; none if nothing was.
    pub fn tally(&self, group: &GroupName) -> Option<&GroupTally> {
        self.shared.tallies.get(group)
    }

    /// Whether a commit may be made in the name of a member: `generation` is that of its last
    /// event.
    pub fn is_member(
        &self,
        group: &GroupName,
        member_id: &str,
        generation: u64,
    ) -> Result<(), GroupRefusal> {
        match self.groups.by_name.get(group) {
            Some(group) => group.check_member(member_id, generation),
            None => Err(GroupRefusal::MemberFenced { generation: 0 }),
        }
    }

    fn turn<S: Durable>(
        &mut self,
        state: &S,
        now: Now<'_>,
        act: impl FnOnce(&mut Groups, &mut Turn<'_, S>),
    ) -> Actions {
        let Self { groups, shared } = self;
        let Now { mono, wall, dice } = now;
        let mut turn = Turn {
            state,
            now: mono,
            wall,
            dice,
            shared,
            actions: Vec::new(),
        };
        act(groups, &mut turn);
        groups.finish(&mut turn);
        turn.actions
    }
}

/// Looks at all that waits for a time, so that a timer that was missed costs a second at most.
fn sweep<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>) {
    if turn.shared.timed.is_empty() || turn.shared.swept.plus(SWEEP_INTERVAL) > turn.now {
        return;
    }
    turn.shared.swept = turn.now;
    for (name, partition) in turn.shared.timed.clone() {
        if let Some(group) = groups.get_mut(&name) {
            group.due(turn, partition);
        }
    }
}

#[cfg(test)]
impl Sessions {
    /// The feed of a partition, for models to compare with.
    pub(super) fn feed(
        &self,
        group: &GroupName,
        partition: PartitionId,
    ) -> Option<&super::feed::Feed> {
        self.groups.by_name.get(group)?.feeds.get(&partition)
    }

    /// The hand-out that a token is of, if it is known.
    pub(super) fn own_lease(&self, token: &AckToken) -> Option<LeaseId> {
        self.shared.own_lease(token)
    }

    /// The id of a member that is there.
    pub(super) fn member_id(&self, group: &GroupName, key: super::member::MemberKey) -> String {
        self.groups.by_name[group].members[&key].id.clone()
    }

    /// As if the timers of what waits had never been set.
    pub(super) fn lose_due_timers(&mut self) {
        self.shared
            .timers
            .retain(|timer| !matches!(timer, Timer::Due(..)));
    }

    /// Whether nothing at all is left of any group.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.by_name.is_empty() && self.shared.is_empty()
    }
}
