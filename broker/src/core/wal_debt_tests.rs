use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use varvelog_store::batch::{BatchBuilder, Codec};
use varvelog_store::identity::Identity;
use varvelog_store::sim_fs::SimDisk;
use varvelog_store::wal::WalConfig;
use varvelog_store::{FolderId, PartitionId, WallMs};

use super::*;
use crate::clock::{Clock, ManualClock};
use crate::config::SyncPolicy;
use crate::core::command::Change;
use crate::core::decide::CountLimits;
use crate::core::flusher::{Done, FlushError, Flusher, Task};
use crate::core::forecast::AppendLimits;
use crate::core::groups::SessionLimits;
use crate::core::handle::CoreHandle;
use crate::core::recover::{self, OpenOptions, Opened};
use crate::core::request::{AppendRequest, AppendRequestPart, Appended, ChangeRequest};
use crate::core::run::{CoreOptions, DiskGauge, FlusherLink};
use crate::core::settings::TopicSettings;
use crate::meters::Meters;
use crate::names::TopicName;

const CHECKPOINT_WAL_BYTES: u64 = 64 << 10;
const BODY_BYTES: u64 = 10 << 10;
const ROOM_BYTES: u32 = 34 << 10;

type Answer = Pin<Box<dyn Future<Output = Result<Appended, CallError>>>>;

/// What becomes of a checkpoint that the core asked for.
#[derive(Debug)]
enum Verdict {
    Make,
    GiveUp,
}

/// A core on a simulated disk, whose flusher waits at each checkpoint for what the test says.
struct Rig {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    handle: CoreHandle,
    core: JoinHandle<Result<Core, CoreFailure>>,
    asked: Receiver<()>,
    verdicts: Sender<Verdict>,
}

impl Rig {
    async fn new() -> Self {
        let rig = Self::on(SimDisk::new());
        let change = ChangeRequest::CreateTopic {
            name: name(),
            partitions: 1,
            settings: TopicSettings::default(),
        };
        rig.handle.change(change, false).await.unwrap();
        rig
    }

    fn on(disk: SimDisk) -> Self {
        let clock = Arc::new(ManualClock::new(WallMs(1)));
        let mut opened = recover::open(&disk.root(), &open_options(), clock.mono()).unwrap();
        let started = Change::BrokerStarted { clean: false };
        let committed = opened
            .engine
            .commit_now(started, clock.wall(), clock.mono());
        committed.unwrap().unwrap();
        let Opened {
            engine, flusher, ..
        } = opened;
        let (tasks, incoming) = bounded(1024);
        let (outgoing, reports) = bounded(1024);
        let (asking, asked) = bounded(64);
        let (verdicts, heard) = bounded(64);
        std::thread::spawn(move || flush(flusher, &incoming, &outgoing, &asking, &heard));
        let (handle, queue) =
            CoreHandle::new(ROOM_BYTES, Duration::from_millis(20), options().meters);
        let mut dice = 0_u128;
        let dice = Box::new(move || {
            dice += 1;
            dice.to_le_bytes()
        });
        let link = FlusherLink { tasks, reports };
        let gauge = Arc::new(DiskGauge::default());
        let given: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let copier = crate::core::copier::start(engine.applier.view().clone()).unwrap();
        let links = (queue, link, copier);
        let core = Core::new(engine, options(), given, dice, gauge, links).unwrap();
        Self {
            disk,
            clock,
            handle,
            core: std::thread::spawn(move || core.run()),
            asked,
            verdicts,
        }
    }

    /// Gives an append its place; what is returned waits for the answer.
    async fn append(&self) -> Result<Answer, CallError> {
        let ask = |view: &crate::core::handle::CoreView<'_>| {
            view.state.topics.by_name(&name()).map(|topic| topic.id)
        };
        let topic = self.handle.query(ask).await.unwrap().unwrap();
        let id = PartitionId {
            topic,
            partition: 0,
        };
        let part = AppendRequestPart {
            partition: id,
            record_count: 1,
            producer: None,
            delays_ms: Vec::new(),
            ids: Vec::new(),
            body: body(),
        };
        let request = AppendRequest {
            request: None,
            parts: vec![part],
        };
        Ok(Box::pin(self.handle.begin_append(request).await?))
    }

    /// A change, answered behind everything that came before it and is not held.
    async fn change(&self) {
        let change = ChangeRequest::InitProducer { name: "p".into() };
        self.handle.change(change, false).await.unwrap();
    }

    /// Appends until an append is held; that one, and how many were answered before.
    async fn append_until_held(&self) -> (Answer, u64) {
        for appended in 0.. {
            let mut answer = self.append().await.unwrap();
            self.change().await;
            match tokio::time::timeout(Duration::ZERO, &mut answer).await {
                Ok(answer) => drop(answer.unwrap()),
                Err(_held) => return (answer, appended),
            }
        }
        unreachable!("the loop has no end")
    }

    fn stop(self) -> Core {
        self.handle.stop();
        self.core.join().unwrap().unwrap()
    }
}

fn flush(
    mut flusher: Flusher,
    tasks: &Receiver<Task>,
    reports: &Sender<Result<Done, FlushError>>,
    asking: &Sender<()>,
    verdicts: &Receiver<Verdict>,
) {
    for task in tasks {
        let is_checkpoint = matches!(task, Task::Checkpoint(_));
        let verdict = if is_checkpoint {
            asking.send(()).unwrap_or_default();
            // Once the test says nothing more, every one is made.
            verdicts.recv().unwrap_or(Verdict::Make)
        } else {
            Verdict::Make
        };
        let done = match verdict {
            Verdict::Make => flusher.perform(task),
            Verdict::GiveUp => Ok(Done::Postponed),
        };
        if reports.send(done).is_err() {
            return;
        }
    }
}

