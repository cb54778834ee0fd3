//! Which records of a partition may be given out when each holds up the later ones of its key.
//!
//! The window holds the records that were looked at and are not done. At most one record of a key
//! is out or waits at a time, the first; the others are behind it. Records without a key hold up
//! nothing. Records of a parked key are not given out at all.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::Offset;

use super::feed::Run;

/// Keys that may hold up others; see `limits.blocked_keys`.
pub(super) const BLOCKED_KEYS_MAX: usize = 1_000;
/// Records that may be held up; see `limits.blocked_records`.
pub(super) const BLOCKED_RECORDS_MAX: usize = 10_000;

/// The records of a partition that were looked at and are not done.
#[derive(Debug, Default)]
pub(super) struct KeyWindow {
    /// All below was looked at.
    until: Offset,
    records: BTreeMap<Offset, Option<u64>>,
    /// Records of each key, in order; never empty.
    keys: BTreeMap<u64, BTreeSet<Offset>>,
    /// Heads of their keys that nobody has and that do not wait.
    free: BTreeSet<Offset>,
    /// Records behind another of their key.
    blocked: usize,
    /// Keys with a record behind another.
    blocked_keys: usize,
    /// Keys whose records go to the dead-letter topic.
    parked_keys: BTreeSet<u64>,
    /// Records of these keys, and in nothing else but `records`.
    parked: BTreeSet<Offset>,
}

impl KeyWindow {
    /// Nothing was looked at; the first look begins at `from`.
    pub(super) fn starting_at(from: Offset) -> Self {
        Self {
            until: from,
            ..Self::default()
        }
    }

    /// Where the next look begins.
    pub(super) fn until(&self) -> Offset {
        self.until
    }

    /// Whether no more may be looked at before something is done.
    pub(super) fn is_full(&self) -> bool {
        self.room() == 0 || self.blocked_keys >= BLOCKED_KEYS_MAX
    }

    /// How many records more may be looked at, whatever their keys.
    pub(super) fn room(&self) -> u64 {
        let room = BLOCKED_RECORDS_MAX.saturating_sub(self.blocked.max(self.parked.len()));
        u64::try_from(room).unwrap_or(u64::MAX)
    }

    /// Records behind another of their key.
    pub(super) fn blocked(&self) -> u64 {
        u64::try_from(self.blocked).unwrap_or(u64::MAX)
    }

    /// Records that could be given out.
    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Records up to `until` were looked at: these are there and not done, in order.
    pub(super) fn extend(
        &mut self,
        records: impl Iterator<Item = (Offset, Option<u64>)>,
        until: Offset,
    ) {
        for (offset, key) in records {
            if offset < self.until || self.records.insert(offset, key).is_some() {
                continue;
            }
            match key {
                Some(key) if self.parked_keys.contains(&key) => {
                    self.parked.insert(offset);
                }
                Some(key) => self.queue_up(offset, key),
                None => {
                    self.free.insert(offset);
                }
            }
        }
        self.until = self.until.max(until);
    }

    /// A record comes behind all others of its key.
    fn queue_up(&mut self, offset: Offset, key: u64) {
        let of_key = self.keys.entry(key).or_default();
        of_key.insert(offset);
        match of_key.len() {
            1 => {
                self.free.insert(offset);
            }
            2 => {
                self.blocked += 1;
                self.blocked_keys += 1;
            }
            _ => self.blocked += 1,
        }
    }

    /// Records of this key are not given out from now on.
    pub(super) fn park(&mut self, key: u64) {
        self.parked_keys.insert(key);
        let Some(of_key) = self.keys.remove(&key) else {
            return;
        };
        self.blocked -= of_key.len() - 1;
        self.blocked_keys -= usize::from(of_key.len() > 1);
        for offset in of_key {
            self.free.remove(&offset);
            self.parked.insert(offset);
        }
    }

    /// Exactly these keys are parked from now on. Of others nothing is free that is taken.
    pub(super) fn park_only(
        &mut self,
        parked: impl Fn(u64) -> bool,
        is_taken: impl Fn(Offset) -> bool,
    ) {
        self.parked_keys.retain(|key| parked(*key));
        let back: Vec<Offset> = self.parked.iter().copied().collect();
        for offset in back {
            let key = self.records.get(&offset).copied().flatten();
            if let Some(key) = key.filter(|key| !parked(*key)) {
                self.parked.remove(&offset);
                self.queue_up(offset, key);
                if is_taken(offset) {
                    self.free.remove(&offset);
                }
            }
        }
    }

