//! From a configuration to a running broker, and back to a clean stop.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::sync::watch;
use varvelog_store::fs::{Dir, OsDir};
use varvelog_store::identity::{self, FolderLock, Identity, IdentityError, LockError};
use varvelog_store::limits::SYNC_EACH_MAX;
use varvelog_store::wal::WalConfig;
use varvelog_store::{FolderId, Sequence};

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::core::command::Change;
use crate::core::copier;
use crate::core::flusher::{Done, FlushError, Flusher, Task};
use crate::core::handle::{CoreHandle, Queued};
use crate::core::recover::{self, OpenOptions, Opened, RecoverError, RecoveryReport};
use crate::core::run::{Core, CoreFailure, DiskGauge, FlusherLink};
use crate::core_options::{core_options, queue_bytes};
use crate::descriptors::Descriptors;
use crate::housekeeping::Housekeeping;
use crate::meters::Meters;
use crate::service::{BrokerIdentity, EdgeHandle, Services};

/// Why a broker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The data folder cannot be made or written.
    #[error("cannot use the data folder {}: {source}", path.display())]
    Folder {
        /// As configured.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another broker works on it.
    #[error("the data folder {} is in use by another broker", path.display())]
    InUse {
        /// As configured.
        path: PathBuf,
    },
    /// What is on disk could not be recovered.
    #[error("cannot recover the data folder {}: {source}", path.display())]
    Recover {
        /// As configured.
        path: PathBuf,
        /// Why.
        source: RecoverError,
    },
    /// The core failed before it was ready.
    #[error("{0}")]
    Core(#[from] CoreFailure),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// The exit code of the program: 2 for a setting or a folder that cannot be used, 4 for a
    /// folder in use, 65 for damage, 74 for a disk that failed.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Listen { .. } | Self::Folder { .. } | Self::Thread(_) => 2,
            Self::InUse { .. } => 4,
            Self::Recover { source, .. } if source.is_damage() => 65,
            Self::Recover { .. } | Self::Core(_) => 74,
        }
    }
}

/// A running broker. Dropped without [`Self::stop`] it ends as if killed.
#[derive(Debug)]
pub struct BrokerHandle {
    grpc: SocketAddr,
    http: SocketAddr,
    data_dir: PathBuf,
    core: CoreHandle,
    edge: EdgeHandle,
    housekeeping: Option<Housekeeping>,
    core_thread: Option<JoinHandle<Result<Sequence, CoreFailure>>>,
    ended: watch::Receiver<Option<String>>,
    root: Arc<dyn Dir>,
    grace: Duration,
    report: RecoveryReport,
    // Held until the process lets go of the folder.
    _lock: FolderLock,
}

impl BrokerHandle {
    /// Where gRPC is served.
    pub fn grpc_addr(&self) -> SocketAddr {
        self.grpc
    }

    /// Where HTTP is served.
    pub fn http_addr(&self) -> SocketAddr {
        self.http
    }

    /// The data folder.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// What recovery did.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.report
    }

    /// Waits until the broker fenced itself because its disk failed; the text says how. The
    /// program then exits with 74.
    pub async fn failed(&self) -> String {
        let mut ended = self.ended.clone();
        loop {
            if let Some(failure) = ended.borrow_and_update().clone() {
                return failure;
            }
            if ended.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops cleanly: streams are told, what is in flight is answered, everything goes into a
    /// checkpoint, and a mark says so.
    pub async fn stop(mut self) -> Result<(), StopError> {
        self.edge.drain(self.grace).await;
        if let Some(housekeeping) = self.housekeeping.take() {
            housekeeping.stop();
        }
        self.core.stop();
        let Some(thread) = self.core_thread.take() else {
            return Ok(());
        };
        let joined = tokio::task::spawn_blocking(move || thread.join()).await;
        let Ok(Ok(finished)) = joined else {
            return Err(StopError::Panicked);
        };
        let sequence = finished?;
        identity::write_clean_mark(&self.root, sequence).map_err(StopError::Mark)
    }
}

/// Why a stop was not clean. The data folder recovers at the next start.
#[derive(Debug, thiserror::Error)]
pub enum StopError {
    /// The disk failed.
    #[error("{0}")]
    Core(#[from] CoreFailure),
    /// The core's thread panicked.
    #[error("the core ended with a panic")]
    Panicked,
    /// The mark of a clean stop could not be written.
    #[error("cannot write the mark of a clean stop: {0}")]
    Mark(IdentityError),
}

/// How long a producer waits for room before it is told to come back.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(2);
/// What a folder made by this release may hold: nothing beyond the first format.
const FEATURE_LEVEL: u32 = 1;
/// Tasks that may wait for the flusher.
const TASKS_MAX: usize = 1024;

/// A data folder that was opened.
struct OpenFolder {
    opened: Opened,
    root: Arc<dyn Dir>,
    lock: FolderLock,
    clock: Arc<dyn Clock>,
    /// How long that took.
    took: Duration,
}

fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).map_err(|source| StartError::Listen { address, source })
}

