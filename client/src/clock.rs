//! The only place of this crate that reads a clock.

use tokio::time::Instant;

/// Now, on the monotonic clock that timers run on (it can be paused in tests).
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Unix milliseconds now, for records that need a producer's time; 0 before 1970.
#[expect(clippy::disallowed_methods, reason = "this file is the crate's clock")]
pub(crate) fn wall_ms() -> i64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_millis()).ok())
        .unwrap_or(0)
}
