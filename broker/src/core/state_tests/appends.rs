//! Appends as such.

use varvelog_store::{Epoch, WallMs};

use super::sample::*;
use crate::core::applied::{Effect, Outcome};
use crate::core::command::{Append, Change, Stamp};
use crate::core::forecast::RoundForecast;
use crate::core::refusal::{Refusal, TopicRefusal};

#[test]
fn parts_get_dense_offsets_in_order_also_twice_in_one_partition() {
    let mut bench = Bench::with_topics();
    let change = append(vec![
        part(at(1, 0), 3),
        part(at(1, 1), 1),
        part(at(1, 0), 2),
    ]);
    let applied = bench.run(change);
    let Ok(Outcome::Appended(appended)) = applied.outcome else {
        panic!()
    };
    let bases: Vec<u64> = appended
        .parts
        .iter()
        .map(|part| part.base_offset.get())
        .collect();
    assert_eq!(bases, [0, 0, 3]);
    assert!(!appended.duplicate);
    let last = Effect::Append {
        partition: at(1, 0),
        base_offset: offset(3),
        record_count: 2,
        epoch: Epoch(0),
        append_time: WallMs(0),
        part: 2,
    };
    assert_eq!(applied.effects.len(), 3);
    assert_eq!(applied.effects[2], last);
    assert_eq!(bench.produce(part(at(1, 0), 1)), Ok((5, false)));
}

#[test]
fn one_part_that_cannot_be_refuses_all_of_them() {
    let mut bench = Bench::with_topics();
    let refusal = bench.refused(append(vec![part(at(1, 0), 3), part(at(1, 2), 1)]));
    let expected = TopicRefusal::PartitionNotFound {
        topic: "orders".into(),
        partition: 2,
        partitions: 2,
    };
    assert_eq!(refusal, Refusal::Topic(expected));
    let gone = bench.refused(append(vec![part(at(1, 0), 3), part(at(9, 0), 1)]));
    assert!(matches!(
        gone,
        Refusal::Topic(TopicRefusal::NotFound { .. })
    ));
    assert_eq!(bench.produce(part(at(1, 0), 1)), Ok((0, false)));
}

#[test]
fn append_time_never_falls_though_the_clock_does() {
    let mut bench = Bench::with_topics();
    bench.stamp = Stamp {
        wall: WallMs(5_000),
        running_ms: 10,
    };
    bench.produce(part(at(1, 0), 1)).unwrap();
    bench.stamp = Stamp {
        wall: WallMs(1_000),
        running_ms: 5,
    };
    let applied = bench.run(append(vec![part(at(1, 0), 1), part(at(1, 1), 1)]));
    for effect in applied.effects {
        let Effect::Append { append_time, .. } = effect else {
            panic!()
        };
        assert_eq!(append_time, WallMs(5_000));
    }
    assert_eq!(
        bench.state.broker.stamp(),
        Stamp {
            wall: WallMs(5_000),
            running_ms: 10
        }
    );
}

#[test]
fn a_round_sees_its_earlier_appends() {
    let bench = Bench::with_topics();
    let mut round = RoundForecast::default();
    for expected in [0, 4, 8] {
        let parts = vec![part(at(1, 0), 4), part(at(2, 0), 1)];
        let mut append = Append {
            request: None,
            parts,
        };
        bench
            .state
            .predict(&mut round, &mut append, bench.stamp)
            .unwrap();
        assert_eq!(append.parts[0].predicted, Some(offset(expected)));
        assert_eq!(append.parts[1].predicted, Some(offset(expected / 4)));
    }
}

#[test]
fn a_refused_append_leaves_the_round_as_it_was() {
    let bench = Bench::with_topics();
    let mut round = RoundForecast::default();
    let mut bad = Append {
        request: None,
        parts: vec![part(at(1, 0), 4), part(at(1, 7), 1)],
    };
    assert!(
        bench
            .state
            .predict(&mut round, &mut bad, bench.stamp)
            .is_err()
    );
    let mut good = Append {
        request: None,
        parts: vec![part(at(1, 0), 4)],
    };
    bench
        .state
        .predict(&mut round, &mut good, bench.stamp)
        .unwrap();
    assert_eq!(good.parts[0].predicted, Some(offset(0)));
}

#[test]
#[should_panic(expected = "the prediction for")]
fn apply_asserts_the_prediction() {
    let mut bench = Bench::with_topics();
    let mut wrong = part(at(1, 0), 1);
    wrong.predicted = Some(offset(7));
    let change = append(vec![wrong]);
    let command = crate::core::command::Command {
        stamp: bench.stamp,
        change,
    };
    bench
        .state
        .apply(varvelog_store::Sequence::new(9), &command);
}

#[test]
fn an_epoch_begins_where_the_unclean_stop_left_the_log() {
    let mut bench = Bench::with_topics();
    bench.produce(part(at(1, 0), 3)).unwrap();
    bench.must(Change::BrokerStarted { clean: true });
    let applied = bench.run(Change::BrokerStarted { clean: false });
    assert_eq!(
        applied.effects,
        [Effect::EpochsRaised, Effect::CatalogChanged]
    );
    bench.must(Change::BrokerStarted { clean: false });
    assert_eq!(bench.state.broker.starts(), 3);
    let partition = bench.state.topics.partition(at(1, 0)).unwrap();
    assert_eq!(
        partition.epochs(),
        [(Epoch(0), offset(0)), (Epoch(2), offset(3))]
    );
    bench.produce(part(at(1, 0), 3)).unwrap();
    bench.must(Change::BrokerStarted { clean: false });
    let partition = bench.state.topics.partition(at(1, 0)).unwrap();
    assert_eq!(partition.epoch(), Epoch(3));
    let epochs: Vec<u32> = (0..8).map(|at| partition.epoch_of(offset(at)).0).collect();
    assert_eq!(epochs, [0, 0, 0, 2, 2, 2, 3, 3]);
    bench.must(move_log_start(at(1, 0), 4));
    let partition = bench.state.topics.partition(at(1, 0)).unwrap();
    assert_eq!(
        partition.epochs(),
        [(Epoch(2), offset(3)), (Epoch(3), offset(6))]
    );
}

#[test]
fn the_epochs_of_a_broker_that_keeps_crashing_are_bounded() {
    let mut bench = Bench::with_topics();
    for _ in 0..crate::core::partitions::EPOCHS_MAX + 3 {
        bench
            .state
            .topics
            .partition_mut(at(1, 0))
            .unwrap()
            .append(1, &[], WallMs(0));
        bench
            .state
            .topics
            .partition_mut(at(1, 0))
            .unwrap()
            .raise_epoch();
    }
    bench.state.check_invariants();
    let partition = bench.state.topics.partition(at(1, 0)).unwrap();
    assert_eq!(
        partition.epochs().len(),
        crate::core::partitions::EPOCHS_MAX
    );
    assert_eq!(partition.epoch_of(offset(0)), partition.epochs()[0].0);
}
