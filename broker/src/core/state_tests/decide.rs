//! From requests to changes and answers.

use std::collections::BTreeMap;

use super::sample::*;
use crate::core::applied::Outcome;
use crate::core::command::Change;
use crate::core::decide::{CountLimits, Live, answer, decide};
use crate::core::preview::preview;
use crate::core::refusal::{GroupRefusal, QuotaRefusal, Refusal, TopicRefusal};
use crate::core::request::{ChangeDone, ChangeRequest, CommitRequest, StartAt};
use crate::core::settings::{GroupSettings, TopicSettings};
use crate::names::GroupName;

/// Decides with ids that no topic has yet and `live` in each group.
fn decided(
    bench: &Bench,
    request: &ChangeRequest,
    live: Live,
    limits: CountLimits,
) -> Result<Vec<Change>, Refusal> {
    let topics = bench.state.topics.iter().count() + bench.state.topics.deleted().count();
    let mut next = 20 + u8::try_from(topics).unwrap();
    let mut dice = || {
        next += 1;
        [next; 16]
    };
    decide(
        &bench.state,
        request,
        &|_: &GroupName| live,
        &mut dice,
        &limits,
    )
}

/// Decides, applies what was decided, and answers.
fn done(bench: &mut Bench, request: &ChangeRequest) -> Result<ChangeDone, Refusal> {
    let changes = decided(bench, request, Live::default(), CountLimits::default())?;
    let only = (changes.len() == 1).then(|| preview(&bench.state, &changes[0]));
    let outcomes: Vec<Outcome> = changes
        .into_iter()
        .map(|change| bench.must(change))
        .collect();
    if let Some(preview) = only {
        assert_eq!(
            [preview],
            outcomes.as_slice(),
            "a preview is what then happens"
        );
    }
    Ok(answer(request, &outcomes))
}

fn new_topic(name: &str, partitions: u32) -> ChangeRequest {
    let settings = TopicSettings::default();
    ChangeRequest::CreateTopic {
        name: topic_name(name),
        partitions,
        settings,
    }
}

fn new_group(name: &str, topics: &[&str], start: StartAt) -> ChangeRequest {
    ChangeRequest::CreateGroup {
        name: group_name(name),
        topics: topics.iter().map(|topic| topic_name(topic)).collect(),
        settings: GroupSettings::default(),
        start,
    }
}

fn commit_to(group: &str, offsets: &[(&str, u32, u64)]) -> ChangeRequest {
    let one = |(topic, partition, to): &(&str, u32, u64)| CommitRequest {
        topic: topic_name(topic),
        partition: *partition,
        offset: offset(*to),
        metadata: String::new(),
    };
    let offsets = offsets.iter().map(one).collect();
    ChangeRequest::CommitOffsets {
        group: group_name(group),
        offsets,
        member: None,
    }
}

#[test]
fn each_request_on_topics_is_answered_with_what_it_did() {
    let mut bench = Bench::with_group();
    let name = topic_name("orders");
    let made = done(&mut bench, &new_topic("new", 3));
    let id = bench.state.topics.by_name(&topic_name("new")).unwrap().id;
    assert_eq!(made, Ok(ChangeDone::Topic(id)));
    let settings = TopicSettings::default();
    let updated = done(
        &mut bench,
        &ChangeRequest::UpdateTopic {
            name: name.clone(),
            settings,
        },
    );
    assert_eq!(updated, Ok(ChangeDone::Topic(topic_id(1))));
    let grown = done(
        &mut bench,
        &ChangeRequest::AddPartitions {
            name: name.clone(),
            total: 4,
        },
    );
    assert_eq!(grown, Ok(ChangeDone::Topic(topic_id(1))));
    let cut = ChangeRequest::DeleteRecords {
        name: name.clone(),
        partition: 0,
        before: offset(3),
    };
    assert_eq!(done(&mut bench, &cut), Ok(ChangeDone::LogStart(offset(3))));
    let cut = ChangeRequest::DeleteRecords {
        name: name.clone(),
        partition: 0,
        before: offset(2),
    };
    assert_eq!(done(&mut bench, &cut), Ok(ChangeDone::LogStart(offset(3))));
    let init = ChangeRequest::InitProducer { name: "p".into() };
    assert_eq!(
        done(&mut bench, &init),
        Ok(ChangeDone::Producer { id: 0, epoch: 0 })
    );
    assert_eq!(
        done(&mut bench, &init),
        Ok(ChangeDone::Producer { id: 0, epoch: 1 })
    );
    bench.must(delete_group("email", true));
    let delete = ChangeRequest::DeleteTopic { name, force: false };
    assert_eq!(done(&mut bench, &delete), Ok(ChangeDone::Done));
}

