//! When the core has to do something by itself. Pure: the time comes in, what is due comes out.

use std::time::Duration;

use super::run::CoreOptions;
use crate::clock::MonoMs;
use crate::config::SyncPolicy;

/// Something that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Write all tails out.
    Flush,
    /// Sync what was written (`wal.sync = interval`).
    Sync,
    /// Make a checkpoint.
    Checkpoint,
    /// Remove files, forget groups.
    Maintain,
    /// Forget producers.
    Expire,
}

/// The deadlines of the core. Those of flush, sync and checkpoint run only while there is
/// something to do.
#[derive(Debug)]
pub(super) struct Timers {
    flush_interval: Duration,
    sync_interval: Option<Duration>,
    checkpoint_interval: Duration,
    checkpoint_wal_bytes: u64,
    flush_at: Option<MonoMs>,
    sync_at: Option<MonoMs>,
    syncing: bool,
    checkpoint_at: Option<MonoMs>,
    /// WAL bytes at the last checkpoint.
    checkpoint_base_bytes: u64,
    maintain_at: MonoMs,
    expire_at: MonoMs,
    wake_at: Option<MonoMs>,
    /// Lazy commands wait until then for a round to go with.
    lazy_at: Option<MonoMs>,
}

/// Time between two looks at what deletion and expiry ask for.
const MAINTAIN_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time that lazy commands wait for a round to go with.
const LAZY_DELAY: Duration = Duration::from_secs(1);
/// Time between two looks at the producers: all that were not used for long are looked at.
const EXPIRE_INTERVAL: Duration = Duration::from_mins(1);

impl Timers {
    pub(super) fn new(options: &CoreOptions, now: MonoMs) -> Self {
        Self {
            flush_interval: options.flush_interval,
            sync_interval: match options.sync {
                SyncPolicy::Interval(interval) => Some(interval),
                SyncPolicy::Always | SyncPolicy::Never => None,
            },
            checkpoint_interval: options.checkpoint_interval,
            checkpoint_wal_bytes: options.checkpoint_wal_bytes,
            flush_at: None,
            sync_at: None,
            syncing: false,
            checkpoint_at: None,
            checkpoint_base_bytes: 0,
            maintain_at: now.plus(MAINTAIN_INTERVAL),
            expire_at: now.plus(EXPIRE_INTERVAL),
            wake_at: None,
            lazy_at: None,
        }
    }

    /// A round was written.
    pub(super) fn wrote(&mut self, now: MonoMs) {
        self.flush_at.get_or_insert(now.plus(self.flush_interval));
        self.checkpoint_at
            .get_or_insert(now.plus(self.checkpoint_interval));
        if let Some(interval) = self.sync_interval {
            self.sync_at.get_or_insert(now.plus(interval));
        }
    }

    /// A round of lazy commands alone was written: nothing is to be flushed or synced.
    pub(super) fn wrote_lazy(&mut self, now: MonoMs) {
        self.checkpoint_at
            .get_or_insert(now.plus(self.checkpoint_interval));
    }

    /// Whether lazy commands, with nothing else to do, have time to wait.
    pub(super) fn hold_lazy(&mut self, now: MonoMs) -> bool {
        *self.lazy_at.get_or_insert(now.plus(LAZY_DELAY)) > now
    }

    /// What waited was taken up.
    pub(super) fn took_lazy(&mut self) {
        self.lazy_at = None;
    }

