//! Backoff between tries: exponential, jittered, bounded. It reads no clock and throws no dice.

use std::time::Duration;

/// How long to wait between tries.
///
/// The wait before try *n* is drawn between half and the whole of `base * 2^n`, which itself
/// never passes `max`. Half stays fixed so that a crowd of clients spreads without any of them
/// coming back at once.
///
/// ```
/// use std::time::Duration;
/// use varvelog_client::retry::BackoffConfig;
///
/// let config = BackoffConfig { base: Duration::from_millis(100), max: Duration::from_secs(1) };
/// let waits: Vec<_> = config.delays(|| 1.0).take(5).collect();
/// assert_eq!(waits, [100, 200, 400, 800, 1000].map(Duration::from_millis));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffConfig {
    /// The longest first wait.
    pub base: Duration,
    /// The longest wait of all.
    pub max: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            max: Duration::from_secs(1),
        }
    }
}

impl BackoffConfig {
    /// The waits, one after the other, without end. `dice` gives a number from 0 to 1; what lies
    /// outside counts as the nearer bound.
    pub fn delays<D: FnMut() -> f64>(self, dice: D) -> Delays<D> {
        Delays {
            config: self,
            attempt: 0,
            dice,
        }
    }

    /// The wait before try `attempt` (from 0), for a draw from 0 to 1.
    pub fn delay(self, attempt: u32, draw: f64) -> Duration {
        let factor = 2_u32.saturating_pow(attempt.min(31));
        let whole = self.base.saturating_mul(factor).min(self.max);
        let draw = if draw.is_finite() {
            draw.clamp(0.0, 1.0)
        } else {
            1.0
        };
        whole / 2 + (whole / 2).mul_f64(draw)
    }
}

/// Endless waits; see [`BackoffConfig::delays`].
#[derive(Debug, Clone)]
pub struct Delays<D> {
    config: BackoffConfig,
    attempt: u32,
    dice: D,
}

impl<D> Delays<D> {
    /// Begin again with the shortest wait, after something worked.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

impl<D: FnMut() -> f64> Iterator for Delays<D> {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.config.delay(self.attempt, (self.dice)());
        self.attempt = self.attempt.saturating_add(1);
        Some(delay)
    }
}

/// The dice of this crate's own loops: uniform from 0 to 1.
pub(crate) fn roll() -> f64 {
    rand::random::<f64>()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum() {
        let config = BackoffConfig::default();
        let waits: Vec<_> = config
            .delays(|| 1.0)
            .take(6)
            .map(|wait| wait.as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn a_reset_begins_with_the_shortest_wait() {
        let mut delays = BackoffConfig::default().delays(|| 0.0);
        delays.by_ref().take(5).for_each(drop);
        delays.reset();
        assert_eq!(delays.next(), Some(Duration::from_millis(50)));
    }

    proptest! {
        #[test]
        fn a_wait_lies_between_half_and_the_whole(
            attempt: u32,
            draw in prop::num::f64::ANY,
            base in 0_u64..100_000,
            max in 0_u64..100_000,
        ) {
            let config = BackoffConfig {
                base: Duration::from_millis(base), max: Duration::from_millis(max),
            };
            let wait = config.delay(attempt, draw);
            prop_assert!(wait <= config.max);
            prop_assert!(wait >= config.base.min(config.max) / 2);
        }
    }
}