    /// Records of parked keys, in order.
    pub(super) fn parked_from(&self, from: Offset) -> impl Iterator<Item = Offset> {
        self.parked.range(from..).copied()
    }

    /// The first records that could be given out in one go: a run of heads.
    pub(super) fn next_free(&self, most: u64, is_free: impl Fn(Offset) -> bool) -> Option<Run> {
        let mut found: Option<Run> = None;
        for offset in self.free.iter().copied() {
            match found {
                _ if !is_free(offset) => {
                    if found.is_some() {
                        break;
                    }
                }
                None => found = Some((offset, offset)),
                Some((first, last)) => {
                    if offset != last.plus(1) || offset.since(first) >= most {
                        break;
                    }
                    found = Some((first, offset));
                }
            }
        }
        found
    }

    /// Whether the record is of the window and behind another of its key, or that is parked.
    pub(super) fn is_blocked(&self, offset: Offset) -> bool {
        let Some(Some(key)) = self.records.get(&offset) else {
            return false;
        };
        if self.parked.contains(&offset) {
            return true;
        }
        let head = self.keys.get(key).and_then(BTreeSet::first);
        head.is_some_and(|head| *head != offset)
    }

    /// Somebody has these records, or they wait.
    pub(super) fn take(&mut self, (first, last): Run) {
        let taken: Vec<Offset> = self.free.range(first..=last).copied().collect();
        for offset in taken {
            self.free.remove(&offset);
        }
    }

    /// Nobody has these records any more, and they do not wait: those that are heads are free.
    pub(super) fn give_back(&mut self, (first, last): Run) {
        let back: Vec<Offset> = self.records.range(first..=last).map(|it| *it.0).collect();
        for offset in back {
            if !self.is_blocked(offset) {
                self.free.insert(offset);
            }
        }
    }

    /// These records are done: the next of their keys are heads now.
    pub(super) fn done(&mut self, (first, last): Run) {
        let over: Vec<_> = self
            .records
            .range(first..=last)
            .map(|it| (*it.0, *it.1))
            .collect();
        for (offset, key) in over {
            self.records.remove(&offset);
            self.free.remove(&offset);
            if let Some(key) = key
                && !self.parked.remove(&offset)
            {
                self.done_of_key(offset, key);
            }
        }
    }

    fn done_of_key(&mut self, offset: Offset, key: u64) {
        let Some(of_key) = self.keys.get_mut(&key) else {
            return;
        };
        let was_head = of_key.first() == Some(&offset);
        of_key.remove(&offset);
        match of_key.len() {
            0 => {
                self.keys.remove(&key);
                return;
            }
            1 => {
                self.blocked -= 1;
                self.blocked_keys -= 1;
            }
            _ => self.blocked -= 1,
        }
        if was_head && let Some(head) = of_key.first() {
            self.free.insert(*head);
        }
    }

    /// The first record that holds up another, and a hash of its key.
    pub(super) fn first_blocking(&self) -> Option<(Offset, u64)> {
        let of_key = |(key, of_key): (&u64, &BTreeSet<Offset>)| {
            let head = of_key.first().filter(|_| of_key.len() > 1)?;
            Some((*head, *key))
        };
        self.keys.iter().filter_map(of_key).min()
    }

