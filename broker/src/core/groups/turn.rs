//! One turn of the machine: what it looks at, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use varvelog_store::{PartitionId, WallMs};

use super::action::{Action, Actions, CallId, ProposalId};
use super::durable::Durable;
use super::join::Joining;
use super::member::MemberKey;
use super::operate::Operation;
use super::settling::Settling;
use super::tally::{Tallies, Tally};
use super::timers::Timers;
use crate::clock::MonoMs;
use crate::core::command::Change;
use crate::core::copies::{ReadId, ReadJob};
use crate::core::refusal::CallError;
use crate::core::request::{
    AckToken, GroupReply, LeaseId, MemberEnd, MemberMessage, SettleRequest, StreamKey,
};
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
    /// What waits for something to be read.
    pub(super) reading: BTreeMap<ReadId, Reading>,
    /// Operators' calls on their way.
    pub(super) operations: BTreeMap<CallId, Operation>,
    /// Feeds with records that wait for a time: looked at once a second, beside their timers.
    pub(super) timed: BTreeSet<(GroupName, PartitionId)>,
    pub(super) swept: MonoMs,
    pub(super) tallies: Tallies,
    /// Hand-outs of earlier runs that were leased again, by run and id. As many as were open.
    restored: BTreeMap<(u64, LeaseId), LeaseId>,
    last_id: u64,
}

/// A settlement on its way. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

#[cfg(test)]
impl Ticket {
    pub(super) fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// What an order to read was given for.
#[derive(Debug)]
pub(super) enum Reading {
    /// Copies that a settlement is to append.
    Copies(Box<Settling>, ReadJob),
    /// Keys of records of a queue that holds.
    Keys(GroupName, PartitionId),
}

/// When, by both clocks, and dice.
pub struct Now<'a> {
    /// For deadlines.
    pub mono: MonoMs,
    /// For due times.
    pub wall: WallMs,
    /// Gives 16 random bytes.
    pub dice: &'a mut dyn FnMut() -> [u8; 16],
}

impl std::fmt::Debug for Now<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Now")
            .field("mono", &self.mono)
            .field("wall", &self.wall)
            .finish_non_exhaustive()
    }
}

/// What a proposal was made for.
#[derive(Debug)]
pub(super) enum Proposal {
    /// A join that needs its group or topics first.
    Join(Box<Joining>),
    /// The next generation of a group.
    Generation(GroupName),
    /// Records are settled.
    Settle(Box<Settling>),
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
            reading: BTreeMap::new(),
            operations: BTreeMap::new(),
            timed: BTreeSet::new(),
            swept: MonoMs::default(),
            tallies: Tallies::default(),
            restored: BTreeMap::new(),
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

    /// The hand-out that a token is of, if this broker made it or knows of it from before.
    pub(super) fn own_lease(&self, token: &AckToken) -> Option<LeaseId> {
        if token.run == self.run {
            return Some(token.lease);
        }
        self.restored.get(&(token.run, token.lease)).copied()
    }

    /// A hand-out of an earlier run gets an id of this one.
    pub(super) fn restored_lease(&mut self, before: (u64, LeaseId)) -> LeaseId {
        let id = self.next_lease();
        self.restored.insert(before, id);
        id
    }

    /// A call about records of a settlement on its way comes after it.
    pub(super) fn follow(&mut self, ticket: Ticket, call: (CallId, SettleRequest)) {
        let reading = self
            .reading
            .values_mut()
            .filter_map(|reading| match reading {
                Reading::Copies(settling, _) => Some(settling.as_mut()),
                Reading::Keys(..) => None,
            });
        let proposed = self.proposals.values_mut().filter_map(|it| match it {
            Proposal::Settle(settling) => Some(settling.as_mut()),
            Proposal::Join(_) | Proposal::Generation(_) => None,
        });
        let mut all = reading.chain(proposed);
        if let Some(settling) = all.find(|settling| settling.ticket == ticket) {
            settling.followers.push(call);
        }
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        Ticket(self.next_id())
    }

    pub(super) fn next_read(&mut self) -> ReadId {
        ReadId(self.next_id())
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
            && self.reading.is_empty()
            && self.timed.is_empty()
            && self.operations.is_empty()
    }
}

/// One turn.
pub(super) struct Turn<'a, S> {
    pub(super) state: &'a S,
    pub(super) now: MonoMs,
    pub(super) wall: WallMs,
    pub(super) dice: &'a mut dyn FnMut() -> [u8; 16],
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

    /// The counts of a group in the topic that a partition is of, or is a retry partition of; none
    /// if the group does not read it any more.
    pub(super) fn tally(&mut self, group: &GroupName, partition: PartitionId) -> Option<&Tally> {
        let place = self.state.place(group, partition)?;
        Some(self.shared.tallies.of(group, place.source.topic))
    }

    /// Has a change committed some time.
    pub(super) fn note(&mut self, change: Change) {
        self.actions.push(Action::Note(change));
    }

    /// Has something read; the answer comes back under the same id.
    pub(super) fn read(&mut self, id: ReadId, reading: Reading, job: ReadJob) {
        self.shared.reading.insert(id, reading);
        self.actions.push(Action::Read(job));
    }

    /// A uniform draw.
    pub(super) fn draw(&mut self) -> u64 {
        uuid::Uuid::from_bytes((self.dice)()).as_u64_pair().0
    }

    /// When a time of the wall clock comes, by the other clock.
    pub(super) fn mono_at(&self, wall: WallMs) -> MonoMs {
        let wait_ms = u64::try_from(wall.0.saturating_sub(self.wall.0)).unwrap_or(0);
        self.now.plus(Duration::from_millis(wait_ms))
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
