//! Members that come back, end, or lose what they read.

use super::membership::{back, leave, named, numbers};
use super::rig::{Rig, at, group, join, topic};
use crate::core::command::Change;
use crate::core::groups::Durable;
use crate::core::refusal::{CallError, GroupRefusal, QuotaRefusal, Refusal};
use crate::core::request::{Conflict, GroupReply, GroupRequest, JoinRequest, MemberEnd, StreamEnd};

#[test]
fn a_broken_dynamic_member_is_waited_for_5_s_and_a_silent_or_static_one_for_its_session() {
    let mut rig = Rig::with_orders(1);
    for (request, how, wait_ms) in [
        (join("g", &["orders"]), StreamEnd::Broken, 5_000),
        (join("g", &["orders"]), StreamEnd::Silent, 45_000),
        (named("a"), StreamEnd::Broken, 45_000),
        (named("a"), StreamEnd::Silent, 45_000),
    ] {
        let (stream, _) = rig.member(request);
        rig.end_stream(stream, how);
        rig.advance(wait_ms - 1);
        assert_eq!(rig.sessions.live_members(&group("g")), 1);
        assert_eq!(rig.describe("g").members[0].address, None);
        rig.advance(1);
        assert_eq!(rig.sessions.live_members(&group("g")), 0);
    }
    rig.update_group("g", |settings| settings.session_timeout_ms = 1_000);
    let (stream, _) = rig.member(join("g", &[]));
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(1_000);
    assert_eq!(rig.sessions.live_members(&group("g")), 0);
}

#[test]
fn a_member_that_comes_back_by_its_id_is_the_same_one() {
    let mut rig = Rig::with_orders(2);
    let (stream, event) = rig.member(join("g", &["orders"]));
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(4_000);
    rig.append("orders", 0, 1);
    let (stream, again) = rig.member(back(&event));
    assert_eq!(again, event);
    assert_eq!(rig.receive(stream, 1).offsets(), [0]);
    rig.advance(10_000);
    assert_eq!(rig.sessions.live_members(&group("g")), 1);
}

#[test]
fn the_id_of_a_member_that_is_no_more_makes_a_new_one() {
    let mut rig = Rig::with_orders(1);
    let (stream, event) = rig.member(join("g", &["orders"]));
    rig.end_stream(stream, StreamEnd::Clean);
    let (_, again) = rig.member(back(&event));
    assert_ne!(again.member_id, event.member_id);
    assert!(again.generation > event.generation);
}

#[test]
fn a_second_stream_of_a_member_wins_and_the_older_one_is_fenced() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 4);
    let (older, event) = rig.member(join("g", &["orders"]));
    let held = rig.receive(older, 2);
    let pending = rig.grant(older);
    let (newer, again) = rig.member(back(&event));
    assert_eq!(again, event);
    assert_eq!(
        rig.ended(older),
        MemberEnd::Fenced {
            generation: event.generation
        }
    );
    let delivery = rig.receive(newer, 9);
    assert_eq!(
        (delivery.offsets(), delivery.token.attempt),
        (vec![2, 3], 1)
    );
    // What comes of the older stream is ignored; its lease is the member's own.
    rig.confirm(older, pending.lease, 3);
    rig.end_stream(older, StreamEnd::Clean);
    assert_eq!(rig.in_flight("g"), 4);
    assert_eq!(rig.ack(&held.token).done, 2);
}

#[test]
fn a_static_member_keeps_its_place_and_with_its_id_its_leases() {
    let mut rig = Rig::with_orders(2);
    let (other, _) = rig.member(join("g", &["orders"]));
    let (stream, event) = rig.member(named("a"));
    rig.event(other);
    rig.append("orders", 1, 2);
    let held = rig.receive(stream, 2);
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(20_000);
    assert!(rig.is_silent(other));
    let (stream, again) = rig.member(JoinRequest {
        member_id: Some(event.member_id.clone()),
        ..named("a")
    });
    assert_eq!(again, event);
    assert!(rig.is_silent(stream) && rig.is_silent(other));
    assert_eq!(rig.ack(&held.token).done, 2);
}

