//! Settlements that others overtake, reads that fail, and what is left of records then.

use super::holding::keyed;
use super::retrying::{queue, retried, worker};
use super::rig::{Rig, at, group, join};
use super::rig_members::{failed, settle_failed};
use super::settlement::{done, settle};
use crate::core::command::Change;
use crate::core::failure::DeadReason;
use crate::core::refusal::CallError;
use crate::core::request::{Conflict, FailureAction, GroupRequest, OperatorAction, StreamEnd};
use crate::core::settings::OnFailure;

/// A queue with so many records that are due in the retry topic, each failed once.
fn due(records: u32) -> Rig {
    let mut rig = queue();
    rig.append("orders", 0, records);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, records.into()).token;
    rig.fail_all(&token, FailureAction::Retry);
    rig.end_stream(stream, StreamEnd::Clean);
    rig
}

#[test]
fn a_late_ack_of_a_due_retry_does_not_stop_those_behind_it() {
    let mut rig = due(3);
    let (stream, _) = rig.member(worker());
    rig.advance(1_000);
    let delivery = rig.receive(stream, 1);
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(5_000);
    // Its crash made it ready again; then the ack comes after all.
    assert_eq!(rig.ack(&delivery.token), done(1));
    let (stream, _) = rig.member(join("g", &[]));
    let rest: Vec<_> = rig
        .receive_each(stream)
        .iter()
        .flat_map(|it| it.origins().0)
        .collect();
    assert_eq!(rest, [1, 2]);
}

#[test]
fn retries_are_given_out_to_who_comes_when_only_their_source_was_remembered() {
    let mut rig = queue();
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(worker());
    let token = rig.receive(stream, 1).token;
    rig.fail_all(&token, FailureAction::Retry);
    rig.receive(stream, 1);
    rig.end_stream(stream, StreamEnd::Clean);
    let (stream, _) = rig.member(join("g", &[]));
    rig.advance(1_000);
    let received: Vec<_> = rig
        .receive_each(stream)
        .iter()
        .map(super::rig::Delivery::origins)
        .collect();
    assert_eq!(received, [(vec![1], 1), (vec![0], 2)]);
}

#[test]
fn a_suspect_record_of_a_stream_is_given_out_alone_once_its_member_holds_nothing_else() {
    for on_failure in [OnFailure::Overtake, OnFailure::Hold] {
        let mut rig = Rig::with_group(2, |settings| settings.on_failure = on_failure);
        rig.append("orders", 1, 1);
        for _ in 0..2 {
            let (stream, _) = rig.member(join("g", &[]));
            rig.receive(stream, 1);
            rig.end_stream(stream, StreamEnd::Broken);
            rig.advance(5_000);
        }
        rig.append("orders", 0, 1);
        let (stream, _) = rig.member(join("g", &[]));
        let other = rig.receive(stream, 1);
        rig.advance(10_000);
        assert!(rig.is_silent(stream), "{on_failure:?}: not beside another");
        rig.ack(&other.token);
        assert_eq!(
            rig.receive(stream, 1).origins(),
            (vec![0], 3),
            "{on_failure:?}"
        );
    }
}

#[test]
fn a_failure_said_by_a_token_from_before_a_restart_does_not_count_once_more() {
    let mut rig = queue();
    rig.notes = true;
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 1).token;
    rig.flush_notes();
    rig.restart();
    rig.advance(30_000);
    let settled = rig.fail_all(&token, FailureAction::Retry);
    assert_eq!(settled.conflicts, [(at(0), Conflict::LeaseLost)]);
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 1).origins(), (vec![0], 2));
}

#[test]
fn a_record_that_an_operator_skipped_while_it_was_out_is_forgotten_with_what_was_out_beside_it() {
    for on_failure in [OnFailure::Overtake, OnFailure::Hold] {
        let mut rig = Rig::with_group(1, |settings| settings.on_failure = on_failure);
        rig.append("orders", 0, 3);
        let (stream, _) = rig.member(join("g", &[]));
        rig.receive(stream, 3);
        assert_eq!(rig.operate(&[1], OperatorAction::Skip), 1);
        rig.end_stream(stream, StreamEnd::Clean);
        let (stream, _) = rig.member(join("g", &[]));
        while !rig.is_silent(stream) {
            let delivery = rig.receive(stream, 3);
            rig.ack(&delivery.token);
        }
        assert_eq!(rig.low("g"), 3);
        rig.end_stream(stream, StreamEnd::Clean);
        assert!(rig.sessions.is_empty(), "{on_failure:?}");
    }
}