    pub(super) fn check_invariants(&self) {
        let keyed = self.records.values().flatten().count();
        let queued = self.keys.values().map(BTreeSet::len).sum::<usize>();
        assert_eq!(keyed, queued + self.parked.len());
        for offset in &self.parked {
            let key = self.records.get(offset).copied().flatten();
            assert!(key.is_some_and(|key| self.parked_keys.contains(&key)));
        }
        assert!(
            self.parked_keys
                .iter()
                .all(|key| !self.keys.contains_key(key))
        );
        let behind = self
            .keys
            .values()
            .map(|of_key| of_key.len() - 1)
            .sum::<usize>();
        assert_eq!(self.blocked, behind);
        let holding = self.keys.values().filter(|of_key| of_key.len() > 1).count();
        assert_eq!(self.blocked_keys, holding);
        for offset in &self.free {
            assert!(self.records.contains_key(offset) && !self.is_blocked(*offset));
        }
        let last = self.records.last_key_value();
        assert!(last.is_none_or(|(offset, _)| *offset < self.until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    fn window(keys: &[Option<u64>]) -> KeyWindow {
        let mut window = KeyWindow::starting_at(at(0));
        let until = at(keys.len() as u64);
        window.extend((0..).map(at).zip(keys.iter().copied()), until);
        window.check_invariants();
        window
    }

    fn free(window: &KeyWindow) -> Option<(u64, u64)> {
        let run = window.next_free(100, |_| true);
        run.map(|(first, last)| (first.get(), last.get()))
    }

    #[test]
    fn a_later_record_of_a_key_is_free_only_when_the_first_is_done() {
        let mut window = window(&[Some(1), Some(1), Some(2), Some(1)]);
        assert_eq!(free(&window), Some((0, 0)));
        window.take((at(0), at(0)));
        assert_eq!(free(&window), Some((2, 2)));
        window.give_back((at(0), at(0)));
        assert_eq!(free(&window), Some((0, 0)));
        window.take((at(0), at(0)));
        window.done((at(0), at(0)));
        window.check_invariants();
        assert_eq!(free(&window), Some((1, 2)));
        window.done((at(1), at(2)));
        assert_eq!(free(&window), Some((3, 3)));
        window.done((at(3), at(3)));
        window.check_invariants();
        assert_eq!(free(&window), None);
    }

    #[test]
    fn records_without_a_key_hold_up_nothing() {
        let window = window(&[None, None, Some(7), Some(7), None]);
        assert_eq!(free(&window), Some((0, 2)));
        assert!(window.is_blocked(at(3)) && !window.is_blocked(at(4)));
        assert_eq!(window.first_blocking(), Some((at(2), 7)));
    }

    #[test]
    fn the_window_is_full_at_its_bound_and_open_again_when_the_head_is_done() {
        let keys = vec![Some(5); BLOCKED_RECORDS_MAX + 1];
        let mut window = window(&keys);
        assert!(window.is_full());
        window.done((at(0), at(0)));
        assert!(!window.is_full());
    }

    #[test]
    fn records_of_a_parked_key_are_not_free_and_wait_in_order_when_it_is_parked_no_more() {
        let mut window = window(&[Some(1), Some(2), Some(1), Some(1)]);
        window.done((at(0), at(0)));
        window.park(1);
        window.extend([(at(4), Some(1)), (at(5), Some(3))].into_iter(), at(6));
        window.check_invariants();
        let parked: Vec<_> = window.parked_from(at(0)).collect();
        assert_eq!(parked, [2, 3, 4].map(at));
        assert_eq!(
            window.next_free(100, |at| at.get() > 1),
            Some((at(5), at(5)))
        );
        window.give_back((at(2), at(4)));
        window.done((at(2), at(2)));
        window.check_invariants();
        assert_eq!(free(&window), Some((1, 1)));
        window.park_only(|_| false, |_| false);
        window.check_invariants();
        window.done((at(1), at(1)));
        assert_eq!(
            free(&window),
            Some((3, 3)),
            "the next of the key, and no later one"
        );
        window.done((at(3), at(3)));
        assert_eq!(free(&window), Some((4, 5)));
    }

    #[test]
    fn a_head_that_somebody_has_is_not_free_when_its_key_is_parked_no_more() {
        let mut window = window(&[Some(1), Some(1)]);
        window.take((at(0), at(0)));
        window.park(1);
        window.park_only(|_| false, |offset| offset == at(0));
        window.check_invariants();
        assert_eq!(free(&window), None);
    }

    #[test]
    fn what_is_done_out_of_order_does_not_free_what_is_behind_the_head() {
        let mut window = window(&[Some(1), Some(1), Some(1)]);
        window.take((at(0), at(0)));
        window.done((at(1), at(1)));
        window.check_invariants();
        assert_eq!(free(&window), None);
        window.done((at(0), at(0)));
        assert_eq!(free(&window), Some((2, 2)));
    }
}