#[test]
fn a_restarted_static_member_is_given_again_at_once_what_it_held() {
    let mut rig = Rig::with_orders(2);
    let (other, _) = rig.member(join("g", &["orders"]));
    let (stream, event) = rig.member(named("a"));
    rig.event(other);
    rig.append("orders", 1, 2);
    let held = rig.receive(stream, 2);
    rig.end_stream(stream, StreamEnd::Broken);
    rig.advance(1_000);
    let (stream, again) = rig.member(named("a"));
    assert_eq!(
        (&again.member_id, &again.assigned),
        (&event.member_id, &event.assigned)
    );
    let delivery = rig.receive(stream, 2);
    assert_eq!(
        (delivery.offsets(), delivery.token.attempt),
        (vec![0, 1], 2)
    );
    let late = rig.ack(&held.token).conflicts;
    assert_eq!(late, [0, 1].map(|offset| (at(offset), Conflict::LeaseLost)));
    // A store can tell the late writer from the new one, and so can a commit.
    assert!(delivery.grant.fence > held.grant.fence);
    let group = group("g");
    assert!(
        rig.sessions
            .is_member(&group, &event.member_id, event.generation)
            .is_err()
    );
    assert!(
        rig.sessions
            .is_member(&group, &event.member_id, again.generation)
            .is_ok()
    );
    assert!(rig.is_silent(other), "nobody else is told");
}

#[test]
fn a_static_name_taken_over_while_its_stream_lives_fences_that_stream() {
    let mut rig = Rig::with_orders(1);
    rig.append("orders", 0, 2);
    let (older, event) = rig.member(named("a"));
    rig.receive(older, 2);
    let (newer, again) = rig.member(named("a"));
    assert!(again.generation > event.generation);
    assert_eq!(
        rig.ended(older),
        MemberEnd::Fenced {
            generation: event.generation
        }
    );
    assert_eq!(rig.receive(newer, 2).token.attempt, 2);
    assert_eq!(rig.sessions.live_members(&group("g")), 1);
}

#[test]
fn a_member_id_with_another_name_is_another_member() {
    let mut rig = Rig::with_orders(2);
    let (_, event) = rig.member(named("a"));
    let (_, other) = rig.member(JoinRequest {
        member_id: Some(event.member_id.clone()),
        ..named("b")
    });
    assert_ne!(other.member_id, event.member_id);
    assert_eq!(rig.sessions.live_members(&group("g")), 2);
}

#[test]
fn leave_ends_a_membership_at_once_and_may_be_repeated() {
    let mut rig = Rig::with_orders(1);
    let gone = GroupRefusal::NotFound {
        group: "g".to_owned(),
    };
    assert_eq!(rig.refused(leave("x")), gone.into());
    rig.append("orders", 0, 2);
    let (stream, event) = rig.member(named("a"));
    let (other, _) = rig.member(join("g", &[]));
    rig.receive(stream, 2);
    for _ in 0..2 {
        let call = rig.call(leave(&event.member_id));
        assert_eq!(rig.answer(call), Ok(GroupReply::Left));
    }
    assert_eq!(rig.ended(stream), MemberEnd::Left);
    rig.event(other);
    assert_eq!(
        rig.receive(other, 2).token.attempt,
        1,
        "given back, uncounted"
    );
    // The edge reports the end of the stream that it was told to end.
    rig.end_stream(stream, StreamEnd::Clean);
    assert_eq!(rig.sessions.live_members(&group("g")), 1);
}

#[test]
fn a_member_without_a_stream_can_leave() {
    let mut rig = Rig::with_orders(1);
    let (stream, event) = rig.member(named("a"));
    rig.end_stream(stream, StreamEnd::Silent);
    let call = rig.call(leave(&event.member_id));
    assert_eq!(rig.answer(call), Ok(GroupReply::Left));
    assert_eq!(rig.sessions.live_members(&group("g")), 0);
    assert_eq!(rig.sessions.next_deadline(), None);
}