    /// The core wants to look again then, or earlier.
    pub(super) fn wake(&mut self, at: MonoMs) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }

    /// Whether a sync of the interval is under way.
    pub(super) fn is_syncing(&self) -> bool {
        self.syncing
    }

    /// A sync ended.
    pub(super) fn synced(&mut self) {
        self.syncing = false;
    }

    /// A checkpoint was asked for.
    pub(super) fn checkpointed(&mut self, wal_bytes: u64) {
        self.checkpoint_at = None;
        self.checkpoint_base_bytes = wal_bytes;
    }

    /// A checkpoint found no room: it is due again after the usual time.
    pub(super) fn postponed(&mut self, now: MonoMs) {
        self.checkpoint_at = Some(now.plus(self.checkpoint_interval));
    }

    /// What is due. Flush, sync and maintenance count as begun; a checkpoint stays due until
    /// [`Self::checkpointed`].
    pub(super) fn due(&mut self, now: MonoMs, wal_bytes: u64) -> Vec<Due> {
        let mut due = Vec::new();
        self.wake_at.take_if(|at| *at <= now);
        if self.flush_at.take_if(|at| *at <= now).is_some() {
            due.push(Due::Flush);
        }
        if !self.syncing && self.sync_at.take_if(|at| *at <= now).is_some() {
            self.syncing = true;
            due.push(Due::Sync);
        }
        let grown = wal_bytes.saturating_sub(self.checkpoint_base_bytes);
        if grown >= self.checkpoint_wal_bytes || self.checkpoint_at.is_some_and(|at| at <= now) {
            due.push(Due::Checkpoint);
        }
        if self.maintain_at <= now {
            self.maintain_at = now.plus(MAINTAIN_INTERVAL);
            due.push(Due::Maintain);
        }
        if self.expire_at <= now {
            self.expire_at = now.plus(EXPIRE_INTERVAL);
            due.push(Due::Expire);
        }
        due
    }

    /// How long the core may sleep if nothing arrives.
    pub(super) fn wait(&self, now: MonoMs, sessions: Option<MonoMs>) -> Duration {
        let sync_at = self.sync_at.filter(|_| !self.syncing);
        // Past it, what keeps the next round from starting wakes the core.
        let lazy_at = self.lazy_at.filter(|at| *at > now);
        [
            self.flush_at,
            sync_at,
            self.checkpoint_at,
            self.wake_at,
            lazy_at,
            sessions,
        ]
        .into_iter()
        .flatten()
        .fold(self.maintain_at.min(self.expire_at), MonoMs::min)
        .since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::core::decide::CountLimits;
    use crate::core::forecast::AppendLimits;
    use crate::core::groups::SessionLimits;
    use crate::meters::Meters;

    fn timers(sync: SyncPolicy) -> Timers {
        let options = CoreOptions {
            sync,
            flush_interval: Duration::from_secs(1),
            unflushed_bytes_max: 1,
            checkpoint_wal_bytes: 1000,
            checkpoint_interval: Duration::from_mins(1),
            unlink_delay: Duration::ZERO,
            producer_expiry: Duration::from_secs(1),
            offset_retention: Duration::from_secs(1),
            limits: CountLimits::default(),
            append_limits: AppendLimits::default(),
            session_limits: SessionLimits::default(),
            meters: Meters::new(std::sync::Arc::new(ManualClock::default())),
        };
        Timers::new(&options, MonoMs(0))
    }

    #[test]
    fn a_core_without_work_wakes_only_for_maintenance() {
        let mut timers = timers(SyncPolicy::Interval(Duration::from_millis(100)));
        assert_eq!(timers.wait(MonoMs(0), None), Duration::from_secs(1));
        assert_eq!(timers.due(MonoMs(1000), 0), [Due::Maintain]);
        assert_eq!(timers.wait(MonoMs(1000), None), Duration::from_secs(1));
        assert_eq!(timers.due(MonoMs(60_000), 0), [Due::Maintain, Due::Expire]);
        assert_eq!(timers.due(MonoMs(61_000), 0), [Due::Maintain]);
    }

    #[test]
    fn lazy_commands_wait_a_second_for_company_and_are_then_neither_synced_nor_flushed() {
        let mut timers = timers(SyncPolicy::Interval(Duration::from_millis(100)));
        assert!(timers.hold_lazy(MonoMs(400)));
        assert!(timers.hold_lazy(MonoMs(900)));
        timers.due(MonoMs(1100), 0);
        assert_eq!(timers.wait(MonoMs(1100), None), Duration::from_millis(300));
        assert!(!timers.hold_lazy(MonoMs(1400)));
        // Held up by something else: no spinning meanwhile.
        assert_eq!(timers.wait(MonoMs(1400), None), Duration::from_millis(700));
        timers.took_lazy();
        timers.wrote_lazy(MonoMs(1400));
        assert_eq!(timers.due(MonoMs(2100), 0), [Due::Maintain]);
        assert_eq!(timers.wait(MonoMs(2100), None), Duration::from_secs(1));
        assert!(
            timers.hold_lazy(MonoMs(2200)),
            "those that follow begin anew"
        );
    }

    #[test]
    fn what_was_written_is_synced_within_the_interval_and_one_sync_runs_at_a_time() {
        let mut timers = timers(SyncPolicy::Interval(Duration::from_millis(100)));
        timers.wrote(MonoMs(0));
        timers.wrote(MonoMs(50));
        assert_eq!(timers.wait(MonoMs(0), None), Duration::from_millis(100));
        assert_eq!(timers.due(MonoMs(100), 0), [Due::Sync]);
        timers.wrote(MonoMs(110));
        assert_eq!(timers.due(MonoMs(300), 0), []);
        timers.synced();
        assert_eq!(timers.due(MonoMs(300), 0), [Due::Sync]);
    }

    #[test]
    fn a_checkpoint_is_due_by_bytes_or_by_time_and_stays_due_until_asked_for() {
        let mut timers = timers(SyncPolicy::Always);
        timers.wrote(MonoMs(0));
        assert_eq!(timers.due(MonoMs(10), 1000), [Due::Checkpoint]);
        assert_eq!(timers.due(MonoMs(11), 1000), [Due::Checkpoint]);
        timers.checkpointed(1000);
        assert_eq!(timers.due(MonoMs(12), 1500), []);
        timers.wrote(MonoMs(20));
        assert!(timers.due(MonoMs(60_020), 1500).contains(&Due::Checkpoint));
    }
}
