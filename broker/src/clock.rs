//! The only place that reads a clock. Wall and monotonic time are two types without a conversion
//! between them.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use varvelog_store::WallMs;

/// Monotonic time: milliseconds since some moment before the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoMs(pub u64);

impl MonoMs {
    /// The time `duration` later; stays at the end of time.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
        )
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Both clocks.
pub trait Clock: Debug + Send + Sync {
    /// Wall-clock time; may step either way.
    fn wall(&self) -> WallMs;
    /// Monotonic time; never falls.
    fn mono(&self) -> MonoMs;
    /// Monotonic time as exactly as the clock has it, to measure how long work takes; deadlines go
    /// by [`Self::mono`].
    fn exact(&self) -> Duration;
}

/// The clocks of the system.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Clocks whose monotonic time begins now.
    #[expect(clippy::disallowed_methods, reason = "this is the clock")]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock")]
impl Clock for SystemClock {
    fn wall(&self) -> WallMs {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        WallMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn mono(&self) -> MonoMs {
        MonoMs(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn exact(&self) -> Duration {
        self.start.elapsed()
    }
}

/// Clocks that a test sets by hand.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall: AtomicI64,
    mono: AtomicU64,
}

impl ManualClock {
    /// Clocks that stand at `wall` and at monotonic 0.
    pub fn new(wall: WallMs) -> Self {
        Self {
            wall: AtomicI64::new(wall.0),
            mono: AtomicU64::new(0),
        }
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.mono.fetch_add(ms, Ordering::SeqCst);
        self.wall
            .fetch_add(i64::try_from(ms).unwrap_or(i64::MAX), Ordering::SeqCst);
    }

    /// Sets the wall clock alone, as an operator does.
    pub fn step_wall(&self, to: WallMs) {
        self.wall.store(to.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn wall(&self) -> WallMs {
        WallMs(self.wall.load(Ordering::SeqCst))
    }

    fn mono(&self) -> MonoMs {
        MonoMs(self.mono.load(Ordering::SeqCst))
    }

    fn exact(&self) -> Duration {
        Duration::from_millis(self.mono().0)
    }
}
