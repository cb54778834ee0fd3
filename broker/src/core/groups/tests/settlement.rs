//! Acks: what they settle, when they repeat, and what tokens of other times are worth.

use varvelog_store::Offset;

use super::rig::{Rig, at, group, join};
use crate::core::command::Change;
use crate::core::refusal::{GroupRefusal, Refusal, TopicRefusal};
use crate::core::request::{
    AckToken, Conflict, GroupRequest, LeaseId, SettleRequest, Settled, StreamEnd,
};

/// A wish to settle what a token names up to an offset, all of it processed.
pub(super) fn settle(token: AckToken, up_to: Option<u64>) -> GroupRequest {
    GroupRequest::Settle(SettleRequest {
        token,
        up_to: up_to.map(at),
        failures: Vec::new(),
        outputs: None,
    })
}

pub(super) fn done(done: u32) -> Settled {
    Settled {
        done,
        ..Settled::default()
    }
}

pub(super) fn already(already_settled: u32) -> Settled {
    Settled {
        already_settled,
        ..Settled::default()
    }
}

pub(super) fn conflicts(offsets: impl IntoIterator<Item = u64>, why: Conflict) -> Settled {
    let conflicts = offsets
        .into_iter()
        .map(|offset| (at(offset), why))
        .collect();
    Settled {
        conflicts,
        ..Settled::default()
    }
}

#[test]
fn t01_ten_records_acked_in_order_leave_nothing_even_after_a_restart() {
    let mut rig = Rig::with_orders(1);
    let (stream, _) = rig.member(join("g", &["orders"]));
    for _ in 0..10 {
        rig.append("orders", 0, 1);
        let delivery = rig.receive(stream, 10);
        assert_eq!(rig.ack(&delivery.token), done(1));
    }
    let partition = rig.partition("orders", 0);
    assert_eq!(rig.low("g"), 10);
    assert_eq!(rig.position("g", partition).undone, 0);
    assert_eq!(rig.in_flight("g"), 0);
    rig.restart();
    let (stream, _) = rig.member(join("g", &[]));
    assert!(rig.is_silent(stream));
}

#[test]
fn t18_an_ack_sent_twice_settles_once_and_says_so() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 5);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let delivery = rig.receive(stream, 5);
    assert_eq!(rig.ack(&delivery.token), done(5));
    assert_eq!(rig.ack(&delivery.token), already(5));
    assert_eq!(rig.low("g"), 5);
}

#[test]
fn t18_two_acks_of_one_token_on_their_way_at_once_count_each_record_once() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 5);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let delivery = rig.receive(stream, 5);
    rig.prompt = false;
    let calls = [0, 1].map(|_| rig.call(settle(delivery.token.clone(), None)));
    rig.commit_proposed();
    let answers = calls.map(|call| rig.settled(call));
    assert_eq!(answers, [done(5), already(5)]);
}

#[test]
fn a_response_can_be_acked_piece_by_piece_and_keeps_its_place_until_it_is_whole() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 10);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 10).token;
    assert_eq!(rig.ack_up_to(&token, Some(3)), done(4));
    assert_eq!((rig.low("g"), rig.in_flight("g")), (4, 6));
    assert_eq!(rig.sessions.open_leases(&group("g")), 1);
    // What was named before is counted as settled already.
    let both = Settled {
        done: 2,
        already_settled: 4,
        ..Settled::default()
    };
    assert_eq!(rig.ack_up_to(&token, Some(5)), both);
    let rest = Settled {
        done: 4,
        already_settled: 6,
        ..Settled::default()
    };
    assert_eq!(rig.ack_up_to(&token, Some(1_000)), rest);
    assert_eq!(rig.sessions.open_leases(&group("g")), 0);
}

#[test]
fn an_ack_that_names_nothing_of_its_token_settles_nothing() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let first = rig.receive(stream, 2);
    let second = rig.receive(stream, 2);
    assert_eq!(rig.ack_up_to(&second.token, Some(1)), Settled::default());
    assert_eq!(rig.in_flight("g"), 4);
    assert_eq!(rig.ack(&first.token), done(2));
}