fn local(listener: &TcpListener, address: SocketAddr) -> Result<SocketAddr, StartError> {
    listener
        .local_addr()
        .map_err(|source| StartError::Listen { address, source })
}

/// Locks, recovers, and commits the first command of this run. Blocks.
fn open_folder(config: &Config, descriptors: Descriptors) -> Result<OpenFolder, StartError> {
    let path = config.data_dir.clone();
    let folder = |source| StartError::Folder {
        path: path.clone(),
        source,
    };
    let root: Arc<dyn Dir> = OsDir::open(&path).map_err(folder)?;
    let lock = identity::lock_folder(&path).map_err(|error| match error {
        LockError::Held => StartError::InUse { path: path.clone() },
        LockError::Io(source) => folder(source),
    })?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let began = clock.exact();
    let options = OpenOptions {
        wal: WalConfig {
            file_bytes: config.wal.file_bytes,
        },
        open_segments_max: descriptors.open_segments_max(),
        fresh: fresh_identity(),
        unflushed_bytes_max: config.flush.unflushed_bytes,
        sync_each_max: SYNC_EACH_MAX,
    };
    let damaged = |source| StartError::Recover {
        path: path.clone(),
        source,
    };
    let mut opened = recover::open(&root, &options, clock.mono()).map_err(damaged)?;
    let started = Change::BrokerStarted {
        clean: opened.report.clean,
    };
    let committed = opened
        .engine
        .commit_now(started, clock.wall(), clock.mono());
    let outcome = committed.map_err(|error| StartError::Core(error.into()))?;
    assert!(outcome.is_ok(), "the start of a broker is never refused");
    opened.engine.applier.request_sweep();
    tell(&opened.report);
    Ok(OpenFolder {
        took: clock.exact().saturating_sub(began),
        opened,
        root,
        lock,
        clock,
    })
}

/// Says what recovery found; what was cut or passed over is said in one line of fixed words.
fn tell(report: &RecoveryReport) {
    if let Some(cut) = &report.tail.cut {
        let saved_as = cut.saved_as.as_deref().unwrap_or_default();
        tracing::warn!(file = cut.file, position = cut.position, saved_as, "{cut}");
    }
    for damaged in &report.damaged_checkpoints {
        tracing::warn!(
            checkpoint = %damaged.sequence,
            damage = %damaged.damage,
            "a damaged checkpoint was passed over; the one before it and the log were used"
        );
    }
    let (clean, replayed) = (report.clean, report.replayed);
    tracing::info!(clean, replayed, "recovered");
}

fn fresh_identity() -> Identity {
    Identity {
        folder: FolderId(fresh_id()),
        cluster: fresh_id(),
        node: fresh_id(),
        feature_level: FEATURE_LEVEL,
    }
}

fn fresh_id() -> [u8; 16] {
    uuid::Uuid::new_v4().into_bytes()
}

type CoreThread = JoinHandle<Result<Sequence, CoreFailure>>;

