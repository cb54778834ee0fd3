use proptest::prelude::*;

use super::*;

const HOLD: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(3);

fn terms(pace: Pace, concurrency: usize) -> Terms {
    Terms {
        pace,
        concurrency,
        hold: HOLD,
        margin: MARGIN,
        starts_left: u64::MAX,
    }
}

/// A clock of its own, so that no test waits.
fn epoch() -> Instant {
    crate::clock::now()
}

fn partition(number: u32) -> Partition {
    (Arc::from("t"), number)
}

/// A delivery of these offsets, which are what a handler is given too.
fn admit(ledger: &mut Ledger<i64>, number: u32, offsets: &[i64], now: Instant) -> DeliveryId {
    let records = offsets.iter().map(|offset| (*offset, *offset));
    ledger.admit(partition(number), records, now)
}

fn started(ledger: &mut Ledger<i64>, now: Instant) -> Vec<i64> {
    std::iter::from_fn(|| ledger.start(now, |_| true).map(|(_, offset)| offset)).collect()
}

fn failed() -> Failure {
    Failure::transient("busy", "later")
}

#[test]
fn no_more_run_than_are_allowed() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 3));
    let first = admit(&mut ledger, 0, &[0, 1], now);
    admit(&mut ledger, 1, &[7, 8], now);
    assert_eq!(started(&mut ledger, now), [0, 1, 7]);
    ledger.finish(first, 1, None);
    assert_eq!(started(&mut ledger, now), [8]);
}

#[test]
fn a_delivery_is_settled_once_when_all_of_it_has_ended_in_any_order() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 9));
    let id = admit(&mut ledger, 0, &[0, 1, 2], now);
    assert_eq!(started(&mut ledger, now), [0, 1, 2]);
    ledger.finish(id, 2, None);
    ledger.finish(id, 0, Some(failed()));
    assert!(ledger.take_complete().is_none());
    ledger.finish(id, 1, None);
    let complete = ledger.take_complete().expect("complete");
    assert_eq!((complete.id, complete.records), (id, 3));
    let wanted = Settlement::done().fail(0, failed());
    assert_eq!(complete.settlement, wanted);
    assert!(ledger.take_complete().is_none() && ledger.is_empty());
}

#[test]
fn a_hold_is_extended_at_its_half_whether_its_records_wait_or_run() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 1));
    let running = admit(&mut ledger, 0, &[0], now);
    let waiting = admit(&mut ledger, 0, &[1], now);
    assert_eq!(started(&mut ledger, now), [0]);
    assert_eq!(ledger.wake_at(), Some(now + HOLD / 2));
    let just_before = now + HOLD / 2 - Duration::from_millis(1);
    assert!(ledger.take_extensions(just_before).is_empty());
    let half = now + HOLD / 2;
    let due = ledger.take_extensions(half);
    assert_eq!(due, [(running, now + HOLD), (waiting, now + HOLD)]);
    assert!(
        ledger.take_extensions(half).is_empty(),
        "one call at a time"
    );
    ledger.extended(running, half, false);
    ledger.extended(waiting, half, true);
    let again = ledger.take_extensions(half + HOLD);
    assert_eq!(again, [(running, half + HOLD)], "a capped hold stands");
}

#[test]
fn what_is_held_too_shortly_is_released_instead_of_begun() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 1));
    admit(&mut ledger, 0, &[0, 1], now);
    let late = now + HOLD - MARGIN;
    let fresh = admit(&mut ledger, 0, &[2], late);
    assert_eq!(ledger.start(late, |_| true), Some((fresh, 2)));
    let complete = ledger.take_complete().expect("released");
    let wanted = Settlement::done().release(0).release(1);
    assert_eq!(complete.settlement, wanted);
}

#[test]
fn what_waits_too_long_is_released_while_everything_is_busy() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 1));
    let id = admit(&mut ledger, 0, &[0, 1], now);
    assert_eq!(started(&mut ledger, now), [0]);
    ledger.take_extensions(now + HOLD / 2);
    assert_eq!(ledger.wake_at(), Some(now + HOLD - MARGIN));
    ledger.release_overdue(now + HOLD - MARGIN);
    assert_eq!(ledger.unfinished(id), 1);
    ledger.finish(id, 0, None);
    let complete = ledger.take_complete().expect("complete");
    assert_eq!(complete.settlement, Settlement::done().release(1));
    assert_eq!(ledger.wake_at(), None);
}

