//! Groups that hold: what a failure keeps waiting behind it.

use super::retrying::{dead, retried, worker};
use super::rig::{Rig, at, join};
use super::rig_members::failed;
use super::settlement::done;
use crate::core::failure::DeadReason;
use crate::core::groups::{OpenState, StallReason};
use crate::core::request::{FailureAction, OperatorAction, Settled, StreamEnd};
use crate::core::settings::{GroupMode, OnFailure, OnHeadDead};

/// A queue that holds; records have these keys, none where it is 0.
pub(super) fn keyed(keys: &[u64]) -> Rig {
    let mut rig = Rig::with_group(1, |settings| {
        settings.mode = GroupMode::Queue;
        settings.on_failure = OnFailure::Hold;
    });
    let keys = (0..).zip(keys.iter().copied()).filter(|(_, key)| *key > 0);
    rig.keys = keys.collect();
    rig
}

fn append_keyed(rig: &mut Rig, keys: &[u64]) {
    rig.keys = (0..).zip(keys.iter().copied()).collect();
    rig.append("orders", 0, u32::try_from(keys.len()).unwrap());
}

fn holding_stream() -> Rig {
    Rig::with_group(1, |settings| settings.on_failure = OnFailure::Hold)
}

#[test]
fn t31_a_key_waits_for_its_failed_record_and_other_keys_do_not() {
    let mut rig = keyed(&[]);
    let (stream, _) = rig.member(worker());
    append_keyed(&mut rig, &[1, 1, 2, 1]);
    let mut order = Vec::new();
    let mut fails = 2;
    let mut waited_ms = 0;
    while order.len() < 6 {
        if rig.is_silent(stream) {
            rig.advance(1_000);
            waited_ms += 1_000;
            assert!(waited_ms <= 11_000, "1 s and 10 s are all there is to wait");
            continue;
        }
        let delivery = rig.receive(stream, 1);
        order.push(delivery.offsets()[0]);
        if delivery.offsets() == [0] && fails > 0 {
            fails -= 1;
            assert_eq!(
                rig.fail_all(&delivery.token, FailureAction::Retry),
                retried(1)
            );
        } else {
            assert_eq!(rig.ack(&delivery.token), done(1));
        }
    }
    assert_eq!(order, [0, 2, 0, 0, 1, 3]);
    assert_eq!((rig.low("g"), waited_ms), (4, 11_000));
    assert_eq!(rig.retries(), [], "nothing went to the retry topic");
}

#[test]
fn t32_with_continue_a_dead_record_is_followed_by_the_next_of_its_key() {
    let mut rig = keyed(&[]);
    let (stream, _) = rig.member(worker());
    append_keyed(&mut rig, &[1, 1]);
    let delivery = rig.receive(stream, 1);
    assert_eq!(
        rig.fail_all(&delivery.token, FailureAction::DeadLetter),
        dead(1)
    );
    assert_eq!(rig.dead(), [(0, DeadReason::Permanent, 1)]);
    assert_eq!(rig.receive(stream, 1).origins(), (vec![1], 1));
}

#[test]
fn t33_ten_thousand_records_behind_one_key_stop_the_reading_until_it_is_done() {
    let mut rig = keyed(&[]);
    let (stream, _) = rig.member(worker());
    let mut keys = vec![1; 10_001];
    keys.push(2);
    append_keyed(&mut rig, &keys);
    let head = rig.receive(stream, 1);
    let (other, _) = rig.member(worker());
    assert!(rig.is_silent(other), "the other key lies beyond the bound");
    let partition = rig.partition("orders", 0);
    let stall = rig.describe("g").partitions[&partition].stall;
    let key_hash = Some(1);
    assert_eq!(
        stall,
        Some(StallReason::Order {
            offset: at(0),
            key_hash
        })
    );
    rig.ack(&head.token);
    let mut received = vec![rig.receive(stream, 1).offsets()[0]];
    received.push(rig.receive(other, 1).offsets()[0]);
    received.sort_unstable();
    assert_eq!(received, [1, 10_001]);
    assert_eq!(rig.describe("g").partitions[&partition].stall, None);
}

