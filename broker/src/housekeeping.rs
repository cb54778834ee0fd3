//! What happens by the clock and needs no core: retention proposes commands, the disk gauge is
//! read. A thread of its own; it only looks and proposes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use varvelog_store::fs::Dir;
use varvelog_store::partition::{ReadError, SegmentInfo};
use varvelog_store::retention::{self, RetentionInput, RetentionPolicy};
use varvelog_store::{Offset, WallMs};

use crate::clock::{Clock, MonoMs};
use crate::config::{Config, DiskReserve};
use crate::core::admission::Unsure;
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

/// Append times that are looked up at a time: each may be a read from the disk.
const AGES_MAX: usize = 256;
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
            aged: None,
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
    /// The last place whose append time was looked up.
    aged: Option<Unsure>,
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
            self.look_up_ages();
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
                self.disk.size_bytes.store(space.total, Ordering::Relaxed);
                let reserve = self.reserve.bytes(space.total);
                self.disk.reserve_bytes.store(reserve, Ordering::Relaxed);
            }
            Err(error) => tracing::warn!(%error, "cannot read the free space of the volume"),
        }
    }

    /// Reads the append times that the gates of groups have to know and cannot tell by themselves.
    fn look_up_ages(&mut self) {
        let after = self.aged;
        let wanted = self
            .core
            .query_blocking(move |core| core.admission.unsure(after, AGES_MAX));
        let wanted = wanted.unwrap_or_default();
        self.aged = wanted.last().copied();
        let catalog = self.view.catalog();
        let times = wanted.into_iter().filter_map(|at| {
            let topic = catalog.by_id.get(&at.partition.topic)?;
            let number = usize::try_from(at.partition.partition).ok()?;
            let reader = &topic.partitions.get(number)?.reader;
            let time = match reader.append_time_at(at.offset) {
                // A record behind the damage is younger.
                Err(ReadError::Corrupt { last, .. }) => reader.append_time_at(last.plus(1)),
                other => other,
            };
            match time {
                Ok(time) => Some((at, time?)),
                Err(error) => {
                    let partition = at.partition;
                    tracing::warn!(%error, %partition, "an append time was not read");
                    None
                }
            }
        });
        let times: Vec<_> = times.collect();
        if !times.is_empty() {
            self.core.tell_append_times(times);
        }
    }

    fn retain(&self) {
        let floors = self
            .core
            .query_blocking(|core| core.state.retention_floors());
        let dead = self
            .core
            .query_blocking(|core| core.state.dead_letter_floors());
        let (Some(floors), Some(dead)) = (floors, dead) else {
            return;
        };
        for topic in self.view.catalog().by_id.values() {
            for partition in &topic.partitions {
                let floor = floors.get(&partition.id).copied();
                let settled = dead.get(&partition.id).copied();
                self.retain_partition(topic, partition, (floor, settled));
            }
        }
    }

    /// `floor` is the lowest offset that must stay. A derived topic that has one is a retry topic,
    /// of which nothing below it is needed. `settled` is the first dead letter of a dead-letter
    /// partition: of that too nothing below is needed.
    fn retain_partition(
        &self,
        topic: &TopicView,
        partition: &PartitionView,
        (floor, settled): (Option<Offset>, Option<Offset>),
    ) {
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
        // All of it is replayed or discarded: the space that it takes is free after a roll.
        let is_settled = settled.is_some_and(|settled| settled == partition.reader.end());
        let has_active = segments.last().is_some_and(|last| !last.sealed);
        if decided.roll_active || (is_settled && has_active) {
            self.core.roll(partition.id);
        }
        let wanted = match floor {
            None => decided.start,
            Some(floor) if topic.derived.is_some() => whole_segments_below(floor, &segments),
            Some(floor) => decided.start.min(whole_segments_below(floor, &segments)),
        };
        let settled = settled.map_or(Offset::ZERO, |it| whole_segments_below(it, &segments));
        let wanted = wanted.max(settled);
        if wanted > start {
            let change = Change::MoveLogStart {
                partition: partition.id,
                start: wanted,
            };
            self.core.propose(change);
        }
    }
}

/// Where the closed segments end that lie wholly below an offset; 0 if there are none.
fn whole_segments_below(floor: Offset, segments: &[SegmentInfo]) -> Offset {
    let closed = segments
        .iter()
        .take_while(|it| it.sealed && it.end <= floor);
    closed.last().map_or(Offset::ZERO, |last| last.end)
}
