//! The only place of this crate that reads a clock.

use tokio::time::Instant;

/// Now, on the monotonic clock that timers run on (it can be paused in tests).
pub(crate) fn now() -> Instant {
    Instant::now()
}