#[test]
fn with_halt_a_dead_record_stays_until_an_operator_settles_it() {
    for action in [
        OperatorAction::Skip,
        OperatorAction::DeadLetter,
        OperatorAction::Retry,
    ] {
        let mut rig = keyed(&[]);
        rig.update_group("g", |settings| settings.on_head_dead = OnHeadDead::Halt);
        let (stream, _) = rig.member(worker());
        append_keyed(&mut rig, &[1, 1]);
        let delivery = rig.receive(stream, 1);
        let settled = rig.fail_all(&delivery.token, FailureAction::DeadLetter);
        assert_eq!(
            (settled.dead_lettered, settled.dead_letters_waiting),
            (1, 1)
        );
        rig.advance(10_000_000);
        assert!(rig.is_silent(stream) && rig.dead().is_empty());
        let seen = rig.describe("g").partitions[&rig.partition("orders", 0)].clone();
        assert_eq!(seen.pinned.unwrap().state, OpenState::Waiting);
        assert_eq!(rig.operate(&[0], action), 1);
        let next = rig.receive(stream, 1);
        match action {
            OperatorAction::Retry => assert_eq!(next.origins(), (vec![0], 1)),
            OperatorAction::Skip => {
                assert_eq!((next.origins(), rig.dead()), ((vec![1], 1), vec![]));
            }
            OperatorAction::DeadLetter => {
                assert_eq!(next.origins(), (vec![1], 1));
                assert_eq!(rig.dead(), [(0, DeadReason::Operator, 1)]);
            }
        }
    }
}

#[test]
fn in_a_stream_that_holds_a_failure_settles_what_is_before_it_and_gives_back_what_is_behind() {
    let mut rig = holding_stream();
    rig.append("orders", 0, 6);
    let (stream, _) = rig.member(join("g", &[]));
    let delivery = rig.receive(stream, 4);
    let settled = rig.fail(&delivery.token, vec![failed(1, FailureAction::Retry)]);
    let expected = Settled {
        done: 1,
        retried: 1,
        released: 2,
        ..Settled::default()
    };
    assert_eq!(settled, expected);
    assert_eq!((rig.low("g"), rig.in_flight("g")), (1, 0));
    rig.advance(999);
    assert!(rig.is_silent(stream), "the partition waits");
    rig.advance(1);
    let again = rig.receive(stream, 9);
    assert_eq!(again.origins(), (vec![1], 2));
    assert!(rig.is_silent(stream), "nothing goes out beside it");
    rig.ack(&again.token);
    let back = rig.receive(stream, 9);
    assert_eq!(back.origins(), (vec![2, 3], 1));
    rig.ack(&back.token);
    assert_eq!(rig.receive(stream, 9).origins(), (vec![4, 5], 1));
}

#[test]
fn in_a_stream_that_holds_a_dead_record_does_not_hold_what_is_behind_it() {
    let mut rig = holding_stream();
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &[]));
    let delivery = rig.receive(stream, 4);
    let settled = rig.fail(&delivery.token, vec![failed(1, FailureAction::DeadLetter)]);
    assert_eq!((settled.done, settled.dead_lettered), (3, 1));
    assert_eq!(rig.low("g"), 4);
}

#[test]
fn what_is_behind_a_failure_is_given_back_for_any_number_of_times() {
    let mut rig = holding_stream();
    rig.update_group("g", |settings| {
        settings.retry.deliveries_max = 50;
        settings.releases_max = 3;
    });
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &[]));
    for attempt in 1..50 {
        let delivery = rig.receive(stream, 2);
        assert_eq!(delivery.token.attempt, attempt);
        rig.fail(&delivery.token, vec![failed(0, FailureAction::Retry)]);
        rig.advance(1_000_000);
    }
    let last = rig.receive(stream, 2);
    rig.ack(&last.token);
    assert_eq!(rig.receive(stream, 2).origins(), (vec![1], 1));
}

#[test]
fn five_hundred_keys_that_wait_do_not_stop_the_reading_of_others() {
    let mut rig = keyed(&[]);
    let (stream, _) = rig.member(join("g", &[]));
    append_keyed(&mut rig, &(1..=3_000).collect::<Vec<_>>());
    let mut failures = 0;
    while failures < 1_000 {
        let delivery = rig.receive(stream, 10_000);
        let settled = rig.fail_all(&delivery.token, FailureAction::Retry);
        failures += settled.retried;
    }
    let mut fresh = 0;
    while !rig.is_silent(stream) {
        fresh += rig.receive(stream, 10_000).offsets().len();
    }
    assert_eq!(fresh, 2_000);
}

