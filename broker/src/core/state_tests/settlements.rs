//! Settlements that append, notes, endings, hand-outs: rule by rule.

use varvelog_store::{Offset, WallMs};

use super::codec::note_of;
use super::sample::*;
use crate::core::applied::{Outcome, Settlement};
use crate::core::command::{
    Append, Change, HandBack, MakeDue, RequestId, SETTLE_BYTES_MAX, Settle,
};
use crate::core::durable_groups::ACK_WINDOW;
use crate::core::failure::{Ending, Wait};
use crate::core::refusal::{AppendRefusal, GroupRefusal, QuotaRefusal, Refusal, TopicRefusal};
use crate::core::retries::{RetryEntry, RetryProgress};

fn entry(origin: u64, due: i64) -> RetryEntry {
    RetryEntry {
        due: WallMs(due),
        origin: offset(origin),
        failures: 1,
        suspect: false,
    }
}

/// Moves one record to the retry topic.
fn retried(bench: &Bench, at_: varvelog_store::PartitionId, record: u64) -> Settle {
    Settle {
        ranges: vec![(offset(record), offset(record))],
        endings: vec![(offset(record), Ending::Retried)],
        append: Append {
            request: None,
            parts: vec![part(at(101, at_.partition), 1)],
        },
        retries: vec![(0, vec![entry(record, 1_000)])],
        ..settle_of(bench, "email", at_)
    }
}

fn settled(outcome: Outcome) -> Settlement {
    let Outcome::Settled(settlement) = outcome else {
        panic!("a settlement had the outcome {outcome:?}")
    };
    settlement
}

fn retries(bench: &Bench) -> &RetryProgress {
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    group.retry(at(101, 0), &bench.state.topics).unwrap()
}

fn lost(at: u64) -> Refusal {
    GroupRefusal::LeaseLost { offset: offset(at) }.into()
}

#[test]
fn a_record_that_goes_to_the_retry_topic_is_done_and_pending_there_at_once() {
    let mut bench = Bench::with_group();
    bench.pass(50);
    let settlement = settled(bench.must(Change::Settle(retried(&bench, at(1, 0), 0))));
    assert_eq!(settlement.ranges[0].done, 1);
    assert_eq!(settlement.appended.parts[0].base_offset, offset(0));
    assert_eq!(bench.done("email", at(1, 0)), (1, vec![]));
    let pending: Vec<_> = retries(&bench).pending().iter().collect();
    assert_eq!(pending, [(&offset(0), &entry(0, 1_000))]);
    let ending = bench.progress("email", at(1, 0)).endings().get(offset(0));
    assert_eq!(ending, Some(Ending::Retried));
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    assert_eq!(group.last_active, bench.stamp);
    // It fails again there: another copy, and the first is done.
    bench.must(Change::Settle(retried(&bench, at(101, 0), 0)));
    assert_eq!(
        retries(&bench).pending().keys().collect::<Vec<_>>(),
        [&offset(1)]
    );
    assert_eq!(retries(&bench).low(offset(2)), offset(1));
    bench.restart();
}

#[test]
fn what_appends_is_refused_if_one_of_its_records_is_done() {
    let mut bench = Bench::with_group();
    bench.must(bench.settle("email", at(1, 0), &[(0, 1), (4, 4)]));
    for first in [1, 4] {
        let refused = bench.refused(Change::Settle(retried(&bench, at(1, 0), first)));
        assert_eq!(refused, lost(first));
    }
    let mut noted = retried(&bench, at(1, 0), 3);
    noted.notes = vec![(offset(4), note_of(Wait::Ready))];
    assert_eq!(bench.refused(Change::Settle(noted)), lost(4));
    assert_eq!(
        bench.refused(Change::Settle(retried(&bench, at(101, 0), 0))),
        TopicRefusal::OffsetOutOfRange {
            offset: 0,
            earliest: Offset::ZERO,
            latest: Offset::ZERO,
        }
        .into()
    );
    bench.must(Change::Settle(retried(&bench, at(1, 0), 2)));
    bench.must(bench.settle("email", at(101, 0), &[(0, 0)]));
    let again = bench.refused(Change::Settle(retried(&bench, at(101, 0), 0)));
    assert_eq!(again, lost(0));
}

