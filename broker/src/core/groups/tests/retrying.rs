//! Failures that a retry topic takes: when they come again, how often, and where they end.

use super::rig::{Delivery, Rig, at, join};
use super::rig_members::{failed, settle_failed};
use super::settlement::done;
use crate::core::failure::{DeadReason, ErrorClass, FailureText};
use crate::core::request::{
    Conflict, Credit, FailureAction, JoinRequest, RecordFailure, Settled, StreamEnd, StreamKey,
};
use crate::core::retry_policy::ErrorRule;
use crate::core::settings::GroupMode;

pub(super) fn retried(retried: u32) -> Settled {
    Settled {
        retried,
        ..Settled::default()
    }
}

pub(super) fn dead(dead_lettered: u32) -> Settled {
    Settled {
        dead_lettered,
        ..Settled::default()
    }
}

/// A worker that is given records one by one, one at a time.
pub(super) fn worker() -> JoinRequest {
    JoinRequest {
        records_max: 1,
        credit: Credit::Window(1),
        ..join("g", &[])
    }
}

pub(super) fn queue() -> Rig {
    Rig::with_group(1, |settings| settings.mode = GroupMode::Queue)
}

fn one_out() -> (Rig, StreamKey, Delivery) {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &[]));
    let delivery = rig.receive(stream, 1);
    (rig, stream, delivery)
}

#[test]
fn t05_a_failed_record_comes_again_from_the_retry_topic_when_it_is_due_and_not_before() {
    let (mut rig, stream, delivery) = one_out();
    assert_eq!(
        rig.fail_all(&delivery.token, FailureAction::Retry),
        retried(1)
    );
    assert_eq!(rig.low("g"), 1, "in its source it is done");
    assert_eq!(rig.retries(), [(0, 1, 1_000)]);
    rig.advance(999);
    assert!(rig.is_silent(stream));
    rig.advance(1);
    let again = rig.receive(stream, 1);
    assert_eq!(again.origins(), (vec![0], 2));
    assert_ne!(again.token.partition, delivery.token.partition);
    assert_eq!(again.grant.topic.as_str(), "orders");
    assert_eq!(rig.ack(&again.token), done(1));
    assert_eq!(rig.retries(), []);
}

#[test]
fn t06_a_record_that_always_fails_is_handled_five_times_and_then_dead() {
    let (mut rig, stream, mut delivery) = one_out();
    for (attempt, gap_ms) in [(2, 1_000), (3, 10_000), (4, 100_000), (5, 1_000_000)] {
        rig.fail_all(&delivery.token, FailureAction::ByPolicy);
        rig.advance(gap_ms - 1);
        assert!(rig.is_silent(stream), "attempt {attempt}");
        rig.advance(1);
        delivery = rig.receive(stream, 1);
        assert_eq!(delivery.origins(), (vec![0], attempt));
    }
    assert_eq!(rig.fail_all(&delivery.token, FailureAction::Retry), dead(1));
    assert_eq!(rig.dead(), [(0, DeadReason::MaxDeliveries, 5)]);
    rig.advance(2_000_000);
    assert!(rig.is_silent(stream) && rig.retries().is_empty());
}

#[test]
fn t09_a_permanent_failure_is_dead_at_its_first_attempt_and_never_in_the_retry_topic() {
    let (mut rig, _, delivery) = one_out();
    assert_eq!(
        rig.fail_all(&delivery.token, FailureAction::DeadLetter),
        dead(1)
    );
    assert_eq!(rig.dead(), [(0, DeadReason::Permanent, 1)]);
    assert_eq!(rig.copies.len(), 1, "one topic alone was written to");
    assert_eq!(rig.low("g"), 1);
}

#[test]
fn t10_a_rule_on_the_code_makes_a_failure_without_an_action_permanent() {
    let (mut rig, _, delivery) = one_out();
    rig.update_group("g", |settings| {
        settings.retry.rules = vec![ErrorRule {
            pattern: "VAL_*".to_owned(),
            permanent: true,
        }];
    });
    let text = FailureText {
        code: "VAL_7".to_owned(),
        ..FailureText::default()
    };
    let failure = RecordFailure {
        text,
        ..failed(0, FailureAction::ByPolicy)
    };
    assert_eq!(rig.fail(&delivery.token, vec![failure]), dead(1));
    assert_eq!(rig.dead(), [(0, DeadReason::Permanent, 1)]);
}

