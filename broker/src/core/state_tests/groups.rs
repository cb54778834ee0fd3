//! Changes of groups.

use super::sample::*;
use crate::core::applied::{Effect, Outcome, RangeSettled, Settlement};
use crate::core::command::{Change, GroupTopic};
use crate::core::durable_groups::ACK_WINDOW;
use crate::core::refusal::{GroupRefusal, QuotaRefusal, Refusal, TopicRefusal};
use crate::core::request::Appended;
use crate::core::settings::GroupSettings;
use crate::core::topics::DerivedKind;

fn add_topics(name: &str, topics: Vec<GroupTopic>) -> Change {
    Change::AddGroupTopics {
        group: group_name(name),
        topics,
    }
}

fn missing(name: &str) -> Refusal {
    GroupRefusal::NotFound {
        group: name.to_owned(),
    }
    .into()
}

#[test]
fn a_group_comes_with_empty_derived_topics() {
    let mut bench = Bench::with_topics();
    let applied = bench.run(create_group("email", vec![group_topic(1, &[])]));
    assert_eq!(applied.outcome, Ok(Outcome::Done));
    let added = |topic| Effect::PartitionsAdded {
        topic: topic_id(topic),
        from: 0,
        to: 2,
    };
    assert_eq!(
        applied.effects,
        [added(101), added(151), Effect::CatalogChanged]
    );
    let retry = bench
        .state
        .topics
        .by_name(&topic_name("orders.email.retry"))
        .unwrap();
    let derived = retry.derived.as_ref().unwrap();
    assert_eq!(
        (derived.kind, derived.source),
        (DerivedKind::Retry, topic_id(1))
    );
    assert_eq!(
        retry.settings.retention_age_ms, 0,
        "retries outlive any time"
    );
    let dead = bench
        .state
        .topics
        .by_name(&topic_name("orders.email.dlq"))
        .unwrap();
    assert_eq!(dead.settings.retention_age_ms, 30 * 24 * 3_600_000);
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    assert_eq!(
        (group.id, group.generation, group.settings_version),
        (1, 0, 1)
    );
}

#[test]
fn a_group_that_cannot_be_is_refused() {
    let mut bench = Bench::with_group();
    let exists = GroupRefusal::Exists {
        group: "email".into(),
    };
    assert_eq!(
        bench.refused(create_group("email", vec![group_topic(2, &[])])),
        exists.into()
    );
    let none = GroupRefusal::TopicsMissing {
        group: "sms".into(),
    };
    assert_eq!(bench.refused(create_group("sms", vec![])), none.into());
    let gone = bench.refused(create_group(
        "sms",
        vec![group_topic(2, &[]), group_topic(9, &[])],
    ));
    assert!(matches!(
        gone,
        Refusal::Topic(TopicRefusal::NotFound { .. })
    ));
    let derived = bench.refused(create_group("sms", vec![group_topic(101, &[])]));
    assert!(matches!(
        derived,
        Refusal::Topic(TopicRefusal::Derived { .. })
    ));
    let stale = GroupTopic {
        retry: topic_id(1),
        ..group_topic(2, &[])
    };
    let stale = bench.refused(create_group("sms", vec![stale]));
    assert!(matches!(stale, Refusal::Topic(TopicRefusal::Exists { .. })));
    let twice = GroupTopic {
        dead_letter: topic_id(102),
        ..group_topic(2, &[])
    };
    let twice = bench.refused(create_group("sms", vec![twice]));
    assert!(matches!(twice, Refusal::Topic(TopicRefusal::Exists { .. })));
}

#[test]
fn a_derived_name_beyond_the_limit_refuses_the_group() {
    let mut bench = Bench::default();
    bench.must(create_topic(1, &"a".repeat(249 - ".email.retry".len()), 1));
    bench.must(create_topic(2, &"b".repeat(250 - ".email.retry".len()), 1));
    bench.must(create_group("email", vec![group_topic(1, &[])]));
    let refusal = bench.refused(add_topics("email", vec![group_topic(2, &[])]));
    let Refusal::Group(GroupRefusal::DerivedNameTooLong { name, limit }) = refusal else {
        panic!("{refusal}")
    };
    assert_eq!((name.len(), limit), (250, 249));
}

