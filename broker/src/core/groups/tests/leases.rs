//! Leases: how long they last, what ends them, and what their records are worth afterwards.

use super::rig::{Rig, at, group, join};
use crate::core::refusal::GroupRefusal;
use crate::core::request::{Conflict, Credit, GroupRequest, Settled, StreamEnd};
use crate::core::retry_policy::Schedule;

fn done(done: u32) -> Settled {
    Settled {
        done,
        ..Settled::default()
    }
}

#[test]
fn t02_a_lease_that_runs_out_goes_to_the_next_member_as_attempt_2() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 3);
    let (first, _) = rig.member(join("g", &["orders"]));
    let (second, _) = rig.member(join("g", &[]));
    let token = rig.receive(first, 3).token;
    rig.end_stream(first, StreamEnd::Silent);
    rig.advance(29_999);
    assert_eq!(rig.in_flight("g"), 3);
    rig.advance(1);
    assert_eq!(rig.in_flight("g"), 0);
    // The partition is the silent member's until its session ends, 45 s after it fell silent.
    assert!(rig.is_silent(second));
    rig.advance(15_000);
    assert_eq!(rig.event(second).assigned.len(), 1);
    let again = rig.receive(second, 3);
    // It failed once: the end of the session is not another failure.
    assert_eq!((again.offsets(), again.token.attempt), (vec![0, 1, 2], 2));
    let stale = rig.ack(&token);
    assert_eq!(
        stale.conflicts,
        [0, 1, 2].map(|offset| (at(offset), Conflict::LeaseLost))
    );
    assert_eq!((stale.done, rig.in_flight("g")), (0, 3));
    assert_eq!(rig.ack(&again.token), done(3));
}

#[test]
fn a_member_slower_than_the_visibility_timeout_is_given_its_records_again() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 3);
    let (stream, _) = rig.member(join("g", &["orders"]));
    rig.update_group("g", |settings| {
        settings.retry.jitter_ppm = 0;
        settings.isolate_after = 5;
    });
    rig.receive(stream, 3);
    // The first time at once, then as the policy has it.
    for (attempt, wait_ms) in [(2, 0), (3, 10_000), (4, 100_000)] {
        rig.advance(30_000 + wait_ms - 1);
        assert!(rig.is_silent(stream));
        rig.advance(1);
        let again = rig.receive(stream, 3);
        assert_eq!(again.origins(), (vec![0, 1, 2], attempt));
    }
}

#[test]
fn the_timeout_of_the_member_stands_before_that_of_the_group() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1);
    let mut request = join("g", &["orders"]);
    request.ack_timeout_ms = Some(1_000);
    let (stream, _) = rig.member(request);
    let delivery = rig.receive(stream, 1);
    assert_eq!(delivery.grant.ack_timeout_ms, 1_000);
    rig.advance(999);
    assert!(rig.is_silent(stream));
    rig.advance(1);
    assert_eq!(rig.receive(stream, 1).token.attempt, 2);
}

#[test]
fn t03_a_lease_extended_every_20_s_is_held_for_5_min() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 1).token;
    for _ in 0..15 {
        rig.advance(20_000);
        assert_eq!(rig.extend(&token, None), Ok((30_000, false)));
    }
    assert!(rig.is_silent(stream));
    assert_eq!(rig.ack(&token), done(1));
}

#[test]
fn an_extension_counts_from_now_and_may_shorten() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 1).token;
    assert_eq!(rig.extend(&token, Some(600_000)), Ok((600_000, false)));
    rig.advance(30_000);
    assert!(rig.is_silent(stream));
    assert_eq!(rig.extend(&token, Some(2_000)), Ok((2_000, false)));
    rig.advance(2_000);
    assert_eq!(rig.receive(stream, 1).token.attempt, 2);
}

#[test]
fn t04_no_extension_holds_a_lease_beyond_its_longest_hold() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    rig.update_group("g", |settings| settings.lease_total_max_ms = 60_000);
    let token = rig.receive(stream, 1).token;
    rig.advance(20_000);
    assert_eq!(rig.extend(&token, None), Ok((30_000, false)));
    rig.advance(20_000);
    assert_eq!(rig.extend(&token, None), Ok((20_000, true)));
    rig.advance(15_000);
    // A capped deadline stands, whatever is asked.
    assert_eq!(rig.extend(&token, Some(1_000)), Ok((5_000, true)));
    assert!(rig.is_silent(stream));
    rig.advance(5_000);
    assert_eq!(rig.receive(stream, 1).token.attempt, 2);
    assert_eq!(
        rig.extend(&token, None),
        Err(GroupRefusal::LeaseLost { offset: at(0) }.into())
    );
}