#[test]
fn each_request_on_groups_is_answered_with_what_it_did() {
    let mut bench = Bench::with_group();
    bench.must(move_log_start(at(1, 0), 3));
    let positions = vec![(at(1, 0), offset(99))];
    let group = group_name("email");
    let reset = ChangeRequest::ResetOffsets {
        group: group.clone(),
        positions,
        force: false,
    };
    let moved = vec![(at(1, 0), offset(3), offset(10))];
    assert_eq!(done(&mut bench, &reset), Ok(ChangeDone::Moved(moved)));
    let settings = GroupSettings::default();
    let update = ChangeRequest::UpdateGroup {
        name: group.clone(),
        settings,
    };
    assert_eq!(done(&mut bench, &update), Ok(ChangeDone::Done));
    assert_eq!(
        done(&mut bench, &commit_to("email", &[("orders", 1, 5)])),
        Ok(ChangeDone::Done)
    );
    let delete = ChangeRequest::DeleteGroup {
        name: group,
        purge_dead_letters: true,
    };
    assert_eq!(done(&mut bench, &delete), Ok(ChangeDone::Done));
    assert_eq!(
        done(&mut bench, &new_group("sms", &["bills"], StartAt::Earliest)),
        Ok(ChangeDone::Done)
    );
}

#[test]
fn quotas_name_what_is_full_and_leave_derived_topics_out() {
    let bench = Bench::with_group();
    let refused =
        |request: &ChangeRequest, limits| decided(&bench, request, Live::default(), limits);
    let room = CountLimits::default();
    let full = |what, limit, current| {
        Err(QuotaRefusal {
            what,
            limit,
            current,
        }
        .into())
    };
    let topics = CountLimits { topics: 2, ..room };
    assert_eq!(refused(&new_topic("new", 1), topics), full("topics", 2, 2));
    let three = CountLimits {
        topics: 3,
        partitions: 5,
        ..room
    };
    assert!(refused(&new_topic("new", 2), three).is_ok());
    assert_eq!(
        refused(&new_topic("new", 3), three),
        full("partitions", 5, 3)
    );
    let grow = |total| ChangeRequest::AddPartitions {
        name: topic_name("orders"),
        total,
    };
    assert!(refused(&grow(4), three).is_ok());
    assert_eq!(refused(&grow(5), three), full("partitions", 5, 3));
    let groups = CountLimits { groups: 1, ..room };
    let group = new_group("sms", &["bills"], StartAt::Earliest);
    assert_eq!(refused(&group, groups), full("groups", 1, 1));
    assert_eq!(
        refused(&commit_to("sms", &[("bills", 0, 1)]), groups),
        full("groups", 1, 1)
    );
    let lowered = CountLimits {
        topics: 1,
        partitions: 1,
        groups: 0,
    };
    assert!(refused(&grow(2), lowered).is_ok(), "what is there stays");
    let taken = Err(TopicRefusal::Exists {
        topic: "orders".into(),
    }
    .into());
    assert_eq!(
        refused(&new_topic("orders", 1), lowered),
        taken,
        "the name is told first"
    );
}

#[test]
fn a_group_with_members_is_neither_deleted_nor_reset_unless_forced() {
    let bench = Bench::with_group();
    let group = group_name("email");
    let live = Live {
        members: 2,
        leases: 5,
    };
    let not_empty = Err(GroupRefusal::NotEmpty {
        group: "email".into(),
        members: 2,
        leases: 5,
    }
    .into());
    let delete = ChangeRequest::DeleteGroup {
        name: group.clone(),
        purge_dead_letters: false,
    };
    assert_eq!(
        decided(&bench, &delete, live, CountLimits::default()),
        not_empty.clone()
    );
    let reset = |force| {
        let positions = vec![(at(1, 0), offset(1))];
        let request = ChangeRequest::ResetOffsets {
            group: group.clone(),
            positions,
            force,
        };
        decided(&bench, &request, live, CountLimits::default())
    };
    assert_eq!(reset(false), not_empty);
    assert!(reset(true).is_ok());
}

