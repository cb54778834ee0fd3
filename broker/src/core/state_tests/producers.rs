//! The rules for batches of idempotent producers.

use varvelog_store::{Offset, WallMs};

use super::sample::*;
use crate::core::command::{Append, Change};
use crate::core::forecast::{AppendLimits, RoundForecast};
use crate::core::producers::{BatchMark, Batches, KEPT_BY_LOG_MAX};
use crate::core::refusal::{AppendRefusal, QuotaRefusal, Refusal};
use crate::core::state::State;

fn gap(expected: i32, got: i32) -> Refusal {
    AppendRefusal::SequenceGap { expected, got }.into()
}

#[test]
fn ids_are_fresh_and_a_name_gets_the_next_epoch() {
    let mut bench = Bench::with_topics();
    assert_eq!(bench.init(""), (0, 0));
    assert_eq!(bench.init("a"), (1, 0));
    assert_eq!(bench.init("a"), (1, 1));
    assert_eq!(bench.init(""), (2, 0));
    assert_eq!(bench.init("b"), (3, 0));
    assert_eq!(bench.init("a"), (1, 2));
}

#[test]
fn a_name_whose_epochs_are_used_up_gets_another_id() {
    let mut bench = Bench::with_topics();
    for epoch in 0..=i16::MAX {
        assert_eq!(bench.state.producers.init("a", 0, WallMs(0)), (0, epoch));
    }
    bench.state.broker.producer_ids = 1;
    assert_eq!(bench.init("a"), (1, 0));
    let old = bench.produce(produced(at(1, 0), (0, i16::MAX, 0), 1));
    assert_eq!(
        old,
        Err(AppendRefusal::ProducerUnknown { producer: 0 }.into())
    );
    assert_eq!(bench.init("a"), (1, 1));
}

#[test]
fn an_id_or_epoch_that_was_never_given_out_is_unknown() {
    let mut bench = Bench::with_topics();
    let (id, epoch) = bench.init("a");
    for stamp in [
        (id + 1, 0, 0),
        (-1, 0, 0),
        (id, epoch + 1, 0),
        (i64::MAX, 0, 0),
    ] {
        let refusal = bench.produce(produced(at(1, 0), stamp, 1)).unwrap_err();
        let expected = AppendRefusal::ProducerUnknown { producer: stamp.0 };
        assert_eq!(refusal, expected.into(), "{stamp:?}");
    }
}

#[test]
fn an_older_epoch_is_fenced_even_for_what_it_wrote_before() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("a");
    bench.produce(produced(at(1, 0), (id, 0, 0), 2)).unwrap();
    bench.init("a");
    let fenced: Refusal = AppendRefusal::ProducerFenced {
        producer: id,
        epoch: 1,
    }
    .into();
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, 0), 2)),
        Err(fenced.clone())
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, 2), 2)),
        Err(fenced.clone())
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, -1, 0), 2)),
        Err(fenced)
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 1, 2), 1)),
        Err(gap(0, 2))
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 1, 0), 1)),
        Ok((2, false))
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 1, 0), 1)),
        Ok((2, true))
    );
}

#[test]
fn the_first_sequence_on_a_partition_is_zero() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    for got in [1, 5, i32::MAX, -1, i32::MIN] {
        assert_eq!(
            bench.produce(produced(at(1, 0), (id, 0, got), 1)),
            Err(gap(0, got))
        );
    }
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, 0), 1)),
        Ok((0, false))
    );
    assert_eq!(
        bench.produce(produced(at(1, 1), (id, 0, 1), 1)),
        Err(gap(0, 1))
    );
}