#[test]
fn copies_go_to_the_derived_partition_of_the_same_number_and_nowhere_else() {
    let mut bench = Bench::with_group();
    let mut theirs = group_topic(1, &[]);
    (theirs.retry, theirs.dead_letter) = (topic_id(120), topic_id(121));
    bench.must(create_group("sms", vec![theirs]));
    let parts = |bench: &Bench, parts, retries| Settle {
        append: Append {
            request: None,
            parts,
        },
        retries,
        ..retried(bench, at(1, 0), 0)
    };
    let entries = |count| vec![(0, vec![entry(0, 1); count])];
    for (part, retries) in [
        (part(at(101, 1), 1), entries(1)),
        (part(at(151, 1), 1), vec![]),
        (part(at(101, 0), 1), vec![]),
        (part(at(101, 0), 2), entries(1)),
        (part(at(151, 0), 1), entries(1)),
        (part(at(2, 0), 1), entries(1)),
        (part(at(101, 0), 1), vec![(1, vec![entry(0, 1)])]),
        (produced(at(101, 0), (0, 0, 0), 1), entries(1)),
    ] {
        let settle = parts(&bench, vec![part.clone()], retries);
        let refused = bench.refused(Change::Settle(settle));
        assert_eq!(refused, lost(0), "{part:?}");
    }
    for foreign in [120, 121] {
        let settle = parts(&bench, vec![part(at(foreign, 0), 1)], vec![]);
        let refused = bench.refused(Change::Settle(settle));
        assert!(matches!(
            refused,
            Refusal::Topic(TopicRefusal::Derived { .. })
        ));
    }
    let all = vec![part(at(2, 0), 3), part(at(101, 0), 2), part(at(151, 0), 1)];
    let fine = parts(&bench, all, vec![(1, vec![entry(0, 1); 2])]);
    for deaths in [vec![], vec![(1, deaths(1))], vec![(2, deaths(2))]] {
        let settle = Settle {
            deaths,
            ..fine.clone()
        };
        assert_eq!(bench.refused(Change::Settle(settle)), lost(0));
    }
    let deaths = vec![(2, deaths(1))];
    bench.must(Change::Settle(Settle { deaths, ..fine }));
}

#[test]
fn a_settlement_is_in_order_and_within_the_log_and_the_window() {
    let mut bench = Bench::with_group();
    let note = || note_of(Wait::Ready);
    let base = || settle_of(&Bench::with_group(), "email", at(1, 0));
    let range = vec![(offset(2), offset(3))];
    let crooked = [
        Settle {
            endings: vec![(offset(4), Ending::Skipped)],
            ranges: range.clone(),
            ..base()
        },
        Settle {
            notes: vec![(offset(3), note())],
            ranges: range.clone(),
            ..base()
        },
        Settle {
            notes: vec![(offset(2), note()), (offset(1), note())],
            ..base()
        },
        Settle {
            ranges: range,
            reset_count: 1,
            ..base()
        },
    ];
    for settle in crooked {
        let refused = bench.refused(Change::Settle(settle.clone()));
        assert_eq!(refused, lost(2), "{settle:?}");
    }
    let beyond = Settle {
        notes: vec![(offset(10), note())],
        ..base()
    };
    let refused = bench.refused(Change::Settle(beyond));
    assert!(matches!(
        refused,
        Refusal::Topic(TopicRefusal::OffsetOutOfRange { .. })
    ));
    bench.must(append(vec![part(
        at(1, 0),
        u32::try_from(ACK_WINDOW).unwrap(),
    )]));
    let far = Settle {
        notes: vec![(offset(ACK_WINDOW), note())],
        ..base()
    };
    let refused = bench.refused(Change::Settle(far));
    assert!(matches!(
        refused,
        Refusal::Quota(QuotaRefusal {
            what: "ack_window",
            ..
        })
    ));
    let last = Settle {
        notes: vec![(offset(ACK_WINDOW - 1), note())],
        ..base()
    };
    bench.must(Change::Settle(last));
}

