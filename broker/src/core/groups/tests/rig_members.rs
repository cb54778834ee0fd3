//! What members and edges do with the reduced broker.

use super::rig::{Delivery, Rig, at, group};
use super::settlement::settle;
use crate::core::failure::FailureText;
use crate::core::groups::{CallId, GroupDescription, Sessions};
use crate::core::refusal::{CallError, Refusal};
use crate::core::request::{
    AckToken, FailureAction, Grant, GroupReply, GroupRequest, JoinRequest, LeaseId, MemberEnd,
    MemberEvent, MemberMessage, OperatorAction, RecordFailure, SettleRequest, Settled, StreamEnd,
    StreamKey,
};

/// A record that was not processed, by its first append.
pub(super) fn failed(offset: u64, action: FailureAction) -> RecordFailure {
    RecordFailure {
        offset: at(offset),
        action,
        text: FailureText::default(),
        retry_after_ms: None,
    }
}

/// A wish to settle a response of which these records failed.
pub(super) fn settle_failed(token: &AckToken, failures: Vec<RecordFailure>) -> GroupRequest {
    GroupRequest::Settle(SettleRequest {
        token: token.clone(),
        up_to: None,
        failures,
        outputs: None,
    })
}

impl Rig {
    /// Settles a response of which these records failed as said.
    pub(super) fn fail(&mut self, token: &AckToken, failures: Vec<RecordFailure>) -> Settled {
        let call = self.call(settle_failed(token, failures));
        self.settled(call)
    }

    /// All records of a response failed in that way.
    pub(super) fn fail_all(&mut self, token: &AckToken, action: FailureAction) -> Settled {
        let places = (0..=token.last.since(token.first)).map(|at| token.first.plus(at));
        let all = places.map(|place| failed(token.origin(place).get(), action));
        self.fail(token, all.collect())
    }

    /// An operator settles records of partition 0 of `orders`; returns how many there were.
    pub(super) fn operate(&mut self, offsets: &[u64], action: OperatorAction) -> u64 {
        let partition = self.partition("orders", 0);
        let call = self.call(GroupRequest::SettleRecords {
            group: group("g"),
            records: offsets
                .iter()
                .map(|offset| (partition, at(*offset)))
                .collect(),
            action,
            note: String::new(),
        });
        match self.answer(call) {
            Ok(GroupReply::Operated { settled }) => settled,
            other => panic!("not operated: {other:?}"),
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
        let group = request.group.clone();
        let call = self.call(GroupRequest::Join(request));
        let stream = self.joined(call);
        self.group_of.insert(stream, group);
        stream
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
            undeliverable: false,
        });
    }

    /// Hands on one record after the other as long as there are any; offsets of first appends.
    pub(super) fn receive_each(&mut self, stream: StreamKey) -> Vec<Delivery> {
        let mut received = Vec::new();
        while !self.is_silent(stream) {
            received.push(self.receive(stream, 1));
        }
        received
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
            group: self.group_of.get(&stream).cloned().unwrap_or(group("g")),
            group_id: grant.group_id,
            reset_count: grant.reset_count,
            partition: grant.partition,
            first: grant.from,
            last,
            lease: grant.lease,
            run: grant.run,
            attempt: grant.attempt,
            origins: grant.origins.clone(),
        };
        Delivery { token, grant }
    }

    /// Settles and returns done, already settled and conflicts.
    pub(super) fn ack(&mut self, token: &AckToken) -> Settled {
        self.ack_up_to(token, None)
    }

    pub(super) fn ack_up_to(&mut self, token: &AckToken, up_to: Option<u64>) -> Settled {
        let call = self.call(settle(token.clone(), up_to));
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
            let actions = self.turn(Sessions::tick);
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
