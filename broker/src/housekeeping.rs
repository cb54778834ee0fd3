//! What happens by the clock and needs no core: retention proposes commands, the disk gauge is
//! read. A thread of its own; it only looks and proposes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use varvelog_store::WallMs;
use varvelog_store::fs::Dir;
use varvelog_store::retention::{self, RetentionInput, RetentionPolicy};

use crate::clock::{Clock, MonoMs};
use crate::config::{Config, DiskReserve};
use crate::core::command::Change;
use crate::core::handle::CoreHandle;
use crate::core::run::DiskGauge;
use crate::view::{PartitionView, TopicView, View};

/// The thread.
#[derive(Debug)]
pub struct Housekeeping {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// Time between two looks at the free space.
const DISK_INTERVAL: Duration = Duration::from_secs(1);

impl Housekeeping {
    /// Starts it. The disk gauge is read once before this returns.
    pub fn start(
        config: &Config,
        (core, view, clock): (CoreHandle, View, Arc<dyn Clock>),
        (root, disk): (Arc<dyn Dir>, Arc<DiskGauge>),
    ) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(1);
        let looked = (clock.wall(), clock.mono());
        let keeper = Keeper {
            core,
            view,
            clock,
            root,
            disk,
            reserve: config.disk.reserve,
            retention_interval: config.retention.check_interval,
            looked,
            clock_trusted: true,
        };
        keeper.read_disk();
        let thread = std::thread::Builder::new()
            .name("varvelog-housekeeping".into())
            .spawn(move || keeper.run(&stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends it.
    pub fn stop(self) {
        drop(self.stop);
        drop(self.thread.join());
    }
}

struct Keeper {
    core: CoreHandle,
    view: View,
    clock: Arc<dyn Clock>,
    root: Arc<dyn Dir>,
    disk: Arc<DiskGauge>,
    reserve: DiskReserve,
    retention_interval: Duration,
    /// Both clocks as last looked at.
    looked: (WallMs, MonoMs),
    clock_trusted: bool,
}

impl Keeper {
    fn run(mut self, stopped: &Receiver<()>) {
        let mut retention_at = self.clock.mono().plus(self.retention_interval);
        loop {
            let now = self.clock.mono();
            let wait = DISK_INTERVAL.min(retention_at.since(now));
            match stopped.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            self.read_disk();
            if retention_at <= self.clock.mono() {
                self.look_at_clock();
                self.retain();
                retention_at = self.next_retention();
            }
        }
    }

    fn next_retention(&self) -> MonoMs {
        self.clock.mono().plus(self.retention_interval)
    }

    /// A wall clock that was stepped must not delete: by age nothing goes until a whole interval
    /// passed without a step.
    fn look_at_clock(&mut self) {
        let (wall, mono) = (self.clock.wall(), self.clock.mono());
        let (wall_before, mono_before) = std::mem::replace(&mut self.looked, (wall, mono));
        let elapsed = u64::try_from(mono.since(mono_before).as_millis()).unwrap_or(u64::MAX);
        self.clock_trusted = !retention::clock_stepped(wall_before, wall, elapsed);
        if !self.clock_trusted {
            tracing::warn!("the wall clock was stepped: retention by age pauses");
        }
    }

    fn read_disk(&self) {
        match self.root.space() {
            Ok(space) => {
                self.disk.free_bytes.store(space.free, Ordering::Relaxed);
                let reserve = self.reserve.bytes(space.total);
                self.disk.reserve_bytes.store(reserve, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "cannot read the free space of the volume"),
        }
    }

    fn retain(&self) {
        for topic in self.view.catalog().by_id.values() {
            if topic.derived.is_some() {
                continue;
            }
            for partition in &topic.partitions {
                self.retain_partition(topic, partition);
            }
        }
    }

    fn retain_partition(&self, topic: &TopicView, partition: &PartitionView) {
        let limit = |value: u64| (value > 0).then_some(value);
        let policy = RetentionPolicy {
            age_ms_max: limit(topic.settings.retention_age_ms),
            bytes_max: limit(topic.settings.retention_bytes),
        };
        let segments = partition.reader.segments();
        let start = partition.reader.start();
        let decided = retention::retain(
            &RetentionInput {
                segments: &segments,
                start,
                bytes: partition.reader.bytes(),
                has_active: segments.last().is_some_and(|last| !last.sealed),
                now: self.clock.wall(),
                is_clock_trusted: self.clock_trusted,
            },
            &policy,
        );
        if decided.roll_active {
            self.core.roll(partition.id);
        }
        if decided.start > start {
            let change = Change::MoveLogStart {
                partition: partition.id,
                start: decided.start,
            };
            self.core.propose(change);
        }
    }
}
