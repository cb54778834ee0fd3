//! Random lives of a group beside a naive model.

use proptest::prelude::*;

use super::model::{Model, PARTITIONS};
use crate::core::request::{FailureAction, OperatorAction, StreamEnd};
use crate::core::settings::{GroupMode, OnFailure};

#[derive(Debug, Clone)]
enum Step {
    Join,
    JoinNamed(u8),
    ComeBack(usize),
    End(usize, StreamEnd),
    Leave(usize),
    Append(u32, u32),
    HandOn(usize, u64),
    Ack(usize, usize),
    Fail(usize, usize, FailureAction),
    Race(Vec<(usize, FailureAction)>, u64),
    Extend(usize, u64),
    Advance(u64),
    CommitOffset(u32, u64),
    Reset(u32),
    Policy(u32),
    Operate(u32, usize, OperatorAction),
    MakeDue(usize),
    Pause(bool),
    Wall(i64),
    Restart(bool),
    /// Proposals wait from now on, until they are committed together.
    Hold,
    Commit,
}

fn action() -> impl Strategy<Value = FailureAction> {
    prop_oneof![
        4 => Just(FailureAction::Retry),
        1 => Just(FailureAction::DeadLetter),
        2 => Just(FailureAction::Release),
        2 => Just(FailureAction::ByPolicy),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        Just(StreamEnd::Clean),
        Just(StreamEnd::Broken),
        Just(StreamEnd::Silent)
    ];
    let operator = prop_oneof![
        Just(OperatorAction::Skip),
        Just(OperatorAction::DeadLetter),
        Just(OperatorAction::Retry)
    ];
    let which = any::<usize>;
    let number = || 0..PARTITIONS;
    let race = prop::collection::vec((which(), action()), 1..4);
    let lives = prop_oneof![
        4 => Just(Step::Join),
        1 => (0..2u8).prop_map(Step::JoinNamed),
        2 => which().prop_map(Step::ComeBack),
        3 => (which(), end).prop_map(|(pick, how)| Step::End(pick, how)),
        1 => which().prop_map(Step::Leave),
        1 => any::<bool>().prop_map(Step::Restart),
        2 => Just(Step::Hold),
        2 => Just(Step::Commit),
    ];
    let work = prop_oneof![
        8 => (number(), 1..8u32).prop_map(|(number, count)| Step::Append(number, count)),
        16 => (which(), 1..6u64).prop_map(|(pick, count)| Step::HandOn(pick, count)),
        8 => (which(), 1..6usize).prop_map(|(pick, count)| Step::Ack(pick, count)),
        8 => (which(), which(), action()).prop_map(|(pick, at, how)| Step::Fail(pick, at, how)),
        2 => (race, 0..6_000u64).prop_map(|(calls, ms)| Step::Race(calls, ms)),
        1 => (which(), 1_000..60_000u64).prop_map(|(pick, ms)| Step::Extend(pick, ms)),
        5 => (1..20_000u64).prop_map(Step::Advance),
        1 => (100_000..1_200_000u64).prop_map(Step::Advance),
    ];
    let rule = prop_oneof![
        1 => (number(), 0..=100u64).prop_map(|(at, share)| Step::CommitOffset(at, share)),
        1 => number().prop_map(Step::Reset),
        2 => (2..6u32).prop_map(Step::Policy),
        3 => (number(), which(), operator).prop_map(|(at, pick, how)| Step::Operate(at, pick, how)),
        2 => which().prop_map(Step::MakeDue),
        1 => any::<bool>().prop_map(Step::Pause),
        2 => (-4_000_000..4_000_000i64).prop_map(Step::Wall),
    ];
    prop_oneof![3 => lives, 10 => work, 1 => rule]
}

fn take(model: &mut Model, step: Step) {
    let streams = model.streams.clone();
    let stream = |pick: usize| streams.get(pick % streams.len().max(1)).copied();
    match step {
        Step::Join => model.join(Model::request(None)),
        Step::JoinNamed(name) => model.join(Model::request(Some(name))),
        Step::ComeBack(pick) => model.come_back(pick),
        Step::End(pick, how) => {
            if let Some(stream) = stream(pick) {
                model.end_stream(stream, how);
            }
        }
        Step::Leave(pick) => model.leave(pick),
        Step::Append(number, records) => model.append(number, records),
        Step::HandOn(pick, records) => {
            if let Some(stream) = stream(pick) {
                model.hand_on(stream, records);
            }
        }
        Step::Ack(pick, records) => model.ack(pick, records),
        Step::Fail(pick, number, how) => model.fail(pick, number, how),
        Step::Race(calls, ms) => model.race(&calls, ms),
        Step::Extend(pick, ms) => model.extend(pick, ms),
        Step::Advance(ms) => model.advance(ms),
        Step::CommitOffset(number, share) => model.commit_offset(number, share),
        Step::Reset(number) => model.reset(number),
        Step::Policy(deliveries) => model.set_policy(deliveries),
        Step::Operate(number, pick, how) => model.operate(number, pick, how),
        Step::MakeDue(pick) => model.make_due(pick),
        Step::Pause(paused) => model.pause(paused),
        Step::Wall(ms) => model.step_wall(ms),
        Step::Restart(noted) => model.restart(noted),
        Step::Hold => model.rig.prompt = false,
        Step::Commit => {
            model.rig.prompt = true;
            model.flush();
        }
    }
}

fn live(mode: GroupMode, on_failure: OnFailure, steps: Vec<Step>) {
    go_through(Model::new(mode, on_failure), steps);
}

fn go_through(mut model: Model, steps: Vec<Step>) {
    for step in steps {
        take(&mut model, step);
    }
    model.drain();
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(4) / 4,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn in_a_stream_that_overtakes_each_record_has_one_holder_and_ends_once(steps in steps()) {
        live(GroupMode::Stream, OnFailure::Overtake, steps);
    }

    #[test]
    fn in_a_queue_that_overtakes_each_record_has_one_holder_and_ends_once(steps in steps()) {
        live(GroupMode::Queue, OnFailure::Overtake, steps);
    }

    #[test]
    fn in_a_stream_that_holds_each_record_has_one_holder_and_ends_once(steps in steps()) {
        live(GroupMode::Stream, OnFailure::Hold, steps);
    }

    #[test]
    fn in_a_stream_that_parks_each_record_has_one_holder_and_ends_once(steps in steps()) {
        go_through(Model::parking(GroupMode::Stream), steps);
    }

    #[test]
    fn in_a_queue_that_parks_each_record_has_one_holder_and_ends_once(steps in steps()) {
        go_through(Model::parking(GroupMode::Queue), steps);
    }

    #[test]
    fn in_a_queue_that_holds_each_record_has_one_holder_and_ends_once(steps in steps()) {
        live(GroupMode::Queue, OnFailure::Hold, steps);
    }
}
