//! Deliveries while something about their group changes.

use super::retrying::{queue, worker};
use super::rig::{Rig, at, group, join};
use crate::core::command::{Change, MakeDue};
use crate::core::groups::Durable;
use crate::core::request::{FailureAction, StreamEnd};
use crate::core::settings::{GroupMode, OnFailure};

#[test]
fn what_an_operator_makes_due_is_due_whatever_the_clock_says() {
    for on_failure in [OnFailure::Overtake, OnFailure::Hold] {
        let mut rig = Rig::with_group(1, |settings| settings.on_failure = on_failure);
        rig.append("orders", 0, 1);
        let (stream, _) = rig.member(join("g", &[]));
        let token = rig.receive(stream, 1).token;
        rig.fail_all(&token, FailureAction::Retry);
        rig.wall -= 3_600_000;
        let source = rig.partition("orders", 0);
        let place = rig.state.place(&group("g"), source).unwrap();
        rig.apply(Change::MakeDue(MakeDue {
            group: group("g"),
            records: vec![(place.source, at(0)), (place.retry, at(0))],
        }))
        .unwrap();
        assert_eq!(
            rig.receive(stream, 1).origins(),
            (vec![0], 2),
            "{on_failure:?}"
        );
    }
}

#[test]
fn added_partitions_of_a_queue_are_given_out_with_their_retries() {
    let mut rig = queue();
    let (stream, _) = rig.member(worker());
    let topic = rig.topic_id("orders");
    rig.apply(Change::AddPartitions { topic, total: 3 })
        .unwrap();
    rig.append("orders", 2, 1);
    let delivery = rig.receive(stream, 1);
    assert_eq!(delivery.token.partition, rig.partition("orders", 2));
    rig.fail_all(&delivery.token, FailureAction::Retry);
    rig.advance(1_000);
    let again = rig.receive(stream, 1);
    assert_eq!(again.origins(), (vec![0], 2));
    assert_eq!(again.token.partition.partition, 2);
    rig.ack(&again.token);
}

#[test]
fn retries_of_a_partition_go_to_its_new_owner() {
    let mut rig = Rig::with_group(2, |_| {});
    for partition in 0..2 {
        rig.append("orders", partition, 1);
    }
    let (first, _) = rig.member(join("g", &[]));
    for _ in 0..2 {
        let token = rig.receive(first, 1).token;
        rig.fail_all(&token, FailureAction::Retry);
    }
    let (second, event) = rig.member(join("g", &[]));
    rig.event(first);
    rig.advance(1_000);
    let (mine, other) = (rig.receive(second, 1), rig.receive(first, 1));
    assert_eq!(mine.token.partition.partition, event.assigned[0].1);
    assert_ne!(
        mine.token.partition.partition,
        other.token.partition.partition
    );
    rig.end_stream(second, StreamEnd::Clean);
    rig.event(first);
    assert_eq!(rig.receive(first, 1).origins(), (vec![0], 2));
}

#[test]
fn a_paused_group_moves_failures_and_gives_out_what_came_due_when_it_goes_on() {
    for mode in [GroupMode::Stream, GroupMode::Queue] {
        let mut rig = Rig::with_group(1, |settings| settings.mode = mode);
        rig.append("orders", 0, 1);
        let (stream, _) = rig.member(join("g", &[]));
        let token = rig.receive(stream, 1).token;
        rig.update_group("g", |settings| settings.paused = true);
        rig.fail_all(&token, FailureAction::Retry);
        rig.advance(100_000);
        assert!(rig.is_silent(stream));
        rig.update_group("g", |settings| settings.paused = false);
        assert_eq!(rig.receive(stream, 1).origins(), (vec![0], 2));
    }
}

#[test]
fn the_breaker_opens_also_when_failures_are_final_and_lets_one_record_a_second_through() {
    let mut rig = Rig::with_group(1, |settings| {
        settings.mode = GroupMode::Queue;
        settings.circuit_breaker = true;
        settings.retry.deliveries_max = 1;
        settings.retry.schedule = crate::core::retry_policy::Schedule::List(Vec::new());
    });
    rig.append("orders", 0, 1_000);
    let (stream, _) = rig.member(worker());
    for _ in 0..100 {
        let token = rig.receive(stream, 1).token;
        rig.fail_all(&token, FailureAction::Retry);
    }
    assert!(rig.describe("g").breaker_open);
    let mut probed = 0;
    for _ in 0..100 {
        rig.advance(100);
        while !rig.is_silent(stream) {
            let token = rig.receive(stream, 1).token;
            rig.fail_all(&token, FailureAction::Retry);
            probed += 1;
        }
    }
    assert!((10..=11).contains(&probed), "{probed} in 10 s");
    rig.advance(1_000);
    let token = rig.receive(stream, 1).token;
    rig.ack(&token);
    assert!(!rig.describe("g").breaker_open);
    assert!(!rig.is_silent(stream));
    rig.end_stream(stream, StreamEnd::Clean);
    rig.advance(2_000);
    assert!(rig.sessions.is_empty());
}