#[test]
fn members_of_a_group_are_bounded_and_those_on_their_way_count_too() {
    let mut rig = Rig::with_orders(1);
    rig.limit_members(3);
    rig.prompt = false;
    let calls: Vec<_> = (0..4)
        .map(|_| rig.call(GroupRequest::Join(join("g", &["orders"]))))
        .collect();
    let quota = Refusal::from(QuotaRefusal {
        what: "members",
        limit: 3,
        current: 3,
    });
    assert_eq!(rig.answer(calls[3]), Err(CallError::Refused(quota.clone())));
    rig.commit_proposed();
    rig.prompt = true;
    let streams: Vec<_> = calls[..3].iter().map(|call| rig.joined(*call)).collect();
    let event = rig.event(streams[0]);
    assert_eq!(rig.refused(GroupRequest::Join(join("g", &[]))), quota);
    // Coming back needs no place of its own.
    rig.end_stream(streams[0], StreamEnd::Broken);
    assert_eq!(rig.refused(GroupRequest::Join(join("g", &[]))), quota);
    rig.member(back(&event));
}

#[test]
fn a_deleted_group_ends_its_streams_and_is_forgotten() {
    let mut rig = Rig::with_orders(2);
    let (first, _) = rig.member(join("g", &["orders"]));
    let (second, _) = rig.member(named("a"));
    rig.event(first);
    rig.append("orders", 0, 2);
    rig.receive(first, 1);
    rig.end_stream(second, StreamEnd::Broken);
    rig.grant(first);
    let delete = Change::DeleteGroup {
        group: group("g"),
        purge_dead_letters: true,
    };
    rig.apply(delete).unwrap();
    assert_eq!(rig.ended(first), MemberEnd::GroupGone);
    assert_eq!(rig.sessions.next_deadline(), None);
    assert_eq!(rig.sessions.describe(&group("g")), None);
    rig.end_stream(first, StreamEnd::Clean);
    let (_, event) = rig.member(join("g", &["orders"]));
    assert_eq!(event.generation, 1);
}

#[test]
fn a_group_deleted_while_a_generation_begins_is_not_brought_back() {
    let mut rig = Rig::with_orders(1);
    rig.member(join("g", &["orders"]));
    rig.create_topic("bills", 1);
    rig.prompt = false;
    let call = rig.call(GroupRequest::Join(join("g", &["bills"])));
    let delete = Change::DeleteGroup {
        group: group("g"),
        purge_dead_letters: true,
    };
    rig.apply(delete).unwrap();
    rig.commit_proposed();
    // The join makes the group anew, with what it named.
    let stream = rig.joined(call);
    assert_eq!(rig.event(stream).assigned, [(topic("bills"), 0)]);
    assert_eq!(rig.state.group_topics(&group("g")).len(), 1);
}

#[test]
fn a_deleted_topic_is_revoked_and_ends_the_streams_that_read_nothing_else() {
    let mut rig = Rig::with_orders(2);
    rig.create_topic("bills", 1);
    let (both, event) = rig.member(join("g", &["orders", "bills"]));
    assert_eq!(event.assigned.len(), 3);
    let (only, _) = rig.member(join("g", &["orders"]));
    rig.event(both);
    rig.append("orders", 0, 2);
    let topic_id = rig.topic_id("orders");
    rig.apply(Change::DeleteTopic {
        topic: topic_id,
        force: true,
    })
    .unwrap();
    assert_eq!(
        rig.ended(only),
        MemberEnd::TopicGone {
            topic: topic("orders")
        }
    );
    let mut last = None;
    while let Some(message) = rig.next_message(both) {
        if let crate::core::request::MemberMessage::Event(event) = message {
            last = Some(event);
        }
    }
    let last = last.unwrap();
    assert_eq!(last.assigned, [(topic("bills"), 0)]);
    assert!(
        last.revoked
            .iter()
            .all(|(name, _)| *name == topic("orders"))
    );
    assert_eq!(rig.sessions.open_leases(&group("g")), 0);
    assert_eq!(rig.sessions.next_deadline(), None);
    rig.append("bills", 0, 1);
    assert_eq!(rig.receive(both, 1).offsets(), [0]);
}

