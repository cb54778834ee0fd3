//! All groups: which call and which change concerns which.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{PartitionId, TopicId, WallMs};

use super::action::{Actions, CallId, ProposalId};
use super::calls::{leave, on_stream, proceed};
use super::changes::{changed, resume};
use super::describe::GroupDescription;
use super::durable::Durable;
use super::group::Group;
use super::join::Joining;
use super::settle;
use super::timers::Timer;
use super::turn::{SessionLimits, Shared, Turn};
use crate::clock::MonoMs;
use crate::core::applied::Outcome;
use crate::core::command::Change;
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::core::request::GroupRequest;
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

    /// A call of an edge. `dice` gives 16 random bytes.
    pub fn handle<S: Durable>(
        &mut self,
        state: &S,
        call: CallId,
        request: GroupRequest,
        now: (MonoMs, WallMs),
        dice: &mut dyn FnMut() -> [u8; 16],
    ) -> Actions {
        self.turn(state, now, |groups, turn| match request {
            GroupRequest::Join(request) => {
                proceed(groups, turn, Joining::new(call, request, dice));
            }
            GroupRequest::Confirm {
                stream,
                lease,
                last,
                skip_to,
            } => {
                on_stream(groups, turn, stream, |group, turn, key| {
                    group.confirm(turn, (stream, key, lease), (last, skip_to));
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
                settle::settle(turn, group, call, &request);
            }
            GroupRequest::Extend {
                token,
                ack_timeout_ms,
            } => {
                let group = groups.get_mut(&token.group);
                let answer = settle::extend(turn, group, &token, ack_timeout_ms);
                turn.reply(call, answer);
            }
        })
    }

    /// A command was applied; `proposal` is set for one that this machine proposed. To be told of
    /// every command but appends that others asked for.
    pub fn applied<S: Durable>(
        &mut self,
        state: &S,
        (change, outcome, proposal): (&Change, &Result<Outcome, Refusal>, Option<ProposalId>),
        now: (MonoMs, WallMs),
    ) -> Actions {
        self.turn(state, now, |groups, turn| {
            if outcome.is_ok() {
                changed(groups, turn, change);
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
        now: MonoMs,
    ) -> Actions {
        self.turn(state, (now, WallMs::default()), |groups, turn| {
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
    pub fn tick<S: Durable>(&mut self, state: &S, now: MonoMs) -> Actions {
        self.turn(state, (now, WallMs::default()), |groups, turn| {
            while let Some(timer) = turn.shared.timers.pop_due(now) {
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
                }
            }
        })
    }

    /// When [`Self::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<MonoMs> {
        self.shared.timers.next()
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
        (now, wall): (MonoMs, WallMs),
        act: impl FnOnce(&mut Groups, &mut Turn<'_, S>),
    ) -> Actions {
        let Self { groups, shared } = self;
        let mut turn = Turn {
            state,
            now,
            wall,
            shared,
            actions: Vec::new(),
        };
        act(groups, &mut turn);
        groups.finish(&mut turn);
        turn.actions
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

    /// Whether nothing at all is left of any group.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.by_name.is_empty() && self.shared.is_empty()
    }
}
