//! One turn of the machine: what it looks at, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{PartitionId, WallMs};

use super::action::{Action, Actions, CallId, ProposalId};
use super::durable::Durable;
use super::feed::Run;
use super::join::Joining;
use super::member::MemberKey;
use super::timers::Timers;
use crate::clock::MonoMs;
use crate::core::command::Change;
use crate::core::refusal::CallError;
use crate::core::request::{Conflict, GroupReply, LeaseId, MemberEnd, MemberMessage, StreamKey};
use crate::names::GroupName;

/// Bounds of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// Members of one group, those that wait to come in and those that are waited for included.
    pub members_max: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self { members_max: 1_000 }
    }
}

/// What all groups share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Of this broker's life.
    pub(super) run: u64,
    pub(super) limits: SessionLimits,
    pub(super) timers: Timers,
    pub(super) streams: BTreeMap<StreamKey, (GroupName, MemberKey)>,
    /// Groups that have a feed of a partition.
    readers: BTreeMap<PartitionId, BTreeSet<GroupName>>,
    pub(super) proposals: BTreeMap<ProposalId, Proposal>,
    /// How many joins of a group wait for a proposal.
    pub(super) joining: BTreeMap<GroupName, usize>,
    last_id: u64,
}

/// What a proposal was made for.
#[derive(Debug)]
pub(super) enum Proposal {
    /// A join that needs its group or topics first.
    Join(Box<Joining>),
    /// The next generation of a group.
    Generation(GroupName),
    /// Records are done.
    Settle(Settling),
}

/// A settlement on its way.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) group: GroupName,
    pub(super) partition: PartitionId,
    /// None: nobody waits for the answer.
    pub(super) call: Option<CallId>,
    pub(super) runs: Vec<Run>,
    pub(super) conflicts: Vec<(varvelog_store::Offset, Conflict)>,
}

impl Shared {
    pub(super) fn new(run: u64, limits: SessionLimits) -> Self {
        Self {
            run,
            limits,
            timers: Timers::default(),
            streams: BTreeMap::new(),
            readers: BTreeMap::new(),
            proposals: BTreeMap::new(),
            joining: BTreeMap::new(),
            last_id: 0,
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn next_lease(&mut self) -> LeaseId {
        LeaseId(self.next_id())
    }

    pub(super) fn next_stream(&mut self) -> StreamKey {
        StreamKey(self.next_id())
    }

    pub(super) fn next_member(&mut self) -> MemberKey {
        MemberKey(self.next_id())
    }

    /// A group has a feed of `partition` from now on.
    pub(super) fn add_reader(&mut self, partition: PartitionId, group: &GroupName) {
        self.readers
            .entry(partition)
            .or_default()
            .insert(group.clone());
    }

    pub(super) fn remove_reader(&mut self, partition: PartitionId, group: &GroupName) {
        if let Some(groups) = self.readers.get_mut(&partition) {
            groups.remove(group);
            if groups.is_empty() {
                self.readers.remove(&partition);
            }
        }
    }

    /// Groups that have a feed of `partition`.
    pub(super) fn readers_of(&self, partition: PartitionId) -> Vec<GroupName> {
        self.readers
            .get(&partition)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Whether nothing is waited for and nobody is known.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.timers.next().is_none()
            && self.streams.is_empty()
            && self.readers.is_empty()
            && self.proposals.is_empty()
            && self.joining.is_empty()
    }
}

/// One turn.
pub(super) struct Turn<'a, S> {
    pub(super) state: &'a S,
    pub(super) now: MonoMs,
    /// For people only.
    pub(super) wall: WallMs,
    pub(super) shared: &'a mut Shared,
    pub(super) actions: Actions,
}

impl<S: Durable> Turn<'_, S> {
    pub(super) fn propose(&mut self, proposal: Proposal, change: Change) -> ProposalId {
        let id = ProposalId(self.shared.next_id());
        self.shared.proposals.insert(id, proposal);
        self.actions.push(Action::Propose(id, change));
        id
    }

    pub(super) fn reply(&mut self, call: CallId, answer: Result<GroupReply, CallError>) {
        self.actions.push(Action::Reply(call, answer));
    }

    pub(super) fn send(&mut self, stream: StreamKey, message: MemberMessage) {
        self.actions.push(Action::Send(stream, message));
    }

    /// Ends a stream with a reason.
    pub(super) fn end(&mut self, stream: StreamKey, end: MemberEnd) {
        self.send(stream, MemberMessage::End(end));
        self.actions.push(Action::Close(stream));
        self.shared.streams.remove(&stream);
    }
}