#[test]
fn start_positions_are_brought_into_the_log() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![part(at(1, 0), 10), part(at(1, 1), 10)]));
    bench.must(move_log_start(at(1, 0), 4));
    bench.must(create_group("a", vec![group_topic(1, &[2, 99])]));
    assert_eq!(bench.done("a", at(1, 0)), (4, vec![]));
    assert_eq!(bench.done("a", at(1, 1)), (10, vec![]));
    let other = GroupTopic {
        retry: topic_id(90),
        dead_letter: topic_id(91),
        ..group_topic(1, &[6])
    };
    bench.must(create_group("b", vec![other]));
    assert_eq!(bench.done("b", at(1, 0)), (6, vec![]));
    assert_eq!(bench.done("b", at(1, 1)), (0, vec![]));
}

#[test]
fn a_topic_that_the_group_has_is_passed_over() {
    let mut bench = Bench::with_group();
    bench.must(commit("email", &[(at(1, 0), 5)], false));
    let applied = bench.run(add_topics(
        "email",
        vec![group_topic(1, &[]), group_topic(2, &[3])],
    ));
    assert_eq!(applied.effects.len(), 3);
    assert_eq!(bench.done("email", at(1, 0)).0, 5);
    assert_eq!(bench.done("email", at(2, 0)).0, 3);
    let again = bench.run(add_topics(
        "email",
        vec![group_topic(2, &[]), group_topic(2, &[])],
    ));
    assert_eq!((again.outcome, again.effects), (Ok(Outcome::Done), vec![]));
    assert_eq!(bench.refused(add_topics("sms", vec![])), missing("sms"));
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    let read = group.topics_by_name(&bench.state.topics);
    let read: Vec<&str> = read.iter().map(|(topic, _)| topic.name.as_str()).collect();
    assert_eq!(read, ["bills", "orders"]);
}

#[test]
fn a_group_made_again_adopts_its_dead_letters_and_is_another() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![part(at(151, 0), 3)]));
    let old = bench.settle("email", at(1, 0), &[(0, 0)]);
    let applied = bench.run(delete_group("email", false));
    let removed = Effect::TopicRemoved {
        topic: topic_id(101),
        partitions: 2,
    };
    let gone = Effect::GroupRemoved {
        group: group_name("email"),
        group_id: 1,
    };
    assert_eq!(applied.effects, [removed, Effect::CatalogChanged, gone]);
    let again = GroupTopic {
        retry: topic_id(90),
        dead_letter: topic_id(91),
        ..group_topic(1, &[])
    };
    let applied = bench.run(create_group("email", vec![again]));
    let added = Effect::PartitionsAdded {
        topic: topic_id(90),
        from: 0,
        to: 2,
    };
    assert_eq!(applied.effects, [added, Effect::CatalogChanged]);
    let group = bench.state.groups.get(&group_name("email")).unwrap();
    assert_eq!(group.id, 2);
    assert_eq!(group.topics[&topic_id(1)].dead_letter, topic_id(151));
    let kept = bench.state.topics.partition(at(151, 0)).unwrap();
    assert_eq!(kept.next(), offset(3));
    assert_eq!(
        bench.refused(old),
        missing("email"),
        "a token of the old group is void"
    );
}

#[test]
fn a_purge_takes_the_dead_letters_too() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![part(at(151, 0), 3)]));
    bench.must(delete_group("email", true));
    assert!(bench.state.topics.by_id(topic_id(151)).is_none());
    assert_eq!(bench.refused(delete_group("email", true)), missing("email"));
}

#[test]
fn settings_and_generations_are_counted() {
    let mut bench = Bench::with_group();
    let settings = GroupSettings {
        paused: true,
        ..GroupSettings::default()
    };
    let group = group_name("email");
    bench.must(Change::UpdateGroup {
        group: group.clone(),
        settings: settings.clone(),
    });
    for generation in 1..3 {
        let outcome = bench.must(Change::NextGeneration {
            group: group.clone(),
        });
        assert_eq!(outcome, Outcome::Generation(generation));
    }
    let found = bench.state.groups.get(&group).unwrap();
    assert_eq!((&found.settings, found.settings_version), (&settings, 2));
    let group = group_name("sms");
    assert_eq!(
        bench.refused(Change::NextGeneration {
            group: group.clone()
        }),
        missing("sms")
    );
    assert_eq!(
        bench.refused(Change::UpdateGroup { group, settings }),
        missing("sms")
    );
}

