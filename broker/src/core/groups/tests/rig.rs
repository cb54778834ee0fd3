//! A broker reduced to its state and the group machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use varvelog_store::{Offset, PartitionId, Sequence, TopicId, WallMs};

use super::rig_copies::Copied;
use crate::clock::MonoMs;
use crate::core::applied::Outcome;
use crate::core::command::{
    Append, AppendPart, Change, Command, CommitOffsets, CreateTopic, OffsetCommit, Stamp,
};
use crate::core::copies::ReadJob;
use crate::core::groups::{
    Action, Actions, CallId, Durable, Now, Position, ProposalId, SessionLimits, Sessions,
};
use crate::core::message_ids::PartIds;
use crate::core::refusal::{CallError, Refusal};
use crate::core::request::{
    AckToken, Credit, Grant, GroupReply, GroupRequest, JoinRequest, MemberMessage, StartAt,
    StreamEnd, StreamKey,
};
use crate::core::settings::{GroupSettings, TopicSettings};
use crate::core::state::State;
use crate::names::{GroupName, TopicName};

pub(super) fn at(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(super) fn group(name: &str) -> GroupName {
    GroupName::parse(name).unwrap()
}

pub(super) fn topic(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

/// A member's wish to come in, with ample credit unless changed.
pub(super) fn join(name: &str, topics: &[&str]) -> JoinRequest {
    JoinRequest {
        group: group(name),
        topics: topics.iter().map(|name| topic(name)).collect(),
        start: StartAt::Earliest,
        member_name: None,
        member_id: None,
        address: "10.0.0.1:5000".to_owned(),
        ack_timeout_ms: None,
        auto_ack: false,
        records_max: 10_000,
        credit: Credit::Window(100),
    }
}

/// What was handed on of a grant.
#[derive(Debug, Clone)]
pub(super) struct Delivery {
    pub(super) token: AckToken,
    pub(super) grant: Grant,
}

impl Delivery {
    pub(super) fn offsets(&self) -> Vec<u64> {
        (self.token.first.get()..=self.token.last.get()).collect()
    }

    /// Of the first appends, and the attempt.
    pub(super) fn origins(&self) -> (Vec<u64>, u32) {
        let origins = self
            .offsets()
            .into_iter()
            .map(|it| self.token.origin(at(it)).get());
        (origins.collect(), self.token.attempt)
    }
}

pub(super) struct Rig {
    pub(super) state: State,
    pub(super) sessions: Sessions,
    pub(super) mono: u64,
    pub(super) wall: i64,
    pub(super) run: u64,
    sequence: Sequence,
    rolls: u128,
    calls: u64,
    queue: VecDeque<(Option<ProposalId>, Change)>,
    /// Notes of hand-outs are committed with what follows them; else they are lost.
    pub(super) notes: bool,
    pub(super) reads: VecDeque<ReadJob>,
    /// No order to read is carried out: the logs cannot be read.
    pub(super) reads_fail: bool,
    /// Copies of one answer.
    pub(super) copies_max: usize,
    /// What copies were made for parts of appends, by the number that is their body.
    pub(super) made: Vec<Vec<Copied>>,
    /// Copies that were appended, by partition and offset.
    pub(super) copies: BTreeMap<PartitionId, BTreeMap<u64, Copied>>,
    /// Hashes of the keys of records, by offset.
    pub(super) keys: BTreeMap<u64, u64>,
    /// Offsets of records that are older than any limit.
    pub(super) aged: BTreeSet<u64>,
    pub(super) inbox: BTreeMap<StreamKey, VecDeque<MemberMessage>>,
    pub(super) closed: BTreeSet<StreamKey>,
    /// Of which group a stream's member is.
    pub(super) group_of: BTreeMap<StreamKey, GroupName>,
    pub(super) replies: BTreeMap<CallId, Result<GroupReply, CallError>>,
    /// Proposals are committed at once.
    pub(super) prompt: bool,
}

impl Rig {
    pub(super) fn new() -> Self {
        Self {
            state: State::new(),
            sessions: Sessions::new(1),
            mono: 1_000,
            wall: 1_700_000_000_000,
            run: 1,
            sequence: Sequence::ZERO,
            rolls: 0,
            calls: 0,
            queue: VecDeque::new(),
            notes: false,
            reads: VecDeque::new(),
            reads_fail: false,
            copies_max: usize::MAX,
            made: Vec::new(),
            copies: BTreeMap::new(),
            keys: BTreeMap::new(),
            aged: BTreeSet::new(),
            inbox: BTreeMap::new(),
            closed: BTreeSet::new(),
            group_of: BTreeMap::new(),
            replies: BTreeMap::new(),
            prompt: true,
        }
    }

    /// A broker with topic `orders`.
    pub(super) fn with_orders(partitions: u32) -> Self {
        let mut rig = Self::new();
        rig.create_topic("orders", partitions);
        rig
    }

    /// A broker with topic `orders` and a group without members that reads it. Its delays have no
    /// jitter.
    pub(super) fn with_group(partitions: u32, change: impl FnOnce(&mut GroupSettings)) -> Self {
        let mut rig = Self::with_orders(partitions);
        let (stream, _) = rig.member(join("g", &["orders"]));
        rig.end_stream(stream, StreamEnd::Clean);
        rig.update_group("g", |settings| {
            settings.retry.jitter_ppm = 0;
            change(settings);
        });
        rig
    }

    pub(super) fn limit_members(&mut self, members_max: usize) {
        self.sessions = Sessions::with_limits(self.run, SessionLimits { members_max });
    }

    /// The process is killed and another one begins on the same state.
    pub(super) fn restart(&mut self) {
        self.run += 1;
        self.sessions = Sessions::new(self.run);
        self.queue.clear();
        self.reads.clear();
        self.inbox.clear();
        self.closed.clear();
        self.group_of.clear();
        let actions = self.turn(Sessions::restore);
        self.carry_out(actions);
    }

    /// Calls the machine, now.
    pub(super) fn turn(
        &mut self,
        act: impl FnOnce(&mut Sessions, &State, Now<'_>) -> Actions,
    ) -> Actions {
        let rolls = &mut self.rolls;
        let now = Now {
            mono: MonoMs(self.mono),
            wall: WallMs(self.wall),
            dice: &mut || Self::roll(rolls),
        };
        act(&mut self.sessions, &self.state, now)
    }

    pub(super) fn roll(rolls: &mut u128) -> [u8; 16] {
        *rolls += 1;
        let mut bytes = [0; 16];
        bytes[..].copy_from_slice(format!("{rolls:016x}").as_bytes());
        bytes
    }

    // State.

    pub(super) fn apply(&mut self, change: Change) -> Result<Outcome, Refusal> {
        self.apply_as(change, None)
    }

    fn apply_as(
        &mut self,
        change: Change,
        proposal: Option<ProposalId>,
    ) -> Result<Outcome, Refusal> {
        self.sequence = self.sequence.next();
        let stamp = Stamp {
            wall: WallMs(self.wall),
            running_ms: self.mono,
        };
        let command = Command { stamp, change };
        let applied = self.state.apply(self.sequence, &command);
        if let (Change::Settle(settle), Ok(Outcome::Settled(settlement))) =
            (&command.change, &applied.outcome)
        {
            self.appended(&settle.append.parts, settlement);
        }
        let told = (&command.change, &applied.outcome, proposal);
        let actions = self.turn(|sessions, state, now| sessions.applied(state, told, now));
        self.carry_out(actions);
        applied.outcome
    }

    pub(super) fn create_topic(&mut self, name: &str, partitions: u32) -> TopicId {
        let id = TopicId(Self::roll(&mut self.rolls));
        self.apply(Change::CreateTopic(CreateTopic {
            topic: id,
            name: topic(name),
            partitions,
            settings: TopicSettings::default(),
        }))
        .unwrap();
        id
    }

    pub(super) fn topic_id(&self, name: &str) -> TopicId {
        self.state.topic(&topic(name)).unwrap().id
    }

    pub(super) fn partition(&self, name: &str, partition: u32) -> PartitionId {
        PartitionId {
            topic: self.topic_id(name),
            partition,
        }
    }

    pub(super) fn append(&mut self, name: &str, partition: u32, records: u32) {
        self.append_delayed(name, partition, (records, &[]));
    }

    /// Appends records of which some are delayed: their numbers, and for how many ms.
    pub(super) fn append_delayed(
        &mut self,
        name: &str,
        partition: u32,
        (records, delays): (u32, &[(u32, i64)]),
    ) {
        let wall = self.wall;
        let due = |(number, ms): &(u32, i64)| (*number, WallMs(wall + ms));
        let partition = self.partition(name, partition);
        let end = self.state.topics.partition(partition).unwrap().next();
        self.apply(Change::Append(Append {
            request: None,
            parts: vec![AppendPart {
                partition,
                record_count: records,
                producer: None,
                predicted: Some(end),
                delays: delays.iter().map(due).collect(),
                ids: PartIds::default(),
                body: Bytes::new(),
            }],
        }))
        .unwrap();
        let actions =
            self.turn(|sessions, state, now| sessions.ends_moved(state, &[partition], now));
        self.carry_out(actions);
    }

    pub(super) fn update_group(&mut self, name: &str, change: impl FnOnce(&mut GroupSettings)) {
        let mut settings = self.state.group(&group(name)).unwrap().settings.clone();
        change(&mut settings);
        self.apply(Change::UpdateGroup {
            group: group(name),
            settings,
        })
        .unwrap();
    }

    pub(super) fn commit(
        &mut self,
        name: &str,
        (partition, offset): (PartitionId, u64),
        may_move_back: bool,
    ) {
        self.apply(Change::CommitOffsets(CommitOffsets {
            group: group(name),
            offsets: vec![OffsetCommit {
                partition,
                offset: at(offset),
                metadata: String::new(),
            }],
            may_move_back,
        }))
        .unwrap();
    }

    pub(super) fn position(&self, name: &str, partition: PartitionId) -> Position {
        self.state.position(&group(name), partition).unwrap()
    }

    pub(super) fn low(&self, name: &str) -> u64 {
        self.position(name, self.partition("orders", 0)).low.get()
    }

    // Calls.

    pub(super) fn call(&mut self, request: GroupRequest) -> CallId {
        self.calls += 1;
        let call = CallId(self.calls);
        let actions = self.turn(|sessions, state, now| sessions.handle(state, call, request, now));
        self.carry_out(actions);
        call
    }

    pub(super) fn carry_out(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Propose(id, change) => self.queue.push_back((Some(id), change)),
                Action::Note(change) if self.notes => self.queue.push_back((None, change)),
                Action::Note(_) => {}
                Action::Read(job) => self.reads.push_back(job),
                Action::Reply(call, answer) => {
                    if let Ok(GroupReply::Joined(stream)) = &answer {
                        assert!(self.inbox.insert(*stream, VecDeque::new()).is_none());
                    }
                    assert!(
                        self.replies.insert(call, answer).is_none(),
                        "one answer a call"
                    );
                }
                Action::Send(stream, message) => {
                    assert!(!self.closed.contains(&stream), "nothing follows a close");
                    self.inbox
                        .get_mut(&stream)
                        .expect("joined first")
                        .push_back(message);
                }
                Action::Close(stream) => assert!(self.closed.insert(stream)),
            }
        }
        if self.prompt {
            self.commit_proposed();
            self.read_all();
        }
    }

    /// Proposals that are not committed yet.
    pub(super) fn proposed(&self) -> usize {
        self.queue.iter().filter(|(id, _)| id.is_some()).count()
    }

    /// Commits what was proposed so far, has read what that brings with it, and so on. Notes behind
    /// the last proposal wait: a crash would lose them.
    pub(super) fn commit_proposed(&mut self) {
        while self.queue.iter().any(|(id, _)| id.is_some()) {
            self.commit_next();
        }
    }

    /// Commits all, notes too.
    pub(super) fn flush_notes(&mut self) {
        while !self.queue.is_empty() {
            self.commit_next();
        }
    }

    /// Commits and reads until nothing is on its way.
    pub(super) fn settle_down(&mut self) {
        while self.queue.iter().any(|(id, _)| id.is_some()) || !self.reads.is_empty() {
            self.commit_proposed();
            self.read_all();
        }
    }

    fn commit_next(&mut self) {
        let Some((id, mut change)) = self.queue.pop_front() else {
            return;
        };
        if let Change::Settle(settle) = &mut change {
            self.predict(&mut settle.append.parts);
        }
        drop(self.apply_as(change, id));
    }

    fn predict(&self, parts: &mut [AppendPart]) {
        let mut ends = BTreeMap::new();
        for part in parts {
            let Some(next) = self.state.topics.partition(part.partition) else {
                continue;
            };
            let end = ends.entry(part.partition).or_insert(next.next());
            part.predicted = Some(*end);
            *end = end.plus(part.record_count.into());
        }
    }
}
