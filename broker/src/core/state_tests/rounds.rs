//! Rounds: whatever is gathered into one is carried out as it was predicted.

use proptest::prelude::*;
use tokio::sync::oneshot;
use varvelog_store::{PartitionId, Sequence, WallMs};

use super::codec::note_of;
use super::sample::*;
use crate::core::admission::Admission;
use crate::core::backlog::Backlog;
use crate::core::command::{Append, Change, Command, HandBack, MakeDue, RequestId, Settle, Stamp};
use crate::core::decide::{CountLimits, Live};
use crate::core::failure::Wait;
use crate::core::forecast::AppendLimits;
use crate::core::groups::ProposalId;
use crate::core::pending::{Draft, Drafting, Origin, Pending};
use crate::core::request::{AppendRequest, AppendRequestPart};
use crate::core::retries::RetryEntry;
use crate::core::state::State;

/// Something that waits for a round.
#[derive(Debug, Clone)]
enum Step {
    Append(PartitionId, u32),
    Settle(Ask),
    Commit(u32, u64),
    Generation,
    HandOut(PartitionId, u64),
    HandBack(PartitionId, u64),
    MakeDue(PartitionId, u64),
}

/// A settlement.
#[derive(Debug, Clone)]
struct Ask {
    at: PartitionId,
    first: u64,
    len: u64,
    note: Option<u64>,
    retried: bool,
    dead: bool,
    output: Output,
}

/// What is appended besides.
#[derive(Debug, Clone, Copy)]
enum Output {
    None,
    Unnamed,
    Request(u8),
}

fn places() -> impl Strategy<Value = PartitionId> {
    prop_oneof![3 => Just(at(1, 0)), 1 => Just(at(1, 1)), 2 => Just(at(101, 0))]
}

fn ask() -> impl Strategy<Value = Ask> {
    let output = prop_oneof![
        6 => Just(Output::None),
        1 => Just(Output::Unnamed),
        2 => (0..3_u8).prop_map(Output::Request),
    ];
    let note = prop::option::weighted(0.2, 0..14_u64);
    let copies = (any::<bool>(), any::<bool>());
    (places(), 0..14_u64, 1..4_u64, note, copies, output).prop_map(
        |(at, first, len, note, (retried, dead), output)| Ask {
            at,
            first,
            len,
            note,
            retried,
            dead,
            output,
        },
    )
}

fn steps() -> impl Strategy<Value = Step> {
    let appended = prop_oneof![Just(at(1, 0)), Just(at(1, 1)), Just(at(2, 0))];
    prop_oneof![
        3 => (appended, 1..4_u32).prop_map(|(at, records)| Step::Append(at, records)),
        8 => ask().prop_map(Step::Settle),
        1 => (0..2_u32, 0..14_u64).prop_map(|(number, to)| Step::Commit(number, to)),
        1 => Just(Step::Generation),
        1 => (places(), 0..12_u64).prop_map(|(at, first)| Step::HandOut(at, first)),
        1 => (places(), 0..12_u64).prop_map(|(at, first)| Step::HandBack(at, first)),
        1 => (places(), 0..12_u64).prop_map(|(at, record)| Step::MakeDue(at, record)),
    ]
}

fn settle(bench: &Bench, ask: &Ask) -> Settle {
    let number = ask.at.partition;
    let last = ask.first + ask.len - 1;
    let mut settle = settle_of(bench, "email", ask.at);
    settle.ranges = vec![(offset(ask.first), offset(last))];
    if let Some(note) = ask.note {
        settle.notes = vec![(offset(note), note_of(Wait::Ready))];
    }
    if ask.retried {
        let records = u32::try_from(ask.len).unwrap();
        settle.append.parts.push(part(at(101, number), records));
        let entry = |origin| RetryEntry {
            due: WallMs(5),
            origin: offset(origin),
            failures: 1,
            suspect: false,
        };
        settle.retries = vec![(0, (ask.first..=last).map(entry).collect())];
    }
    if ask.dead {
        let index = u32::try_from(settle.append.parts.len()).unwrap();
        settle.append.parts.push(part(at(151, number), 1));
        settle.deaths = vec![(index, deaths(1))];
    }
    if !matches!(ask.output, Output::None) {
        settle.append.parts.push(part(at(2, 0), 2));
    }
    if let Output::Request(id) = ask.output {
        settle.append.request = Some(RequestId {
            topic: topic_id(2),
            id: id.to_string(),
            content_hash: 1,
        });
    }
    settle
}

