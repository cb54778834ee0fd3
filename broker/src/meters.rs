//! Instruments that the parts of the broker record into while they work. The page of metrics reads
//! them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

use crate::clock::Clock;

/// Least time that is told apart, in seconds.
const SECONDS_MIN: f64 = 0.000_05;
/// Each bucket reaches this many times as far as the one before.
const SECONDS_FACTOR: f64 = 2.0;
/// From 50 µs to 26 s.
const SECONDS_BUCKETS: u16 = 20;

/// Instruments of one broker. Clones share them.
#[derive(Clone)]
pub struct Meters {
    clock: Arc<dyn Clock>,
    /// From a submission to the answer that it is committed, in seconds.
    pub commit: Histogram,
    /// One sync of the write-ahead log, in seconds.
    pub wal_sync: Histogram,
    /// Applying one committed round, in seconds.
    pub apply: Histogram,
    /// A `Fetch` that has records to give, without the wait for them, in seconds.
    pub fetch: Histogram,
    /// An `Ack`, from its arrival to its answer, in seconds.
    pub ack: Histogram,
    /// Making one checkpoint, in seconds.
    pub checkpoint: Histogram,
}

impl Meters {
    /// Instruments that read nothing yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            commit: seconds(),
            wal_sync: seconds(),
            apply: seconds(),
            fetch: seconds(),
            ack: seconds(),
            checkpoint: seconds(),
        }
    }

    /// Now, to be given to [`Self::took`].
    pub fn start(&self) -> Duration {
        self.clock.exact()
    }

    /// Records that something took from `start` until now.
    pub fn took(&self, histogram: &Histogram, start: Duration) {
        let took = self.clock.exact().saturating_sub(start);
        histogram.observe(took.as_secs_f64());
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").finish_non_exhaustive()
    }
}

/// A histogram of times in seconds.
pub(crate) fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(
        SECONDS_MIN,
        SECONDS_FACTOR,
        SECONDS_BUCKETS,
    ))
}

/// Counts something as open for as long as it lives.
#[derive(Debug)]
pub struct Open(Gauge);

impl Open {
    /// One more in `gauge`.
    pub fn in_gauge(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_time_is_recorded_in_seconds_and_what_is_open_counts_until_it_is_dropped() {
        let clock = Arc::new(ManualClock::default());
        let meters = Meters::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let start = meters.start();
        clock.advance(Duration::from_millis(1_500));
        meters.took(&meters.ack, start);
        let mut registry = Registry::default();
        registry.register("ack", "", meters.ack.clone());
        let mut page = String::new();
        encode(&mut page, &registry).unwrap();
        assert!(page.contains("ack_sum 1.5\nack_count 1\n"), "{page}");
        let gauge = Gauge::default();
        let open = Open::in_gauge(&gauge);
        assert_eq!(gauge.get(), 1);
        drop(open);
        assert_eq!(gauge.get(), 0);
    }
}
