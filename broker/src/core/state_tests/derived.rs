//! Settings of derived topics, and what retention keeps for groups.

use super::sample::*;
use crate::core::applied::Effect;
use crate::core::command::{Append, Change, Settle};
use crate::core::failure::Ending;
use crate::core::refusal::GroupRefusal;
use crate::core::retries::RetryEntry;
use crate::core::settings::{
    DeadLetterSettings, GroupMode, GroupSettings, OnFailure, OnHeadDead, TopicSettings,
};
use varvelog_store::{Offset, WallMs};

const DAY_MS: u64 = 24 * 3_600 * 1_000;

fn update(bench: &mut Bench, change: impl FnOnce(&mut GroupSettings)) -> Vec<Effect> {
    let group = group_name("email");
    let mut settings = bench.state.groups.get(&group).unwrap().settings.clone();
    change(&mut settings);
    let applied = bench.run(Change::UpdateGroup { group, settings });
    applied.outcome.unwrap();
    applied.effects
}

/// Retention age and bytes, and the largest record, of a topic.
fn kept(bench: &Bench, topic: u8) -> (u64, u64, u32) {
    let settings = &bench.state.topics.by_id(topic_id(topic)).unwrap().settings;
    (
        settings.retention_age_ms,
        settings.retention_bytes,
        settings.record_bytes_max,
    )
}

const COPY_MAX: u32 = (1 << 20) + 16 * 1024;

#[test]
fn derived_topics_take_a_largest_record_with_its_headers_and_dead_letters_the_groups_age() {
    let bench = Bench::with_group();
    assert_eq!(kept(&bench, 101), (0, 0, COPY_MAX));
    assert_eq!(kept(&bench, 151), (30 * DAY_MS, 0, COPY_MAX));
}

#[test]
fn dead_letter_topics_follow_their_group() {
    let mut bench = Bench::with_group();
    let topic = topic_id(151);
    let effects = update(&mut bench, |it| it.dead_letter.retention_age_ms = DAY_MS);
    assert_eq!(
        effects,
        [Effect::TopicUpdated { topic }, Effect::CatalogChanged]
    );
    assert_eq!(kept(&bench, 151), (DAY_MS, 0, COPY_MAX));
    update(&mut bench, |it| it.dead_letter.bytes_max = 7_000_000);
    assert_eq!(kept(&bench, 151).1, 0, "a limit drops nothing by itself");
    update(&mut bench, |it| it.dead_letter.drop_oldest_when_full = true);
    assert_eq!(kept(&bench, 151), (DAY_MS, 7_000_000, COPY_MAX));
    assert_eq!(
        kept(&bench, 101),
        (0, 0, COPY_MAX),
        "retries have no retention"
    );
    assert_eq!(update(&mut bench, |it| it.paused = true), []);
    bench.restart();
}

#[test]
fn derived_topics_follow_their_source_even_those_of_deleted_groups() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![part(at(151, 0), 1)]));
    bench.must(create_group("sms", vec![crate_group_topic()]));
    bench.must(delete_group("email", false));
    let settings = TopicSettings {
        segment_bytes: 1 << 20,
        record_bytes_max: 100,
        ..TopicSettings::default()
    };
    let topic = topic_id(1);
    let applied = bench.run(Change::UpdateTopic { topic, settings });
    let updated = |topic| Effect::TopicUpdated { topic };
    let ids = [topic, topic_id(120), topic_id(121), topic_id(151)];
    let mut expected: Vec<Effect> = ids.map(updated).into();
    expected.push(Effect::CatalogChanged);
    assert_eq!(applied.effects, expected);
    for derived in [120, 121, 151] {
        assert_eq!(kept(&bench, derived).2, 100 + 16 * 1024);
    }
}

fn crate_group_topic() -> crate::core::command::GroupTopic {
    crate::core::command::GroupTopic {
        retry: topic_id(120),
        dead_letter: topic_id(121),
        ..group_topic(1, &[])
    }
}

#[test]
fn an_adopted_dead_letter_topic_takes_the_settings_of_the_new_group() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![part(at(151, 0), 1)]));
    bench.must(delete_group("email", false));
    let settings = GroupSettings {
        dead_letter: DeadLetterSettings {
            retention_age_ms: 5,
            ..DeadLetterSettings::default()
        },
        ..GroupSettings::default()
    };
    let topics = vec![crate_group_topic()];
    let group = group_name("email");
    bench.must(Change::CreateGroup(crate::core::command::CreateGroup {
        group,
        settings,
        topics,
    }));
    assert_eq!(kept(&bench, 151).0, 5);
    let reads = &bench.state.groups.get(&group_name("email")).unwrap().topics[&topic_id(1)];
    assert_eq!(
        (reads.retry, reads.dead_letter),
        (topic_id(120), topic_id(151))
    );
    bench.restart();
}

