//! Changes of topics.

use varvelog_store::PartitionId;

use super::sample::*;
use crate::core::applied::{Effect, Outcome};
use crate::core::command::Change;
use crate::core::partitions::SHARDS;
use crate::core::refusal::{QuotaRefusal, Refusal, TopicRefusal};
use crate::core::settings::TopicSettings;

fn not_found(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Topic(TopicRefusal::NotFound { .. }))
}

fn names(bench: &Bench) -> Vec<&str> {
    bench
        .state
        .topics
        .iter()
        .map(|topic| topic.name.as_str())
        .collect()
}

fn add_partitions(topic: u8, total: u32) -> Change {
    Change::AddPartitions {
        topic: topic_id(topic),
        total,
    }
}

#[test]
fn a_new_topic_has_empty_partitions() {
    let mut bench = Bench::default();
    let applied = bench.run(create_topic(1, "orders", 3));
    assert_eq!(applied.outcome, Ok(Outcome::Topic(topic_id(1))));
    let added = Effect::PartitionsAdded {
        topic: topic_id(1),
        from: 0,
        to: 3,
    };
    assert_eq!(applied.effects, [added, Effect::CatalogChanged]);
    let topic = bench.state.topics.by_name(&topic_name("orders")).unwrap();
    assert_eq!(topic.partition_count(), 3);
    assert!(topic.partitions.iter().all(|it| it.next() == offset(0)));
}

#[test]
fn a_taken_name_id_or_derived_name_is_refused() {
    let mut bench = Bench::with_topics();
    let exists = |topic: String| Refusal::Topic(TopicRefusal::Exists { topic });
    assert_eq!(
        bench.refused(create_topic(3, "orders", 1)),
        exists("orders".into())
    );
    assert_eq!(
        bench.refused(create_topic(1, "new", 1)),
        exists(topic_id(1).to_string())
    );
    for derived in ["a.b.retry", "a.b.dlq"] {
        let refusal = bench.refused(create_topic(3, derived, 1));
        assert!(matches!(
            refusal,
            Refusal::Topic(TopicRefusal::Derived { .. })
        ));
    }
    bench.must(delete_topic(1, false));
    assert_eq!(
        bench.refused(create_topic(1, "new", 1)),
        exists(topic_id(1).to_string())
    );
    bench.must(create_topic(3, "orders", 1));
}

#[test]
fn partitions_are_bounded_and_never_taken_away() {
    let mut bench = Bench::with_topics();
    let quota = |refusal: Refusal| {
        let Refusal::Quota(full) = refusal else {
            panic!("{refusal}")
        };
        let QuotaRefusal {
            what,
            limit,
            current,
        } = full;
        (what, limit, current)
    };
    let none = bench.refused(create_topic(3, "none", 0));
    assert_eq!(quota(none), ("partitions_of_a_topic", 10_000, 0));
    let many = bench.refused(create_topic(3, "many", 10_001));
    assert_eq!(quota(many), ("partitions_of_a_topic", 10_000, 0));
    let many = bench.refused(add_partitions(1, 10_001));
    assert_eq!(quota(many), ("partitions_of_a_topic", 10_000, 2));
    let fewer = TopicRefusal::PartitionsFewer {
        topic: "orders".into(),
        current: 2,
    };
    assert_eq!(bench.refused(add_partitions(1, 1)), fewer.into());
    assert!(not_found(&bench.refused(add_partitions(9, 1))));
    let same = bench.run(add_partitions(1, 2));
    assert_eq!(
        (same.outcome, same.effects.len()),
        (Ok(Outcome::Topic(topic_id(1))), 0)
    );
}

#[test]
fn derived_topics_grow_with_their_source_and_stay_on_its_shards() {
    let mut bench = Bench::with_group();
    bench.must(delete_group("email", false));
    bench.must(create_group("sms", vec![group_topic(2, &[])]));
    bench.must(create_group(
        "push",
        vec![crate::core::command::GroupTopic {
            retry: topic_id(200),
            dead_letter: topic_id(201),
            ..group_topic(1, &[])
        }],
    ));
    let applied = bench.run(add_partitions(1, 5));
    // The topic, the kept dead letters of a deleted group, and the two of the other group.
    let grown = |topic| Effect::PartitionsAdded {
        topic: topic_id(topic),
        from: 2,
        to: 5,
    };
    let expected = [
        grown(1),
        grown(151),
        grown(200),
        grown(201),
        Effect::CatalogChanged,
    ];
    assert_eq!(applied.effects, expected);
    for topic in [1, 151, 200, 201] {
        for number in 0..5 {
            let shard = |topic| {
                bench
                    .state
                    .topics
                    .partition(at(topic, number))
                    .unwrap()
                    .shard()
            };
            assert_eq!(shard(topic), shard(1));
            assert!(shard(topic) < SHARDS);
        }
    }
    assert_eq!(bench.done("push", at(1, 4)), (0, vec![]));
}

#[test]
fn partitions_spread_over_the_shards() {
    let shards: std::collections::BTreeSet<u8> = (0..200)
        .map(|partition| crate::core::partitions::shard_of(at(1, partition)))
        .collect();
    assert_eq!(shards.len(), usize::from(SHARDS));
    let id = PartitionId {
        topic: topic_id(1),
        partition: 3,
    };
    assert_eq!(
        crate::core::partitions::shard_of(id),
        8,
        "stored numbers are never computed anew"
    );
}

