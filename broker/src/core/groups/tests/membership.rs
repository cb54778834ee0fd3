//! Joins, returns, ends, and the assignment that follows from them.

use std::collections::BTreeSet;

use super::rig::{Delivery, Rig, at, group, join, topic};
use crate::core::groups::Durable;
use crate::core::refusal::{GroupRefusal, TopicRefusal};
use crate::core::request::{GroupRequest, JoinRequest, MemberEvent, StartAt, StreamEnd, StreamKey};

pub(super) fn numbers(event: &MemberEvent) -> Vec<u32> {
    event.assigned.iter().map(|(_, number)| *number).collect()
}

pub(super) fn back(event: &MemberEvent) -> JoinRequest {
    JoinRequest {
        member_id: Some(event.member_id.clone()),
        ..join("g", &[])
    }
}

pub(super) fn named(name: &str) -> JoinRequest {
    JoinRequest {
        member_name: Some(name.to_owned()),
        ..join("g", &["orders"])
    }
}

pub(super) fn leave(member_id: &str) -> GroupRequest {
    GroupRequest::Leave {
        group: group("g"),
        member_id: member_id.to_owned(),
    }
}

#[test]
fn the_first_message_says_who_the_member_is_and_what_it_has() {
    let mut rig = Rig::with_orders(2);
    let (stream, event) = rig.member(join("g", &["orders"]));
    assert_eq!(event.assigned, [(topic("orders"), 0), (topic("orders"), 1)]);
    assert!(event.revoked.is_empty());
    assert_eq!(event.member_id.len(), 32);
    assert_eq!(
        rig.state.group(&group("g")).unwrap().generation,
        event.generation
    );
    assert!(rig.is_silent(stream));
}

#[test]
fn an_unknown_group_is_made_with_the_topics_named_from_the_start_asked_for() {
    let mut rig = Rig::with_orders(2);
    rig.append("orders", 1, 10);
    let refusal = rig.refused(GroupRequest::Join(join("g", &[])));
    assert_eq!(
        refusal,
        GroupRefusal::TopicsMissing {
            group: "g".to_owned()
        }
        .into()
    );
    let mut request = join("g", &["orders"]);
    request.start = StartAt::Offsets([(rig.partition("orders", 1), at(7))].into());
    let (stream, _) = rig.member(request);
    assert_eq!(rig.receive(stream, 100).offsets(), [7, 8, 9]);
}

#[test]
fn topics_that_are_not_there_or_not_for_groups_are_refused() {
    let mut rig = Rig::with_orders(1);
    let missing = TopicRefusal::NotFound {
        topic: "nope".to_owned(),
    };
    let refusal = rig.refused(GroupRequest::Join(join("g", &["nope", "orders"])));
    assert_eq!(refusal, missing.into());
    assert!(rig.state.group(&group("g")).is_none());
    rig.member(join("g", &["orders"]));
    let derived = TopicRefusal::Derived {
        topic: "orders.g.dlq".to_owned(),
        group: "g".to_owned(),
    };
    let refusal = rig.refused(GroupRequest::Join(join("h", &["orders.g.dlq"])));
    assert_eq!(refusal, derived.into());
}

#[test]
fn joins_that_race_for_an_unknown_group_are_all_let_in() {
    let mut rig = Rig::with_orders(2);
    rig.create_topic("bills", 1);
    rig.prompt = false;
    let requests = [
        join("g", &["orders"]),
        join("g", &["orders", "bills"]),
        join("g", &["bills"]),
    ];
    let calls = requests.map(|request| rig.call(GroupRequest::Join(request)));
    rig.commit_proposed();
    let streams = calls.map(|call| rig.joined(call));
    for stream in streams {
        rig.event(stream);
    }
    let members = rig.describe("g").members;
    let parts: Vec<_> = members
        .iter()
        .map(|member| member.partitions.len())
        .collect();
    assert_eq!(parts, [1, 1, 1]);
    assert_eq!(rig.state.group_topics(&group("g")).len(), 2);
}

#[test]
fn a_topic_that_the_group_lacks_is_added_and_only_those_who_named_it_or_none_get_it() {
    let mut rig = Rig::with_orders(2);
    let (all, _) = rig.member(join("g", &["orders"]));
    // The second one reads whatever the group reads.
    let (any, _) = rig.member(join("g", &[]));
    rig.event(all);
    rig.create_topic("bills", 2);
    let (bills, event) = rig.member(join("g", &["bills"]));
    let held = |rig: &Rig, at: usize| {
        let partitions = &rig.describe("g").members[at].partitions;
        partitions
            .iter()
            .map(|id| id.topic)
            .collect::<BTreeSet<_>>()
    };
    assert!(
        event
            .assigned
            .iter()
            .all(|(name, _)| *name == topic("bills"))
    );
    assert_eq!(held(&rig, 0), [rig.topic_id("orders")].into());
    assert_eq!(held(&rig, 2), [rig.topic_id("bills")].into());
    let sizes: Vec<_> = rig
        .describe("g")
        .members
        .iter()
        .map(|member| member.partitions.len())
        .collect();
    assert_eq!(sizes.iter().sum::<usize>(), 4);
    assert!(sizes.iter().all(|size| (1..=2).contains(size)));
    rig.end_stream(bills, StreamEnd::Clean);
    let mut latest = None;
    while let Some(message) = rig.next_message(any) {
        latest = Some(message);
    }
    assert!(latest.is_some());
    assert!(held(&rig, 1).contains(&rig.topic_id("bills")));
}