#[test]
fn keys_that_were_out_before_a_restart_are_not_given_out_beside_it() {
    let mut rig = keyed(&[]);
    rig.notes = true;
    let (stream, _) = rig.member(worker());
    append_keyed(&mut rig, &[1, 1, 2]);
    let token = rig.receive(stream, 1).token;
    rig.flush_notes();
    rig.restart();
    let (stream, _) = rig.member(worker());
    let other = rig.receive(stream, 1);
    assert_eq!(other.origins(), (vec![2], 1));
    rig.ack(&other.token);
    assert!(rig.is_silent(stream));
    assert_eq!(rig.ack(&token), done(1));
    assert_eq!(rig.receive(stream, 1).origins(), (vec![1], 1));
}

#[test]
fn a_group_that_changes_what_a_failure_holds_up_gives_out_by_the_new_rule() {
    let mut rig = keyed(&[]);
    let (stream, _) = rig.member(worker());
    append_keyed(&mut rig, &[1, 1, 1]);
    rig.receive(stream, 1);
    rig.end_stream(stream, StreamEnd::Clean);
    rig.update_group("g", |settings| settings.on_failure = OnFailure::Overtake);
    let (stream, _) = rig.member(join("g", &[]));
    let out: usize = rig.receive_each(stream).len();
    assert_eq!(out, 3, "no key holds up another");
    rig.end_stream(stream, StreamEnd::Clean);
    rig.update_group("g", |settings| settings.on_failure = OnFailure::Hold);
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive_each(stream).len(), 1, "one key, one record");
}

/// A group that holds, with a limit on the age of what failed; record 0 is over it.
fn aged(mode: GroupMode, on_head_dead: OnHeadDead) -> Rig {
    let mut rig = keyed(&[1, 1]);
    rig.update_group("g", |settings| {
        settings.mode = mode;
        settings.on_head_dead = on_head_dead;
        settings.retry.age_max_ms = 2_000_000;
    });
    rig.aged.insert(0);
    rig.append("orders", 0, 2);
    rig
}

#[test]
fn a_record_that_fails_in_place_and_is_too_old_is_dead() {
    for mode in [GroupMode::Queue, GroupMode::Stream] {
        let mut rig = aged(mode, OnHeadDead::Continue);
        let (stream, _) = rig.member(worker());
        let head = rig.receive(stream, 1);
        assert_eq!(
            rig.fail(&head.token, vec![failed(0, FailureAction::Retry)]),
            dead(1)
        );
        assert_eq!(rig.dead(), [(0, DeadReason::MaxAge, 1)]);
        let next = rig.receive(stream, 1);
        assert_eq!(next.origins(), (vec![1], 1));
        assert_eq!(
            rig.fail(&next.token, vec![failed(1, FailureAction::Retry)]),
            retried(1)
        );
        assert_eq!((rig.dead().len(), rig.low("g")), (1, 1));
    }
}

#[test]
fn a_record_that_is_lost_with_its_member_and_is_too_old_is_dead() {
    let mut rig = aged(GroupMode::Queue, OnHeadDead::Continue);
    let (stream, _) = rig.member(worker());
    rig.receive(stream, 1);
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(5_000);
    assert_eq!(rig.dead(), [(0, DeadReason::MaxAge, 1)]);
    assert_eq!(rig.low("g"), 1);
}

#[test]
fn with_halt_a_record_that_is_too_old_stays_for_an_operator() {
    let mut rig = aged(GroupMode::Queue, OnHeadDead::Halt);
    let (stream, _) = rig.member(worker());
    let head = rig.receive(stream, 1);
    let settled = rig.fail(&head.token, vec![failed(0, FailureAction::Retry)]);
    let counts = (
        settled.retried,
        settled.dead_lettered,
        settled.dead_letters_waiting,
    );
    assert_eq!(counts, (0, 1, 1));
    rig.advance(3_000_000);
    assert!(rig.is_silent(stream) && rig.dead().is_empty());
    assert_eq!(rig.operate(&[0], OperatorAction::DeadLetter), 1);
    assert_eq!(rig.receive(stream, 1).origins(), (vec![1], 1));
}