/// Starts the flusher and the core. The watch tells how they failed, if they did.
fn start_core(
    config: &Config,
    opened: Opened,
    (clock, disk, meters): (&Arc<dyn Clock>, &Arc<DiskGauge>, &Meters),
    queue: Receiver<Queued>,
) -> Result<(CoreThread, watch::Receiver<Option<String>>), StartError> {
    let Opened {
        engine, flusher, ..
    } = opened;
    let (tasks, incoming) = bounded(TASKS_MAX);
    let (outgoing, reports) = bounded(TASKS_MAX);
    let flusher_meters = meters.clone();
    thread("varvelog-flush", move || {
        run_flusher(flusher, &flusher_meters, &incoming, &outgoing);
    })?;
    let link = FlusherLink { tasks, reports };
    let view = engine.applier.view().clone();
    let copier = copier::start(view).map_err(StartError::Thread)?;
    let dice = Box::new(fresh_id);
    let core = Core::new(
        engine,
        core_options(config, meters.clone()),
        Arc::clone(clock),
        dice,
        Arc::clone(disk),
        (queue, link, copier),
    )
    .map_err(StartError::Thread)?;
    let (failed, ended) = watch::channel(None);
    let core_thread = thread("varvelog-core", move || {
        let finished = core.run().and_then(Core::finish);
        if let Err(failure) = &finished {
            tracing::error!(%failure, "the disk failed: the broker is fenced");
            failed.send_replace(Some(failure.to_string()));
        }
        finished
    })?;
    Ok((core_thread, ended))
}

fn run_flusher(
    mut flusher: Flusher,
    meters: &Meters,
    tasks: &Receiver<Task>,
    reports: &Sender<Result<Done, FlushError>>,
) {
    for task in tasks {
        let (is_checkpoint, began) = (matches!(task, Task::Checkpoint(_)), meters.start());
        let done = flusher.perform(task);
        if is_checkpoint {
            meters.took(&meters.checkpoint, began);
        }
        let failed = done.is_err();
        if reports.send(done).is_err() || failed {
            return;
        }
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(StartError::Thread)
}

/// The configuration with no more connections than there are descriptors for.
fn within(mut config: Config, descriptors: Descriptors) -> Config {
    let configured = config.limits.connections;
    let connections = descriptors.connections_max(configured);
    if connections < configured {
        let descriptors = descriptors.limit();
        tracing::warn!(
            descriptors,
            configured,
            connections,
            "the limit of open files is low: fewer connections are taken than configured"
        );
        config.limits.connections = connections;
    }
    config
}

/// Starts a broker and returns when it is ready: recovered, and both ports answer.
pub async fn start(config: Config) -> Result<BrokerHandle, StartError> {
    let descriptors = Descriptors::raise();
    let config = Arc::new(within(config, descriptors));
    let grpc = bind(config.listen)?;
    let http = bind(config.http_listen)?;
    let opening = Arc::clone(&config);
    let opened = tokio::task::spawn_blocking(move || open_folder(&opening, descriptors)).await;
    let folder = opened.map_err(|join| StartError::Thread(join.into()))??;
    let clock: Arc<dyn Clock> = Arc::clone(&folder.clock);
    let report = folder.opened.report.clone();
    let ids = folder.opened.identity;
    let view = folder.opened.engine.applier.view().clone();
    let disk = Arc::new(DiskGauge::default());
    let meters = Meters::new(Arc::clone(&clock));
    let (core, queue) = CoreHandle::new(queue_bytes(&config), QUEUE_WAIT_MAX, meters.clone());
    let (core_thread, ended) = start_core(&config, folder.opened, (&clock, &disk, &meters), queue)?;
    let housekeeping = Housekeeping::start(
        &config,
        (core.clone(), view.clone(), Arc::clone(&clock)),
        (Arc::clone(&folder.root), Arc::clone(&disk)),
    )
    .map_err(StartError::Thread)?;
    let addresses = (
        local(&grpc, config.listen)?,
        local(&http, config.http_listen)?,
    );
    let services = Services {
        core: core.clone(),
        view,
        config: Arc::clone(&config),
        identity: Arc::new(BrokerIdentity::new(&ids, clock.wall(), addresses.0)),
        clock,
        disk,
        recovery: folder.took,
    };
    let edge = crate::service::serve(services, grpc, http).map_err(StartError::Thread)?;
    Ok(BrokerHandle {
        grpc: addresses.0,
        http: addresses.1,
        data_dir: config.data_dir.clone(),
        core,
        edge,
        housekeeping: Some(housekeeping),
        core_thread: Some(core_thread),
        ended,
        root: folder.root,
        grace: config.shutdown.grace,
        report,
        _lock: folder.lock,
    })
}