#[test]
fn records_settled_out_of_order_hold_the_low_watermark_at_the_gap() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 9);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let tokens = [0, 1, 2].map(|_| rig.receive(stream, 3).token);
    rig.ack(&tokens[2]);
    rig.ack(&tokens[1]);
    assert_eq!(rig.low("g"), 0);
    let pinned = rig.describe("g").partitions[&rig.partition("orders", 0)]
        .pinned
        .clone()
        .unwrap();
    assert_eq!((pinned.offset, pinned.attempt), (at(0), 1));
    assert_eq!(pinned.holder, Some(rig.describe("g").members[0].id.clone()));
    rig.ack(&tokens[0]);
    assert_eq!(rig.low("g"), 9);
}

#[test]
fn t26_an_ack_of_an_earlier_run_is_accepted_and_its_records_are_not_given_out_again() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 20);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 20).token;
    rig.restart();
    assert_eq!(rig.ack(&token), done(20));
    assert_eq!(rig.ack(&token), already(20));
    let (stream, _) = rig.member(join("g", &["orders"]));
    assert!(rig.is_silent(stream));
}

#[test]
fn an_ack_of_an_earlier_run_loses_to_whoever_holds_the_records_now() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let old = rig.receive(stream, 4).token;
    rig.restart();
    let (stream, _) = rig.member(join("g", &["orders"]));
    let new = rig.receive(stream, 2).token;
    // Of the rest the edge was told, but that is given to another as well.
    assert_eq!(rig.ack(&old), conflicts(0..4, Conflict::LeaseLost));
    assert_eq!(rig.low("g"), 0);
    assert_eq!(rig.ack(&new), done(2));
    let both = Settled {
        already_settled: 2,
        ..conflicts(2..4, Conflict::LeaseLost)
    };
    assert_eq!(rig.ack(&old), both);
}

#[test]
fn a_lease_number_of_an_earlier_run_is_not_taken_for_one_of_this_run() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let old = rig.receive(stream, 4).token;
    rig.restart();
    let (stream, _) = rig.member(join("g", &["orders"]));
    let new = rig.receive(stream, 4).token;
    let forged = AckToken {
        lease: new.lease,
        ..old
    };
    assert_eq!(rig.ack(&forged), conflicts(0..4, Conflict::LeaseLost));
    assert_eq!(rig.refused(extend(&forged)), lost(0));
}

#[test]
fn records_being_settled_are_given_to_nobody_meanwhile() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, event) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 4).token;
    rig.end_stream(stream, StreamEnd::Broken);
    rig.prompt = false;
    let call = rig.call(settle(token, Some(1)));
    rig.advance(60_000);
    let mut again = join("g", &[]);
    again.member_id = Some(event.member_id);
    let stream = rig.join(again);
    // The settlement is committed before the generation that the new member waits for.
    rig.commit_proposed();
    assert_eq!(rig.settled(call), done(2));
    rig.event(stream);
    let grant = rig.grant(stream);
    assert_eq!((grant.from, grant.until, grant.attempt), (at(2), at(4), 2));
}

#[test]
fn a_lease_that_runs_out_while_it_is_being_settled_is_not_given_away() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 4).token;
    rig.prompt = false;
    let call = rig.call(settle(token, None));
    rig.advance(35_000);
    assert!(rig.is_silent(stream));
    rig.commit_proposed();
    assert_eq!(rig.settled(call), done(4));
    assert_eq!(rig.sessions.next_deadline(), None);
}

#[test]
fn tokens_from_before_a_reset_are_void_and_the_records_come_again_as_new() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let old = rig.receive(stream, 2).token;
    let pending = rig.grant(stream);
    let positions = vec![(rig.partition("orders", 0), Offset::ZERO)];
    rig.apply(Change::ResetOffsets {
        group: group("g"),
        positions,
    })
    .unwrap();
    assert_eq!(rig.ack(&old), conflicts(0..2, Conflict::Unknown));
    assert_eq!(rig.refused(extend(&old)), lost(0));
    // What the edge had in hand is nobody's any more, whether it confirms or not.
    rig.confirm(stream, pending.lease, 3);
    let delivery = rig.receive(stream, 4);
    assert_eq!(delivery.offsets(), [0, 1, 2, 3]);
    assert_eq!((delivery.token.attempt, delivery.token.reset_count), (1, 1));
    assert_eq!(rig.ack(&delivery.token), done(4));
}

