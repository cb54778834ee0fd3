//! Message ids.

use bytes::Bytes;
use varvelog_store::PartitionId;
use varvelog_store::batch::{BatchBuilder, Codec, Records};

use super::sample::*;
use crate::core::applied::Outcome;
use crate::core::command::{Append, AppendPart, Change, Settle};
use crate::core::forecast::{AppendLimits, RoundForecast};
use crate::core::message_ids::{IdHash, PartIds};
use crate::core::refusal::{QuotaRefusal, Refusal};
use crate::core::request::Appended;
use crate::core::retries::RetryEntry;
use crate::core::settings::TopicSettings;

const MINUTE_MS: u64 = 60_000;

/// A real batch, whose values are the ids. An empty one is none.
pub(super) fn named(partition: PartitionId, ids: &[&str]) -> AppendPart {
    let mut batch = BatchBuilder::new(Codec::None, 64);
    for id in ids {
        let none = std::iter::empty();
        batch.push(None, None, Some(id.as_bytes()), none).unwrap();
    }
    let given = (0..).zip(ids).filter(|(_, id)| !id.is_empty());
    AppendPart {
        ids: PartIds {
            fresh: given.map(|(number, id)| (number, IdHash::of(id))).collect(),
            repeated: Vec::new(),
        },
        body: batch.finish().unwrap(),
        ..part(partition, u32::try_from(ids.len()).unwrap())
    }
}

pub(super) fn values(body: &Bytes) -> Vec<String> {
    let records = Records::open(body, 1 << 20).unwrap();
    let value = |it: varvelog_store::batch::RecordRef<'_>| it.value.unwrap().to_vec();
    let values = records.iter().map(|it| value(it.unwrap()));
    values.map(|it| String::from_utf8(it).unwrap()).collect()
}

/// Number, partition and offset of each repeated record.
fn repeats(appended: &Appended) -> Vec<(u32, u32, u64)> {
    let all = appended.repeats.iter();
    all.map(|it| (it.number, it.partition, it.offset.get()))
        .collect()
}

pub(super) fn set_window(bench: &mut Bench, topic: u8, window_ms: u64) {
    bench.must(Change::UpdateTopic {
        topic: topic_id(topic),
        settings: TopicSettings {
            message_id_window_ms: window_ms,
            ..TopicSettings::default()
        },
    });
}

pub(super) fn end(bench: &Bench, at: PartitionId) -> u64 {
    bench.state.topics.partition(at).unwrap().next().get()
}

#[test]
fn a_second_append_of_an_id_appends_nothing_and_says_where_the_first_lies() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![part(at(1, 1), 7)]));
    let first = bench.appended(append(vec![named(at(1, 1), &["a", "b"])]));
    assert!(!first.duplicate && first.repeats.is_empty());
    // Wherever it would go this time.
    let again = bench.appended(append(vec![named(at(1, 0), &["b"])]));
    assert_eq!(repeats(&again), [(0, 1, 8)]);
    assert!(again.duplicate && again.parts[0].duplicate);
    assert_eq!((end(&bench, at(1, 0)), end(&bench, at(1, 1))), (0, 9));
    // The ids of another topic are others.
    let other = bench.appended(append(vec![named(at(2, 0), &["b"])]));
    assert!(!other.duplicate);
}

