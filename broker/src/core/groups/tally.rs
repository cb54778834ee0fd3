//! What was done for groups since the start of this process, counted as it happens.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use varvelog_store::{TopicId, WallMs};

use crate::clock::MonoMs;
use crate::core::applied::Settlement;
use crate::core::command::Settle;
use crate::core::dead_letters::Cause;
use crate::core::failure::{Ending, ErrorClass, Wait};
use crate::meters::seconds;
use crate::names::GroupName;

/// Attempts that are told apart at success.
const ATTEMPTS: [f64; 7] = [1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0];
/// Delays of retries that are told apart, in seconds.
const DELAYS: [f64; 10] = [
    0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1_000.0, 3_600.0, 86_400.0,
];

/// Classes and codes of dead letters that are told apart.
const CAUSES_MAX: usize = 20;
/// All the others.
const OTHERS: &str = "other";

/// Counts of a group in one topic. In records, unless it says otherwise.
#[derive(Debug)]
pub struct Tally {
    /// Given out that had not failed before.
    pub first_deliveries: Counter,
    /// Given out that had failed before.
    pub retry_deliveries: Counter,
    /// Given out alone, because they may bring down who works at them.
    pub isolated: Counter,
    /// Done.
    pub done: Counter,
    /// To be given out again.
    pub retried: Counter,
    /// Dead.
    pub dead_lettered: Counter,
    /// Given back uncounted.
    pub released: Counter,
    /// Not settled though a call named them.
    pub conflicts: Counter,
    /// Dead without a dead-letter topic.
    pub dropped: Counter,
    /// Dead letters by class and code of what they died of. Held for one look.
    arrivals: Mutex<BTreeMap<(&'static str, String), u64>>,
    /// Extended hand-outs.
    pub extends: Counter,
    /// Hand-outs whose time was over.
    pub expired: Counter,
    /// Hand-outs that were given back too often.
    pub release_loops: Counter,
    /// Acknowledgements that came after the end of their hand-outs and were accepted, in calls.
    pub late_accepted: Counter,
    /// Those that were not, in calls.
    pub late_refused: Counter,
    /// The delivery attempt at which a hand-out was done.
    pub attempts_at_success: Histogram,
    /// From a hand-out to its settlement, in seconds.
    pub handling: Histogram,
    /// Delays of retries as they were drawn, in seconds.
    pub retry_delay: Histogram,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            first_deliveries: Counter::default(),
            retry_deliveries: Counter::default(),
            isolated: Counter::default(),
            done: Counter::default(),
            retried: Counter::default(),
            dead_lettered: Counter::default(),
            released: Counter::default(),
            conflicts: Counter::default(),
            dropped: Counter::default(),
            arrivals: Mutex::default(),
            extends: Counter::default(),
            expired: Counter::default(),
            release_loops: Counter::default(),
            late_accepted: Counter::default(),
            late_refused: Counter::default(),
            attempts_at_success: Histogram::new(ATTEMPTS),
            handling: seconds(),
            retry_delay: Histogram::new(DELAYS),
        }
    }
}

impl Tally {
    /// So many records were given out: for the first time or not, alone or not.
    pub(super) fn gave(&self, records: u64, is_first: bool, is_isolated: bool) {
        let deliveries = if is_first {
            &self.first_deliveries
        } else {
            &self.retry_deliveries
        };
        deliveries.inc_by(records);
        if is_isolated {
            self.isolated.inc_by(records);
        }
    }

    /// A settlement was carried out at `now`. Delayed records that go to the retry topic did not
    /// fail and are not counted.
    pub(super) fn settled(&self, settle: &Settle, settlement: &Settlement, now: WallMs) {
        let ranges = settlement.ranges.iter();
        let settled = ranges.fold(0_u64, |sum, range| sum.saturating_add(range.done));
        self.done
            .inc_by(settled.saturating_sub(count(settle.endings.len())));
        let retries = settle.retries.iter().flat_map(|(_, entries)| entries);
        let failed = retries.filter(|entry| entry.failures > 0);
        let moved = failed.map(|entry| entry.due);
        let stayed = settle.notes.iter().filter_map(|(_, note)| match note.wait {
            Wait::Ready => Some(now),
            Wait::Until(due) => Some(due),
            Wait::Room(_) | Wait::Operator(_) => None,
        });
        for due in moved.chain(stayed) {
            let delay_ms = u64::try_from(due.0.saturating_sub(now.0)).unwrap_or(0);
            self.retried.inc();
            self.retry_delay
                .observe(Duration::from_millis(delay_ms).as_secs_f64());
        }
        for (_, deaths) in &settle.deaths {
            for death in deaths {
                self.arrived(&death.cause);
            }
        }
        let dead = settle.deaths.iter().map(|(_, deaths)| count(deaths.len()));
        let dead = dead.fold(0, u64::saturating_add);
        let endings = settle.endings.iter();
        let ended = endings.filter(|(_, ending)| *ending == Ending::DeadLettered);
        let dropped = count(ended.count()).saturating_sub(dead);
        self.dead_lettered.inc_by(dead.saturating_add(dropped));
        self.dropped.inc_by(dropped);
    }