#[test]
fn t11_a_thousand_healthy_records_are_done_while_the_poisoned_one_waits() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.append("orders", 0, 1_001);
        let mut request = worker();
        request.records_max = 10;
        let (stream, _) = rig.member(request);
        while !rig.is_silent(stream) {
            let delivery = rig.receive(stream, 10);
            let poisoned = delivery.origins().0.contains(&17);
            let failures = poisoned.then(|| failed(17, FailureAction::Retry));
            rig.fail(&delivery.token, failures.into_iter().collect());
        }
        let partition = rig.partition("orders", 0);
        let position = rig.position("g", partition);
        assert_eq!((position.low, position.undone), (at(1_001), 0));
        assert_eq!(rig.retries(), [(17, 1, 1_000)]);
    }
}

#[test]
fn t12_due_retries_and_new_records_both_get_their_share_whatever_went_before() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.append("orders", 0, 10_000);
        let mut request = join("g", &[]);
        request.records_max = 100;
        request.credit = Credit::Window(1);
        let (stream, _) = rig.member(request);
        for _ in 0..100 {
            let delivery = rig.receive(stream, 100);
            rig.fail_all(&delivery.token, FailureAction::Retry);
        }
        // Long before the retries come, new records were all that there was.
        rig.append("orders", 0, 60_000);
        for _ in 0..500 {
            let delivery = rig.receive(stream, 100);
            assert!(delivery.token.origins.is_empty());
            rig.ack(&delivery.token);
        }
        rig.advance(1_000);
        let (mut retries, mut fresh) = (0, 0);
        for round in 0..100 {
            let delivery = rig.receive(stream, 100);
            let records = delivery.offsets().len();
            if delivery.token.origins.is_empty() {
                fresh += records;
            } else {
                retries += records;
            }
            rig.ack(&delivery.token);
            if round % 50 == 49 {
                let all = retries + fresh;
                assert!(retries * 100 >= all * 24, "{mode:?}: {retries} of {all}");
                assert!(fresh * 100 >= all * 49, "{mode:?}: {fresh} of {all}");
            }
        }
    }
}

#[test]
fn t13_a_given_delay_replaces_the_policys_and_the_attempt_counts() {
    let (mut rig, stream, delivery) = one_out();
    let failure = RecordFailure {
        retry_after_ms: Some(37_000),
        ..failed(0, FailureAction::Retry)
    };
    assert_eq!(rig.fail(&delivery.token, vec![failure]), retried(1));
    assert_eq!(rig.retries(), [(0, 1, 37_000)]);
    rig.advance(36_999);
    assert!(rig.is_silent(stream));
    rig.advance(1);
    assert_eq!(rig.receive(stream, 1).origins(), (vec![0], 2));
}

#[test]
fn t14_fifty_records_released_at_shutdown_are_attempt_one_for_the_next_consumer() {
    let mut rig = queue();
    rig.append("orders", 0, 50);
    let (first, _) = rig.member(join("g", &[]));
    let delivery = rig.receive(first, 50);
    let released = Settled {
        released: 50,
        ..Settled::default()
    };
    rig.update_group("g", |settings| settings.paused = true);
    assert_eq!(
        rig.fail_all(&delivery.token, FailureAction::Release),
        released
    );
    rig.end_stream(first, StreamEnd::Clean);
    rig.update_group("g", |settings| settings.paused = false);
    let (second, _) = rig.member(join("g", &[]));
    let again = rig.receive(second, 50);
    assert_eq!(again.origins(), ((0..50).collect(), 1));
    assert_eq!(rig.ack(&again.token), done(50));
}

#[test]
fn t15_the_101st_release_of_a_record_counts_as_a_failure() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.append("orders", 0, 1);
        let (stream, _) = rig.member(join("g", &[]));
        for round in 1..=100 {
            let delivery = rig.receive(stream, 1);
            assert_eq!(delivery.token.attempt, 1, "{round}");
            let settled = rig.fail_all(&delivery.token, FailureAction::Release);
            assert_eq!((settled.released, settled.retried), (1, 0), "{round}");
        }
        let delivery = rig.receive(stream, 1);
        assert_eq!(
            rig.fail_all(&delivery.token, FailureAction::Release),
            retried(1)
        );
        rig.advance(1_000);
        let again = rig.receive(stream, 1);
        assert_eq!(again.origins(), (vec![0], 2));
        let copies = rig.copies.values().flat_map(|copies| copies.values());
        let classes: Vec<_> = copies.map(|copied| copied.class).collect();
        assert_eq!(classes, [Some(ErrorClass::ReleaseLoop)]);
    }
}