#[test]
fn what_is_new_of_a_batch_is_appended_densely() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![named(at(1, 0), &["a", "c", "e"])]));
    let mut part = named(at(1, 0), &["a", "b", "c", "", "e", "f"]);
    let later = bench.wall().0 + 5_000;
    part.delays = vec![
        (2, varvelog_store::WallMs(later)),
        (5, varvelog_store::WallMs(later)),
    ];
    let mixed = bench.appended(append(vec![part]));
    assert_eq!(repeats(&mixed), [(0, 0, 0), (2, 0, 1), (4, 0, 2)]);
    assert_eq!(
        (mixed.parts[0].base_offset.get(), mixed.duplicate),
        (3, false)
    );
    assert_eq!(end(&bench, at(1, 0)), 6);
    let Change::Append(Append { parts, .. }) = &bench.log.last().unwrap().change else {
        panic!("an append was applied")
    };
    assert_eq!(values(&parts[0].body), ["b", "", "f"]);
    // Only the delay of a record that is new, on the record that it was given for.
    let delayed = bench.state.topics.partition(at(1, 0)).unwrap().delayed();
    assert_eq!(delayed.iter().map(|it| it.0.get()).collect::<Vec<_>>(), [5]);
    // The new ones are known where they lie.
    let again = bench.appended(append(vec![named(at(1, 1), &["f", "b"])]));
    assert_eq!(repeats(&again), [(0, 0, 5), (1, 0, 3)]);
}

#[test]
fn an_id_counts_until_its_append_is_as_old_as_the_window() {
    let mut bench = Bench::with_topics();
    set_window(&mut bench, 1, MINUTE_MS);
    bench.must(append(vec![named(at(1, 0), &["a"])]));
    bench.pass(MINUTE_MS - 1);
    bench.restart();
    assert!(
        bench
            .appended(append(vec![named(at(1, 0), &["a"])]))
            .duplicate
    );
    bench.pass(1);
    let anew = bench.appended(append(vec![named(at(1, 0), &["a"])]));
    assert_eq!(
        (anew.duplicate, anew.parts[0].base_offset.get()),
        (false, 1)
    );
    // Being asked for did not make the window longer; the second append began its own.
    bench.pass(MINUTE_MS - 1);
    let again = bench.appended(append(vec![named(at(1, 0), &["a"])]));
    assert_eq!(repeats(&again), [(0, 0, 1)]);
}

#[test]
fn a_topic_without_a_window_appends_every_time() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![named(at(1, 0), &["a"])]));
    set_window(&mut bench, 1, 0);
    assert_eq!(bench.state.message_ids.kept(topic_id(1)), 0);
    assert!(
        !bench
            .appended(append(vec![named(at(1, 0), &["a"])]))
            .duplicate
    );
    // What was appended while it was off is not known when it is on.
    set_window(&mut bench, 1, MINUTE_MS);
    assert!(
        !bench
            .appended(append(vec![named(at(1, 0), &["a"])]))
            .duplicate
    );
    assert!(
        bench
            .appended(append(vec![named(at(1, 0), &["a"])]))
            .duplicate
    );
    bench.restart();
}

#[test]
fn ids_go_with_their_topic() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![
        named(at(1, 0), &["a"]),
        named(at(2, 0), &["a"]),
    ]));
    bench.must(delete_topic(1, false));
    assert_eq!(
        bench.state.message_ids.topics().collect::<Vec<_>>(),
        [topic_id(2)]
    );
    assert_eq!(bench.state.message_ids.all_kept(), 1);
    bench.restart();
}

#[test]
fn a_second_append_in_the_same_round_is_told_where_the_first_will_lie() {
    let mut bench = Bench::with_topics();
    let mut round = RoundForecast::default();
    let mut predicted = Vec::new();
    for ids in [&["a", "b"][..], &["b", "c"], &["a"], &["c"]] {
        let Change::Append(mut change) = append(vec![named(at(1, 0), ids)]) else {
            unreachable!()
        };
        assert_eq!(bench.state.find_duplicate(&change, bench.stamp), None);
        bench
            .state
            .predict(&mut round, &mut change, bench.stamp)
            .unwrap();
        predicted.push(change);
    }
    let mut places = Vec::new();
    for change in predicted {
        let command = crate::core::command::Command {
            stamp: bench.stamp,
            change: Change::Append(change),
        };
        bench.log.push(command.clone());
        let sequence = u64::try_from(bench.log.len()).unwrap();
        let applied = bench
            .state
            .apply(varvelog_store::Sequence::new(sequence), &command);
        let Ok(Outcome::Appended(appended)) = applied.outcome else {
            panic!("what was predicted was refused")
        };
        places.push((appended.parts[0].base_offset.get(), repeats(&appended)));
    }
    let wanted = [
        (0, vec![]),
        (2, vec![(0, 0, 1)]),
        (0, vec![(0, 0, 0)]),
        (2, vec![(0, 0, 2)]),
    ];
    assert_eq!(places, wanted);
    bench.restart();
}