#[test]
fn a_longest_hold_below_the_visibility_timeout_bounds_that_too() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let grant = rig.grant(stream);
    rig.update_group("g", |settings| settings.lease_total_max_ms = 10_000);
    let token = rig.hand_on(stream, grant, 1).token;
    assert_eq!(rig.extend(&token, None), Ok((10_000, true)));
    rig.advance(10_000);
    assert_eq!(rig.grant(stream).ack_timeout_ms, 10_000);
}

#[test]
fn what_is_left_of_a_response_can_be_extended_and_what_is_settled_is_not_lost() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 4).token;
    rig.ack_up_to(&token, Some(1));
    assert_eq!(rig.extend(&token, None), Ok((30_000, false)));
    rig.ack(&token);
    // Nothing is left to hold, and no later deadline will be given.
    assert_eq!(rig.extend(&token, None), Ok((0, true)));
}

#[test]
fn t14_what_a_clean_end_gives_back_is_given_out_again_as_the_same_attempt() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 50);
    let (first, _) = rig.member(join("g", &["orders"]));
    rig.receive(first, 20);
    rig.receive(first, 20);
    let pending = rig.grant(first);
    assert_eq!(pending.from, at(40));
    rig.end_stream(first, StreamEnd::Clean);
    assert_eq!(rig.sessions.live_members(&group("g")), 0);
    assert_eq!(rig.sessions.open_leases(&group("g")), 0);
    let (second, _) = rig.member(join("g", &[]));
    let mut offsets = Vec::new();
    while !rig.is_silent(second) {
        let delivery = rig.receive(second, 50);
        assert_eq!(delivery.token.attempt, 1);
        offsets.extend(delivery.offsets());
    }
    assert_eq!(offsets, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_token_stays_good_after_a_clean_end_until_its_records_are_given_to_another() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (first, _) = rig.member(join("g", &["orders"]));
    let early = rig.receive(first, 2).token;
    let late = rig.receive(first, 2).token;
    rig.end_stream(first, StreamEnd::Clean);
    assert_eq!(rig.ack(&early), done(2));
    let (second, _) = rig.member(join("g", &[]));
    let again = rig.receive(second, 4);
    assert_eq!(again.offsets(), [2, 3]);
    let lost = rig.ack(&late);
    assert_eq!(
        lost.conflicts,
        [2, 3].map(|offset| (at(offset), Conflict::LeaseLost))
    );
    rig.end_stream(second, StreamEnd::Clean);
    // Given to another since: free again, but no longer for the first one.
    assert_eq!(rig.ack(&late).conflicts.len(), 2);
    assert_eq!(rig.ack(&again.token), done(2));
}

#[test]
fn t17_a_late_ack_of_records_that_nobody_else_was_given_is_accepted() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    rig.end_stream(stream, StreamEnd::Silent);
    rig.advance(31_000);
    assert_eq!(rig.in_flight("g"), 0);
    assert_eq!(rig.ack(&token), done(2));
    rig.advance(60_000);
    let (stream, _) = rig.member(join("g", &[]));
    assert!(rig.is_silent(stream));
}

#[test]
fn t19_a_settlement_after_expiry_and_another_hand_out_changes_nothing() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let old = rig.receive(stream, 1).token;
    rig.advance(30_000);
    let new = rig.receive(stream, 1).token;
    assert_eq!(rig.ack(&old).conflicts, [(at(0), Conflict::LeaseLost)]);
    assert_eq!(
        rig.extend(&old, None),
        Err(GroupRefusal::LeaseLost { offset: at(0) }.into())
    );
    assert_eq!((rig.low("g"), rig.in_flight("g")), (0, 1));
    assert_eq!(rig.extend(&new, None), Ok((30_000, false)));
    rig.advance(30_000);
    // Two failures, not more.
    assert!(rig.is_silent(stream));
    rig.advance(11_000);
    assert_eq!(rig.receive(stream, 1).token.attempt, 3);
}