/// Every base and count against the batches 0..2, 2..5, 5..6, ... of one producer.
#[test]
fn every_sequence_is_new_a_duplicate_too_old_or_a_gap() {
    let counts = [2, 3, 1, 2, 4, 1, 3];
    for batches in 1..=counts.len() {
        let mut bench = Bench::with_topics();
        let (id, _) = bench.init("");
        let mut known = Vec::new();
        let mut next = 0_u32;
        for count in &counts[..batches] {
            let base = i32::try_from(next).unwrap();
            bench
                .produce(produced(at(1, 0), (id, 0, base), *count))
                .unwrap();
            known.push((next, *count));
            next += count;
        }
        let remembered = &known[known.len().saturating_sub(5)..];
        let oldest = remembered[0].0;
        for base in 0..next + 3 {
            for count in 1..6 {
                let got = i32::try_from(base).unwrap();
                let mut fresh = Bench {
                    state: State::decode(&bench.state.encode()).unwrap(),
                    ..Bench::default()
                };
                let answer = fresh.produce(produced(at(1, 0), (id, 0, got), count));
                let expected = if base == next {
                    Ok((u64::from(next), false))
                } else if remembered.contains(&(base, count)) {
                    Ok((u64::from(base), true))
                } else if known.len() > 5 && base + count <= oldest {
                    Err(AppendRefusal::SequenceTooOld { producer: id, got }.into())
                } else {
                    Err(gap(i32::try_from(next).unwrap(), got))
                };
                assert_eq!(answer, expected, "{known:?}, {base} and {count} records");
            }
        }
    }
}

#[test]
fn sequences_wrap_from_the_largest_to_zero() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    let near = u32::try_from(i32::MAX).unwrap() - 3;
    let mark = BatchMark {
        base_sequence: near,
        record_count: 2,
        base_offset: Offset::ZERO,
    };
    bench
        .state
        .topics
        .partition_mut(at(1, 0))
        .unwrap()
        .append(2, &[], WallMs(0));
    assert!(
        bench
            .state
            .producers
            .insert_history(at(1, 0), id, Batches::first(0, mark))
    );
    let last = i32::MAX - 1;
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, 0), 2)),
        Err(gap(last, 0))
    );
    // Records of sequences 2^31 - 2, 2^31 - 1 and 0.
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, last), 3)),
        Ok((2, false))
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, last), 3)),
        Ok((2, true))
    );
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, 2), 1)),
        Err(gap(1, 2))
    );
    for (base, offset) in [(1, 5), (2, 6), (3, 7), (4, 8)] {
        assert_eq!(
            bench.produce(produced(at(1, 0), (id, 0, base), 1)),
            Ok((offset, false))
        );
    }
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, last), 3)),
        Ok((2, true))
    );
    let old = i32::try_from(near).unwrap();
    let too_old = AppendRefusal::SequenceTooOld {
        producer: id,
        got: old,
    };
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, old), 2)),
        Err(too_old.into())
    );
}

#[test]
fn a_part_sees_what_an_earlier_part_of_its_producer_does() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    let batch = |base, count| produced(at(1, 0), (id, 0, base), count);
    let appended = bench.appended(append(vec![batch(0, 2), batch(2, 1), batch(0, 2)]));
    let parts: Vec<_> = appended
        .parts
        .iter()
        .map(|part| (part.base_offset.get(), part.duplicate))
        .collect();
    assert_eq!(parts, [(0, false), (2, false), (0, true)]);
    assert!(!appended.duplicate);
    assert_eq!(
        bench.refused(append(vec![batch(3, 1), batch(5, 1)])),
        gap(4, 5)
    );
    let again = bench.appended(append(vec![batch(0, 2), batch(2, 1)]));
    assert!(again.duplicate);
}

#[test]
fn a_round_tells_a_batch_sent_twice_from_a_new_one() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    let mut round = RoundForecast::default();
    let mut predict = |base, count| {
        let parts = vec![produced(at(1, 0), (id, 0, base), count)];
        let mut append = Append {
            request: None,
            parts,
        };
        let predicted = bench.state.predict(&mut round, &mut append, bench.stamp);
        predicted.map(|()| append.parts[0].predicted.map(Offset::get))
    };
    assert_eq!(predict(0, 2), Ok(Some(0)));
    assert_eq!(predict(0, 2), Ok(None));
    assert_eq!(predict(3, 1), Err(gap(2, 3)));
    assert_eq!(predict(2, 1), Ok(Some(2)));
}

