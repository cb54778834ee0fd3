//! Restarts, clocks, policies and limits: what becomes of records through them.

use super::retrying::{queue, retried, worker};
use super::rig::{Rig, at, group, join};
use super::rig_members::failed;
use super::settlement::done;
use crate::core::command::Change;
use crate::core::failure::DeadReason;
use crate::core::groups::Durable;
use crate::core::refusal::Refusal;
use crate::core::request::{Credit, FailureAction, GroupRequest, StreamEnd};
use crate::core::settings::{GroupMode, OnFailure};

/// A member that was killed and comes by its id again.
#[test]
fn t26_what_was_out_at_a_restart_is_acked_5_s_later_and_not_given_out_again() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.notes = true;
        rig.append("orders", 0, 25);
        let mut request = join("g", &[]);
        request.records_max = 20;
        let (stream, event) = rig.member(request.clone());
        let token = rig.receive(stream, 20).token;
        rig.flush_notes();
        rig.restart();
        request.member_id = Some(event.member_id.clone());
        let (stream, back) = rig.member(request);
        assert_eq!(back.member_id, event.member_id);
        rig.advance(5_000);
        assert_eq!(rig.extend(&token, None), Ok((30_000, false)));
        assert_eq!(rig.ack(&token), done(20));
        let rest: Vec<_> = rig
            .receive_each(stream)
            .iter()
            .flat_map(super::rig::Delivery::offsets)
            .collect();
        assert_eq!(rest, [20, 21, 22, 23, 24]);
        rig.advance(25_000);
        assert_eq!(
            rig.in_flight("g"),
            5,
            "of what was out before nothing is left to expire"
        );
    }
}

#[test]
fn a_hand_out_that_was_not_noted_is_given_out_again_as_the_same_attempt_and_the_first_ack_wins() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.notes = true;
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &[]));
    let old = rig.receive(stream, 1).token;
    rig.restart();
    assert_eq!(rig.ack(&old), done(1));
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 9).origins(), (vec![1], 1));
}

#[test]
fn part_of_what_was_out_at_a_restart_can_be_given_back_and_the_rest_stays_held() {
    let mut rig = queue();
    rig.notes = true;
    rig.append("orders", 0, 3);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 3).token;
    rig.flush_notes();
    rig.restart();
    let settled = rig.fail(&token, vec![failed(2, FailureAction::Release)]);
    assert_eq!((settled.done, settled.released), (2, 1));
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 9).origins(), (vec![2], 1));
    assert_eq!(rig.low("g"), 2);
}

#[test]
fn t28_retention_passes_over_what_was_ready_and_counts_it() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.append("orders", 0, 10);
        let (stream, _) = rig.member(join("g", &[]));
        let token = rig.receive(stream, 4).token;
        rig.fail_all(&token, FailureAction::Release);
        let partition = rig.partition("orders", 0);
        let start = at(7);
        rig.apply(Change::MoveLogStart { partition, start })
            .unwrap();
        let state = rig.state.groups.get(&group("g")).unwrap();
        let lost = state.progress(partition).unwrap().expired_unsettled();
        assert_eq!((rig.low("g"), lost), (7, 7));
        rig.end_stream(stream, StreamEnd::Clean);
        let (stream, _) = rig.member(join("g", &[]));
        let rest: Vec<_> = rig
            .receive_each(stream)
            .iter()
            .flat_map(super::rig::Delivery::offsets)
            .collect();
        assert_eq!(rest, [7, 8, 9]);
    }
}

#[test]
fn t29_a_lost_timer_costs_a_second_at_most() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 1).token;
    rig.fail_all(&token, FailureAction::Retry);
    rig.sessions.lose_due_timers();
    rig.advance(2_000);
    assert_eq!(rig.receive(stream, 1).origins(), (vec![0], 2));
}

#[test]
fn t30_what_came_due_while_the_broker_was_down_is_given_out_longest_due_first() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 30);
    let (stream, _) = rig.member(join("g", &[]));
    for round in 0..3_u64 {
        let delivery = rig.receive(stream, 10);
        let wait = |offset| crate::core::request::RecordFailure {
            retry_after_ms: Some(3_600_000 - round * 1_000_000),
            ..failed(offset, FailureAction::Retry)
        };
        rig.fail(
            &delivery.token,
            delivery.offsets().into_iter().map(wait).collect(),
        );
    }
    rig.wall += 7_200_000;
    rig.restart();
    let mut request = join("g", &[]);
    request.credit = Credit::Window(2);
    let (stream, _) = rig.member(request);
    let mut origins = Vec::new();
    while !rig.is_silent(stream) {
        let delivery = rig.receive(stream, 5);
        origins.extend(delivery.origins().0);
        assert!(rig.in_flight("g") <= 30);
        rig.ack(&delivery.token);
    }
    let expected: Vec<u64> = (20..30).chain(10..20).chain(0..10).collect();
    assert_eq!(origins, expected);
}