#[test]
fn a_commit_to_an_unknown_group_makes_it_first() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![
        part(at(1, 0), 10),
        part(at(1, 1), 10),
        part(at(2, 0), 10),
    ]));
    bench.must(move_log_start(at(2, 0), 4));
    let request = commit_to(
        "email",
        &[("orders", 1, 6), ("bills", 0, 2), ("orders", 0, 10)],
    );
    assert_eq!(
        decided(&bench, &request, Live::default(), CountLimits::default())
            .unwrap()
            .len(),
        2
    );
    assert_eq!(done(&mut bench, &request), Ok(ChangeDone::Done));
    assert_eq!(bench.done("email", at(1, 0)).0, 10);
    assert_eq!(bench.done("email", at(1, 1)).0, 6);
    assert_eq!(bench.done("email", at(2, 0)).0, 4);
    let members = bench
        .state
        .groups
        .get(&group_name("email"))
        .unwrap()
        .topics
        .len();
    assert_eq!(members, 2);
}

#[test]
fn a_commit_that_cannot_be_makes_no_group() {
    let bench = Bench::with_topics();
    let refused = |offsets| {
        decided(
            &bench,
            &commit_to("email", offsets),
            Live::default(),
            CountLimits::default(),
        )
        .unwrap_err()
    };
    assert!(matches!(
        refused(&[]),
        Refusal::Group(GroupRefusal::TopicsMissing { .. })
    ));
    let beyond = refused(&[("orders", 0, 1)]);
    assert!(matches!(
        beyond,
        Refusal::Topic(TopicRefusal::OffsetOutOfRange { .. })
    ));
    let missing = refused(&[("orders", 0, 0), ("gone", 0, 0)]);
    assert!(matches!(
        missing,
        Refusal::Topic(TopicRefusal::NotFound { .. })
    ));
    let missing = refused(&[("orders", 2, 0)]);
    assert!(matches!(
        missing,
        Refusal::Topic(TopicRefusal::PartitionNotFound { .. })
    ));
}

#[test]
fn a_member_may_commit_backwards_and_others_may_not() {
    let mut bench = Bench::with_group();
    bench.must(commit("email", &[(at(1, 0), 5)], false));
    let mut request = commit_to("email", &[("orders", 0, 2)]);
    let refusal = done(&mut bench, &request).unwrap_err();
    assert!(matches!(
        refusal,
        Refusal::Group(GroupRefusal::OffsetMovesBack { .. })
    ));
    let ChangeRequest::CommitOffsets { member, .. } = &mut request else {
        unreachable!()
    };
    *member = Some(("m".into(), 1));
    assert_eq!(done(&mut bench, &request), Ok(ChangeDone::Done));
    assert_eq!(bench.done("email", at(1, 0)).0, 2);
}

#[test]
fn a_group_begins_where_it_is_told_to() {
    let mut bench = Bench::with_group();
    let start = StartAt::Offsets(BTreeMap::from([(at(1, 1), offset(7))]));
    done(
        &mut bench,
        &new_group("sms", &["orders", "bills", "orders"], start),
    )
    .unwrap();
    assert_eq!(bench.done("sms", at(1, 0)).0, 0);
    assert_eq!(bench.done("sms", at(1, 1)).0, 7);
    assert_eq!(bench.done("sms", at(2, 0)).0, 0);
}

#[test]
fn derived_topics_are_changed_through_their_group_only() {
    let bench = Bench::with_group();
    let name = topic_name("orders.email.dlq");
    let settings = TopicSettings::default();
    let requests = [
        ChangeRequest::UpdateTopic {
            name: name.clone(),
            settings,
        },
        ChangeRequest::AddPartitions {
            name: name.clone(),
            total: 9,
        },
        ChangeRequest::DeleteTopic {
            name: name.clone(),
            force: true,
        },
        ChangeRequest::DeleteRecords {
            name,
            partition: 0,
            before: offset(0),
        },
        new_topic("orders.sms.retry", 1),
        new_group("sms", &["orders.email.retry"], StartAt::Earliest),
    ];
    for request in requests {
        let refusal =
            decided(&bench, &request, Live::default(), CountLimits::default()).unwrap_err();
        assert!(
            matches!(refusal, Refusal::Topic(TopicRefusal::Derived { .. })),
            "{request:?}"
        );
    }
}
