//! Grants: how much goes out, to whom, and in which order.

use super::rig::{Rig, at, group, join};
use crate::core::durable_groups::ACK_WINDOW;
use crate::core::request::{Credit, Grant, GroupRequest, StreamKey};

fn add_credit(rig: &mut Rig, stream: StreamKey, responses: u32) {
    rig.call(GroupRequest::AddCredit { stream, responses });
}

fn unread(rig: &mut Rig, stream: StreamKey, grant: &Grant, skip_to: Option<u64>) {
    let (lease, skip_to) = (grant.lease, skip_to.map(at));
    rig.call(GroupRequest::Confirm {
        stream,
        lease,
        last: None,
        skip_to,
        undeliverable: false,
    });
}

#[test]
fn a_grant_tells_all_that_a_token_needs() {
    let mut rig = Rig::with_orders(2);
    rig.append("orders", 1, 3);
    let (stream, event) = rig.member(join("g", &["orders"]));
    let grant = rig.grant(stream);
    assert_eq!(grant.topic.as_str(), "orders");
    assert_eq!(grant.partition, rig.partition("orders", 1));
    assert_eq!((grant.from, grant.until, grant.attempt), (at(0), at(3), 1));
    assert_eq!(grant.fence, i64::try_from(event.generation).unwrap());
    assert_eq!((grant.run, grant.reset_count, grant.lag_records), (1, 0, 3));
    assert_eq!(grant.ack_timeout_ms, 30_000);
}

#[test]
fn records_that_become_visible_wake_a_member_that_waits() {
    let mut rig = Rig::with_orders(1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    assert!(rig.is_silent(stream));
    assert_eq!(
        rig.sessions.next_deadline(),
        None,
        "an idle group sets no timer"
    );
    rig.append("orders", 0, 2);
    assert_eq!(rig.receive(stream, 9).offsets(), [0, 1]);
}

#[test]
fn one_grant_of_a_partition_is_open_at_a_time_and_what_is_left_of_it_goes_out_next() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let grant = rig.grant(stream);
    rig.append("orders", 0, 5);
    assert!(rig.is_silent(stream));
    rig.hand_on(stream, grant, 4);
    let next = rig.grant(stream);
    assert_eq!((next.from, next.until, next.attempt), (at(4), at(15), 1));
}

#[test]
fn a_window_of_two_lets_two_responses_out_until_one_is_settled() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Window(2);
    let (stream, _) = rig.member(request);
    let first = rig.receive(stream, 1);
    let second = rig.receive(stream, 1);
    assert!(rig.is_silent(stream));
    rig.ack(&second.token);
    let third = rig.receive(stream, 1);
    assert!(rig.is_silent(stream));
    rig.ack(&first.token);
    rig.ack(&third.token);
    assert_eq!(rig.receive(stream, 1).offsets(), [3]);
}

#[test]
fn a_response_that_times_out_makes_room_for_another() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Window(1);
    let (stream, _) = rig.member(request);
    rig.receive(stream, 1);
    assert!(rig.is_silent(stream));
    rig.advance(30_000);
    assert_eq!(rig.receive(stream, 1).token.attempt, 2);
}

#[test]
fn explicit_credit_begins_at_zero_and_is_used_up_by_responses_alone() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Explicit;
    let (stream, _) = rig.member(request);
    assert!(rig.is_silent(stream));
    add_credit(&mut rig, stream, 2);
    let token = rig.receive(stream, 1).token;
    rig.receive(stream, 1);
    assert!(rig.is_silent(stream));
    rig.ack(&token);
    assert!(rig.is_silent(stream), "a settlement is no credit");
    add_credit(&mut rig, stream, 1);
    let grant = rig.grant(stream);
    unread(&mut rig, stream, &grant, Some(4));
    // Nothing went out: the credit is still there.
    assert_eq!(rig.receive(stream, 1).offsets(), [4]);
    assert!(rig.is_silent(stream));
}

#[test]
fn explicit_credit_has_a_ceiling() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 1_500);
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Explicit;
    let (stream, _) = rig.member(request);
    for _ in 0..2 {
        add_credit(&mut rig, stream, u32::MAX);
    }
    let mut responses = 0;
    while !rig.is_silent(stream) {
        rig.receive(stream, 1);
        responses += 1;
    }
    assert_eq!(
        responses, 1_001,
        "one of the thousand was out when more was given"
    );
}

#[test]
fn the_in_flight_limit_bounds_each_grant_and_all_together() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 100);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let first = rig.grant(stream);
    assert_eq!(first.until, at(100));
    unread(&mut rig, stream, &first, None);
    rig.update_group("g", |settings| settings.in_flight_max = 10);
    rig.advance(1_000);
    let token = rig.receive(stream, 4).token;
    let grant = rig.grant(stream);
    assert_eq!((grant.from, grant.until), (at(4), at(10)));
    rig.hand_on(stream, grant, 9);
    assert!(rig.is_silent(stream));
    rig.ack(&token);
    let grant = rig.grant(stream);
    assert_eq!((grant.from, grant.until), (at(10), at(14)));
}

