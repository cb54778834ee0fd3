//! When a failed record is given out again, and when no more.
//!
//! All of it is integer arithmetic on milliseconds that stays at its bounds, so that every broker
//! draws the same delay from the same number.

use super::failure::ErrorClass;

/// No failure is followed by a delivery sooner, ms.
pub const DELAY_FLOOR_MS: u64 = 10;
/// The longest delay that a policy may name, ms: 7 d.
pub const DELAY_MAX_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// Deliveries of a policy that names no number.
pub const DELIVERIES_DEFAULT: u32 = 5;

/// The parts of a millisecond that the exponential form counts in: five steps of any multiplier are
/// exact.
const FRACTION: u128 = 1_000_000_000_000_000;
/// Where the exponential form stops to grow, ms.
const RAISED_MAX_MS: u64 = 1 << 40;
const _: () = assert!(
    RAISED_MAX_MS > DELAY_MAX_MS
        && FRACTION * (RAISED_MAX_MS as u128) < u128::MAX / (u32::MAX as u128)
);

/// Of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Counted deliveries of a record, the first included: 1 to 1,000.
    pub deliveries_max: u32,
    /// Delays.
    pub schedule: Schedule,
    /// Jitter is random from 0 to the larger of this, ms, and [`Self::jitter_ppm`] of the delay
    /// without it: 0 to 1 h.
    pub jitter_max_ms: u64,
    /// In parts per million of the delay: 0 to 1,000,000.
    pub jitter_ppm: u32,
    /// A failed record older than this, ms since its first append, is dead; 0: no limit.
    pub age_max_ms: u64,
    /// The first that matches an error code decides its class; at most 100.
    pub rules: Vec<ErrorRule>,
    /// Errors that no rule matches are permanent.
    pub permanent_by_default: bool,
}

/// Delays before each delivery but the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Schedule {
    /// As listed, ms, 10 ms to 7 d each; the last repeats. 1 to 64, at most one less than the
    /// deliveries; may be empty when there is only one delivery.
    List(Vec<u64>),
    /// min(base × multiplier^n, max) + jitter.
    Exponential {
        /// Ms: 10 ms to 1 h.
        base_ms: u64,
        /// In thousandths: 1,000 to 10,000.
        multiplier_permille: u32,
        /// Ms: from base to 7 d.
        delay_max_ms: u64,
        /// The textbook's min(base × multiplier^n + jitter, max).
        clamp_after_jitter: bool,
    },
}

/// What an error code means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorRule {
    /// Exact, or a prefix ending in `*`; 1 to 128 bytes.
    pub pattern: String,
    /// Else transient.
    pub permanent: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::list()
    }
}

impl RetryPolicy {
    /// The default: 1, 10, 100 and 1,000 s with a tenth of jitter, five deliveries.
    pub fn list() -> Self {
        Self {
            deliveries_max: DELIVERIES_DEFAULT,
            schedule: Schedule::List(Schedule::listed_delays(DELIVERIES_DEFAULT)),
            jitter_max_ms: 0,
            jitter_ppm: 100_000,
            age_max_ms: 0,
            rules: Vec::new(),
            permanent_by_default: false,
        }
    }

    /// The preset of the exponential form: 1 s, doubled with each failure up to 60 s, half a second
    /// of jitter, five deliveries.
    pub fn exponential() -> Self {
        Self {
            schedule: Schedule::Exponential {
                base_ms: 1_000,
                multiplier_permille: 2_000,
                delay_max_ms: 60_000,
                clamp_after_jitter: false,
            },
            jitter_max_ms: 500,
            jitter_ppm: 0,
            ..Self::list()
        }
    }