fn open_options() -> OpenOptions {
    OpenOptions {
        wal: WalConfig {
            file_bytes: 1 << 20,
        },
        open_segments_max: 4,
        fresh: Identity {
            folder: FolderId([1; 16]),
            cluster: [2; 16],
            node: [3; 16],
            feature_level: 1,
        },
        unflushed_bytes_max: 1 << 30,
        sync_each_max: 0,
    }
}

fn options() -> CoreOptions {
    let long = Duration::from_hours(1);
    CoreOptions {
        sync: SyncPolicy::Always,
        flush_interval: long,
        unflushed_bytes_max: 1 << 30,
        checkpoint_wal_bytes: CHECKPOINT_WAL_BYTES,
        checkpoint_interval: long,
        unlink_delay: long,
        producer_expiry: long,
        offset_retention: long,
        limits: CountLimits::default(),
        append_limits: AppendLimits::default(),
        session_limits: SessionLimits::default(),
        meters: Meters::new(Arc::new(ManualClock::default())),
    }
}

fn name() -> TopicName {
    TopicName::parse("t").unwrap()
}

fn body() -> bytes::Bytes {
    let bytes = usize::try_from(BODY_BYTES).unwrap();
    let mut builder = BatchBuilder::new(Codec::None, 2 * bytes);
    let none = std::iter::empty::<(&[u8], Option<&[u8]>)>();
    builder
        .push(None, None, Some(&vec![7; bytes]), none)
        .unwrap();
    builder.finish().unwrap()
}

#[tokio::test]
async fn appends_wait_for_a_checkpoint_that_is_slow_and_the_rest_goes_on() {
    let rig = Rig::new().await;
    let (held, appended) = rig.append_until_held().await;
    let written = appended * BODY_BYTES;
    assert!(
        written > CHECKPOINT_WAL_BYTES
            && written <= HOLD_FACTOR * CHECKPOINT_WAL_BYTES + BODY_BYTES,
        "{written} bytes were appended before the hold"
    );
    let asked = rig.asked.recv_timeout(Duration::from_mins(1));
    asked.expect("it waits for one that is under way");
    assert!(rig.asked.is_empty(), "and no other is asked for");
    let mut more = Vec::new();
    let refused = loop {
        match rig.append().await {
            Ok(answer) => more.push(answer),
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, CallError::Busy { .. }), "{refused:?}");
    rig.verdicts.send(Verdict::Make).unwrap();
    let first = held.await.unwrap().parts[0].base_offset;
    assert_eq!(first.get(), appended, "in the order in which they came");
    for (behind, answer) in (1..).zip(more) {
        let offset = answer.await.unwrap().parts[0].base_offset;
        assert_eq!(offset.get(), appended + behind);
    }
    let Rig {
        handle,
        core,
        verdicts,
        ..
    } = rig;
    drop(verdicts);
    handle.stop();
    core.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_checkpoint_that_is_given_up_refuses_what_waits_for_it_and_is_asked_for_again() {
    let rig = Rig::new().await;
    let (held, _) = rig.append_until_held().await;
    rig.asked.recv().unwrap();
    rig.verdicts.send(Verdict::GiveUp).unwrap();
    let refused = held.await.unwrap_err();
    assert!(matches!(refused, CallError::Busy { .. }), "{refused:?}");
    let held = rig.append().await.unwrap();
    rig.change().await;
    assert!(rig.asked.is_empty(), "not before some time has passed");
    rig.clock.advance(RETRY);
    rig.change().await;
    rig.asked.recv().unwrap();
    rig.verdicts.send(Verdict::Make).unwrap();
    held.await.unwrap();
    rig.stop();
}

#[tokio::test]
async fn a_broker_that_stops_waits_for_no_checkpoint() {
    let rig = Rig::new().await;
    let (held, appended) = rig.append_until_held().await;
    rig.stop();
    assert_eq!(held.await.unwrap().parts[0].base_offset.get(), appended);
}

#[tokio::test]
async fn what_a_start_had_to_read_counts_so_that_kills_in_a_row_add_nothing_up() {
    let rig = Rig::new().await;
    let (_held, appended) = rig.append_until_held().await;
    let again = Rig::on(rig.disk.process_kill());
    let (held, more) = again.append_until_held().await;
    assert!(
        more <= 1,
        "{appended} appends before the kill, {more} after"
    );
    again.asked.recv().unwrap();
    again.verdicts.send(Verdict::Make).unwrap();
    held.await.unwrap();
    for rig in [rig, again] {
        rig.stop();
    }
}

#[test]
fn the_debt_is_counted_from_where_the_newest_checkpoint_was_asked_for() {
    let mut debt = WalDebt::new(100);
    assert!(!debt.holds(200));
    assert!(debt.holds(201));
    debt.asked(150);
    assert!(debt.holds(201), "asked for is not done");
    debt.done();
    assert!(!debt.holds(350));
    assert!(debt.holds(351));
    debt.asked(340);
    debt.given_up(MonoMs(0));
    assert!(debt.holds(351));
    assert_eq!(debt.not_before(MonoMs(0)), Some(MonoMs(1000)));
    assert_eq!(debt.not_before(MonoMs(1000)), None);
    debt.asked(351);
    assert_eq!(debt.not_before(MonoMs(0)), None);
    debt.done();
    assert!(!debt.holds(551));
}