#[test]
fn a_settlement_that_a_reset_overtakes_is_a_conflict() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    rig.prompt = false;
    let call = rig.call(settle(token, None));
    let positions = vec![(rig.partition("orders", 0), Offset::ZERO)];
    rig.apply(Change::ResetOffsets {
        group: group("g"),
        positions,
    })
    .unwrap();
    rig.commit_proposed();
    assert_eq!(rig.settled(call), conflicts(0..2, Conflict::Unknown));
    // They were kept back for that settlement, and are given out now.
    assert_eq!(rig.receive(stream, 2).offsets(), [0, 1]);
}

#[test]
fn without_its_group_a_token_is_refused_and_in_a_new_group_it_is_unknown() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    let delete = Change::DeleteGroup {
        group: group("g"),
        purge_dead_letters: true,
    };
    rig.apply(delete).unwrap();
    let gone = Refusal::from(GroupRefusal::NotFound {
        group: "g".to_owned(),
    });
    assert_eq!(rig.refused(settle(token.clone(), None)), gone);
    assert_eq!(rig.refused(extend(&token)), gone);
    let (stream, _) = rig.member(join("g", &["orders"]));
    assert_eq!(rig.ack(&token), conflicts(0..2, Conflict::Unknown));
    assert_eq!(rig.refused(extend(&token)), lost(0));
    assert_eq!(rig.receive(stream, 2).token.attempt, 1);
}

#[test]
fn without_its_topic_a_token_is_a_conflict_and_cannot_be_extended() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    let topic = rig.topic_id("orders");
    rig.apply(Change::DeleteTopic { topic, force: true })
        .unwrap();
    assert_eq!(rig.ack(&token), conflicts(0..2, Conflict::Unknown));
    let gone = TopicRefusal::NotFound {
        topic: topic.to_string(),
    };
    assert_eq!(rig.refused(extend(&token)), gone.into());
}

#[test]
fn a_topic_deleted_while_its_records_are_being_settled_makes_them_conflicts() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    rig.prompt = false;
    let call = rig.call(settle(token, None));
    let topic = rig.topic_id("orders");
    rig.apply(Change::DeleteTopic { topic, force: true })
        .unwrap();
    rig.commit_proposed();
    assert_eq!(rig.settled(call), conflicts(0..2, Conflict::Unknown));
}

#[test]
fn a_token_beyond_the_log_or_larger_than_any_hand_out_settles_nothing() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    let beyond = AckToken {
        first: at(4),
        last: at(5),
        ..token.clone()
    };
    assert_eq!(rig.ack(&beyond), conflicts(4..6, Conflict::Unknown));
    let huge = AckToken {
        last: Offset::MAX,
        ..token.clone()
    };
    assert_eq!(rig.ack(&huge), conflicts([0], Conflict::Unknown));
    assert_eq!(rig.refused(extend(&beyond)), lost(4));
    assert_eq!(rig.ack(&token), done(2));
}

fn extend(token: &AckToken) -> GroupRequest {
    GroupRequest::Extend {
        token: token.clone(),
        ack_timeout_ms: None,
    }
}

fn lost(offset: u64) -> Refusal {
    GroupRefusal::LeaseLost { offset: at(offset) }.into()
}

#[test]
fn a_lease_that_never_was_settles_only_what_nobody_was_given() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (stream, _) = rig.member(join("g", &["orders"]));
    let token = rig.receive(stream, 2).token;
    let pending = rig.grant(stream);
    let forged = AckToken {
        lease: LeaseId(999),
        last: at(3),
        ..token.clone()
    };
    assert_eq!(rig.ack(&forged), conflicts(0..4, Conflict::LeaseLost));
    assert_eq!(rig.ack(&token), done(2));
    let token = rig.hand_on(stream, pending, 2).token;
    assert_eq!(rig.ack(&token), done(2));
}