#[test]
fn a_lost_delivery_is_begun_no_further_and_extended_no_more() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 1));
    let id = admit(&mut ledger, 0, &[0, 1], now);
    assert_eq!(started(&mut ledger, now), [0]);
    ledger.lose(id);
    assert!(ledger.take_extensions(now + HOLD).is_empty());
    ledger.finish(id, 0, None);
    assert!(started(&mut ledger, now).is_empty());
    let complete = ledger.take_complete().expect("complete");
    assert_eq!(complete.settlement, Settlement::done().release(1));
}

#[test]
fn what_is_somebody_else_s_by_now_is_passed_over_and_not_counted() {
    let now = epoch();
    let mut ledger = Ledger::new(Terms {
        starts_left: 1,
        ..terms(Pace::Free, 9)
    });
    let lapsed = admit(&mut ledger, 0, &[0, 1], now);
    let ours = admit(&mut ledger, 0, &[0], now);
    assert_eq!(ledger.start(now, |id| id != lapsed), Some((ours, 0)));
    let complete = ledger.take_complete().expect("released");
    assert_eq!((complete.id, complete.records), (lapsed, 2));
}

#[test]
fn draining_releases_what_waits_and_what_still_comes() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::Free, 1));
    let running = admit(&mut ledger, 0, &[0], now);
    admit(&mut ledger, 0, &[1], now);
    assert_eq!(started(&mut ledger, now), [0]);
    ledger.drain();
    admit(&mut ledger, 0, &[2], now);
    let mut released = Vec::new();
    while let Some(complete) = ledger.take_complete() {
        released.push(complete.settlement);
    }
    let release = |offset| Settlement::done().release(offset);
    assert_eq!(released, [release(1), release(2)]);
    assert!(!ledger.is_empty(), "what runs is waited for");
    ledger.finish(running, 0, None);
    assert!(ledger.take_complete().is_some() && ledger.is_empty());
}

#[test]
fn nothing_is_begun_beyond_the_limit() {
    let now = epoch();
    let mut ledger = Ledger::new(Terms {
        starts_left: 2,
        ..terms(Pace::Free, 9)
    });
    admit(&mut ledger, 0, &[0, 1, 2], now);
    assert_eq!(started(&mut ledger, now), [0, 1]);
    assert!(ledger.is_over());
}

#[test]
fn an_ordered_partition_has_one_handler_at_a_time() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::PartitionOrder, 9));
    let first = admit(&mut ledger, 0, &[0, 1], now);
    let second = admit(&mut ledger, 0, &[2], now);
    admit(&mut ledger, 1, &[7, 8], now);
    assert_eq!(started(&mut ledger, now), [0, 7]);
    ledger.finish(first, 0, Some(failed()));
    assert_eq!(
        started(&mut ledger, now),
        [1],
        "a failure lets the next one pass"
    );
    ledger.finish(first, 1, None);
    assert_eq!(started(&mut ledger, now), [2]);
    ledger.finish(second, 2, None);
}

#[test]
fn a_held_partition_goes_no_further_than_its_failure() {
    let now = epoch();
    let mut ledger = Ledger::new(terms(Pace::PartitionHold, 9));
    let first = admit(&mut ledger, 0, &[0, 1, 2], now);
    admit(&mut ledger, 0, &[3], now);
    let other = admit(&mut ledger, 1, &[7], now);
    assert_eq!(started(&mut ledger, now), [0, 7]);
    ledger.finish(first, 0, None);
    assert_eq!(started(&mut ledger, now), [1]);
    ledger.finish(first, 1, Some(failed()));
    assert!(started(&mut ledger, now).is_empty());
    let mut settled = Vec::new();
    while let Some(complete) = ledger.take_complete() {
        settled.push(complete.settlement);
    }
    let head = Settlement::done().fail(1, failed()).release(2);
    assert_eq!(settled.len(), 2);
    assert!(settled.contains(&head) && settled.contains(&Settlement::done().release(3)));
    ledger.finish(other, 7, None);
    assert_eq!(
        ledger.take_complete().map(|done| done.settlement),
        Some(Settlement::done())
    );
}