fn pending(bench: &Bench, id: u64, step: &Step) -> Pending {
    let group = group_name("email");
    let change = match step {
        Step::Append(partition, record_count) => {
            let part = AppendRequestPart {
                partition: *partition,
                record_count: *record_count,
                producer: None,
                delays_ms: vec![(0, 10)],
                ids: Vec::new(),
                body: part(*partition, 1).body,
            };
            let request = AppendRequest {
                request: None,
                parts: vec![part],
            };
            return Pending::Append(request, oneshot::channel().0, None);
        }
        Step::Settle(ask) => Change::Settle(settle(bench, ask)),
        Step::Commit(number, to) => commit("email", &[(at(1, *number), *to)], true),
        Step::Generation => Change::NextGeneration { group },
        Step::HandOut(at, first) => Change::HandOut(hand_out(bench, *at, (*first, first + 2))),
        Step::HandBack(at, first) => Change::HandBack(HandBack {
            group,
            group_id: 1,
            partition: *at,
            ranges: vec![(offset(*first), offset(first + 1))],
        }),
        Step::MakeDue(at, record) => Change::MakeDue(MakeDue {
            group,
            records: vec![(*at, offset(*record))],
        }),
    };
    Pending::Proposal(ProposalId(id), change)
}

fn gather(state: &State, stamp: Stamp, backlog: &mut Backlog) -> Draft {
    Draft::gather(
        backlog,
        &mut Drafting {
            state,
            stamp,
            limits: &CountLimits::default(),
            append_limits: AppendLimits::default(),
            live: &|_| Live::default(),
            member: &|_, _, _| Ok(()),
            admission: &mut Admission::default(),
            dice: &mut || [0; 16],
        },
    )
}

/// What became of each proposal, in order: whether it was carried out.
fn carry_out(bench: &mut Bench, backlog: &mut Backlog) -> Vec<(u64, bool)> {
    let mut ends = Vec::new();
    while !backlog.is_empty() {
        let draft = gather(&bench.state, bench.stamp, backlog);
        for (id, change, refusal) in &draft.refused {
            assert_eq!(bench.state.check(change, bench.stamp), Err(refusal.clone()));
            ends.push((id.0, false));
        }
        for (command, origin) in draft.commands.into_iter().zip(draft.origins) {
            let is_sure = matches!(&command.change, Change::Settle(settle) if settle.appends());
            let applied = apply(bench, &command);
            assert!(!is_sure || applied, "what appends is carried out");
            if let Origin::Proposal(id) = origin {
                ends.push((id.0, applied));
            }
        }
        bench.state.check_invariants();
    }
    ends
}

fn apply(bench: &mut Bench, command: &Command) -> bool {
    bench.log.push(command.clone());
    let sequence = Sequence::new(u64::try_from(bench.log.len()).unwrap());
    bench.state.apply(sequence, command).outcome.is_ok()
}

proptest! {
    #[test]
    fn whatever_shares_a_round_what_was_predicted_comes_true(
        rounds in prop::collection::vec(prop::collection::vec(steps(), 1..12), 1..10),
    ) {
        let mut bench = Bench::with_group();
        let mut asked = 0;
        let mut ended = Vec::new();
        for steps in rounds {
            let mut backlog = Backlog::default();
            for step in &steps {
                asked += u64::from(!matches!(step, Step::Append(..)));
                backlog.push_back(pending(&bench, asked, step));
            }
            ended.extend(carry_out(&mut bench, &mut backlog));
            bench.pass(1);
        }
        let mut ids: Vec<u64> = ended.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (1..=asked).collect::<Vec<u64>>(), "each is answered once");
        bench.restart();
    }
}

fn backlog(bench: &Bench, asks: &[Ask]) -> Backlog {
    let mut backlog = Backlog::default();
    for (id, ask) in (1..).zip(asks) {
        backlog.push_back(pending(bench, id, &Step::Settle(ask.clone())));
    }
    backlog
}