#[test]
fn a_due_retry_is_not_hidden_again_by_a_step_of_the_clock_while_nobody_is_there() {
    let mut rig = due(1);
    rig.advance(1_000);
    rig.wall -= 3_600_000;
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 1).origins(), (vec![0], 2));
}

#[test]
fn an_operator_settles_due_retries_and_those_behind_them_are_given_out() {
    for action in [
        OperatorAction::Skip,
        OperatorAction::DeadLetter,
        OperatorAction::Retry,
    ] {
        let mut rig = due(3);
        rig.advance(60_000);
        assert_eq!(rig.operate(&[0, 7], action), 1, "{action:?}");
        let (stream, _) = rig.member(worker());
        let mut received = Vec::new();
        while !rig.is_silent(stream) {
            let delivery = rig.receive(stream, 1);
            received.push((delivery.origins().0[0], delivery.token.attempt));
            rig.ack(&delivery.token);
        }
        received.sort_unstable();
        let mut expected = vec![(1, 2), (2, 2)];
        if action == OperatorAction::Retry {
            expected.insert(0, (0, 1));
        }
        assert_eq!(received, expected, "{action:?}");
        rig.end_stream(stream, StreamEnd::Clean);
        assert!(rig.sessions.is_empty());
    }
}

#[test]
fn an_operator_is_told_how_many_records_there_were_to_settle() {
    let mut rig = queue();
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 4).token;
    rig.prompt = false;
    let ack = rig.call(settle(token, Some(1)));
    let partition = rig.partition("orders", 0);
    let dead = rig.call(GroupRequest::SettleRecords {
        group: group("g"),
        records: (0..4).map(|offset| (partition, at(offset))).collect(),
        action: OperatorAction::DeadLetter,
        note: String::new(),
    });
    rig.settle_down();
    assert_eq!(rig.settled(ack), done(2));
    let answer = rig.answer(dead);
    let settled = 2;
    assert_eq!(
        answer,
        Ok(crate::core::request::GroupReply::Operated { settled })
    );
    let expected = [2, 3].map(|offset| (offset, DeadReason::Operator, 0));
    assert_eq!(rig.dead(), expected);
}

#[test]
fn a_crash_counts_for_the_rest_when_a_late_ack_overtakes_its_settlement() {
    let mut rig = due(3);
    rig.update_group("g", |settings| settings.retry.deliveries_max = 2);
    let (stream, _) = rig.member(join("g", &[]));
    rig.advance(1_000);
    let token = rig.receive(stream, 3).token;
    rig.prompt = false;
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(5_000);
    // The copies for the dead-letter topic are being read; one record was processed all the same.
    let late = rig.call(settle(token, Some(0)));
    rig.settle_down();
    rig.prompt = true;
    assert_eq!(rig.settled(late), done(1));
    let expected = [1, 2].map(|offset| (offset, DeadReason::MaxDeliveries, 2));
    assert_eq!(rig.dead(), expected);
    assert_eq!(rig.retries(), []);
    assert!(rig.sessions.is_empty());
}

#[test]
fn what_was_given_back_and_is_done_by_then_is_not_remembered() {
    let mut rig = queue();
    rig.append("orders", 0, 3);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 3).token;
    rig.prompt = false;
    let mixed = vec![
        failed(0, FailureAction::Release),
        failed(2, FailureAction::Retry),
    ];
    let mixed = rig.call(settle_failed(&token, mixed));
    // While the copy is being read, what is given back is acked.
    let ack = rig.call(settle(token, Some(0)));
    rig.settle_down();
    rig.prompt = true;
    assert_eq!(rig.settled(ack), done(1));
    let settled = rig.settled(mixed);
    assert_eq!((settled.done, settled.retried), (1, 1));
    rig.end_stream(stream, StreamEnd::Clean);
    let (stream, _) = rig.member(join("g", &[]));
    rig.advance(1_000);
    let delivery = rig.receive(stream, 1);
    rig.ack(&delivery.token);
    rig.end_stream(stream, StreamEnd::Clean);
    assert!(rig.sessions.is_empty(), "nothing of it is left");
}

#[test]
fn a_token_of_an_earlier_attempt_settles_nothing_of_what_failed_in_place_since() {
    let mut rig = keyed(&[1]);
    rig.append("orders", 0, 1);
    let (first, _) = rig.member(worker());
    let old = rig.receive(first, 1).token;
    rig.advance(30_000);
    let new = rig.receive(first, 1).token;
    assert_eq!(rig.fail_all(&new, FailureAction::Retry), retried(1));
    assert_eq!(rig.ack(&old).conflicts, [(at(0), Conflict::LeaseLost)]);
    assert_eq!(rig.low("g"), 0);
    assert_eq!(
        rig.ack(&new),
        done(1),
        "the latest attempt may still say that it was done"
    );
}