#[test]
fn t34_groups_on_one_topic_have_nothing_to_do_with_each_others_failures() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 3);
    let (first, _) = rig.member(join("g", &["orders"]));
    let (second, _) = rig.member(join("other", &["orders"]));
    let partition = rig.partition("orders", 0);
    let places = ["g", "other"].map(|name| rig.state.place(&group(name), partition).unwrap());
    assert_ne!(places[0].retry, places[1].retry);
    assert_ne!(places[0].dead_letter, places[1].dead_letter);
    let token = rig.receive(first, 3).token;
    rig.fail_all(&token, FailureAction::DeadLetter);
    let delivery = rig.receive(second, 3);
    assert_eq!(delivery.origins(), (vec![0, 1, 2], 1));
    assert_eq!(rig.ack(&delivery.token), done(3));
    rig.advance(10_000_000);
    assert!(rig.is_silent(second));
}

#[test]
fn t38_what_is_scheduled_does_not_count_against_what_may_be_in_flight() {
    let mut rig = Rig::with_group(1, |settings| {
        settings.mode = GroupMode::Queue;
        settings.in_flight_max = 100;
    });
    rig.append("orders", 0, 1_000);
    let (stream, _) = rig.member(join("g", &[]));
    for _ in 0..10 {
        let token = rig.receive(stream, 100).token;
        rig.fail_all(&token, FailureAction::Retry);
    }
    assert_eq!(rig.retries().len(), 1_000);
    rig.append("orders", 0, 500);
    let out: usize = rig.receive_each(stream).len();
    assert_eq!((out, rig.in_flight("g")), (100, 100));
}

#[test]
fn t40_a_lowered_policy_dead_letters_what_has_failed_as_often() {
    for on_failure in [OnFailure::Overtake, OnFailure::Hold] {
        for is_live in [true, false] {
            let mut rig = Rig::with_group(1, |settings| {
                settings.mode = GroupMode::Queue;
                settings.on_failure = on_failure;
            });
            rig.append("orders", 0, 2);
            let (stream, _) = rig.member(join("g", &[]));
            for round in 0..4 {
                let token = rig.receive(stream, 2).token;
                rig.fail_all(&token, FailureAction::Retry);
                if round < 3 {
                    rig.advance(1_000_000);
                }
            }
            if !is_live {
                rig.end_stream(stream, StreamEnd::Clean);
            }
            rig.update_group("g", |settings| settings.retry.deliveries_max = 3);
            let dead = [0, 1].map(|origin| (origin, DeadReason::MaxDeliveries, 4));
            assert_eq!(rig.dead(), dead, "{on_failure:?}");
            assert_eq!((rig.retries().len(), rig.low("g")), (0, 2));
            rig.advance(10_000_000);
            if is_live {
                assert!(rig.is_silent(stream));
                rig.end_stream(stream, StreamEnd::Clean);
            }
            assert!(
                rig.sessions.is_empty(),
                "{on_failure:?}, {is_live}: nothing leaks"
            );
        }
    }
}

#[test]
fn t42_a_derived_topic_is_never_one_of_a_groups_topics() {
    let mut rig = Rig::with_orders(1);
    rig.member(join("email", &["orders"]));
    for name in ["orders.email.dlq", "orders.email.retry"] {
        for member in ["email", "other"] {
            let refusal = rig.refused(GroupRequest::Join(join(member, &[name])));
            assert!(matches!(refusal, Refusal::Topic(_)), "{refusal:?}");
        }
    }
    assert_eq!(rig.state.group_topics(&group("email")).len(), 1);
    assert!(rig.state.group(&group("other")).is_none());
}

#[test]
fn b40_consumers_that_exit_on_receipt_with_restarts_between_never_reset_the_count() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.notes = true;
    rig.append("orders", 0, 1);
    let mut attempts = Vec::new();
    while rig.low("g") < 1 || !rig.retries().is_empty() {
        let (stream, _) = rig.member(join("g", &[]));
        if rig.is_silent(stream) {
            rig.advance(1_000_000);
        }
        attempts.push(rig.receive(stream, 1).origins().1);
        rig.end_stream(stream, StreamEnd::Broken);
        rig.flush_notes();
        rig.restart();
        rig.advance(45_000);
    }
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
    assert_eq!(rig.dead(), [(0, DeadReason::MaxDeliveries, 5)]);
}