#[test]
fn settled_records_move_the_low_watermark_over_what_is_done() {
    let mut bench = Bench::with_group();
    let settled = |done, already| RangeSettled { done, already };
    let all = |ranges| {
        Outcome::Settled(Settlement {
            ranges,
            appended: Appended::default(),
        })
    };
    let outcome = bench.must(bench.settle("email", at(1, 0), &[(2, 3), (6, 6)]));
    assert_eq!(outcome, all(vec![settled(2, 0), settled(1, 0)]));
    assert_eq!(bench.done("email", at(1, 0)), (0, vec![2, 3, 6]));
    let outcome = bench.must(bench.settle("email", at(1, 0), &[(0, 2), (9, 9)]));
    assert_eq!(outcome, all(vec![settled(2, 1), settled(1, 0)]));
    assert_eq!(bench.done("email", at(1, 0)), (4, vec![6, 9]));
    let outcome = bench.must(bench.settle("email", at(1, 0), &[(3, 9)]));
    assert_eq!(outcome, all(vec![settled(4, 3)]));
    assert_eq!(bench.done("email", at(1, 0)), (10, vec![]));
    assert_eq!(bench.done("email", at(1, 1)), (0, vec![]));
}

#[test]
fn a_settlement_of_what_is_not_there_is_refused_as_a_whole() {
    let mut bench = Bench::with_group();
    let beyond = bench.refused(bench.settle("email", at(1, 0), &[(0, 1), (9, 10)]));
    assert!(matches!(
        beyond,
        Refusal::Topic(TopicRefusal::OffsetOutOfRange { .. })
    ));
    let backwards = bench.refused(bench.settle("email", at(1, 0), &[(3, 2)]));
    assert!(matches!(
        backwards,
        Refusal::Group(GroupRefusal::LeaseLost { .. })
    ));
    let overlap = bench.refused(bench.settle("email", at(1, 0), &[(1, 3), (3, 4)]));
    assert!(matches!(
        overlap,
        Refusal::Group(GroupRefusal::LeaseLost { .. })
    ));
    let other = TopicRefusal::PartitionNotFound {
        topic: "orders".into(),
        partition: 2,
        partitions: 2,
    };
    assert_eq!(
        bench.refused(bench.settle("email", at(1, 2), &[])),
        other.into()
    );
    let foreign = GroupRefusal::TopicNotOfGroup {
        group: "email".into(),
        topic: "bills".into(),
    };
    assert_eq!(
        bench.refused(bench.settle("email", at(2, 0), &[(0, 0)])),
        foreign.into()
    );
}

#[test]
fn records_far_beyond_the_low_watermark_cannot_be_settled() {
    let mut bench = Bench::with_group();
    for _ in 0..30 {
        bench.produce(part(at(1, 0), 10_000)).unwrap();
    }
    bench.must(bench.settle("email", at(1, 0), &[(ACK_WINDOW - 1, ACK_WINDOW - 1)]));
    let full = QuotaRefusal {
        what: "ack_window",
        limit: ACK_WINDOW,
        current: ACK_WINDOW,
    };
    let refusal = bench.refused(bench.settle("email", at(1, 0), &[(ACK_WINDOW, ACK_WINDOW)]));
    assert_eq!(refusal, full.into());
    bench.must(bench.settle("email", at(1, 0), &[(0, 0)]));
    bench.must(bench.settle("email", at(1, 0), &[(ACK_WINDOW, ACK_WINDOW)]));
}

#[test]
fn a_commit_moves_all_positions_or_none() {
    let mut bench = Bench::with_group();
    bench.must(commit("email", &[(at(1, 0), 4), (at(1, 1), 10)], false));
    assert_eq!(bench.progress("email", at(1, 0)).metadata(), "at 4");
    let back = GroupRefusal::OffsetMovesBack {
        committed: offset(4),
        got: offset(3),
    };
    let refusal = bench.refused(commit("email", &[(at(1, 1), 10), (at(1, 0), 3)], false));
    assert_eq!(refusal, back.into());
    let beyond = bench.refused(commit("email", &[(at(1, 0), 11)], true));
    assert!(matches!(
        beyond,
        Refusal::Topic(TopicRefusal::OffsetOutOfRange { .. })
    ));
    let foreign = bench.refused(commit("email", &[(at(2, 0), 1)], false));
    assert!(matches!(
        foreign,
        Refusal::Group(GroupRefusal::TopicNotOfGroup { .. })
    ));
    assert_eq!(bench.refused(commit("sms", &[], false)), missing("sms"));
    assert_eq!(bench.done("email", at(1, 0)), (4, vec![]));
}