#[test]
fn a_settlement_larger_than_a_frame_may_be_is_refused() {
    let mut bench = Bench::with_group();
    let mut settle = retried(&bench, at(1, 0), 0);
    let bytes = usize::try_from(SETTLE_BYTES_MAX).unwrap();
    settle.append.parts[0].body = vec![0; bytes + 1].into();
    let refused = bench.refused(Change::Settle(settle));
    assert!(matches!(
        refused,
        Refusal::Quota(QuotaRefusal {
            what: "settle_bytes",
            ..
        })
    ));
}

#[test]
fn outputs_sent_again_are_answered_with_the_first_and_settle_nothing() {
    let mut bench = Bench::with_group();
    let with = |bench: &Bench, hash, record| Settle {
        ranges: vec![(offset(record), offset(record))],
        append: Append {
            request: Some(RequestId {
                topic: topic_id(1),
                id: "ack".into(),
                content_hash: hash,
            }),
            parts: vec![part(at(2, 0), 2)],
        },
        ..settle_of(bench, "email", at(1, 0))
    };
    let first = settled(bench.must(Change::Settle(with(&bench, 7, 0))));
    assert_eq!(first.appended.parts[0].base_offset, offset(10));
    let again = settled(bench.must(Change::Settle(with(&bench, 7, 1))));
    assert_eq!(again.ranges, []);
    assert!(again.appended.duplicate);
    assert_eq!(again.appended.parts[0].base_offset, offset(10));
    assert_eq!(bench.done("email", at(1, 0)), (1, vec![]));
    let other = bench.refused(Change::Settle(with(&bench, 8, 1)));
    let id = "ack".to_owned();
    assert_eq!(other, AppendRefusal::RequestIdReused { id }.into());
}

#[test]
fn how_a_record_ended_first_is_what_is_remembered() {
    let mut bench = Bench::with_group();
    bench.must(Change::Settle(retried(&bench, at(1, 0), 2)));
    let skip = Settle {
        ranges: vec![(offset(1), offset(3))],
        endings: (1..4).map(|at| (offset(at), Ending::Skipped)).collect(),
        ..settle_of(&bench, "email", at(1, 0))
    };
    bench.must(Change::Settle(skip));
    let endings = bench.progress("email", at(1, 0)).endings().iter();
    let endings: Vec<_> = endings.map(|(at, ending)| (at.get(), ending)).collect();
    let (skipped, moved) = (Ending::Skipped, Ending::Retried);
    assert_eq!(endings, [(1, skipped), (2, moved), (3, skipped)]);
}

#[test]
fn notes_and_hand_outs_go_when_the_record_is_done_whatever_made_it_so() {
    let mut bench = Bench::with_group();
    let failed = Settle {
        notes: (0..8)
            .map(|at| (offset(at), note_of(Wait::Ready)))
            .collect(),
        ..settle_of(&bench, "email", at(1, 0))
    };
    bench.must(Change::Settle(failed));
    bench.must(Change::HandOut(hand_out(&bench, at(1, 0), (0, 7))));
    let left = |bench: &Bench| {
        let progress = bench.progress("email", at(1, 0));
        let notes: Vec<u64> = progress.notes().keys().map(|at| at.get()).collect();
        let out = progress.out().iter();
        let out: Vec<u64> = out
            .flat_map(|(first, out)| first.get()..=out.last.get())
            .collect();
        assert_eq!(notes, out);
        notes
    };
    bench.must(bench.settle("email", at(1, 0), &[(2, 2), (5, 5)]));
    assert_eq!(left(&bench), [0, 1, 3, 4, 6, 7]);
    bench.must(move_log_start(at(1, 0), 1));
    assert_eq!(left(&bench), [1, 3, 4, 6, 7]);
    bench.must(commit("email", &[(at(1, 0), 4)], false));
    assert_eq!(left(&bench), [4, 6, 7]);
    bench.must(Change::HandOut(hand_out(&bench, at(1, 0), (0, 9))));
    let out = bench.progress("email", at(1, 0)).out();
    let firsts: Vec<u64> = out.iter().map(|(first, _)| first.get()).collect();
    assert_eq!(firsts, [4, 6], "what is done is given to nobody");
    bench.restart();
    bench.must(reset("email", &[(at(1, 0), 2)]));
    assert_eq!(left(&bench), Vec::<u64>::new());
}