#[test]
fn settings_are_replaced_but_not_those_of_derived_topics() {
    let mut bench = Bench::with_group();
    let settings = TopicSettings {
        retention_bytes: 7,
        ..TopicSettings::default()
    };
    let update = |topic| Change::UpdateTopic {
        topic: topic_id(topic),
        settings: settings.clone(),
    };
    let applied = bench.run(update(1));
    let updated = Effect::TopicUpdated { topic: topic_id(1) };
    assert_eq!(applied.effects, [updated, Effect::CatalogChanged]);
    assert_eq!(
        bench.state.topics.by_id(topic_id(1)).unwrap().settings,
        settings
    );
    for derived in [101, 151] {
        let refusal = bench.refused(update(derived));
        assert!(
            matches!(refusal, Refusal::Topic(TopicRefusal::Derived { .. })),
            "{refusal}"
        );
    }
    assert!(not_found(&bench.refused(update(9))));
}

#[test]
fn a_deleted_topic_takes_its_derived_topics_and_leaves_its_groups() {
    let mut bench = Bench::with_group();
    let applied = bench.run(delete_topic(1, false));
    let removed = |topic| Effect::TopicRemoved {
        topic: topic_id(topic),
        partitions: 2,
    };
    let expected = [
        removed(101),
        removed(151),
        removed(1),
        Effect::CatalogChanged,
    ];
    assert_eq!(applied.effects, expected);
    assert_eq!(names(&bench), ["bills"]);
    assert!(
        bench
            .state
            .groups
            .get(&group_name("email"))
            .unwrap()
            .topics
            .is_empty()
    );
    let deleted: Vec<_> = bench.state.topics.deleted().map(|(id, _)| id).collect();
    assert_eq!(deleted, [topic_id(1), topic_id(101), topic_id(151)]);
    assert!(not_found(&bench.refused(delete_topic(1, false))));
}

#[test]
fn dead_letters_keep_their_topic_from_being_deleted_unless_forced() {
    let mut bench = Bench::with_group();
    bench.must(super::replays::die(&bench, 1, (0, 3)));
    let refusal = TopicRefusal::DeadLettersNotEmpty {
        queue: "orders.email.dlq".into(),
        depth: 3,
    };
    assert_eq!(
        bench.refused(delete_topic(1, false)),
        refusal.clone().into()
    );
    bench.must(delete_group("email", false));
    assert_eq!(
        bench.refused(delete_topic(1, false)),
        refusal.into(),
        "kept ones count too"
    );
    bench.must(delete_topic(1, true));
    assert_eq!(names(&bench), ["bills"]);
}

#[test]
fn waiting_retries_do_not_keep_a_topic_from_being_deleted() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![part(at(101, 1), 3)]));
    bench.must(delete_topic(1, false));
}

#[test]
fn a_derived_topic_is_not_deleted_by_itself() {
    let mut bench = Bench::with_group();
    for derived in [101, 151] {
        let refusal = bench.refused(delete_topic(derived, true));
        let Refusal::Topic(TopicRefusal::Derived { group, .. }) = refusal else {
            panic!()
        };
        assert_eq!(group, "email");
    }
}

#[test]
fn a_deleted_topic_is_remembered_until_its_files_are_gone() {
    let mut bench = Bench::with_topics();
    bench.pass(500);
    bench.must(delete_topic(1, false));
    let deleted = bench.state.topics.deleted().next().unwrap();
    assert_eq!((deleted.0, deleted.1.partitions), (topic_id(1), 2));
    assert_eq!(deleted.1.stamp, bench.stamp);
    bench.must(Change::ForgetTopic { topic: topic_id(1) });
    assert_eq!(bench.state.topics.deleted().count(), 0);
    assert!(not_found(
        &bench.refused(Change::ForgetTopic { topic: topic_id(1) })
    ));
    assert!(not_found(
        &bench.refused(Change::ForgetTopic { topic: topic_id(2) })
    ));
}

#[test]
fn a_log_start_moves_up_to_the_end_and_never_down() {
    let mut bench = Bench::with_group();
    let applied = bench.run(move_log_start(at(1, 0), 4));
    assert_eq!(applied.outcome, Ok(Outcome::LogStart(offset(4))));
    let moved = Effect::LogStartMoved {
        partition: at(1, 0),
        start: offset(4),
    };
    assert_eq!(applied.effects, [moved]);
    let lower = bench.run(move_log_start(at(1, 0), 3));
    assert_eq!(
        (lower.outcome, lower.effects),
        (Ok(Outcome::LogStart(offset(4))), vec![])
    );
    let beyond = bench.refused(move_log_start(at(1, 0), 11));
    let expected = TopicRefusal::OffsetOutOfRange {
        offset: 11,
        earliest: offset(4),
        latest: offset(10),
    };
    assert_eq!(beyond, expected.into());
    bench.must(move_log_start(at(1, 0), 10));
    assert_eq!(bench.produce(part(at(1, 0), 1)), Ok((10, false)));
}

#[test]
fn counts_leave_derived_topics_out() {
    let mut bench = Bench::with_group();
    let counts = bench.state.topics.counts();
    assert_eq!(
        (counts.topics, counts.partitions, counts.derived_partitions),
        (2, 3, 4)
    );
    bench.must(delete_topic(1, false));
    let counts = bench.state.topics.counts();
    assert_eq!(
        (counts.topics, counts.partitions, counts.derived_partitions),
        (1, 1, 0)
    );
}
