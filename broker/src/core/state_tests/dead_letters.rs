//! Dead letters as commands make and lose them.

use varvelog_store::PartitionId;

use super::sample::*;
use crate::core::command::{Append, Change, Settle};
use crate::core::dead_letters::Queue;
use crate::core::failure::Ending;

const DEAD: (u8, u32) = (151, 0);

fn dead() -> PartitionId {
    at(DEAD.0, DEAD.1)
}

/// So many records of partition 0 die, from this one on.
fn die(bench: &Bench, first: u64, count: u32) -> Change {
    let last = first + u64::from(count) - 1;
    let endings = (first..=last).map(|record| (offset(record), Ending::DeadLettered));
    Change::Settle(Settle {
        ranges: vec![(offset(first), offset(last))],
        endings: endings.collect(),
        append: Append {
            request: None,
            parts: vec![part(dead(), count)],
        },
        deaths: vec![(0, deaths(count))],
        ..settle_of(bench, "email", at(1, 0))
    })
}

fn queue(bench: &Bench) -> &Queue {
    bench.state.dead_letters.get(topic_id(DEAD.0)).unwrap()
}

#[test]
fn a_settlement_with_copies_for_the_dead_letter_topic_makes_entries_where_they_lie() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, 2));
    bench.must(die(&bench, 4, 1));
    let placed: Vec<_> = queue(&bench).entries(0).map(|(at, _)| at.get()).collect();
    assert_eq!(placed, [0, 1, 2]);
    assert_eq!((queue(&bench).depth(), queue(&bench).bytes()), (3, 300));
    let cause = queue(&bench).causes().top().unwrap();
    assert_eq!(*cause, deaths(1)[0].cause);
    let moves = queue(&bench).trend().of_last(0, bench.wall());
    assert_eq!(moves.arrived, 3);
    bench.restart();
    assert_eq!(queue(&bench).depth(), 3);
}

#[test]
fn a_refused_settlement_makes_no_entries() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, 2));
    bench.refused(die(&bench, 1, 2));
    assert_eq!(queue(&bench).depth(), 2);
}

#[test]
fn entries_go_with_the_log_start_and_with_their_topic() {
    let mut bench = Bench::with_group();
    bench.must(die(&bench, 0, 3));
    bench.must(move_log_start(dead(), 2));
    assert_eq!(queue(&bench).depth(), 1);
    let moves = queue(&bench).trend().of_last(0, bench.wall());
    assert_eq!((moves.arrived, moves.discarded), (3, 2));
    bench.restart();
    bench.must(delete_group("email", false));
    assert_eq!(queue(&bench).depth(), 1, "kept without its group");
    let mut again = group_topic(1, &[]);
    (again.retry, again.dead_letter) = (topic_id(102), topic_id(103));
    bench.must(create_group("email", vec![again]));
    assert_eq!(
        queue(&bench).depth(),
        1,
        "and taken over by the next of its name"
    );
    bench.must(delete_group("email", true));
    assert!(bench.state.dead_letters.get(topic_id(DEAD.0)).is_none());
    bench.restart();
}