#[test]
fn a_commit_forward_keeps_what_is_done_ahead_and_one_back_drops_it() {
    let mut bench = Bench::with_group();
    bench.must(bench.settle("email", at(1, 0), &[(2, 2), (5, 6), (8, 8)]));
    bench.must(commit("email", &[(at(1, 0), 3)], false));
    assert_eq!(bench.done("email", at(1, 0)), (3, vec![5, 6, 8]));
    bench.must(commit("email", &[(at(1, 0), 6)], false));
    assert_eq!(bench.done("email", at(1, 0)), (7, vec![8]));
    bench.must(commit("email", &[(at(1, 0), 1)], true));
    assert_eq!(bench.done("email", at(1, 0)), (1, vec![]));
}

#[test]
fn a_commit_back_goes_to_the_log_start_at_most() {
    let mut bench = Bench::with_group();
    bench.must(move_log_start(at(1, 0), 4));
    bench.must(commit("email", &[(at(1, 0), 8)], false));
    bench.must(commit("email", &[(at(1, 0), 1)], true));
    assert_eq!(bench.done("email", at(1, 0)), (4, vec![]));
}

#[test]
fn a_log_start_that_overtakes_a_group_counts_what_it_lost() {
    let mut bench = Bench::with_group();
    bench.must(bench.settle("email", at(1, 0), &[(2, 3), (5, 6)]));
    bench.must(move_log_start(at(1, 0), 5));
    assert_eq!(bench.done("email", at(1, 0)), (7, vec![]));
    assert_eq!(bench.progress("email", at(1, 0)).expired_unsettled(), 3);
    bench.must(move_log_start(at(1, 0), 6));
    assert_eq!(bench.progress("email", at(1, 0)).expired_unsettled(), 3);
    bench.must(move_log_start(at(1, 0), 10));
    assert_eq!(bench.progress("email", at(1, 0)).expired_unsettled(), 6);
    assert_eq!(bench.done("email", at(1, 0)), (10, vec![]));
}

#[test]
fn a_reset_moves_either_way_and_voids_tokens() {
    let mut bench = Bench::with_group();
    bench.must(bench.settle("email", at(1, 0), &[(0, 2), (5, 6)]));
    bench.must(commit("email", &[(at(1, 1), 7)], false));
    bench.must(move_log_start(at(1, 1), 2));
    let token = bench.settle("email", at(1, 0), &[(0, 0)]);
    let applied = bench.run(reset("email", &[(at(1, 0), 1), (at(1, 1), 0)]));
    let moved = vec![
        (at(1, 0), offset(3), offset(1)),
        (at(1, 1), offset(7), offset(2)),
    ];
    assert_eq!(applied.outcome, Ok(Outcome::Moved(moved)));
    let void = |partition| Effect::GroupReset {
        group: group_name("email"),
        partition,
    };
    assert_eq!(applied.effects, [void(at(1, 0)), void(at(1, 1))]);
    assert_eq!(bench.done("email", at(1, 0)), (1, vec![]));
    assert_eq!(bench.progress("email", at(1, 1)).metadata(), "");
    let lost = GroupRefusal::LeaseLost { offset: offset(0) };
    assert_eq!(bench.refused(token), lost.into());
    bench.must(bench.settle("email", at(1, 0), &[(1, 1)]));
    bench.must(reset("email", &[(at(1, 0), 999)]));
    assert_eq!(bench.done("email", at(1, 0)), (10, vec![]));
    bench.refused(reset("email", &[(at(1, 0), 1), (at(2, 0), 1)]));
    assert_eq!(bench.done("email", at(1, 0)), (10, vec![]));
}

#[test]
fn what_a_group_last_did_is_stamped() {
    let mut bench = Bench::with_group();
    let stamp = |bench: &Bench| {
        bench
            .state
            .groups
            .get(&group_name("email"))
            .unwrap()
            .last_active
    };
    let changes = [
        bench.settle("email", at(1, 0), &[(0, 0)]),
        commit("email", &[], false),
        Change::NextGeneration {
            group: group_name("email"),
        },
        reset("email", &[]),
        add_topics("email", vec![]),
    ];
    for change in changes {
        bench.pass(10);
        bench.must(change);
        assert_eq!(stamp(&bench), bench.stamp);
    }
    let before = bench.stamp;
    bench.pass(10);
    let settings = GroupSettings::default();
    bench.must(Change::UpdateGroup {
        group: group_name("email"),
        settings,
    });
    assert_eq!(stamp(&bench), before);
}
