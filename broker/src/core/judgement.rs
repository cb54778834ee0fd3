//! What becomes of a record whose delivery failed.

use super::failure::{DeadReason, ErrorClass};
use super::request::FailureAction;
use super::retry_policy::{DELAY_FLOOR_MS, RetryPolicy};

/// A counted delivery that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failing {
    /// How. What a consumer said of it is classified by [`RetryPolicy::class_said`].
    pub class: ErrorClass,
    /// Instead of the policy's delay, ms, without jitter: 0 to 24 h.
    pub retry_after_ms: Option<u64>,
}

impl Failing {
    /// One of which nobody said when to try again.
    pub fn of(class: ErrorClass) -> Self {
        Self {
            class,
            retry_after_ms: None,
        }
    }
}

/// What was before the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// Counted failures, this one not included.
    pub failures: u32,
    /// Whether one of them was a crash or a timeout.
    pub has_expired: bool,
    /// Of the record, ms since its first append.
    pub age_ms: u64,
}

/// What becomes of a record that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is given out again at once, in place: its lease ran out for the first time.
    AtOnce,
    /// It is given out again, so many ms from now; at least [`DELAY_FLOOR_MS`].
    Retry {
        /// Ms.
        delay_ms: u64,
    },
    /// It is given out no more.
    Dead(DeadReason),
}

impl RetryPolicy {
    /// The class of a failure that a consumer reported: its own word, else the rules on the code.
    /// None if it gave the record back, which is no failure.
    pub fn class_said(&self, action: FailureAction, code: &str) -> Option<ErrorClass> {
        match action {
            FailureAction::ByPolicy => Some(self.classify(code)),
            FailureAction::Retry => Some(ErrorClass::Transient),
            FailureAction::DeadLetter => Some(ErrorClass::Permanent),
            FailureAction::Release => None,
        }
    }

    /// Decides on a failure. `draw` becomes the jitter, as in [`RetryPolicy::delay_ms`].
    ///
    /// After the last delivery the reason is [`DeadReason::MaxDeliveries`], however that failed,
    /// unless a single failure would have been enough.
    pub fn judge(&self, failing: Failing, before: History, draw: u64) -> Verdict {
        let failures = before.failures.saturating_add(1);
        match failing.class {
            ErrorClass::Permanent => return Verdict::Dead(DeadReason::Permanent),
            ErrorClass::Undeliverable => return Verdict::Dead(DeadReason::Undeliverable),
            ErrorClass::Transient
            | ErrorClass::Timeout
            | ErrorClass::Crash
            | ErrorClass::ReleaseLoop => {}
        }
        if let Some(reason) = self.spent(failures, before.age_ms) {
            return Verdict::Dead(reason);
        }
        if failing.class.is_suspect() && !before.has_expired {
            return Verdict::AtOnce;
        }
        let delay_ms = match failing.retry_after_ms {
            Some(given_ms) => given_ms.max(DELAY_FLOOR_MS),
            None => self.delay_ms(failures, draw),
        };
        Verdict::Retry { delay_ms }
    }

    /// Why a record that failed so often is given out no more, if that is so: by the policy as it
    /// is now, at a failure or while it waits. A record that never failed is never spent.
    pub fn spent(&self, failures: u32, age_ms: u64) -> Option<DeadReason> {
        if failures == 0 {
            None
        } else if failures >= self.deliveries_max {
            Some(DeadReason::MaxDeliveries)
        } else if self.age_max_ms > 0 && age_ms > self.age_max_ms {
            Some(DeadReason::MaxAge)
        } else {
            None
        }
    }
}

#[cfg(test)]
#[path = "judgement_tests.rs"]
mod tests;