#[test]
fn t20_an_ack_of_ten_records_of_which_two_are_stale_settles_eight() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Window(1);
    let (stream, _) = rig.member(request);
    let token = rig.receive(stream, 10).token;
    rig.advance(30_000);
    let again = rig.receive(stream, 2);
    assert_eq!(again.offsets(), [0, 1]);
    let settled = rig.ack(&token);
    assert_eq!(settled.done, 8);
    assert_eq!(
        settled.conflicts,
        [0, 1].map(|offset| (at(offset), Conflict::LeaseLost))
    );
    assert_eq!(rig.ack(&again.token), done(2));
    assert_eq!(rig.low("g"), 10);
}

#[test]
fn what_expired_comes_before_what_is_new_and_never_joined_with_other_attempts() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Window(2);
    let (stream, _) = rig.member(request);
    rig.receive(stream, 2);
    rig.advance(10_000);
    rig.receive(stream, 3);
    assert!(rig.is_silent(stream));
    rig.advance(20_000);
    let again = rig.receive(stream, 10);
    assert_eq!((again.offsets(), again.token.attempt), (vec![0, 1], 2));
    rig.advance(10_000);
    let again = rig.receive(stream, 10);
    assert_eq!((again.offsets(), again.token.attempt), (vec![2, 3, 4], 2));
    rig.ack(&again.token);
    let fresh = rig.receive(stream, 10);
    assert_eq!(
        (fresh.offsets(), fresh.token.attempt),
        (vec![5, 6, 7, 8, 9], 1)
    );
}

#[test]
fn b43_members_that_die_holding_leases_leave_the_in_flight_count_at_zero() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 100);
    let (first, _) = rig.member(join("g", &["orders"]));
    rig.update_group("g", |settings| {
        settings.in_flight_max = 10;
        settings.isolate_after = 1_000;
        settings.retry.deliveries_max = 1_000;
        settings.retry.schedule = Schedule::List(vec![10]);
    });
    rig.end_stream(first, StreamEnd::Clean);
    let mut held_most = 0;
    for round in 0..1_000_u32 {
        let (stream, _) = rig.member(join("g", &[]));
        let held: u64 = std::iter::from_fn(|| {
            (!rig.is_silent(stream)).then(|| rig.receive(stream, 3).offsets().len() as u64)
        })
        .sum();
        // As many from its source as from the retry topic.
        assert!(held > 0 && held <= 20, "round {round}: {held}");
        assert_eq!(held, rig.in_flight("g"), "round {round}");
        held_most = held_most.max(held);
        rig.end_stream(stream, StreamEnd::Broken);
        rig.advance(5_000);
        assert_eq!(rig.in_flight("g"), 0, "round {round}");
    }
    assert_eq!(held_most, 20);
    let (stream, _) = rig.member(join("g", &[]));
    let (mut settled, mut attempts) = (0, 0);
    rig.advance(1_000);
    while !rig.is_silent(stream) {
        let delivery = rig.receive(stream, 10);
        attempts = attempts.max(delivery.token.attempt);
        settled += rig.ack(&delivery.token).done;
    }
    assert!(attempts < 1_000);
    assert_eq!((settled, rig.low("g"), rig.retries().len()), (100, 100, 0));
}

#[test]
fn a_crash_counts_and_the_leases_of_a_member_that_comes_back_in_time_stay() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, event) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(4_999);
    let mut again = join("g", &[]);
    again.member_id = Some(event.member_id.clone());
    let (stream, back) = rig.member(again);
    assert_eq!(back, event);
    assert!(rig.is_silent(stream));
    assert_eq!(rig.extend(&token, None), Ok((30_000, false)));
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(5_000);
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 2).token.attempt, 2);
}

#[test]
fn a_grant_that_was_not_handed_on_when_its_stream_ended_was_no_attempt() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, event) = rig.member(join("g", &["orders"]));
    let grant = rig.grant(stream);
    rig.end_stream(stream, StreamEnd::Broken);
    assert_eq!(rig.in_flight("g"), 0);
    let mut again = join("g", &[]);
    again.member_id = Some(event.member_id);
    let (back, _) = rig.member(again);
    let second = rig.grant(back);
    assert_eq!((second.from, second.attempt), (at(0), 1));
    assert_ne!(second.lease, grant.lease);
    // The edge of the broken stream comes too late.
    rig.call(GroupRequest::Confirm {
        stream,
        lease: grant.lease,
        last: Some(at(1)),
        skip_to: None,
        undeliverable: false,
    });
    rig.advance(40_000);
    assert_eq!(rig.in_flight("g"), 2);
    assert_eq!(rig.hand_on(back, second, 2).token.attempt, 1);
}