#[test]
fn t16_the_fifth_consumer_that_dies_of_a_record_sends_it_to_the_dead_letters() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.append("orders", 0, 1);
        for (attempt, gap_ms) in [(1, 0), (2, 0), (3, 10_000), (4, 100_000), (5, 1_000_000)] {
            let (stream, _) = rig.member(join("g", &[]));
            if gap_ms > 0 {
                assert!(rig.is_silent(stream), "{mode:?}: attempt {attempt} waits");
                rig.advance(gap_ms);
            }
            assert_eq!(rig.receive(stream, 1).origins(), (vec![0], attempt));
            rig.end_stream(stream, StreamEnd::Broken);
            rig.advance(5_000);
        }
        assert_eq!(rig.dead(), [(0, DeadReason::MaxDeliveries, 5)]);
        let copies = rig.copies.values().flat_map(|copies| copies.values());
        assert_eq!(copies.last().unwrap().class, Some(ErrorClass::Crash));
        assert_eq!((rig.low("g"), rig.retries().len()), (1, 0));
    }
}

#[test]
fn t18_a_failure_said_of_a_processed_record_and_the_other_way_round_change_nothing() {
    let (mut rig, stream, delivery) = one_out();
    rig.ack(&delivery.token);
    let otherwise = Settled {
        conflicts: vec![(at(0), Conflict::SettledOtherwise)],
        ..Settled::default()
    };
    assert_eq!(
        rig.fail_all(&delivery.token, FailureAction::Retry),
        otherwise
    );
    rig.append("orders", 0, 1);
    let delivery = rig.receive(stream, 1);
    rig.fail_all(&delivery.token, FailureAction::Retry);
    let again = Settled {
        already_settled: 1,
        ..Settled::default()
    };
    assert_eq!(rig.fail_all(&delivery.token, FailureAction::Retry), again);
    let otherwise = Settled {
        conflicts: vec![(at(1), Conflict::SettledOtherwise)],
        ..Settled::default()
    };
    assert_eq!(rig.ack(&delivery.token), otherwise);
    assert_eq!(rig.retries(), [(1, 1, 1_000)]);
}

#[test]
fn t19_a_failure_said_after_expiry_and_another_hand_out_is_not_counted() {
    let (mut rig, stream, old) = one_out();
    rig.advance(30_000);
    let new = rig.receive(stream, 1);
    let lost = Settled {
        conflicts: vec![(at(0), Conflict::LeaseLost)],
        ..Settled::default()
    };
    for action in [
        FailureAction::Retry,
        FailureAction::DeadLetter,
        FailureAction::Release,
    ] {
        assert_eq!(rig.fail_all(&old.token, action), lost);
    }
    assert_eq!(new.token.attempt, 2);
    assert_eq!(rig.fail_all(&new.token, FailureAction::Retry), retried(1));
    assert_eq!(rig.retries(), [(0, 2, 10_000)]);
    // Nor when nobody holds it any more.
    assert_eq!(
        rig.fail_all(&old.token, FailureAction::Retry),
        lost_otherwise()
    );
}

fn lost_otherwise() -> Settled {
    // It was retried, which is what the call asks for.
    Settled {
        already_settled: 1,
        ..Settled::default()
    }
}

#[test]
fn t21_a_failure_that_a_crash_overtakes_before_it_is_committed_leaves_no_copy() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.notes = true;
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &[]));
    let token = rig.receive(stream, 1).token;
    rig.flush_notes();
    rig.prompt = false;
    rig.call(settle_failed(&token, vec![failed(0, FailureAction::Retry)]));
    rig.restart();
    rig.prompt = true;
    assert_eq!((rig.low("g"), rig.retries().len()), (0, 0));
    let (stream, _) = rig.member(join("g", &[]));
    rig.advance(29_999);
    assert!(rig.is_silent(stream));
    rig.advance(1);
    let again = rig.receive(stream, 1);
    assert_eq!(again.origins(), (vec![0], 2));
    assert!(again.token.origins.is_empty(), "from its source");
    // The call sent again comes too late.
    let settled = rig.fail(&token, vec![failed(0, FailureAction::Retry)]);
    assert_eq!(settled.conflicts, [(at(0), Conflict::LeaseLost)]);
}
