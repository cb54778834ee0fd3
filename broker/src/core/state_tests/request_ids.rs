//! The rules for request ids.

use super::sample::*;
use crate::core::command::{Append, Change};
use crate::core::forecast::{AppendLimits, RoundForecast};
use crate::core::refusal::{AppendRefusal, QuotaRefusal, Refusal};
use crate::core::request_ids::REQUEST_ID_MS;

fn as_append(change: Change) -> Append {
    let Change::Append(append) = change else {
        panic!("{change:?} is no append")
    };
    append
}

fn reused(id: &str) -> Refusal {
    AppendRefusal::RequestIdReused { id: id.to_owned() }.into()
}

#[test]
fn a_request_sent_again_gets_the_first_answer_and_appends_nothing() {
    let mut bench = Bench::with_topics();
    let change = request(1, "r", 7, vec![part(at(1, 0), 3), part(at(1, 1), 1)]);
    let first = bench.appended(change.clone());
    assert!(!first.duplicate);
    bench.produce(part(at(1, 0), 5)).unwrap();
    let applied = bench.run(change.clone());
    assert_eq!(applied.effects, []);
    let again = bench.appended(change.clone());
    assert!(again.duplicate && again.parts.iter().all(|part| part.duplicate));
    let places = |answer: &crate::core::request::Appended| {
        answer
            .parts
            .iter()
            .map(|part| (part.partition, part.base_offset))
            .collect::<Vec<_>>()
    };
    assert_eq!(places(&again), places(&first));
    assert_eq!(
        bench.state.find_duplicate(&as_append(change), bench.stamp),
        Some(again)
    );
    assert_eq!(bench.produce(part(at(1, 0), 1)), Ok((8, false)));
}

#[test]
fn an_id_with_other_content_is_refused() {
    let mut bench = Bench::with_topics();
    bench.must(request(1, "r", 7, vec![part(at(1, 0), 3)]));
    let other = request(1, "r", 8, vec![part(at(1, 0), 3)]);
    assert_eq!(bench.refused(other.clone()), reused("r"));
    assert_eq!(
        bench.state.find_duplicate(&as_append(other), bench.stamp),
        None
    );
}

#[test]
fn an_id_counts_within_its_topic() {
    let mut bench = Bench::with_topics();
    bench.must(request(1, "r", 7, vec![part(at(1, 0), 3)]));
    let other = bench.appended(request(2, "r", 8, vec![part(at(2, 0), 3)]));
    assert!(!other.duplicate);
}

#[test]
fn a_refused_request_does_not_use_its_id_up() {
    let mut bench = Bench::with_topics();
    bench.refused(request(1, "r", 7, vec![part(at(1, 9), 3)]));
    let appended = bench.appended(request(1, "r", 8, vec![part(at(1, 0), 3)]));
    assert!(!appended.duplicate);
}

#[test]
fn an_id_is_forgotten_after_five_minutes_of_running_time_alone() {
    let mut bench = Bench::with_topics();
    let change = request(1, "r", 7, vec![part(at(1, 0), 1)]);
    bench.must(change.clone());
    bench.stamp.wall.0 += 1_000_000_000;
    bench.stamp.running_ms += REQUEST_ID_MS - 1;
    assert!(bench.appended(change.clone()).duplicate);
    bench.stamp.running_ms += 1;
    assert!(!bench.appended(change.clone()).duplicate);
    bench.stamp.running_ms += REQUEST_ID_MS - 1;
    assert!(bench.appended(change).duplicate);
}

#[test]
fn a_round_knows_the_requests_it_holds() {
    let bench = Bench::with_topics();
    let mut round = RoundForecast::default();
    let mut predict = |hash, partition| {
        let mut append = as_append(request(1, "r", hash, vec![part(at(1, partition), 2)]));
        let predicted = bench.state.predict(&mut round, &mut append, bench.stamp);
        predicted.map(|()| append.parts[0].predicted.is_some())
    };
    assert_eq!(predict(7, 0), Ok(true));
    assert_eq!(predict(7, 1), Ok(false));
    assert_eq!(predict(8, 1), Err(reused("r")));
}

#[test]
fn a_topic_that_remembers_enough_ids_refuses_another_until_one_is_past_its_time() {
    let mut bench = Bench::with_topics();
    let limits = AppendLimits {
        request_ids: 2,
        ..AppendLimits::default()
    };
    let predict = |bench: &Bench, ids: &[&str]| {
        let mut round = RoundForecast::with_limits(limits);
        ids.iter().try_for_each(|id| {
            let mut append = as_append(request(1, id, 7, vec![part(at(1, 0), 1)]));
            bench.state.predict(&mut round, &mut append, bench.stamp)
        })
    };
    let full: Refusal = QuotaRefusal {
        what: "request_ids",
        limit: 2,
        current: 2,
    }
    .into();
    assert_eq!(predict(&bench, &["a", "b", "c"]), Err(full.clone()));
    bench.must(request(1, "a", 7, vec![part(at(1, 0), 1)]));
    bench.pass(1_000);
    bench.must(request(1, "b", 7, vec![part(at(1, 0), 1)]));
    assert_eq!(predict(&bench, &["c"]), Err(full));
    assert_eq!(predict(&bench, &["a", "b"]), Ok(()));
    bench.pass(REQUEST_ID_MS - 1_000);
    assert_eq!(predict(&bench, &["c"]), Ok(()));
}

#[test]
fn ids_past_their_time_take_no_room_for_ever() {
    let mut bench = Bench::with_topics();
    for number in 0..200 {
        bench.must(request(
            1,
            &format!("r{number}"),
            7,
            vec![part(at(1, 0), 1)],
        ));
    }
    bench.must(request(2, "r", 7, vec![part(at(2, 0), 1)]));
    bench.pass(REQUEST_ID_MS);
    assert_eq!(
        bench
            .state
            .requests
            .count(topic_id(1), bench.stamp.running_ms),
        0
    );
    bench.must(Change::ExpireProducers {
        used_since: bench.wall(),
    });
    assert_eq!(bench.state.requests.topics().count(), 0);
}

#[test]
fn the_ids_of_a_topic_go_with_it() {
    let mut bench = Bench::with_topics();
    bench.must(request(1, "r", 7, vec![part(at(2, 0), 1)]));
    bench.must(delete_topic(1, false));
    assert_eq!(bench.state.requests.topics().count(), 0);
    bench.refused(request(1, "r", 7, vec![part(at(2, 0), 1)]));
}
