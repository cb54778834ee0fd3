//! How many records a group settles in a second, over the last ones.

/// Seconds that are looked back.
const SECONDS: u64 = 10;
const SLOTS: usize = 10;

/// Counts by second. Time is that of the broker's running, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Rate {
    /// The count of second `n` is in slot `n % SLOTS`.
    slots: [u64; SLOTS],
    /// The second of the newest count; those of [`SECONDS`] seconds up to it are held.
    newest: u64,
    /// The second of the first count ever.
    first: Option<u64>,
}

impl Rate {
    pub(super) fn add(&mut self, now_ms: u64, count: u64) {
        self.go_to(now_ms / 1_000);
        self.first.get_or_insert(self.newest);
        let at = usize::try_from(self.newest % SECONDS).unwrap_or(0);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = slot.saturating_add(count);
        }
    }

    /// Counts and the milliseconds in which they came; none if there were none.
    pub(super) fn over(&self, now_ms: u64) -> Option<(u64, u64)> {
        let oldest = (now_ms / 1_000 + 1).saturating_sub(SECONDS);
        let held = (0..SECONDS).filter_map(|ago| self.newest.checked_sub(ago));
        let counts = held
            .filter(|second| *second >= oldest)
            .filter_map(|second| {
                let at = usize::try_from(second % SECONDS).ok()?;
                self.slots.get(at)
            });
        let count = counts.fold(0, |sum: u64, it| sum.saturating_add(*it));
        let since = self.first?.max(oldest);
        let passed_ms = now_ms.saturating_sub(since * 1_000).max(1_000);
        (count > 0).then_some((count, passed_ms))
    }

    /// Seconds that nothing was counted in are empty.
    fn go_to(&mut self, second: u64) {
        if second.saturating_sub(self.newest) >= SECONDS {
            self.slots = Default::default();
            self.newest = second;
        }
        while self.newest < second {
            self.newest += 1;
            let at = usize::try_from(self.newest % SECONDS).unwrap_or(0);
            if let Some(slot) = self.slots.get_mut(at) {
                *slot = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_told_as_it_is_and_one_that_ended_is_forgotten() {
        let mut rate = Rate::default();
        assert_eq!(rate.over(0), None);
        for second in 100..130 {
            rate.add(second * 1_000, 50);
        }
        assert_eq!(rate.over(129_999), Some((500, 9_999)));
        assert_eq!(rate.over(134_999), Some((250, 9_999)));
        assert_eq!(rate.over(140_000), None);
        rate.add(200_000, 7);
        assert_eq!(rate.over(200_000), Some((7, 9_000)));
    }

    #[test]
    fn what_began_just_now_is_not_taken_for_a_flood() {
        let mut rate = Rate::default();
        rate.add(5_010, 3);
        assert_eq!(rate.over(5_010), Some((3, 1_000)));
        assert_eq!(rate.over(8_000), Some((3, 3_000)));
    }
}