#[test]
fn a_committed_duplicate_is_answered_without_a_command() {
    let mut bench = Bench::with_topics();
    bench.must(append(vec![named(at(1, 0), &["a", "b"])]));
    let found = |ids: &[&str]| {
        let Change::Append(change) = append(vec![named(at(1, 1), ids)]) else {
            unreachable!()
        };
        bench.state.find_duplicate(&change, bench.stamp)
    };
    assert_eq!(
        repeats(&found(&["b", "a"]).unwrap()),
        [(0, 0, 1), (1, 0, 0)]
    );
    assert_eq!(found(&["b", "new"]), None);
    assert_eq!(found(&["b", ""]), None, "a record without an id is new");
}

#[test]
fn a_repeated_request_is_answered_as_at_first_even_when_the_window_is_over() {
    let mut bench = Bench::with_topics();
    set_window(&mut bench, 1, 1_000);
    bench.must(append(vec![named(at(1, 0), &["a"])]));
    let asked = || request(1, "r", 5, vec![named(at(1, 1), &["a", "b"])]);
    let first = bench.appended(asked());
    bench.pass(2_000);
    bench.restart();
    let again = bench.appended(asked());
    assert!(again.duplicate);
    assert_eq!(again.repeats, first.repeats);
    assert_eq!(again.parts[0].base_offset, first.parts[0].base_offset);
    assert_eq!(end(&bench, at(1, 1)), 1);
}

fn refuse_beyond(bench: &Bench, limit: u64, ids: &[&str]) -> Result<(), Refusal> {
    let limits = AppendLimits {
        message_ids: limit,
        ..AppendLimits::default()
    };
    let mut round = RoundForecast::with_limits(limits);
    let mut change = Append {
        request: None,
        parts: vec![named(at(1, 0), &ids[..1]), named(at(1, 1), &ids[1..])],
    };
    let before = change.clone();
    let predicted = bench.state.predict(&mut round, &mut change, bench.stamp);
    if predicted.is_err() {
        assert_eq!(change, before, "what is refused is left as it was");
    }
    predicted
}

#[test]
fn a_topic_that_remembers_as_many_as_it_may_refuses_new_ids_until_old_ones_are_over() {
    let mut bench = Bench::with_topics();
    set_window(&mut bench, 1, MINUTE_MS);
    bench.must(append(vec![named(at(1, 0), &["a", "b"])]));
    bench.pass(1_000);
    bench.must(append(vec![named(at(1, 0), &["c"])]));
    let full = |current| {
        Err(Refusal::Quota(QuotaRefusal {
            what: "message_ids",
            limit: 4,
            current,
        }))
    };
    assert_eq!(refuse_beyond(&bench, 4, &["d", "e"]), full(3));
    assert_eq!(refuse_beyond(&bench, 4, &["d", ""]), Ok(()));
    // Known ones take no room.
    assert_eq!(refuse_beyond(&bench, 4, &["a", "d"]), Ok(()));
    assert_eq!(refuse_beyond(&bench, 4, &["d", "a"]), Ok(()));
    assert_eq!(refuse_beyond(&bench, 3, &["a", "c"]), Ok(()));
    bench.pass(MINUTE_MS - 1_001);
    assert_eq!(refuse_beyond(&bench, 4, &["d", "e"]), full(3));
    bench.pass(1);
    assert_eq!(refuse_beyond(&bench, 4, &["d", "e"]), Ok(()));
}