#[test]
fn b41_three_consumers_that_never_ack_dead_letter_each_record_once() {
    let mut rig = Rig::with_group(1, |settings| {
        settings.mode = GroupMode::Queue;
        settings.visibility_timeout_ms = 1_000;
    });
    rig.append("orders", 0, 20);
    let streams: Vec<_> = (0..3).map(|_| rig.member(worker()).0).collect();
    let mut received = 0;
    for _ in 0..4_000 {
        for stream in &streams {
            while !rig.is_silent(*stream) {
                rig.receive(*stream, 1);
                received += 1;
            }
        }
        if rig.dead().len() == 20 {
            break;
        }
        rig.advance(1_000);
    }
    let mut dead = rig.dead();
    dead.sort_unstable();
    let expected: Vec<_> = (0..20)
        .map(|at| (at, DeadReason::MaxDeliveries, 5))
        .collect();
    assert_eq!((dead, received), (expected, 100));
    rig.advance(2_000_000);
    assert_eq!(rig.dead().len(), 20);
}

#[test]
fn b42_with_its_dead_letter_topic_full_nothing_is_lost_and_nothing_given_out_again() {
    let mut rig = Rig::with_group(1, |settings| settings.dead_letter.bytes_max = 0);
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 2).token;
    let settled = rig.fail_all(&token, FailureAction::DeadLetter);
    assert_eq!(
        (settled.dead_lettered, settled.dead_letters_waiting),
        (2, 2)
    );
    rig.advance(10_000_000);
    assert!(rig.is_silent(stream));
    assert_eq!((rig.low("g"), rig.dead().len()), (0, 0));
    rig.restart();
    let (stream, _) = rig.member(join("g", &[]));
    assert!(rig.is_silent(stream));
    rig.update_group("g", |settings| settings.dead_letter.bytes_max = 1 << 20);
    let dead = [0, 1].map(|at| (at, DeadReason::Permanent, 1));
    assert_eq!((rig.dead(), rig.low("g")), (dead.to_vec(), 2));
}

#[test]
fn a_delay_is_neither_shortened_nor_lengthened_by_a_step_of_the_wall_clock() {
    for step_ms in [-3_600_000, 3_600_000] {
        for on_failure in [OnFailure::Overtake, OnFailure::Hold] {
            let mut rig = Rig::with_group(1, |settings| settings.on_failure = on_failure);
            rig.append("orders", 0, 1);
            let (stream, _) = rig.member(join("g", &[]));
            let token = rig.receive(stream, 1).token;
            assert_eq!(rig.fail_all(&token, FailureAction::Retry), retried(1));
            rig.wall += step_ms;
            rig.tick();
            rig.advance(999);
            assert!(rig.is_silent(stream));
            rig.advance(1);
            let again = rig.receive(stream, 1);
            assert_eq!(again.origins(), (vec![0], 2));
            rig.wall -= step_ms;
            rig.fail_all(&again.token, FailureAction::Release);
            assert_eq!(
                rig.receive(stream, 1).origins(),
                (vec![0], 2),
                "nor hidden again"
            );
        }
    }
}

#[test]
fn a_record_delayed_by_its_producer_comes_at_its_time_whatever_the_clock_does() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        for on_failure in [OnFailure::Overtake, OnFailure::Hold] {
            let mut rig = Rig::with_group(1, |settings| {
                settings.mode = mode;
                settings.on_failure = on_failure;
            });
            rig.keys = (0..4).map(|at| (at, at)).collect();
            let (stream, _) = rig.member(join("g", &[]));
            rig.append_delayed("orders", 0, (4, &[(1, 60_000)]));
            let mut received = Vec::new();
            while !rig.is_silent(stream) {
                let delivery = rig.receive(stream, 9);
                received.extend(delivery.origins().0);
                rig.ack(&delivery.token);
            }
            let all_held = mode == GroupMode::Stream && on_failure == OnFailure::Hold;
            let before: &[u64] = if all_held { &[0] } else { &[0, 2, 3] };
            assert_eq!(received, before, "{mode:?} {on_failure:?}");
            rig.wall -= 3_600_000;
            rig.tick();
            rig.advance(59_999);
            assert!(rig.is_silent(stream));
            rig.advance(1);
            let delivery = rig.receive(stream, 1);
            assert_eq!(delivery.origins(), (vec![1], 1), "{mode:?} {on_failure:?}");
            rig.ack(&delivery.token);
        }
    }
}

#[test]
fn a_delayed_run_of_which_an_operator_settled_one_is_moved_all_the_same() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append_delayed("orders", 0, (4, &[(0, 9_000), (1, 9_000), (2, 9_000)]));
    rig.operate(&[1], crate::core::request::OperatorAction::Skip);
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 9).origins(), (vec![3], 1));
    rig.advance(9_000);
    let mut received = Vec::new();
    while !rig.is_silent(stream) {
        received.extend(rig.receive(stream, 9).origins().0);
    }
    assert_eq!(received, [0, 2]);
}