#[test]
fn a_second_member_takes_half_and_only_what_moves_is_told() {
    let mut rig = Rig::with_orders(4);
    let (first, before) = rig.member(join("g", &["orders"]));
    let (second, gained) = rig.member(join("g", &[]));
    let lost = rig.event(first);
    assert_eq!(lost.generation, before.generation + 1);
    assert_eq!(gained.generation, lost.generation);
    assert_eq!(lost.revoked, gained.assigned);
    assert_eq!((lost.assigned.len(), gained.assigned.len()), (2, 2));
    rig.end_stream(second, StreamEnd::Clean);
    assert_eq!(numbers(&rig.event(first)), [0, 1, 2, 3]);
}

#[test]
fn more_members_than_partitions_idle_without_a_word_until_they_are_needed() {
    let mut rig = Rig::with_orders(1);
    let (first, event) = rig.member(join("g", &["orders"]));
    let (second, idle) = rig.member(join("g", &[]));
    let (third, _) = rig.member(join("g", &[]));
    assert!(idle.assigned.is_empty());
    assert_eq!(idle.generation, event.generation, "nothing changed");
    assert!(rig.is_silent(first));
    rig.end_stream(third, StreamEnd::Clean);
    rig.end_stream(first, StreamEnd::Clean);
    assert_eq!(numbers(&rig.event(second)), [0]);
}

#[test]
fn the_fence_of_a_partition_is_the_generation_at_which_it_came_to_its_member() {
    let mut rig = Rig::with_orders(2);
    let (first, event) = rig.member(join("g", &["orders"]));
    let fence = i64::try_from(event.generation).unwrap();
    let (second, _) = rig.member(join("g", &[]));
    rig.event(first);
    rig.append("orders", 0, 1);
    rig.append("orders", 1, 1);
    assert_eq!(rig.grant(first).fence, fence, "it was not moved");
    assert_eq!(rig.grant(second).fence, fence + 1);
}

#[test]
fn records_of_a_revoked_partition_stay_with_whoever_holds_them_and_order_is_kept() {
    let mut rig = Rig::with_orders(2);
    rig.append("orders", 1, 4);
    let (first, _) = rig.member(join("g", &["orders"]));
    let held = rig.receive(first, 2);
    let pending = rig.grant(first);
    let (second, event) = rig.member(join("g", &[]));
    assert_eq!(numbers(&event), [1]);
    let late = rig.hand_on(first, pending, 1);
    assert!(rig.is_silent(second), "the new owner waits for what is out");
    assert_eq!(rig.ack(&held.token).done, 2);
    assert!(rig.is_silent(second));
    assert_eq!(rig.ack(&late.token).done, 1);
    assert_eq!(rig.receive(second, 9).offsets(), [3]);
}

#[test]
fn a_new_owner_gets_what_the_former_one_let_run_out_before_what_is_new() {
    let mut rig = Rig::with_orders(2);
    rig.append("orders", 1, 4);
    let (first, _) = rig.member(join("g", &["orders"]));
    let held = rig.receive(first, 2);
    rig.grant(first);
    let (second, _) = rig.member(join("g", &[]));
    rig.advance(30_000);
    // The grant that the first one never took up is over with the wait for it.
    rig.advance(15_000);
    let again = rig.receive(second, 9);
    assert_eq!((again.offsets(), again.token.attempt), (vec![0, 1], 2));
    assert_eq!(rig.receive(second, 9).offsets(), [2, 3]);
    assert_eq!(rig.ack(&held.token).conflicts.len(), 2);
}

