//! Properties of the state as a whole, over random commands.

use proptest::prelude::*;
use varvelog_store::{Sequence, WallMs};

use super::sample::*;
use crate::core::applied::{Applied, Effect, Outcome};
use crate::core::command::{Append, AppendPart, Change, Command, GroupTopic, Settle, Stamp};
use crate::core::durable_groups::Progress;
use crate::core::forecast::RoundForecast;
use crate::core::settings::{GroupSettings, TopicSettings};
use crate::core::state::State;

const GROUPS: [&str; 2] = ["a", "b"];

fn partition() -> impl Strategy<Value = varvelog_store::PartitionId> {
    (1..5_u8, 0..4_u32).prop_map(|(topic, number)| at(topic, number))
}

fn append_part() -> impl Strategy<Value = AppendPart> {
    let producer = prop::option::of((0..4_i64, 0..3_i16, 0..12_i32));
    (partition(), 1..4_u32, producer).prop_map(|(at, count, producer)| match producer {
        None => part(at, count),
        Some(stamp) => produced(at, stamp, count),
    })
}

fn append_change() -> impl Strategy<Value = Change> {
    let parts = prop::collection::vec(append_part(), 1..4);
    (prop::option::of((1..4_u8, 0..3_u8, 0..2_u64)), parts).prop_map(|(id, parts)| match id {
        None => append(parts),
        Some((topic, id, hash)) => request(topic, &format!("r{id}"), hash, parts),
    })
}

/// Ids of derived topics differ by group and by a draw, as fresh ones do.
fn group_topics() -> impl Strategy<Value = Vec<GroupTopic>> {
    let one = (1..5_u8, prop::collection::vec(0..20_u64, 0..3), 20..120_u8);
    let one = one.prop_map(|(topic, start, fresh)| GroupTopic {
        retry: topic_id(fresh),
        dead_letter: topic_id(fresh + 100),
        ..group_topic(topic, &start)
    });
    prop::collection::vec(one, 0..3)
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&GROUPS[..])
}

fn topic_change() -> impl Strategy<Value = Change> {
    let topic = || 1..5_u8;
    prop_oneof![
        4 => (topic(), 0..3_u8, 0..4_u32).prop_map(|(topic, name, partitions)| {
            create_topic(topic, &format!("t{name}"), partitions)
        }),
        1 => topic().prop_map(|topic| {
            let segment_bytes = topic.into();
            let settings = TopicSettings { segment_bytes, ..TopicSettings::default() };
            Change::UpdateTopic { topic: topic_id(topic), settings }
        }),
        2 => (topic(), 0..5_u32).prop_map(|(topic, total)| {
            Change::AddPartitions { topic: topic_id(topic), total }
        }),
        1 => (topic(), any::<bool>()).prop_map(|(topic, force)| delete_topic(topic, force)),
        1 => topic().prop_map(|topic| Change::ForgetTopic { topic: topic_id(topic) }),
        3 => (partition(), 0..20_u64).prop_map(|(at, start)| move_log_start(at, start)),
    ]
}