    /// How long a record waits that has failed so many times, at least once: ms before its next
    /// delivery. `draw` is any number, each as likely as another; the jitter comes of it. Never
    /// below [`DELAY_FLOOR_MS`], and never shorter than configured.
    pub fn delay_ms(&self, failures: u32, draw: u64) -> u64 {
        let delay_ms = self.schedule.delay_ms(failures);
        let delayed_ms = delay_ms.saturating_add(self.jitter_ms(delay_ms, draw));
        let waited_ms = match self.schedule {
            Schedule::Exponential {
                delay_max_ms,
                clamp_after_jitter: true,
                ..
            } => delayed_ms.min(delay_max_ms),
            Schedule::List(_) | Schedule::Exponential { .. } => delayed_ms,
        };
        waited_ms.max(DELAY_FLOOR_MS)
    }

    /// The longest delay before any of its deliveries, ms, without jitter; 0 if there is only one
    /// delivery.
    pub fn largest_delay_ms(&self) -> u64 {
        let retries = self.deliveries_max.saturating_sub(1);
        match &self.schedule {
            Schedule::List(delays) => {
                let reached = usize::try_from(retries).unwrap_or(usize::MAX);
                delays.iter().take(reached).copied().max().unwrap_or(0)
            }
            Schedule::Exponential { .. } if retries == 0 => 0,
            // It never falls.
            Schedule::Exponential { .. } => self.schedule.delay_ms(retries),
        }
    }

    /// What an error code means: [`ErrorClass::Permanent`] or [`ErrorClass::Transient`].
    pub fn classify(&self, code: &str) -> ErrorClass {
        let rule = self.rules.iter().find(|rule| rule.matches(code));
        if rule.map_or(self.permanent_by_default, |rule| rule.permanent) {
            ErrorClass::Permanent
        } else {
            ErrorClass::Transient
        }
    }

    /// From 0 to the larger of both bounds, both included.
    fn jitter_ms(&self, delay_ms: u64, draw: u64) -> u64 {
        let share = u128::from(delay_ms) * u128::from(self.jitter_ppm) / 1_000_000;
        let most = share.max(u128::from(self.jitter_max_ms));
        let choices = most.min(u128::from(u64::MAX)) + 1;
        u64::try_from((u128::from(draw) * choices) >> 64).unwrap_or(u64::MAX)
    }
}

impl Schedule {
    /// The delays of the default list that a policy of so many deliveries has use for, ms.
    pub fn listed_delays(deliveries_max: u32) -> Vec<u64> {
        let retries = usize::try_from(deliveries_max.saturating_sub(1)).unwrap_or(usize::MAX);
        let listed = [1_000, 10_000, 100_000, 1_000_000];
        listed.into_iter().take(retries).collect()
    }

    /// Without jitter.
    fn delay_ms(&self, failures: u32) -> u64 {
        let index = failures.saturating_sub(1);
        match self {
            Self::List(delays) => {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                let listed = delays.get(index).or(delays.last());
                listed.copied().unwrap_or(DELAY_FLOOR_MS)
            }
            Self::Exponential {
                base_ms,
                multiplier_permille,
                delay_max_ms,
                ..
            } => raised(*base_ms, *multiplier_permille, index).min(*delay_max_ms),
        }
    }
}

/// `base × (permille / 1,000)^exponent`, rounded up, and [`RAISED_MAX_MS`] if it is that or more.
fn raised(base_ms: u64, permille: u32, exponent: u32) -> u64 {
    let most = u128::from(RAISED_MAX_MS) * FRACTION;
    let mut product = u128::from(base_ms.min(RAISED_MAX_MS)) * FRACTION;
    for _ in 0..exponent {
        let next = (product * u128::from(permille) / 1_000).min(most);
        if next == product {
            break;
        }
        product = next;
    }
    u64::try_from(product.div_ceil(FRACTION)).unwrap_or(RAISED_MAX_MS)
}

impl ErrorRule {
    fn matches(&self, code: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(prefix) => code.starts_with(prefix),
            None => self.pattern == code,
        }
    }
}

#[cfg(test)]
#[path = "retry_policy_tests.rs"]
mod tests;