#[test]
fn what_committed_state_holds_needs_no_commit() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    let parts = vec![
        produced(at(1, 0), (id, 0, 0), 2),
        produced(at(1, 1), (id, 0, 0), 1),
    ];
    let again = Append {
        request: None,
        parts: parts.clone(),
    };
    assert_eq!(bench.state.find_duplicate(&again, bench.stamp), None);
    bench.must(append(parts.clone()));
    let found = bench.state.find_duplicate(&again, bench.stamp).unwrap();
    assert_eq!(found, bench.appended(append(parts)));
    let half = vec![
        produced(at(1, 0), (id, 0, 0), 2),
        produced(at(1, 1), (id, 0, 1), 1),
    ];
    let half = Append {
        request: None,
        parts: half,
    };
    assert_eq!(bench.state.find_duplicate(&half, bench.stamp), None);
    let plain = Append {
        request: None,
        parts: vec![part(at(1, 0), 1)],
    };
    assert_eq!(bench.state.find_duplicate(&plain, bench.stamp), None);
}

#[test]
fn a_duplicate_carries_the_epoch_of_the_batch_that_it_repeats() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    let batch = |base| append(vec![produced(at(1, 0), (id, 0, base), 1)]);
    bench.must(batch(0));
    bench.must(Change::BrokerStarted { clean: false });
    let epochs = [batch(1), batch(0), batch(1)].map(|change| {
        let part = bench.appended(change).parts[0];
        (part.epoch.0, part.duplicate)
    });
    assert_eq!(epochs, [(1, false), (0, true), (1, true)]);
}

#[test]
fn producers_expire_by_their_last_use_once_their_last_batch_is_gone() {
    let mut bench = Bench::with_topics();
    let (named, _) = bench.init("a");
    let (idle, _) = bench.init("");
    bench.pass(1_000);
    bench.produce(produced(at(1, 0), (named, 0, 0), 1)).unwrap();
    bench.pass(1_000);
    bench.must(Change::ExpireProducers {
        used_since: WallMs(1_000),
    });
    let gone = bench.produce(produced(at(1, 0), (idle, 0, 0), 1));
    assert_eq!(
        gone,
        Err(AppendRefusal::ProducerUnknown { producer: idle }.into())
    );
    bench.produce(produced(at(1, 0), (named, 0, 1), 1)).unwrap();
    let expire = || Change::ExpireProducers {
        used_since: WallMs(2_001),
    };
    let again = || produced(at(1, 0), (named, 0, 1), 1);
    for start in [0, 1] {
        bench.must(move_log_start(at(1, 0), start));
        assert!(!bench.state.has_expired_producers(WallMs(2_001)));
        bench.must(expire());
        assert_eq!(bench.produce(again()), Ok((1, true)), "start {start}");
    }
    bench.must(move_log_start(at(1, 0), 2));
    assert!(bench.state.has_expired_producers(WallMs(2_001)));
    bench.must(expire());
    assert!(!bench.state.has_expired_producers(WallMs(2_001)));
    let gone = bench.produce(produced(at(1, 0), (named, 0, 2), 1));
    assert_eq!(
        gone,
        Err(AppendRefusal::ProducerUnknown { producer: named }.into())
    );
    assert_eq!(bench.state.producers.count_on(at(1, 0)), 0);
    assert_eq!(bench.init("a"), (2, 0));
}

