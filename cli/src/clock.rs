//! The only place of this program that reads a clock.

use std::time::Duration;

use tokio::time::Instant;

/// A monotonic point in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(Instant);

impl Since {
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn passed(self) -> Duration {
        Instant::now().saturating_duration_since(self.0)
    }
}

/// Wall time, Unix milliseconds.
pub(crate) fn unix_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
