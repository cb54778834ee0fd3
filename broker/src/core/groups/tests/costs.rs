//! What a hand-out costs does not grow with what waits, is out, or is done around it.

use std::cell::Cell;
use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, WallMs};

use super::retrying::worker;
use super::rig::{Rig, join};
use super::settlement::settle;
use crate::clock::MonoMs;
use crate::core::command::RequestId;
use crate::core::failure::{Ending, FailureNote};
use crate::core::groups::{
    Actions, CallId, Durable, GroupFacts, Now, Place, Position, Sessions, TopicFacts,
};
use crate::core::handed_out::HandOuts;
use crate::core::refusal::Refusal;
use crate::core::request::{Appended, Credit, FailureAction, GroupRequest, StreamEnd, StreamKey};
use crate::core::retries::RetryEntry;
use crate::core::settings::GroupMode;
use crate::core::state::State;
use crate::names::{GroupName, TopicName};

/// Durable state that counts how often it is asked.
struct Counting<'a> {
    state: &'a State,
    asked: Cell<u64>,
}

impl Counting<'_> {
    fn ask(&self) -> &State {
        self.asked.set(self.asked.get() + 1);
        self.state
    }
}

impl Durable for Counting<'_> {
    fn group(&self, group: &GroupName) -> Option<GroupFacts<'_>> {
        Durable::group(self.ask(), group)
    }
    fn group_names(&self) -> Vec<GroupName> {
        self.ask().group_names()
    }
    fn group_topics(&self, group: &GroupName) -> Vec<TopicFacts> {
        self.ask().group_topics(group)
    }
    fn topic(&self, name: &TopicName) -> Result<TopicFacts, Refusal> {
        Durable::topic(self.ask(), name)
    }
    fn place(&self, group: &GroupName, partition: PartitionId) -> Option<Place> {
        self.ask().place(group, partition)
    }
    fn position(&self, group: &GroupName, partition: PartitionId) -> Option<Position> {
        self.ask().position(group, partition)
    }
    fn next_done(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, Offset)> {
        self.ask().next_done(group, partition, from)
    }
    fn next_note(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, &FailureNote)> {
        self.ask().next_note(group, partition, from)
    }
    fn next_retry(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, RetryEntry)> {
        self.ask().next_retry(group, partition, from)
    }
    fn ending(&self, group: &GroupName, partition: PartitionId, offset: Offset) -> Option<Ending> {
        self.ask().ending(group, partition, offset)
    }
    fn handed_out(&self, group: &GroupName, partition: PartitionId) -> Option<&HandOuts> {
        self.ask().handed_out(group, partition)
    }
    fn parked(&self, group: &GroupName, partition: PartitionId) -> Option<&BTreeMap<u64, Offset>> {
        self.ask().parked(group, partition)
    }
    fn next_delayed(&self, partition: PartitionId, from: Offset) -> Option<(Offset, WallMs)> {
        self.ask().next_delayed(partition, from)
    }
    fn carried_out(&self, request: &RequestId) -> Option<(u64, Appended)> {
        self.ask().carried_out(request)
    }
    fn log_bytes(&self, partition: PartitionId) -> u64 {
        self.ask().log_bytes(partition)
    }
    fn dead_letters_of(&self, partition: PartitionId) -> Option<(GroupName, PartitionId)> {
        self.ask().dead_letters_of(partition)
    }
}

/// How often durable state is asked for one ack of one record and the hand-out that follows.
fn cost_of_an_ack(rig: &mut Rig, stream: StreamKey) -> u64 {
    let token = rig.receive(stream, 1).token;
    rig.prompt = false;
    let asked = counted(rig, |sessions, state, now| {
        sessions.handle(state, CallId(u64::MAX), settle(token, None), now)
    });
    rig.prompt = true;
    rig.settle_down();
    rig.replies.remove(&CallId(u64::MAX));
    asked
}

fn counted(
    rig: &mut Rig,
    act: impl FnOnce(&mut Sessions, &Counting<'_>, Now<'_>) -> Actions,
) -> u64 {
    let (mono, wall) = (MonoMs(rig.mono), WallMs(rig.wall));
    let counting = Counting {
        state: &rig.state,
        asked: Cell::new(0),
    };
    let mut dice = || [7; 16];
    let now = Now {
        mono,
        wall,
        dice: &mut dice,
    };
    let actions = act(&mut rig.sessions, &counting, now);
    let asked = counting.asked.get();
    rig.carry_out(actions);
    asked
}