fn copying(first: u64, len: u64) -> Ask {
    Ask {
        at: at(1, 0),
        first,
        len,
        note: None,
        retried: true,
        dead: false,
        output: Output::None,
    }
}

#[test]
fn copies_of_different_records_share_a_round_and_of_the_same_record_do_not() {
    let mut bench = Bench::with_group();
    let mut waiting = backlog(&bench, &[copying(0, 2), copying(2, 2), copying(3, 1)]);
    let draft = gather(&bench.state, bench.stamp, &mut waiting);
    assert_eq!((draft.commands.len(), draft.refused.len()), (2, 0));
    for command in draft.commands {
        assert!(apply(&mut bench, &command));
    }
    let draft = gather(&bench.state, bench.stamp, &mut waiting);
    assert_eq!((draft.commands.len(), draft.refused.len()), (0, 1));
    assert!(waiting.is_empty());
}

#[test]
fn outputs_with_one_request_id_do_not_share_a_round() {
    let bench = Bench::with_group();
    let ask = |first| Ask {
        retried: false,
        output: Output::Request(1),
        ..copying(first, 1)
    };
    let mut waiting = backlog(&bench, &[ask(0), ask(1)]);
    let draft = gather(&bench.state, bench.stamp, &mut waiting);
    assert_eq!(draft.commands.len(), 1);
    assert!(!waiting.is_empty());
}

#[test]
fn only_hand_outs_by_themselves_may_wait() {
    let bench = Bench::with_group();
    let mut waiting = Backlog::default();
    waiting.push_back(pending(&bench, 1, &Step::HandOut(at(1, 0), 0)));
    waiting.push_back(pending(&bench, 2, &Step::HandBack(at(1, 0), 0)));
    assert!(waiting.may_wait());
    waiting.push_front(pending(&bench, 3, &Step::Settle(copying(0, 1))));
    assert!(!waiting.may_wait());
    waiting.pop_front();
    assert!(waiting.may_wait());
    for id in 4..5_000 {
        waiting.push_back(pending(&bench, id, &Step::HandOut(at(1, 0), 0)));
    }
    assert!(!waiting.may_wait(), "many do not");
}

#[test]
fn retention_that_was_overtaken_by_a_reset_does_nothing() {
    let mut bench = Bench::with_group();
    let group = group_name("email");
    let mut settings = bench.state.groups.get(&group).unwrap().settings.clone();
    settings.retain_until_consumed = true;
    bench.must(Change::UpdateGroup { group, settings });
    let drafted = |bench: &Bench, start| {
        let mut waiting = Backlog::default();
        waiting.push_back(Pending::Internal(move_log_start(at(1, 0), start)));
        gather(&bench.state, bench.stamp, &mut waiting)
            .commands
            .len()
    };
    bench.must(commit("email", &[(at(1, 0), 6)], false));
    assert_eq!(drafted(&bench, 6), 1);
    bench.must(reset("email", &[(at(1, 0), 5)]));
    assert_eq!(drafted(&bench, 6), 0);
    assert_eq!(drafted(&bench, 5), 1);
}

/// A request is not a settlement's alone: the same id by a producer is another content.
#[test]
fn an_append_and_outputs_with_one_request_id_do_not_both_append() {
    let mut bench = Bench::with_group();
    let first = request(2, "1", 1, vec![part(at(2, 0), 2)]);
    let Change::Append(Append { request, parts }) = first else {
        unreachable!()
    };
    let parts = parts.into_iter().map(|part| AppendRequestPart {
        partition: part.partition,
        record_count: part.record_count,
        producer: None,
        delays_ms: Vec::new(),
        ids: Vec::new(),
        body: part.body,
    });
    let parts = parts.collect();
    let ask = Ask {
        retried: false,
        output: Output::Request(1),
        ..copying(0, 1)
    };
    let mut waiting = Backlog::default();
    let append = AppendRequest { request, parts };
    waiting.push_back(Pending::Append(append, oneshot::channel().0, None));
    waiting.push_back(pending(&bench, 1, &Step::Settle(ask)));
    assert_eq!(carry_out(&mut bench, &mut waiting), [(1, true)]);
    assert_eq!(bench.done("email", at(1, 0)), (0, vec![]));
    let end = bench.state.topics.partition(at(2, 0)).unwrap().next();
    assert_eq!(end, offset(12));
}