    fn arrived(&self, cause: &Cause) {
        let class = cause.class.map_or("", ErrorClass::as_str);
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = (class, cause.code.clone());
        if arrivals.len() >= CAUSES_MAX && !arrivals.contains_key(&key) {
            key = (OTHERS, OTHERS.to_owned());
        }
        *arrivals.entry(key).or_default() += 1;
    }

    /// Dead letters so far, by class and code of what they died of; those beyond the first twenty
    /// of these as `other`.
    pub fn arrivals(&self) -> BTreeMap<(&'static str, String), u64> {
        let arrivals = self.arrivals.lock();
        arrivals.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A call settled a hand-out that was made at `since`, or was over by then. `done` of its
    /// records were processed, at this attempt.
    pub(super) fn acknowledged(
        &self,
        since: Option<MonoMs>,
        (done, attempt): (u32, u32),
        now: MonoMs,
    ) {
        match since {
            Some(since) => self.handling.observe(now.since(since).as_secs_f64()),
            None if done > 0 => {
                self.late_accepted.inc();
            }
            None => {
                self.late_refused.inc();
            }
        }
        if done > 0 {
            self.attempts_at_success.observe(attempt.into());
        }
    }

    /// A hand-out ended without a word from its holder.
    pub(super) fn lost(&self, class: ErrorClass) {
        match class {
            ErrorClass::Timeout => self.expired.inc(),
            ErrorClass::ReleaseLoop => self.release_loops.inc(),
            ErrorClass::Crash
            | ErrorClass::Permanent
            | ErrorClass::Transient
            | ErrorClass::Undeliverable => return,
        };
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Counts of a group.
#[derive(Debug, Default)]
pub struct GroupTally {
    /// By topic.
    pub topics: BTreeMap<TopicId, Arc<Tally>>,
    /// Generations that began.
    pub rebalances: Counter,
    /// Members that ended without a word.
    pub sessions_lost: Counter,
}

/// Counts of all groups. A group's end with it, and those in a topic with the topic.
#[derive(Debug, Default)]
pub(super) struct Tallies(BTreeMap<GroupName, GroupTally>);

impl Tallies {
    pub(super) fn get(&self, group: &GroupName) -> Option<&GroupTally> {
        self.0.get(group)
    }

    /// The counts of a group.
    pub(super) fn group(&mut self, group: &GroupName) -> &GroupTally {
        self.entry(group)
    }

    /// The counts of a group in a topic that it reads.
    pub(super) fn of(&mut self, group: &GroupName, topic: TopicId) -> &Tally {
        self.entry(group).topics.entry(topic).or_default()
    }

    fn entry(&mut self, group: &GroupName) -> &mut GroupTally {
        if !self.0.contains_key(group) {
            self.0.insert(group.clone(), GroupTally::default());
        }
        match self.0.get_mut(group) {
            Some(tally) => tally,
            None => unreachable!("it was just put there"),
        }
    }

    pub(super) fn drop_group(&mut self, group: &GroupName) {
        self.0.remove(group);
    }

    pub(super) fn drop_topic(&mut self, topic: TopicId) {
        for tally in self.0.values_mut() {
            tally.topics.remove(&topic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_end_with_their_group_and_with_their_topic() {
        let group = |name| GroupName::parse(name).unwrap();
        let topic = |byte| TopicId([byte; 16]);
        let mut all = Tallies::default();
        all.of(&group("a"), topic(1)).gave(3, true, false);
        all.of(&group("a"), topic(2)).gave(4, false, true);
        all.of(&group("b"), topic(1)).gave(5, true, false);
        let deliveries = |all: &Tallies, name, id| {
            let tally = all.get(&group(name))?.topics.get(&topic(id))?;
            let first = tally.first_deliveries.get();
            Some((first, tally.retry_deliveries.get(), tally.isolated.get()))
        };
        assert_eq!(deliveries(&all, "a", 1), Some((3, 0, 0)));
        assert_eq!(deliveries(&all, "a", 2), Some((0, 4, 4)));
        all.drop_topic(topic(1));
        assert_eq!(deliveries(&all, "a", 1), None);
        assert_eq!(deliveries(&all, "b", 1), None);
        all.drop_group(&group("a"));
        assert_eq!(deliveries(&all, "a", 2), None);
    }
}