#[test]
fn a_producer_is_kept_while_one_of_its_partitions_has_its_last_batch() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    bench.produce(produced(at(1, 0), (id, 0, 0), 3)).unwrap();
    bench.produce(produced(at(1, 1), (id, 0, 0), 1)).unwrap();
    let expired = |bench: &mut Bench| {
        bench.must(Change::ExpireProducers {
            used_since: WallMs(i64::MAX),
        });
        bench.state.producers.count() == 0
    };
    bench.must(move_log_start(at(1, 0), 3));
    assert!(!expired(&mut bench));
    assert_eq!(
        bench.produce(produced(at(1, 0), (id, 0, 0), 3)),
        Ok((0, true)),
        "all of a producer is kept or nothing"
    );
    bench.must(move_log_start(at(1, 1), 1));
    assert!(expired(&mut bench));
}

#[test]
fn of_too_many_producers_kept_by_a_log_those_used_last_stay() {
    let mut bench = Bench::with_topics();
    let more = 3;
    let count = i64::try_from(KEPT_BY_LOG_MAX).unwrap() + more;
    for id in 0..count {
        // Used in another order than given out.
        bench.pass(1);
        assert_eq!(bench.init(""), (id, 0));
    }
    for id in (0..count).rev() {
        bench.pass(1);
        bench.produce(produced(at(1, 0), (id, 0, 0), 1)).unwrap();
    }
    let snapshot = bench.state.encode();
    let mut restored = State::decode(&snapshot).unwrap();
    bench.must(Change::ExpireProducers {
        used_since: WallMs(i64::MAX),
    });
    let kept: Vec<i64> = bench.state.producers.by_id.keys().copied().collect();
    assert_eq!(kept, (0..count - more).collect::<Vec<_>>());
    restored.producers.expire(WallMs(i64::MAX), |at| {
        Some(bench.state.topics.partition(at)?.start())
    });
    assert!(
        restored.producers.by_id.keys().eq(kept.iter()),
        "a restart changes nothing"
    );
}

#[test]
fn a_partition_that_remembers_enough_producers_refuses_another() {
    let mut bench = Bench::with_topics();
    let ids: Vec<i64> = (0..4).map(|_| bench.init("").0).collect();
    bench
        .produce(produced(at(1, 0), (ids[0], 0, 0), 1))
        .unwrap();
    let limits = AppendLimits {
        producers_per_partition: 3,
        ..AppendLimits::default()
    };
    let mut round = RoundForecast::with_limits(limits);
    let mut predict = |parts| {
        let mut append = Append {
            request: None,
            parts,
        };
        bench.state.predict(&mut round, &mut append, bench.stamp)
    };
    let first = |id: i64| produced(at(1, 0), (id, 0, 0), 1);
    assert_eq!(predict(vec![first(ids[1])]), Ok(()));
    let full = |current| QuotaRefusal {
        what: "producers_per_partition",
        limit: 3,
        current,
    };
    let refused = predict(vec![first(ids[2]), first(ids[3])]);
    assert_eq!(refused, Err(full(3).into()));
    assert_eq!(predict(vec![first(ids[2])]), Ok(()));
    assert_eq!(predict(vec![first(ids[3])]), Err(full(3).into()));
    assert_eq!(predict(vec![produced(at(1, 0), (ids[1], 0, 1), 1)]), Ok(()));
    assert_eq!(predict(vec![produced(at(1, 1), (ids[3], 0, 0), 1)]), Ok(()));
}

#[test]
fn what_was_written_to_a_topic_goes_with_it() {
    let mut bench = Bench::with_topics();
    let (id, _) = bench.init("");
    bench.produce(produced(at(1, 0), (id, 0, 0), 1)).unwrap();
    bench.produce(produced(at(2, 0), (id, 0, 0), 1)).unwrap();
    bench.must(delete_topic(1, false));
    assert_eq!(bench.state.producers.count_on(at(1, 0)), 0);
    assert_eq!(
        bench.produce(produced(at(2, 0), (id, 0, 1), 1)),
        Ok((1, false))
    );
}