#[test]
fn t39_nothing_goes_out_further_than_the_window_beyond_the_low_watermark() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 300_000);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let held = rig.receive(stream, 1).token;
    let mut last = 0;
    while !rig.is_silent(stream) {
        let delivery = rig.receive(stream, 2_000);
        last = delivery.token.last.get();
        rig.ack(&delivery.token);
        if last > 100_000 && last < 110_000 {
            rig.extend(&held, Some(1_000_000)).unwrap();
        }
    }
    assert_eq!(last, ACK_WINDOW - 1);
    rig.ack(&held);
    assert_eq!(rig.grant(stream).from, at(ACK_WINDOW));
}

#[test]
fn a_paused_group_gives_out_nothing_and_takes_settlements() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 1).token;
    let grant = rig.grant(stream);
    rig.update_group("g", |settings| settings.paused = true);
    rig.hand_on(stream, grant, 1);
    assert!(rig.is_silent(stream));
    assert_eq!(rig.ack(&token).done, 1);
    rig.append("orders", 0, 1);
    assert!(rig.is_silent(stream));
    rig.update_group("g", |settings| settings.paused = false);
    assert_eq!(rig.receive(stream, 9).offsets(), [2, 3, 4]);
}

#[test]
fn partitions_of_a_member_take_turns() {
    let mut rig = Rig::with_orders(3);
    for partition in 0..3 {
        rig.append("orders", partition, 10);
    }
    let mut request = join("g", &["orders"]);
    request.credit = Credit::Window(1);
    let (stream, _) = rig.member(request);
    let mut served = Vec::new();
    for _ in 0..6 {
        let delivery = rig.receive(stream, 1);
        served.push(delivery.token.partition.partition);
        rig.ack(&delivery.token);
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn with_auto_ack_a_response_is_settled_when_it_is_handed_on() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 6);
    let mut request = join("g", &["orders"]);
    request.auto_ack = true;
    request.credit = Credit::Window(1);
    let (stream, _) = rig.member(request);
    rig.prompt = false;
    let grant = rig.grant(stream);
    rig.hand_on(stream, grant, 4);
    assert!(
        rig.is_silent(stream),
        "the response is out until its settlement is committed"
    );
    rig.commit_proposed();
    assert_eq!(rig.low("g"), 4);
    let grant = rig.grant(stream);
    assert_eq!((grant.from, grant.until), (at(4), at(6)));
    rig.hand_on(stream, grant, 4);
    rig.commit_proposed();
    assert_eq!((rig.low("g"), rig.in_flight("g")), (6, 0));
    assert_eq!(rig.sessions.next_deadline(), None);
}

#[test]
fn records_that_can_never_be_read_are_passed_over_and_hold_nothing_back() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    let grant = rig.grant(stream);
    assert_eq!((grant.from, grant.until), (at(2), at(10)));
    unread(&mut rig, stream, &grant, Some(7));
    let delivery = rig.receive(stream, 10);
    assert_eq!(
        (delivery.offsets(), delivery.token.attempt),
        (vec![7, 8, 9], 1)
    );
    rig.ack(&token);
    assert_eq!(rig.low("g"), 7);
    rig.ack(&delivery.token);
    assert_eq!(rig.low("g"), 10);
}

#[test]
fn a_skip_beyond_the_grant_passes_over_the_grant_alone() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let grant = rig.grant(stream);
    unread(&mut rig, stream, &grant, Some(1_000_000));
    assert_eq!(rig.low("g"), 10);
    rig.append("orders", 0, 1);
    assert_eq!(rig.receive(stream, 10).offsets(), [10]);
}

#[test]
fn a_log_that_could_not_be_read_is_tried_again_after_a_second() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    for _ in 0..3 {
        let grant = rig.grant(stream);
        unread(&mut rig, stream, &grant, None);
        rig.append("orders", 0, 1);
        rig.advance(999);
        assert!(rig.is_silent(stream));
        rig.advance(1);
    }
    let delivery = rig.receive(stream, 100);
    assert_eq!((delivery.offsets().len(), delivery.token.attempt), (13, 1));
}

#[test]
fn a_confirmation_of_less_than_nothing_or_of_more_than_was_granted_does_no_harm() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    rig.receive(stream, 2);
    let grant = rig.grant(stream);
    rig.confirm(stream, grant.lease, 0);
    let again = rig.grant(stream);
    assert_eq!((again.from, again.until, again.attempt), (at(2), at(4), 1));
    rig.confirm(stream, again.lease, 1_000);
    assert_eq!(rig.in_flight("g"), 4);
    rig.confirm(stream, again.lease, 2);
    assert_eq!(rig.in_flight("g"), 4, "a second confirmation is none");
    assert_eq!(rig.sessions.open_leases(&group("g")), 2);
}

#[test]
fn records_done_ahead_are_passed_over_by_what_is_given_out_after_a_restart() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 9);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let tokens = [0, 1, 2].map(|_| rig.receive(stream, 3).token);
    rig.ack(&tokens[1]);
    rig.restart();
    let (stream, _) = rig.member(join("g", &[]));
    assert_eq!(rig.receive(stream, 100).offsets(), [0, 1, 2]);
    assert_eq!(rig.receive(stream, 100).offsets(), [6, 7, 8]);
}