/// What happens to a ledger.
#[derive(Debug, Clone)]
enum Step {
    Admit(u32, usize),
    Start,
    /// Of those that run, and whether it worked.
    Finish(usize, bool),
    Pass(u64),
    Lose(usize),
    Extend(bool),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u32..3, 1_usize..5).prop_map(|(number, records)| Step::Admit(number, records)),
        4 => Just(Step::Start),
        4 => (any::<usize>(), any::<bool>()).prop_map(|(which, fine)| Step::Finish(which, fine)),
        2 => (0_u64..20).prop_map(Step::Pass),
        1 => any::<usize>().prop_map(Step::Lose),
        2 => any::<bool>().prop_map(Step::Extend),
        1 => Just(Step::Drain),
    ]
}

fn pace() -> impl Strategy<Value = Pace> {
    prop_oneof![
        Just(Pace::Free),
        Just(Pace::PartitionOrder),
        Just(Pace::PartitionHold)
    ]
}

/// The ledger, and what a test knows of it.
struct World {
    ledger: Ledger<i64>,
    now: Instant,
    next_offset: i64,
    ids: Vec<(DeliveryId, u32, usize)>,
    running: Vec<(DeliveryId, i64)>,
    settled: Vec<Complete>,
}

impl World {
    fn new(terms: Terms) -> Self {
        Self {
            ledger: Ledger::new(terms),
            now: epoch(),
            next_offset: 0,
            ids: Vec::new(),
            running: Vec::new(),
            settled: Vec::new(),
        }
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Admit(number, records) => {
                let end = self.next_offset + i64::try_from(records).expect("small");
                let offsets: Vec<_> = (self.next_offset..end).collect();
                self.next_offset = end;
                let id = admit(&mut self.ledger, number, &offsets, self.now);
                self.ids.push((id, number, records));
            }
            Step::Start => self.running.extend(self.ledger.start(self.now, |_| true)),
            Step::Finish(which, fine) if !self.running.is_empty() => {
                let (id, offset) = self.running.swap_remove(which % self.running.len());
                let failure = if fine { None } else { Some(failed()) };
                self.ledger.finish(id, offset, failure);
            }
            Step::Pass(seconds) => {
                self.now += Duration::from_secs(seconds);
                self.ledger.release_overdue(self.now);
            }
            Step::Lose(which) if !self.ids.is_empty() => {
                self.ledger.lose(self.ids[which % self.ids.len()].0);
            }
            Step::Extend(last) => {
                for (id, _) in self.ledger.take_extensions(self.now) {
                    self.ledger.extended(id, self.now, last);
                }
            }
            Step::Drain => self.ledger.drain(),
            Step::Finish(..) | Step::Lose(_) => {}
        }
        while let Some(complete) = self.ledger.take_complete() {
            self.settled.push(complete);
        }
    }

    fn partition_of(&self, id: DeliveryId) -> u32 {
        let found = self.ids.iter().find(|(known, _, _)| *known == id);
        found.expect("admitted").1
    }
}

proptest! {
    #[test]
    fn every_delivery_is_settled_once_and_no_bound_is_passed(
        pace in pace(), concurrency in 1_usize..4, steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new(terms(pace, concurrency));
        for step in &steps {
            world.apply(step);
            prop_assert!(world.running.len() <= concurrency);
            if pace != Pace::Free {
                let mut at: Vec<_> =
                    world.running.iter().map(|(id, _)| world.partition_of(*id)).collect();
                at.sort_unstable();
                at.dedup();
                prop_assert_eq!(at.len(), world.running.len());
            }
        }
        world.apply(&Step::Drain);
        while !world.running.is_empty() {
            world.apply(&Step::Finish(0, true));
        }
        prop_assert!(world.ledger.is_empty());
        let mut settled: Vec<_> = world.settled.iter().map(|c| (c.id, c.records)).collect();
        settled.sort_unstable();
        let admitted: Vec<_> = world.ids.iter().map(|(id, _, records)| (*id, *records)).collect();
        prop_assert_eq!(settled, admitted);
    }
}
