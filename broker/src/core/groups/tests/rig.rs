//! A broker reduced to its state and the group machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use varvelog_store::{Offset, PartitionId, Sequence, TopicId, WallMs};

use crate::clock::MonoMs;
use crate::core::applied::Outcome;
use crate::core::command::{
    Append, AppendPart, Change, Command, CommitOffsets, CreateTopic, OffsetCommit, Stamp,
};
use crate::core::groups::{
    Action, Actions, CallId, Durable, GroupDescription, Position, ProposalId, SessionLimits,
    Sessions,
};
use crate::core::refusal::{CallError, Refusal};
use crate::core::request::{
    AckToken, Credit, Grant, GroupReply, GroupRequest, JoinRequest, LeaseId, MemberEnd,
    MemberEvent, MemberMessage, SettleRequest, Settled, StartAt, StreamEnd, StreamKey,
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
    pub(super) proposed: VecDeque<(ProposalId, Change)>,
    pub(super) inbox: BTreeMap<StreamKey, VecDeque<MemberMessage>>,
    pub(super) closed: BTreeSet<StreamKey>,
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
            proposed: VecDeque::new(),
            inbox: BTreeMap::new(),
            closed: BTreeSet::new(),
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

    pub(super) fn limit_members(&mut self, members_max: usize) {
        self.sessions = Sessions::with_limits(self.run, SessionLimits { members_max });
    }

    /// The process ends and another one begins on the same state.
    pub(super) fn restart(&mut self) {
        self.run += 1;
        self.sessions = Sessions::new(self.run);
        self.proposed.clear();
        self.inbox.clear();
    }

    pub(super) fn now(&self) -> (MonoMs, WallMs) {
        (MonoMs(self.mono), WallMs(self.wall))
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
        let told = (&command.change, &applied.outcome, proposal);
        let actions = self.sessions.applied(&self.state, told, self.now());
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
        let partition = self.partition(name, partition);
        let end = self.state.topics.partition(partition).unwrap().next();
        self.apply(Change::Append(Append {
            request: None,
            parts: vec![AppendPart {
                partition,
                record_count: records,
                producer: None,
                predicted: Some(end),
                body: Bytes::new(),
            }],
        }))
        .unwrap();
        let actions = self
            .sessions
            .ends_moved(&self.state, &[partition], MonoMs(self.mono));
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
        let now = self.now();
        let rolls = &mut self.rolls;
        let mut dice = || Self::roll(rolls);
        let actions = self
            .sessions
            .handle(&self.state, call, request, now, &mut dice);
        self.carry_out(actions);
        call
    }

    pub(super) fn carry_out(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Propose(id, change) => self.proposed.push_back((id, change)),
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
        }
    }

    /// Commits what was proposed so far, and what that brings with it.
    pub(super) fn commit_proposed(&mut self) {
        while let Some((id, change)) = self.proposed.pop_front() {
            drop(self.apply_as(change, Some(id)));
        }
    }

    pub(super) fn answer(&mut self, call: CallId) -> Result<GroupReply, CallError> {
        self.replies.remove(&call).expect("answered")
    }

    pub(super) fn settled(&mut self, call: CallId) -> Settled {
        match self.answer(call) {
            Ok(GroupReply::Settled(settled)) => settled,
            other => panic!("not settled: {other:?}"),
        }
    }

    pub(super) fn joined(&mut self, call: CallId) -> StreamKey {
        match self.answer(call) {
            Ok(GroupReply::Joined(stream)) => stream,
            other => panic!("not let in: {other:?}"),
        }
    }

    /// Joins and expects to be let in.
    pub(super) fn join(&mut self, request: JoinRequest) -> StreamKey {
        let call = self.call(GroupRequest::Join(request));
        self.joined(call)
    }

    pub(super) fn refused(&mut self, request: GroupRequest) -> Refusal {
        let call = self.call(request);
        match self.answer(call) {
            Err(CallError::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    pub(super) fn next_message(&mut self, stream: StreamKey) -> Option<MemberMessage> {
        self.inbox.get_mut(&stream)?.pop_front()
    }

    /// The next message, which is an event.
    pub(super) fn event(&mut self, stream: StreamKey) -> MemberEvent {
        match self.next_message(stream) {
            Some(MemberMessage::Event(event)) => event,
            other => panic!("no event: {other:?}"),
        }
    }

    /// Joins, and takes the first event.
    pub(super) fn member(&mut self, request: JoinRequest) -> (StreamKey, MemberEvent) {
        let stream = self.join(request);
        (stream, self.event(stream))
    }

    /// The next message, which ends the stream.
    pub(super) fn ended(&mut self, stream: StreamKey) -> MemberEnd {
        let message = self.next_message(stream);
        assert!(self.closed.contains(&stream));
        match message {
            Some(MemberMessage::End(end)) => end,
            other => panic!("no end: {other:?}"),
        }
    }

    /// The next message, which is a grant; not confirmed.
    pub(super) fn grant(&mut self, stream: StreamKey) -> Grant {
        match self.next_message(stream) {
            Some(MemberMessage::Grant(grant)) => grant,
            other => panic!("no grant: {other:?}"),
        }
    }

    pub(super) fn confirm(&mut self, stream: StreamKey, lease: LeaseId, last: u64) {
        self.call(GroupRequest::Confirm {
            stream,
            lease,
            last: Some(at(last)),
            skip_to: None,
        });
    }

    /// Hands on up to `records` of the next grant.
    pub(super) fn receive(&mut self, stream: StreamKey, records: u64) -> Delivery {
        let grant = self.grant(stream);
        self.hand_on(stream, grant, records)
    }

    pub(super) fn hand_on(&mut self, stream: StreamKey, grant: Grant, records: u64) -> Delivery {
        let last = grant.from.plus(records - 1).min(grant.until.minus(1));
        self.confirm(stream, grant.lease, last.get());
        let token = AckToken {
            group: group("g"),
            group_id: grant.group_id,
            reset_count: grant.reset_count,
            partition: grant.partition,
            first: grant.from,
            last,
            lease: grant.lease,
            run: grant.run,
            attempt: grant.attempt,
        };
        Delivery { token, grant }
    }

    /// Settles and returns done, already settled and conflicts.
    pub(super) fn ack(&mut self, token: &AckToken) -> Settled {
        self.ack_up_to(token, None)
    }

    pub(super) fn ack_up_to(&mut self, token: &AckToken, up_to: Option<u64>) -> Settled {
        let request = SettleRequest {
            token: token.clone(),
            up_to: up_to.map(at),
        };
        let call = self.call(GroupRequest::Settle(request));
        self.settled(call)
    }

    /// Extends and returns for how long from now, and whether that is capped.
    pub(super) fn extend(
        &mut self,
        token: &AckToken,
        ack_timeout_ms: Option<u64>,
    ) -> Result<(i64, bool), Refusal> {
        let call = self.call(GroupRequest::Extend {
            token: token.clone(),
            ack_timeout_ms,
        });
        match self.answer(call) {
            Ok(GroupReply::Extended { deadline, capped }) => Ok((deadline.0 - self.wall, capped)),
            Err(CallError::Refused(refusal)) => Err(refusal),
            other => panic!("neither extended nor refused: {other:?}"),
        }
    }

    pub(super) fn end_stream(&mut self, stream: StreamKey, how: StreamEnd) {
        self.call(GroupRequest::StreamEnded { stream, how });
    }

    /// Lets time pass, doing what is due when it is due.
    pub(super) fn advance(&mut self, ms: u64) {
        let target = self.mono + ms;
        while let Some(due) = self.sessions.next_deadline().filter(|due| due.0 <= target) {
            self.move_to(due.0.max(self.mono));
            let actions = self.sessions.tick(&self.state, MonoMs(self.mono));
            self.carry_out(actions);
            let next = self.sessions.next_deadline();
            assert!(next.is_none_or(|next| next > due), "what is due is done");
        }
        self.move_to(target);
    }

    fn move_to(&mut self, mono: u64) {
        self.wall += i64::try_from(mono - self.mono).unwrap();
        self.mono = mono;
    }

    pub(super) fn describe(&self, name: &str) -> GroupDescription {
        self.sessions.describe(&group(name)).unwrap_or_default()
    }

    pub(super) fn in_flight(&self, name: &str) -> u64 {
        let seen = self.describe(name);
        seen.partitions.values().map(|it| it.in_flight).sum()
    }

    pub(super) fn is_silent(&self, stream: StreamKey) -> bool {
        self.inbox[&stream].is_empty()
    }
}
