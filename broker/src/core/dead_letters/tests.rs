//! Counters of dead letters against a plain list of them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::*;
use crate::core::failure::ErrorClass;

const MINUTE: i64 = MINUTE_MS;

fn at(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

fn cause(number: u32) -> Cause {
    Cause {
        class: Some(ErrorClass::Transient),
        code: format!("E{number}"),
        fingerprint: Some(number.into()),
    }
}

fn death(number: u32, died: i64) -> Death {
    Death {
        at: WallMs(died),
        bytes: 10 + number,
        cause: cause(number),
        replays: 0,
        replayed_by: None,
        parked_key: None,
    }
}

fn queue_of(all: &DeadLetters) -> &Queue {
    all.get(TopicId([7; 16])).unwrap()
}

fn in_queue(partition: u32) -> PartitionId {
    PartitionId {
        topic: TopicId([7; 16]),
        partition,
    }
}

#[derive(Debug, Clone)]
enum Event {
    /// Records die of these causes, in a partition.
    Die(u32, Vec<u32>),
    /// A partition's log begins so many offsets later.
    Retain(u32, u64),
    /// Milliseconds pass.
    Pass(i64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..3_u32, prop::collection::vec(0..5_u32, 1..5))
            .prop_map(|(at, causes)| Event::Die(at, causes)),
        2 => (0..3_u32, 0..6_u64).prop_map(|(at, more)| Event::Retain(at, more)),
        3 => prop_oneof![0..3 * MINUTE, Just(40 * HOUR_MS), Just(31 * 24 * HOUR_MS)]
            .prop_map(Event::Pass),
    ]
}

/// Every death and every departure there ever was.
#[derive(Default)]
struct Plain {
    now: i64,
    ends: BTreeMap<u32, u64>,
    starts: BTreeMap<u32, u64>,
    entries: BTreeMap<(u32, u64), Death>,
    arrived: Vec<i64>,
    discarded: Vec<i64>,
}

impl Plain {
    fn carry_out(&mut self, all: &mut DeadLetters, event: Event) {
        match event {
            Event::Die(partition, causes) => {
                let end = self.ends.entry(partition).or_default();
                let deaths: Vec<Death> = causes.iter().map(|it| death(*it, self.now)).collect();
                all.bury(in_queue(partition), at(*end), &deaths, WallMs(self.now));
                for death in deaths {
                    self.entries.insert((partition, *end), death);
                    self.arrived.push(self.now);
                    *end += 1;
                }
            }
            Event::Retain(partition, more) => {
                let end = self.ends.get(&partition).copied().unwrap_or(0);
                let start = self.starts.entry(partition).or_default();
                *start = (*start + more).min(end);
                all.log_starts_at(in_queue(partition), at(*start), WallMs(self.now));
                let before = self.entries.len();
                let start = *start;
                self.entries
                    .retain(|(of, offset), _| *of != partition || *offset >= start);
                let gone = before - self.entries.len();
                self.discarded.extend(vec![self.now; gone]);
            }
            Event::Pass(ms) => self.now += ms,
        }
    }

    fn agrees(&self, queue: &Queue) {
        queue.causes().verify().unwrap();
        queue.trend().verify(queue.depth()).unwrap();
        assert_eq!(queue.depth(), self.entries.len() as u64);
        let bytes = self.entries.values().map(|it| u64::from(it.bytes));
        assert_eq!(queue.bytes(), bytes.sum::<u64>());
        for ((partition, offset), death) in &self.entries {
            let entry = queue.entry(*partition, at(*offset)).unwrap();
            assert_eq!((entry.died, entry.bytes), (death.at, death.bytes));
            assert_eq!(queue.causes().get(entry.cause), Some(&death.cause));
        }
        let mut counts = BTreeMap::<Cause, u64>::new();
        for death in self.entries.values() {
            *counts.entry(death.cause.clone()).or_default() += 1;
        }
        let counted = queue
            .causes()
            .iter()
            .map(|(_, it, count)| (it.clone(), count));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), counts);
        let top = queue.causes().top().map(|top| counts[top]);
        assert_eq!(top, counts.values().max().copied());
        for minutes in [0, 1, 60] {
            let since = (self.now.div_euclid(MINUTE) - minutes) * MINUTE;
            let count = |times: &[i64]| times.iter().filter(|it| **it >= since).count() as u64;
            let moves = queue.trend().of_last(minutes, WallMs(self.now));
            let counted = (moves.arrived, moves.discarded);
            assert_eq!(counted, (count(&self.arrived), count(&self.discarded)));
        }
    }
}

proptest! {
    #[test]
    fn counters_are_those_of_a_plain_list_after_any_deaths_and_retention(
        events in prop::collection::vec(event(), 1..60),
    ) {
        let (mut all, mut plain) = (DeadLetters::default(), Plain::default());
        for event in events {
            plain.carry_out(&mut all, event);
            if let Some(queue) = all.get(TopicId([7; 16])) {
                plain.agrees(queue);
            }
        }
    }
}

#[test]
fn a_trend_remembers_a_day_of_minutes_and_a_month_of_hours_and_no_more() {
    let mut all = DeadLetters::default();
    let minutes = 40 * 24 * 60;
    for minute in 0..minutes {
        let now = WallMs(minute * MINUTE);
        let base = at(u64::try_from(minute).unwrap());
        all.bury(in_queue(0), base, &[death(1, now.0)], now);
    }
    let trend = queue_of(&all).trend();
    let lengths = [trend.minutes().len(), trend.hours().len()];
    let most = [MINUTES_MAX, HOURS_MAX].map(|most| usize::try_from(most).unwrap());
    assert_eq!(lengths, most);
    let step = trend.hours().front().unwrap();
    assert_eq!((step.number, step.moves.arrived), (10 * 24, 60));
    assert_eq!(step.depth, (10 * 24 + 1) * 60);
    assert_eq!(trend.of_last(60, WallMs(minutes * MINUTE)).arrived, 60);
}

#[test]
fn more_causes_than_are_told_apart_count_as_one_and_a_freed_number_is_used_again() {
    let mut all = DeadLetters::default();
    let more = CAUSES_MAX + 10;
    let deaths: Vec<Death> = (0..more).map(|number| death(number, 0)).collect();
    all.bury(in_queue(0), at(0), &deaths, WallMs(0));
    let queue = queue_of(&all);
    assert_eq!(queue.causes().others(), 10);
    assert_eq!(queue.entry(0, at((more - 1).into())).unwrap().cause, OTHER);
    all.log_starts_at(in_queue(0), at(3), WallMs(1));
    all.bury(in_queue(1), at(0), &[death(70_000, 2)], WallMs(2));
    let queue = queue_of(&all);
    assert_eq!(
        queue.entry(1, at(0)).unwrap().cause,
        1,
        "the lowest that is free"
    );
    queue.causes().verify().unwrap();
    all.log_starts_at(in_queue(0), at(more.into()), WallMs(3));
    let queue = queue_of(&all);
    assert_eq!((queue.depth(), queue.causes().others()), (1, 0));
    queue.causes().verify().unwrap();
}