#[test]
fn g4_a_former_owner_that_extends_for_ever_holds_up_nobody_beyond_the_session_timeout() {
    let mut rig = Rig::with_orders(2);
    rig.append("orders", 1, 4);
    let (first, _) = rig.member(join("g", &["orders"]));
    let held = rig.receive(first, 2);
    let pending = rig.grant(first);
    let (second, _) = rig.member(join("g", &[]));
    let (third, idle) = rig.member(join("g", &[]));
    assert!(idle.assigned.is_empty());
    rig.extend(&held.token, Some(3_600_000)).unwrap();
    // Owners that come and go do not begin the wait anew.
    rig.advance(20_000);
    rig.end_stream(second, StreamEnd::Clean);
    assert_eq!(numbers(&rig.event(third)), [1]);
    rig.advance(24_999);
    assert!(rig.is_silent(third));
    rig.advance(1);
    let delivery = rig.receive(third, 9);
    assert_eq!(
        (delivery.offsets(), delivery.token.attempt),
        (vec![2, 3], 1)
    );
    // Its own grant is over; what it holds it may still settle.
    rig.confirm(first, pending.lease, 3);
    assert_eq!(rig.ack(&held.token).done, 2);
    assert_eq!(rig.ack(&delivery.token).done, 2);
}

#[test]
fn b34_a_member_that_joins_and_falls_silent_gives_up_its_place_with_its_session() {
    let mut rig = Rig::with_orders(2);
    let (first, _) = rig.member(join("g", &["orders"]));
    let (silent, _) = rig.member(join("g", &[]));
    rig.event(first);
    rig.end_stream(silent, StreamEnd::Silent);
    rig.advance(44_999);
    assert!(rig.is_silent(first));
    rig.advance(1);
    assert_eq!(numbers(&rig.event(first)), [0, 1]);
    // One that is gone before its first event holds up nobody at all.
    rig.prompt = false;
    let call = rig.call(GroupRequest::Join(join("g", &[])));
    let stream = rig.joined(call);
    rig.end_stream(stream, StreamEnd::Broken);
    rig.commit_proposed();
    assert!(rig.is_silent(stream) && rig.is_silent(first));
    assert_eq!(rig.sessions.live_members(&group("g")), 1);
    assert_eq!(rig.sessions.next_deadline(), None);
}

#[test]
fn b35_ten_thousand_joins_that_vanish_leave_no_trace() {
    let mut rig = Rig::with_orders(4);
    let (first, _) = rig.member(join("g", &["orders"]));
    rig.prompt = false;
    for round in 0..10_000 {
        let call = rig.call(GroupRequest::Join(join("g", &[])));
        let stream = rig.joined(call);
        rig.advance(1);
        let how = [StreamEnd::Broken, StreamEnd::Silent, StreamEnd::Clean][round % 3];
        rig.end_stream(stream, how);
        assert!(rig.proposed() <= 1, "generations do not pile up");
        if round % 7 == 0 {
            rig.commit_proposed();
        }
    }
    rig.commit_proposed();
    assert_eq!(rig.sessions.live_members(&group("g")), 1);
    assert_eq!(rig.describe("g").members[0].partitions.len(), 4);
    assert_eq!(rig.sessions.next_deadline(), None);
    rig.prompt = true;
    rig.append("orders", 3, 1);
    let delivered = std::iter::from_fn(|| rig.next_message(first)).count();
    assert!(delivered >= 1);
}

#[test]
fn b38_members_that_come_and_go_never_hold_one_record_together_nor_change_its_order() {
    let mut rig = Rig::with_orders(3);
    let (first, _) = rig.member(join("g", &["orders"]));
    let mut streams = vec![first];
    let mut open: Vec<(StreamKey, Delivery)> = Vec::new();
    let mut handled = vec![Vec::new(); 3];
    for round in 0..300_usize {
        rig.append("orders", u32::try_from(round % 3).unwrap(), 2);
        if round % 11 == 0 && streams.len() < 6 {
            streams.push(rig.member(join("g", &[])).0);
        }
        if round % 17 == 0 && streams.len() > 1 {
            let leaver = streams.remove(round % streams.len());
            open.retain(|(stream, _)| *stream != leaver);
            rig.end_stream(leaver, StreamEnd::Clean);
        }
        for stream in streams.clone() {
            while let Some(message) = rig.next_message(stream) {
                if let crate::core::request::MemberMessage::Grant(grant) = message {
                    let delivery = rig.hand_on(stream, grant, 1);
                    let overlap = open.iter().any(|(_, other)| {
                        other.token.partition == delivery.token.partition
                            && other.token.first == delivery.token.first
                    });
                    assert!(!overlap, "one holder at a time");
                    open.push((stream, delivery));
                }
            }
        }
        for (_, delivery) in open.drain(..open.len() / 2) {
            assert_eq!(rig.ack(&delivery.token).done, 1);
            let number = usize::try_from(delivery.token.partition.partition).unwrap();
            handled[number].extend(delivery.offsets());
        }
    }
    for offsets in &handled {
        let unique: BTreeSet<_> = offsets.iter().collect();
        assert_eq!(unique.len(), offsets.len(), "nothing is handled twice");
        assert!(offsets.len() > 50);
    }
}
