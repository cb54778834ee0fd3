//! The causes of death in a queue, numbered.

use std::collections::{BTreeMap, BTreeSet};

use super::death::Cause;
use crate::core::fields::holds;

/// Causes of one queue that are told apart. Entries with more than these count as [`OTHER`].
pub const CAUSES_MAX: u32 = 4_096;
/// The number of all causes beyond [`CAUSES_MAX`].
pub const OTHER: u32 = 0;

/// Causes by number and how many entries have each.
///
/// Invariants: numbers are 1 to [`CAUSES_MAX`], no two causes are the same, none has no entries;
/// `free` are the numbers below the highest given out that no cause has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Causes {
    by_number: BTreeMap<u32, (Cause, u64)>,
    numbers: BTreeMap<Cause, u32>,
    free: BTreeSet<u32>,
    others: u64,
}

impl Causes {
    /// The cause of this number; none of [`OTHER`].
    pub fn get(&self, number: u32) -> Option<&Cause> {
        self.by_number.get(&number).map(|(cause, _)| cause)
    }

    /// All that are told apart, by number, and how many entries have each.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Cause, u64)> {
        let each = self.by_number.iter();
        each.map(|(number, (cause, count))| (*number, cause, *count))
    }

    /// Entries with causes that are not told apart.
    pub fn others(&self) -> u64 {
        self.others
    }

    /// How many are told apart.
    pub fn count(&self) -> usize {
        self.by_number.len()
    }

    /// The most frequent; of several the one that comes first by name.
    pub fn top(&self) -> Option<&Cause> {
        let top = self
            .by_number
            .values()
            .max_by(|(cause, count), (other, others)| (count, other).cmp(&(others, cause)));
        top.map(|(cause, _)| cause)
    }

    /// Counts one more entry and returns the number of its cause: the lowest that is free, if no
    /// entry has it yet.
    pub(super) fn add(&mut self, cause: &Cause) -> u32 {
        if let Some(number) = self.numbers.get(cause).copied() {
            if let Some((_, count)) = self.by_number.get_mut(&number) {
                *count += 1;
            }
            return number;
        }
        let last = self.by_number.last_key_value().map_or(0, |(last, _)| *last);
        let number = self.free.pop_first().unwrap_or(last + 1);
        if number > CAUSES_MAX {
            self.others += 1;
            return OTHER;
        }
        self.put(number, cause.clone(), 1);
        number
    }

    /// Counts one entry less.
    pub(super) fn remove(&mut self, number: u32) {
        let Some((cause, count)) = self.by_number.get_mut(&number) else {
            self.others = self.others.saturating_sub(1);
            return;
        };
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.numbers.remove(cause);
        self.by_number.remove(&number);
        self.free.insert(number);
        let last = self.by_number.last_key_value().map_or(0, |(last, _)| *last);
        self.free.split_off(&(last + 1));
    }

    /// Takes in a cause as it was, without entries; false if its number or itself is there, or
    /// does not come behind the others.
    pub(in crate::core) fn restore(&mut self, number: u32, cause: Cause) -> bool {
        let last = self.by_number.last_key_value().map_or(0, |(last, _)| *last);
        if number <= last || number > CAUSES_MAX || self.numbers.contains_key(&cause) {
            return false;
        }
        self.free.extend(last + 1..number);
        self.put(number, cause, 0);
        true
    }

    /// Counts an entry of a cause that was taken in; false if there is no such cause.
    pub(in crate::core) fn restore_entry(&mut self, number: u32) -> bool {
        if number == OTHER {
            self.others += 1;
            return true;
        }
        let found = self.by_number.get_mut(&number);
        found.map(|(_, count)| *count += 1).is_some()
    }

    fn put(&mut self, number: u32, cause: Cause, count: u64) {
        self.numbers.insert(cause.clone(), number);
        self.by_number.insert(number, (cause, count));
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let used = self.by_number.values().all(|(_, count)| *count > 0);
        holds(used, "a cause of death has no entries")?;
        let last = self.by_number.last_key_value().map_or(0, |(last, _)| *last);
        let unused = (1..last).filter(|number| !self.by_number.contains_key(number));
        holds(
            last <= CAUSES_MAX && unused.eq(self.free.iter().copied()),
            "numbers of causes are not accounted for",
        )?;
        let mut known = self.numbers.iter();
        let same = known.all(|(cause, number)| self.get(*number) == Some(cause));
        holds(
            same && self.numbers.len() == self.by_number.len(),
            "a cause of death is there twice",
        )
    }
}