fn group_change() -> impl Strategy<Value = Change> {
    let positions = || prop::collection::vec((partition(), 0..20_u64), 0..3);
    prop_oneof![
        3 => (name(), group_topics()).prop_map(|(name, topics)| create_group(name, topics)),
        2 => (name(), group_topics()).prop_map(|(name, topics)| {
            Change::AddGroupTopics { group: group_name(name), topics }
        }),
        1 => name().prop_map(|name| {
            let settings = GroupSettings::default();
            Change::UpdateGroup { group: group_name(name), settings }
        }),
        1 => (name(), any::<bool>()).prop_map(|(name, purge)| delete_group(name, purge)),
        1 => name().prop_map(|name| Change::NextGeneration { group: group_name(name) }),
        3 => (name(), positions(), any::<bool>())
            .prop_map(|(name, to, back)| commit(name, &to, back)),
        1 => (name(), positions()).prop_map(|(name, to)| reset(name, &to)),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Change(Box<Change>),
    /// Of a group, with its present id and reset count unless void.
    Settle {
        name: &'static str,
        at: varvelog_store::PartitionId,
        first: u64,
        last: u64,
        void: bool,
    },
    Pass(u64),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let settle = (
        name(),
        partition(),
        0..20_u64,
        0..4_u64,
        prop::bool::weighted(0.1),
    );
    let settle = settle.prop_map(|(name, at, first, more, void)| Step::Settle {
        name,
        at,
        first,
        last: first + more,
        void,
    });
    let boxed = |change| Step::Change(Box::new(change));
    prop_oneof![
        8 => append_change().prop_map(boxed),
        5 => topic_change().prop_map(boxed),
        5 => group_change().prop_map(boxed),
        5 => settle,
        1 => prop::sample::select(&["", "p"][..]).prop_map(move |name| {
            boxed(Change::InitProducer { name: name.to_owned() })
        }),
        1 => (0..500_i64).prop_map(move |since| {
            boxed(Change::ExpireProducers { used_since: WallMs(since) })
        }),
        1 => any::<bool>().prop_map(move |clean| boxed(Change::BrokerStarted { clean })),
        2 => prop_oneof![0..200_u64, Just(300_000)].prop_map(Step::Pass),
        1 => Just(Step::Snapshot),
    ]
}

fn settle_change(state: &State, step: &Step) -> Option<Change> {
    let Step::Settle {
        name,
        at,
        first,
        last,
        void,
    } = step
    else {
        return None;
    };
    let group = state.groups.get(&group_name(name));
    let reset_count = group
        .and_then(|group| group.progress(*at))
        .map_or(0, Progress::reset_count);
    let group_id = group.map_or(0, |group| group.id);
    let resets = reset_count + u64::from(*void);
    Some(Change::Settle(Settle {
        ranges: vec![(offset(*first), offset(*last))],
        ..Settle::of(group_name(name), group_id, resets, *at)
    }))
}

/// The appends that a broker makes before random steps, so that these find something.
fn populated() -> Bench {
    let mut bench = Bench::default();
    bench.must(create_topic(1, "t0", 2));
    bench.must(create_topic(2, "t1", 3));
    bench.must(create_group("a", vec![group_topic(1, &[])]));
    bench.init("p");
    bench.must(append(vec![part(at(1, 0), 8), part(at(2, 1), 5)]));
    bench
}

/// Applies the command as a broker that reads it from its log does.
fn replay(state: &mut State, sequence: u64, command: &Command) -> Applied {
    let (head, bulk) = command.encode();
    let decoded = Command::decode(head, bulk).unwrap();
    assert_eq!(&decoded, command);
    state.apply(Sequence::new(sequence), &decoded)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn a_replay_through_bytes_and_snapshots_is_the_same_run(
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let mut bench = populated();
        let mut twin = State::decode(&bench.state.encode()).unwrap();
        let mut sequence = 100;
        for step in steps {
            let change = match step {
                Step::Change(change) => *change,
                Step::Settle { .. } => settle_change(&bench.state, &step).unwrap(),
                Step::Pass(ms) => {
                    bench.pass(ms);
                    continue;
                }
                Step::Snapshot => {
                    twin = State::decode(&twin.encode()).unwrap();
                    continue;
                }
            };
            let mut predicted = change.clone();
            if let Change::Append(append) = &mut predicted {
                let mut round = RoundForecast::default();
                if bench.state.predict(&mut round, append, bench.stamp).is_err() {
                    append.parts.iter_mut().for_each(|part| part.predicted = None);
                }
            }
            // Codecs keep what only a check refuses out of the log.
            let is_loggable = bench.state.check(&predicted, bench.stamp).is_ok();
            let applied = bench.run(change);
            sequence += 1;
            let command = Command { stamp: bench.stamp, change: predicted };
            if is_loggable {
                prop_assert_eq!(replay(&mut twin, sequence, &command), applied);
            }
            let broker = bench.state.broker;
            bench.state.broker.applied = twin.broker.applied;
            bench.state.broker.stamp = twin.broker.stamp;
            prop_assert_eq!(bench.state.encode(), twin.encode());
            bench.state.broker = broker;
        }
    }

    /// Rounds are predicted ahead of what is applied, the next one also while the one before it is
    /// still on its way to the disk.
    #[test]
    fn what_a_round_predicts_is_what_apply_does(
        rounds in prop::collection::vec(prop::collection::vec(append_change(), 1..6), 1..6),
        overlap in any::<bool>(),
    ) {
        let mut bench = populated();
        let mut forecast = RoundForecast::default();
        let mut on_its_way: Vec<Append> = Vec::new();
        for round in rounds {
            let mut admitted = Vec::new();
            for change in round {
                let Change::Append(mut append) = change else { unreachable!() };
                if bench.state.predict(&mut forecast, &mut append, bench.stamp).is_ok() {
                    admitted.push(append);
                }
            }
            if overlap {
                std::mem::swap(&mut on_its_way, &mut admitted);
            } else {
                forecast = RoundForecast::default();
            }
            apply_all(&mut bench, admitted)?;
        }
        apply_all(&mut bench, on_its_way)?;
    }
}

fn apply_all(bench: &mut Bench, appends: Vec<Append>) -> Result<(), TestCaseError> {
    for append in appends {
        let counts: Vec<u32> = append.parts.iter().map(|part| part.record_count).collect();
        let new = append
            .parts
            .iter()
            .filter(|part| part.predicted.is_some())
            .count();
        let command = Command {
            stamp: bench.stamp,
            change: Change::Append(append),
        };
        let applied = bench.state.apply(Sequence::new(1), &command);
        bench.state.check_invariants();
        prop_assert_eq!(applied.effects.len(), new);
        let Ok(Outcome::Appended(appended)) = applied.outcome else {
            return Err(TestCaseError::fail(
                "an append that was predicted is refused",
            ));
        };
        for effect in applied.effects {
            let Effect::Append {
                base_offset,
                record_count,
                part,
                ..
            } = effect
            else {
                return Err(TestCaseError::fail("an append does something else"));
            };
            prop_assert_eq!(appended.parts[part].base_offset, base_offset);
            prop_assert_eq!(counts[part], record_count);
        }
    }
    Ok(())
}

#[test]
fn stamps_never_fall() {
    let mut bench = populated();
    bench.stamp = Stamp {
        wall: WallMs(9),
        running_ms: 3,
    };
    bench.init("");
    bench.stamp = Stamp {
        wall: WallMs(7),
        running_ms: 5,
    };
    bench.init("");
    assert_eq!(
        bench.state.broker.stamp(),
        Stamp {
            wall: WallMs(9),
            running_ms: 5
        }
    );
}