#[test]
fn a_hand_out_of_another_time_is_refused_and_one_given_back_is_nobodys() {
    let mut bench = Bench::with_group();
    let good = hand_out(&bench, at(1, 0), (2, 5));
    let mut bad = good.clone();
    bad.reset_count = 1;
    assert_eq!(bench.refused(Change::HandOut(bad)), lost(2));
    assert!(
        bench
            .run(Change::HandOut(hand_out(&bench, at(1, 0), (9, 10))))
            .outcome
            .is_err()
    );
    bench.must(Change::HandOut(good.clone()));
    bench.must(Change::HandBack(HandBack {
        group: good.group,
        group_id: good.group_id,
        partition: good.partition,
        ranges: vec![(offset(3), offset(4))],
    }));
    let out = bench.progress("email", at(1, 0)).out();
    let out: Vec<_> = out
        .iter()
        .map(|(first, out)| (first.get(), out.last.get()))
        .collect();
    assert_eq!(out, [(2, 2), (5, 5)]);
}

#[test]
fn records_that_wait_are_due_at_once_when_told_so_and_others_stay_as_they_are() {
    let mut bench = Bench::with_group();
    bench.pass(100);
    let mut failed = retried(&bench, at(1, 0), 0);
    let wait = |due| note_of(Wait::Until(WallMs(due)));
    let room = note_of(Wait::Room(crate::core::failure::DeadReason::MaxAge));
    failed.notes = vec![
        (offset(1), wait(900)),
        (offset(2), wait(50)),
        (offset(3), room),
    ];
    bench.must(Change::Settle(failed));
    let records = [
        (at(1, 0), 1),
        (at(1, 0), 2),
        (at(1, 0), 3),
        (at(101, 0), 0),
        (at(101, 0), 9),
    ];
    bench.must(Change::MakeDue(MakeDue {
        group: group_name("email"),
        records: records.map(|(at, record)| (at, offset(record))).into(),
    }));
    let notes = bench.progress("email", at(1, 0)).notes();
    let until = |at| notes[&offset(at)].wait;
    assert_eq!(until(1), Wait::Until(bench.wall()));
    assert_eq!(until(2), Wait::Until(WallMs(50)));
    assert!(matches!(until(3), Wait::Room(_)));
    assert_eq!(retries(&bench).pending()[&offset(0)].due, bench.wall());
}

#[test]
fn a_reset_leaves_the_retry_topic_alone_and_growth_brings_partitions_to_it() {
    let mut bench = Bench::with_group();
    bench.must(Change::Settle(retried(&bench, at(1, 0), 0)));
    bench.must(Change::HandOut(hand_out(&bench, at(101, 0), (0, 0))));
    bench.must(reset("email", &[(at(1, 0), 0)]));
    assert_eq!(
        (
            retries(&bench).pending().len(),
            retries(&bench).out().count()
        ),
        (1, 1)
    );
    let topic = topic_id(1);
    bench.must(Change::AddPartitions { topic, total: 4 });
    bench.must(append(vec![part(at(1, 3), 2)]));
    bench.must(Change::Settle(retried(&bench, at(1, 3), 1)));
    bench.restart();
    bench.must(delete_topic(1, true));
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    assert!(group.topics.is_empty());
}