#[test]
fn a_failure_whose_copy_cannot_be_read_is_refused_for_now_and_stays_with_its_holder() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 2).token;
    rig.reads_fail = true;
    let call = rig.call(settle_failed(&token, vec![failed(1, FailureAction::Retry)]));
    assert!(matches!(rig.answer(call), Err(CallError::Busy { .. })));
    assert_eq!((rig.low("g"), rig.in_flight("g")), (0, 2));
    rig.reads_fail = false;
    assert_eq!(
        rig.fail(&token, vec![failed(1, FailureAction::Retry)])
            .retried,
        1
    );
}

#[test]
fn calls_behind_a_failure_whose_copy_cannot_be_read_are_answered_too() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 1).token;
    rig.prompt = false;
    let request = || settle_failed(&token, vec![failed(0, FailureAction::Retry)]);
    let calls = [0, 1, 2].map(|_| rig.call(request()));
    rig.reads_fail = true;
    rig.settle_down();
    rig.reads_fail = false;
    rig.settle_down();
    for call in calls {
        assert!(matches!(rig.answer(call), Err(CallError::Busy { .. })));
    }
}

#[test]
fn a_crash_whose_copies_cannot_be_read_is_counted_when_they_can() {
    let mut rig = due(2);
    rig.update_group("g", |settings| settings.isolate_after = 9);
    let (stream, _) = rig.member(join("g", &[]));
    rig.advance(1_000);
    let first = rig.receive(stream, 2);
    rig.advance(30_000);
    let second = rig.receive(stream, 2);
    assert_eq!((first.token.attempt, second.token.attempt), (2, 3));
    rig.reads_fail = true;
    rig.advance(60_000);
    assert!(rig.is_silent(stream));
    rig.reads_fail = false;
    rig.advance(1_000);
    let failures: Vec<_> = rig.retries().iter().map(|retry| retry.1).collect();
    assert_eq!(failures, [3, 3]);
}

#[test]
fn a_topic_deleted_while_copies_of_its_records_cannot_be_read_leaves_nothing_behind() {
    let mut rig = due(2);
    rig.create_topic("bills", 1);
    let (stream, _) = rig.member(join("g", &["bills", "orders"]));
    rig.advance(1_000);
    rig.receive(stream, 2);
    rig.advance(30_000);
    rig.receive(stream, 2);
    rig.reads_fail = true;
    rig.advance(30_000);
    let topic = rig.topic_id("orders");
    rig.apply(Change::DeleteTopic { topic, force: true })
        .unwrap();
    rig.advance(2_000);
    rig.end_stream(stream, StreamEnd::Clean);
    assert!(rig.sessions.is_empty());
}

#[test]
fn a_group_deleted_while_copies_are_read_leaves_nothing_behind() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 2).token;
    rig.prompt = false;
    let request = || settle_failed(&token, vec![failed(0, FailureAction::Retry)]);
    let calls = [rig.call(request()), rig.call(request())];
    rig.apply(Change::DeleteGroup {
        group: group("g"),
        purge_dead_letters: true,
    })
    .unwrap();
    rig.settle_down();
    for call in calls {
        assert!(matches!(rig.answer(call), Err(CallError::Refused(_))));
    }
    rig.end_stream(stream, StreamEnd::Clean);
    assert!(rig.sessions.is_empty());
}

#[test]
fn copies_that_do_not_fit_one_answer_are_made_by_several_and_committed_together() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 10);
    rig.copies_max = 3;
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 10).token;
    assert_eq!(rig.fail_all(&token, FailureAction::Retry), retried(10));
    let origins: Vec<_> = rig.retries().iter().map(|retry| retry.0).collect();
    assert_eq!(origins, (0..10).collect::<Vec<_>>());
    assert_eq!(rig.low("g"), 10);
}

#[test]
fn records_that_are_gone_when_they_are_to_be_copied_are_done_without_a_copy() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 4).token;
    rig.prompt = false;
    let call = rig.call(settle_failed(&token, vec![failed(0, FailureAction::Retry)]));
    let (partition, start) = (rig.partition("orders", 0), at(1));
    rig.apply(Change::MoveLogStart { partition, start })
        .unwrap();
    rig.settle_down();
    rig.prompt = true;
    let settled = rig.settled(call);
    let counts = (settled.done, settled.retried, settled.already_settled);
    assert_eq!(counts, (3, 0, 1));
    assert_eq!((rig.low("g"), rig.retries().len()), (4, 0));
}