#[test]
fn a_queue_has_no_positions_for_programs_to_keep() {
    let mut bench = Bench::with_group();
    update(&mut bench, |it| {
        it.mode = GroupMode::Queue;
        it.on_failure = OnFailure::Hold;
    });
    let refused = bench.refused(commit("email", &[(at(1, 0), 2)], false));
    let group = "email".to_owned();
    assert_eq!(refused, GroupRefusal::Mode { group }.into());
}

#[test]
fn retention_keeps_retries_that_wait_and_what_groups_have_not_consumed() {
    let mut bench = Bench::with_group();
    assert!(bench.state.retention_floors().is_empty());
    let entry = RetryEntry {
        due: WallMs(9),
        origin: offset(0),
        failures: 1,
        suspect: false,
    };
    for first in [0, 1] {
        let settle = Settle {
            ranges: vec![(offset(first), offset(first))],
            append: Append {
                request: None,
                parts: vec![part(at(101, 0), 1)],
            },
            retries: vec![(0, vec![entry])],
            ..settle_of(&bench, "email", at(1, 0))
        };
        bench.must(Change::Settle(settle));
    }
    let floor = |bench: &Bench, at| bench.state.retention_floor(at).map(Offset::get);
    assert_eq!(floor(&bench, at(101, 0)), Some(0));
    bench.must(bench.settle("email", at(101, 0), &[(0, 0)]));
    assert_eq!(floor(&bench, at(101, 0)), Some(1));
    bench.must(bench.settle("email", at(101, 0), &[(1, 1)]));
    assert_eq!(floor(&bench, at(101, 0)), Some(2));
    assert_eq!(
        floor(&bench, at(151, 0)),
        None,
        "dead letters wait for nobody"
    );

    assert_eq!(floor(&bench, at(1, 0)), None);
    update(&mut bench, |it| it.retain_until_consumed = true);
    bench.must(create_group("sms", vec![crate_group_topic()]));
    assert_eq!(
        floor(&bench, at(1, 0)),
        Some(2),
        "others do not hold it back"
    );
    let all = bench.state.retention_floors();
    let expected = [(at(1, 0), 2), (at(1, 1), 0), (at(101, 0), 2)];
    assert_eq!(all, expected.map(|(at, floor)| (at, offset(floor))).into());
}

#[test]
fn a_key_is_parked_until_the_dead_letter_log_starts_behind_what_is_there_of_it() {
    let mut bench = Bench::with_group();
    let die = |bench: &mut Bench, first, key: u64| {
        let settle = Settle {
            ranges: vec![(offset(first), offset(first))],
            endings: vec![(offset(first), Ending::DeadLettered)],
            parked: vec![key],
            append: Append {
                request: None,
                parts: vec![part(at(151, 0), 2)],
            },
            deaths: vec![(0, deaths(2))],
            ..settle_of(bench, "email", at(1, 0))
        };
        bench.must(Change::Settle(settle));
    };
    let parked = |bench: &Bench| {
        let group = bench.state.groups.get(&group_name("email")).unwrap();
        let parked = group.progress(at(1, 0)).unwrap().parked();
        parked
            .iter()
            .map(|(key, until)| (*key, until.get()))
            .collect::<Vec<_>>()
    };
    let discard = |bench: &mut Bench, start| {
        let (partition, start) = (at(151, 0), offset(start));
        bench.must(Change::MoveLogStart { partition, start });
    };
    update(&mut bench, |it| {
        it.on_failure = OnFailure::Hold;
        it.on_head_dead = OnHeadDead::Park;
    });
    die(&mut bench, 0, 7);
    die(&mut bench, 1, 9);
    die(&mut bench, 2, 7);
    assert_eq!(parked(&bench), [(7, 6), (9, 4)]);
    bench.restart();
    discard(&mut bench, 3);
    assert_eq!(parked(&bench), [(7, 6), (9, 4)]);
    discard(&mut bench, 4);
    assert_eq!(parked(&bench), [(7, 6)]);
    update(&mut bench, |it| it.paused = true);
    assert_eq!(parked(&bench), [(7, 6)]);
    update(&mut bench, |it| it.on_head_dead = OnHeadDead::Halt);
    assert_eq!(parked(&bench), []);
    die(&mut bench, 3, 8);
    assert_eq!(parked(&bench), [], "decided on before the settings changed");
    update(&mut bench, |it| it.on_head_dead = OnHeadDead::Park);
    die(&mut bench, 4, 8);
    assert_eq!(parked(&bench), [(8, 10)]);
    bench.must(reset("email", &[(at(1, 0), 0)]));
    assert_eq!(parked(&bench), []);
}
