//! The circuit breaker: an outage downstream must not turn a backlog into dead letters.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::MonoMs;

/// Settlements that it looks at, the newest.
const WINDOW: usize = 100;
/// Time between two first deliveries while it is open.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Opens when more than half of the last settlements failed transiently, and closes at the first
/// success.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Whether each failed, oldest first.
    recent: VecDeque<bool>,
    failed: usize,
    open: bool,
    next_probe: MonoMs,
}

impl Breaker {
    /// Records were settled: so many were processed, so many failed transiently.
    pub(super) fn settled(&mut self, done: u32, failed: u32) {
        if done > 0 {
            self.open = false;
            self.note(false, done);
        }
        self.note(true, failed);
        self.open |= self.recent.len() == WINDOW && self.failed * 2 > WINDOW;
    }

    fn note(&mut self, failed: bool, records: u32) {
        let records = usize::try_from(records).unwrap_or(WINDOW).min(WINDOW);
        for _ in 0..records {
            self.recent.push_back(failed);
            self.failed += usize::from(failed);
            if self.recent.len() > WINDOW {
                let gone = self.recent.pop_front();
                self.failed -= usize::from(gone == Some(true));
            }
        }
        if !failed && records > 0 && self.failed * 2 > self.recent.len() {
            // A success is the end of an outage: what failed in it says nothing of what follows.
            self.recent.clear();
            self.failed = 0;
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// How many records may be given out for the first time now, if fewer than usual; else when
    /// that is asked again.
    pub(super) fn limit(&self, now: MonoMs) -> Result<Option<u64>, MonoMs> {
        if !self.open {
            Ok(None)
        } else if self.next_probe <= now {
            Ok(Some(1))
        } else {
            Err(self.next_probe)
        }
    }

    /// Records were given out for the first time.
    pub(super) fn gave(&mut self, now: MonoMs) {
        if self.open {
            self.next_probe = now.plus(PROBE_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_when_more_than_half_of_a_hundred_failed_and_closes_at_a_success() {
        let mut breaker = Breaker::default();
        breaker.settled(50, 0);
        breaker.settled(0, 50);
        assert!(!breaker.is_open(), "half is not more than half");
        breaker.settled(0, 1);
        assert!(breaker.is_open());
        let now = MonoMs(10_000);
        assert_eq!(breaker.limit(now), Ok(Some(1)));
        breaker.gave(now);
        assert_eq!(breaker.limit(now), Err(MonoMs(11_000)));
        assert_eq!(breaker.limit(MonoMs(11_000)), Ok(Some(1)));
        breaker.settled(1, 0);
        assert_eq!(breaker.limit(now), Ok(None));
        breaker.settled(0, 60);
        assert!(
            !breaker.is_open(),
            "a new outage is counted from its beginning"
        );
        breaker.settled(0, 40);
        assert!(breaker.is_open());
    }

    #[test]
    fn few_settlements_do_not_open_it() {
        let mut breaker = Breaker::default();
        breaker.settled(0, 99);
        assert!(!breaker.is_open());
        breaker.settled(0, 1);
        assert!(breaker.is_open());
    }
}