#[test]
fn an_idle_topic_gives_its_ids_back() {
    let mut bench = Bench::with_topics();
    set_window(&mut bench, 1, MINUTE_MS);
    let expire = Change::ExpireProducers {
        used_since: varvelog_store::WallMs(0),
    };
    bench.must(append(vec![named(at(1, 0), &["a", "b"])]));
    bench.pass(MINUTE_MS - 1);
    assert!(!bench.state.has_past_message_ids(bench.wall()));
    bench.must(expire.clone());
    assert_eq!(bench.state.message_ids.kept(topic_id(1)), 2);
    bench.pass(1);
    assert!(bench.state.has_past_message_ids(bench.wall()));
    bench.must(expire);
    assert_eq!(bench.state.message_ids.all_kept(), 0);
    bench.restart();
}

#[test]
fn a_settlement_takes_known_outputs_out_and_keeps_its_copies_in_their_places() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![named(at(2, 0), &["paid-1"])]));
    let settle = |bench: &Bench, first: u64, ids: &[&str]| {
        let mut settle = Settle {
            ranges: vec![(offset(first), offset(first))],
            ..settle_of(bench, "email", at(1, 0))
        };
        settle.append.parts = vec![named(at(2, 0), ids), part(at(101, 0), 1)];
        let entry = RetryEntry {
            due: bench.wall(),
            origin: offset(first),
            failures: 1,
            suspect: false,
        };
        settle.retries = vec![(1, vec![entry])];
        settle
    };
    let done = bench.must(Change::Settle(settle(&bench, 0, &["paid-1"])));
    let Outcome::Settled(settlement) = done else {
        panic!("a settlement had the outcome {done:?}")
    };
    assert_eq!(repeats(&settlement.appended), [(0, 0, 10)]);
    assert!(settlement.appended.parts[0].duplicate);
    assert!(!settlement.appended.parts[1].duplicate);
    assert_eq!((end(&bench, at(2, 0)), end(&bench, at(101, 0))), (11, 1));
    // One whose output an earlier command of the round appends waits for it.
    let mut round = RoundForecast::default();
    let Change::Append(mut ahead) = append(vec![named(at(2, 0), &["paid-2"])]) else {
        unreachable!()
    };
    bench
        .state
        .predict(&mut round, &mut ahead, bench.stamp)
        .unwrap();
    assert!(
        bench
            .state
            .collides(&round, &settle(&bench, 1, &["paid-2"]))
    );
    assert!(
        !bench
            .state
            .collides(&round, &settle(&bench, 1, &["paid-3"]))
    );
    bench.restart();
}

#[test]
fn a_settlement_that_is_predicted_once_more_is_told_where_the_first_lies_by_then() {
    let mut bench = Bench::with_group();
    bench.must(append(vec![named(at(2, 0), &["x"])]));
    let mut settle = Settle {
        ranges: vec![(offset(0), offset(0))],
        ..settle_of(&bench, "email", at(1, 0))
    };
    settle.append.parts = vec![named(at(2, 0), &["x", "y", "z", "w"])];
    let mut round = RoundForecast::default();
    bench
        .state
        .predict_settle(&mut round, &mut settle, bench.stamp)
        .unwrap();
    // Its round could not be written; meanwhile another appended one more of them.
    bench.must(append(vec![named(at(2, 0), &["z"])]));
    let done = bench.must(Change::Settle(settle));
    let Outcome::Settled(settlement) = done else {
        panic!("a settlement had the outcome {done:?}")
    };
    assert_eq!(repeats(&settlement.appended), [(0, 0, 10), (2, 0, 11)]);
    let Change::Settle(applied) = &bench.log.last().unwrap().change else {
        unreachable!()
    };
    assert_eq!(values(&applied.append.parts[0].body), ["y", "w"]);
}
