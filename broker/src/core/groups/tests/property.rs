//! Random lives of a group beside a naive model.

use proptest::prelude::*;

use super::model::{Model, PARTITIONS, WINDOW};
use super::rig::join;
use crate::core::request::{Credit, JoinRequest, StreamEnd};

#[derive(Debug, Clone, Copy)]
enum Step {
    Join,
    JoinNamed(u8),
    ComeBack(usize),
    End(usize, StreamEnd),
    Leave(usize),
    Append(u32, u32),
    HandOn(usize, u64),
    Ack(usize, u64),
    Extend(usize, u64),
    Advance(u64),
    CommitOffset(u32, u64),
    Reset(u32),
    /// Proposals wait from now on, until they are committed together.
    Hold,
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        Just(StreamEnd::Clean),
        Just(StreamEnd::Broken),
        Just(StreamEnd::Silent)
    ];
    let any = any::<usize>;
    prop_oneof![
        4 => Just(Step::Join),
        2 => (0..2u8).prop_map(Step::JoinNamed),
        2 => any().prop_map(Step::ComeBack),
        4 => (any(), end).prop_map(|(pick, how)| Step::End(pick, how)),
        1 => any().prop_map(Step::Leave),
        8 => (0..PARTITIONS, 1..12u32).prop_map(|(number, count)| Step::Append(number, count)),
        16 => (any(), 1..6u64).prop_map(|(pick, count)| Step::HandOn(pick, count)),
        12 => (any(), 1..6u64).prop_map(|(pick, count)| Step::Ack(pick, count)),
        2 => (any(), 1_000..60_000u64).prop_map(|(pick, ms)| Step::Extend(pick, ms)),
        6 => (1..20_000u64).prop_map(Step::Advance),
        1 => (0..PARTITIONS, 0..=100u64).prop_map(|(number, share)| {
            Step::CommitOffset(number, share)
        }),
        1 => (0..PARTITIONS).prop_map(Step::Reset),
        2 => Just(Step::Hold),
        2 => Just(Step::Commit),
    ]
}

fn take(model: &mut Model, step: Step) {
    let request = |name: Option<u8>| JoinRequest {
        member_name: name.map(|name| format!("static-{name}")),
        credit: Credit::Window(WINDOW),
        ..join("g", &[])
    };
    let streams = model.streams.clone();
    let stream = |pick: usize| streams.get(pick % streams.len().max(1)).copied();
    match step {
        Step::Join => model.join(request(None)),
        Step::JoinNamed(name) => model.join(request(Some(name))),
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
        Step::Extend(pick, ms) => model.extend(pick, ms),
        Step::Advance(ms) => model.advance(ms),
        Step::CommitOffset(number, share) => model.commit_offset(number, share),
        Step::Reset(number) => model.reset(number),
        Step::Hold => model.rig.prompt = false,
        Step::Commit => {
            model.rig.prompt = true;
            model.flush();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_members_do_records_have_one_holder_and_each_is_offered_until_it_is_settled(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut model = Model::new();
        for step in steps {
            take(&mut model, step);
        }
        model.drain();
    }
}