#[test]
fn partitions_that_are_added_are_assigned() {
    let mut rig = Rig::with_orders(1);
    let (first, _) = rig.member(join("g", &["orders"]));
    let (second, idle) = rig.member(join("g", &[]));
    assert!(idle.assigned.is_empty());
    let topic = rig.topic_id("orders");
    rig.apply(Change::AddPartitions { topic, total: 3 })
        .unwrap();
    let sizes = [
        numbers(&rig.event(first)).len(),
        numbers(&rig.event(second)).len(),
    ];
    assert_eq!(sizes.iter().sum::<usize>(), 3);
    assert!(sizes.iter().all(|size| *size > 0));
}

#[test]
fn a_commit_is_fenced_by_the_generation_of_the_members_last_event() {
    let mut rig = Rig::with_orders(4);
    let name = group("g");
    let fenced = |generation| Err(GroupRefusal::MemberFenced { generation });
    assert_eq!(rig.sessions.is_member(&name, "x", 1), fenced(0));
    let (first, event) = rig.member(join("g", &["orders"]));
    assert_eq!(
        rig.sessions
            .is_member(&name, &event.member_id, event.generation),
        Ok(())
    );
    assert_eq!(
        rig.sessions.is_member(&name, "x", event.generation),
        fenced(event.generation)
    );
    rig.member(join("g", &[]));
    let later = rig.event(first);
    let old = rig
        .sessions
        .is_member(&name, &event.member_id, event.generation);
    assert_eq!(old, fenced(later.generation));
    assert_eq!(
        rig.sessions
            .is_member(&name, &later.member_id, later.generation),
        Ok(())
    );
    // A member whose connection broke is one until its session ends.
    rig.end_stream(first, StreamEnd::Broken);
    assert_eq!(
        rig.sessions
            .is_member(&name, &later.member_id, later.generation),
        Ok(())
    );
    rig.advance(5_000);
    assert!(
        rig.sessions
            .is_member(&name, &later.member_id, later.generation)
            .is_err()
    );
}

#[test]
fn what_people_see_of_a_group() {
    let mut rig = Rig::with_orders(2);
    rig.append("orders", 0, 5);
    let (stream, event) = rig.member(named("a"));
    rig.receive(stream, 3);
    let seen = rig.describe("g");
    assert_eq!(seen.generation, event.generation);
    let member = &seen.members[0];
    assert_eq!(
        (&member.id, member.name.as_deref()),
        (&event.member_id, Some("a"))
    );
    assert_eq!(member.address.as_deref(), Some("10.0.0.1:5000"));
    assert_eq!((member.joined.0, member.partitions.len()), (rig.wall, 2));
    let partition = &seen.partitions[&rig.partition("orders", 0)];
    assert_eq!(partition.owner, Some(event.member_id.clone()));
    assert_eq!(partition.in_flight, 5, "what an edge is reading counts");
    let other = &seen.partitions[&rig.partition("orders", 1)];
    assert_eq!((other.in_flight, &other.pinned), (0, &None));
    rig.advance(30_000);
    let seen = rig.describe("g");
    let pinned = seen.partitions[&rig.partition("orders", 0)]
        .pinned
        .clone()
        .unwrap();
    assert_eq!(
        (pinned.offset, pinned.attempt, pinned.holder),
        (at(0), 0, None),
        "what an edge is told to read is nobody's yet"
    );
}

#[test]
fn what_a_lost_member_had_goes_to_the_retry_topic_in_as_many_commands_as_it_takes() {
    let mut rig = Rig::with_group(1, |_| {});
    rig.append("orders", 0, 10);
    rig.copies_max = 3;
    for _ in 0..2 {
        let (stream, _) = rig.member(join("g", &[]));
        while !rig.is_silent(stream) {
            rig.receive(stream, 10);
        }
        rig.end_stream(stream, StreamEnd::Broken);
        rig.advance(5_000);
    }
    let origins: Vec<_> = rig.retries().iter().map(|retry| retry.0).collect();
    assert_eq!(origins, (0..10).collect::<Vec<_>>());
    assert_eq!((rig.low("g"), rig.in_flight("g")), (10, 0));
    assert!(
        rig.retries().iter().all(|retry| retry.1 == 2),
        "{:?}",
        rig.retries()
    );
}