/// What it costs to be given something when nothing is left to look at but what is out.
fn cost_of_credit(rig: &mut Rig, stream: StreamKey) -> u64 {
    counted(rig, |sessions, state, now| {
        let request = GroupRequest::AddCredit {
            stream,
            responses: 1,
        };
        sessions.handle(state, CallId(u64::MAX), request, now)
    })
}

#[test]
fn an_ack_costs_the_same_with_many_single_records_out_as_with_few() {
    let cost = |out: u64| {
        let mut rig = Rig::with_group(1, |settings| {
            settings.mode = GroupMode::Queue;
            settings.in_flight_max = 10_000;
        });
        rig.append("orders", 0, 2_000);
        let mut request = worker();
        request.credit = Credit::Window(20_000);
        let (stream, _) = rig.member(request);
        // Every third one stays out.
        let mut held = 0;
        let mut number = 0;
        while held < out {
            let token = rig.receive(stream, 1).token;
            number += 1;
            if number % 3 == 0 {
                held += 1;
            } else {
                rig.ack(&token);
            }
        }
        (0..5)
            .map(|_| cost_of_an_ack(&mut rig, stream))
            .max()
            .unwrap()
    };
    let (few, many) = (cost(10), cost(100));
    assert!(many <= few + 20, "{few} and {many}");
}

#[test]
fn a_window_whose_every_third_record_was_given_back_costs_no_search_when_nothing_is_new() {
    let cost = |records: u32| {
        let mut rig = Rig::with_group(1, |settings| {
            settings.mode = GroupMode::Queue;
            settings.in_flight_max = 10_000;
        });
        rig.append("orders", 0, records);
        let mut request = join("g", &[]);
        request.credit = Credit::Explicit;
        let (stream, _) = rig.member(request);
        rig.call(GroupRequest::AddCredit {
            stream,
            responses: 1_000,
        });
        let mut held = Vec::new();
        while !rig.is_silent(stream) {
            held.push(rig.receive(stream, 3).token);
        }
        for token in &held {
            rig.ack_up_to(token, Some(token.first.get() + 1));
        }
        (0..3)
            .map(|_| cost_of_credit(&mut rig, stream))
            .max()
            .unwrap()
    };
    let (few, many) = (cost(30), cost(2_700));
    assert!(many <= few + 20, "{few} and {many}");
}

#[test]
fn a_due_retry_costs_the_same_behind_two_thousand_that_wait_as_behind_ten() {
    let cost = |waiting: u64| {
        let mut rig = Rig::with_group(1, |settings| {
            settings.mode = GroupMode::Queue;
            settings.in_flight_max = 10_000;
        });
        rig.append("orders", 0, u32::try_from(waiting).unwrap() + 20);
        let (stream, _) = rig.member(join("g", &[]));
        let mut failed = 0;
        while failed < waiting {
            let token = rig.receive(stream, 10_000).token;
            failed += u64::from(rig.fail_all(&token, FailureAction::Retry).retried);
            rig.update_group("g", |settings| settings.paused = failed >= waiting);
        }
        rig.end_stream(stream, StreamEnd::Clean);
        rig.update_group("g", |settings| settings.paused = false);
        let (stream, _) = rig.member(worker());
        rig.advance(1_000);
        (0..5)
            .map(|_| cost_of_an_ack(&mut rig, stream))
            .max()
            .unwrap()
    };
    let (few, many) = (cost(10), cost(2_000));
    assert!(many <= few + 20, "{few} and {many}");
}

#[test]
fn suspects_that_cannot_go_out_now_do_not_have_to_be_searched_through() {
    let cost = |suspects: u32| {
        let mut rig = Rig::with_group(1, |settings| {
            settings.mode = GroupMode::Queue;
            settings.in_flight_max = 10_000;
        });
        rig.append("orders", 0, suspects);
        for _ in 0..2 {
            let (stream, _) = rig.member(join("g", &[]));
            let out = rig.receive_each(stream).len();
            assert_eq!(out, usize::try_from(suspects).unwrap().min(100));
            rig.end_stream(stream, StreamEnd::Broken);
            rig.advance(5_000);
        }
        rig.append("orders", 0, 30);
        let mut request = worker();
        request.credit = Credit::Window(2);
        let (stream, _) = rig.member(request);
        rig.receive(stream, 1);
        rig.advance(10_000);
        (0..5)
            .map(|_| cost_of_an_ack(&mut rig, stream))
            .max()
            .unwrap()
    };
    let (few, many) = (cost(20), cost(100));
    assert!(many <= few + 20, "{few} and {many}");
}
