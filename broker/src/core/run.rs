//! The core loop: gather, sequence, commit, apply, answer.
//!
//! One round is written and synced at a time; what arrives meanwhile is the next one. Questions
//! and the group machine's calls look at applied state only, so they need not wait for the sync.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, TrySendError, select};
use tokio::sync::mpsc;
use varvelog_store::Sequence;
use varvelog_store::wal::WalError;

use super::admission::Admission;
use super::applier::Applier;
use super::backlog::Backlog;
use super::command::Change;
use super::copies::{ReadDone, ReadJob};
use super::decide::CountLimits;
use super::engine::Engine;
use super::flusher::{Done, FlushError, Task};
use super::forecast::AppendLimits;
use super::groups::{Action, Actions, CallId, Now, SessionLimits, Sessions};
use super::handle::{Queued, Reply};
use super::maintain::Removing;
use super::pending::Pending;
use super::refusal::CallError;
use super::replays::Replays;
use super::request::{GroupReply, GroupRequest, MemberMessage, StreamEnd, StreamKey};
use super::round::InFlight;
use super::sync::Syncer;
use super::timers::{Due, Timers};
use super::wal_debt::WalDebt;
use crate::clock::{Clock, MonoMs};
use crate::config::SyncPolicy;
use crate::meters::Meters;

/// How the core works.
#[derive(Debug, Clone)]
pub struct CoreOptions {
    /// When commands count as committed.
    pub sync: SyncPolicy,
    /// Longest time that committed records stay out of segments.
    pub flush_interval: Duration,
    /// Committed bytes that may wait for a flush; beyond them no round is started.
    pub unflushed_bytes_max: u64,
    /// WAL bytes after which a checkpoint is due.
    pub checkpoint_wal_bytes: u64,
    /// Time of activity after which a checkpoint is due.
    pub checkpoint_interval: Duration,
    /// How long the files of what was deleted are kept.
    pub unlink_delay: Duration,
    /// How long an unused producer is remembered.
    pub producer_expiry: Duration,
    /// How long a group that nobody uses keeps its offsets.
    pub offset_retention: Duration,
    /// How many there may be of each thing.
    pub limits: CountLimits,
    /// How much appends may add.
    pub append_limits: AppendLimits,
    /// Bounds of the group machine.
    pub session_limits: SessionLimits,
    /// Where times are recorded.
    pub meters: Meters,
}

/// Why the core stopped for good. Whether what was in flight is on disk is unknown.
#[derive(Debug, thiserror::Error)]
pub enum CoreFailure {
    /// The write-ahead log.
    #[error("the write-ahead log failed: {0}")]
    Wal(#[from] WalError),
    /// Partition files or a checkpoint.
    #[error("{0}")]
    Flush(#[from] FlushError),
    /// The sync thread is gone.
    #[error("the sync thread has ended")]
    SyncGone,
    /// The flusher's thread is gone.
    #[error("the flusher has ended")]
    FlusherGone,
    /// The copier's thread is gone.
    #[error("the thread that copies records has ended")]
    CopierGone,
}

/// The flusher as the core sees it.
#[derive(Debug)]
pub struct FlusherLink {
    /// Tasks, bounded: a slow disk holds the core up here.
    pub tasks: Sender<Task>,
    /// Reports, and the error that ended it.
    pub reports: Receiver<Result<Done, FlushError>>,
}

/// The copier as the core sees it.
#[derive(Debug)]
pub struct CopierLink {
    /// Orders, bounded: what finds no room waits in the core.
    pub jobs: Sender<ReadJob>,
    /// What was read.
    pub done: Receiver<ReadDone>,
}

/// Room on the volume as last looked at, shared with who looks.
#[derive(Debug, Default)]
pub struct DiskGauge {
    /// Bytes free.
    pub free_bytes: AtomicU64,
    /// Bytes to keep free.
    pub reserve_bytes: AtomicU64,
    /// Bytes of the whole volume.
    pub size_bytes: AtomicU64,
}

/// The core: one thread owns it.
pub struct Core {
    pub(super) engine: Engine,
    pub(super) sessions: Sessions,
    pub(super) admission: Admission,
    pub(super) replays: Replays,
    pub(super) options: CoreOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) dice: Box<dyn FnMut() -> [u8; 16] + Send>,
    pub(super) disk: Arc<DiskGauge>,
    pub(super) queue: Receiver<Queued>,
    pub(super) syncer: Syncer,
    flusher: FlusherLink,
    copier: CopierLink,
    /// Orders that found no room yet. As many as there are settlements on their way.
    reads: VecDeque<ReadJob>,
    pub(super) pending: Backlog,
    /// Appends that wait for a checkpoint, in front of `pending`.
    pub(super) held: VecDeque<Pending>,
    pub(super) wal_debt: WalDebt,
    pub(super) in_flight: Option<InFlight>,
    /// Lazy commands are applied that no sync has covered.
    pub(super) unsynced_lazy: bool,
    pub(super) timers: Timers,
    streams: HashMap<StreamKey, mpsc::Sender<MemberMessage>>,
    pub(super) calls: HashMap<CallId, GroupCall>,
    pub(super) call_next: u64,
    /// Streams whose joining caller was gone when the answer came, or that took in nothing.
    orphans: Vec<StreamKey>,
    /// When the flusher was last asked because too much waits for it.
    pub(super) flush_asked: Option<MonoMs>,
    /// The volume had no room: nothing is written before then.
    pub(super) full_until: Option<MonoMs>,
    pub(super) stopping: bool,
    pub(super) checkpointing: bool,
    pub(super) removing: Removing,
}

/// A call on the group machine that waits for its answer.
#[derive(Debug)]
pub(super) struct GroupCall {
    pub(super) reply: Option<Reply<GroupReply>>,
    /// Of a join.
    pub(super) messages: Option<mpsc::Sender<MemberMessage>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("applied", &self.engine.applier.applied())
            .finish_non_exhaustive()
    }
}

impl Core {
    /// A core over an opened engine.
    pub fn new(
        engine: Engine,
        options: CoreOptions,
        clock: Arc<dyn Clock>,
        dice: Box<dyn FnMut() -> [u8; 16] + Send>,
        disk: Arc<DiskGauge>,
        (queue, flusher, copier): (Receiver<Queued>, FlusherLink, CopierLink),
    ) -> std::io::Result<Self> {
        let timers = Timers::new(&options, clock.mono());
        let wal_debt = WalDebt::new(options.checkpoint_wal_bytes);
        let run = engine.applier.state().broker.starts();
        Ok(Self {
            admission: Admission::default(),
            engine,
            sessions: Sessions::with_limits(run, options.session_limits),
            syncer: Syncer::start(options.meters.clone())?,
            replays: Replays::default(),
            options,
            clock,
            dice,
            disk,
            queue,
            flusher,
            copier,
            reads: VecDeque::new(),
            pending: Backlog::default(),
            held: VecDeque::new(),
            wal_debt,
            in_flight: None,
            unsynced_lazy: false,
            timers,
            streams: HashMap::new(),
            calls: HashMap::new(),
            call_next: 0,
            orphans: Vec::new(),
            flush_asked: None,
            full_until: None,
            stopping: false,
            checkpointing: false,
            removing: Removing::new(),
        })
    }

    /// Works until told to stop, or until the disk fails.
    pub fn run(mut self) -> Result<Self, CoreFailure> {
        self.restore();
        loop {
            self.start_round()?;
            self.send_tasks()?;
            self.send_reads()?;
            let idle = self.in_flight.is_none() && self.pending.is_empty() && self.held.is_empty();
            if self.stopping && idle {
                return Ok(self);
            }
            let now = self.clock.mono();
            let wait = self.timers.wait(now, self.sessions.next_deadline());
            select! {
                recv(self.queue) -> queued => self.take_up(queued.ok()),
                recv(self.syncer.results()) -> result => {
                    let through = result.map_err(|_gone| CoreFailure::SyncGone)??;
                    self.synced(through);
                }
                recv(self.flusher.reports) -> report => {
                    let done = report.map_err(|_gone| CoreFailure::FlusherGone)??;
                    self.flushed(done)?;
                }
                recv(self.copier.done) -> done => {
                    let done = done.map_err(|_gone| CoreFailure::CopierGone)?;
                    self.was_read(done);
                }
                default(wait) => {}
            }
            self.tick()?;
        }
    }

    /// Ends cleanly: everything into segments, one last checkpoint. Returns its sequence.
    pub fn finish(mut self) -> Result<Sequence, CoreFailure> {
        while self.checkpointing {
            self.wait_for_report()?;
        }
        self.request_checkpoint()?;
        self.send_tasks()?;
        while self.checkpointing {
            self.wait_for_report()?;
        }
        // The mark of a clean stop says that the log is whole up to here.
        self.settle_wal()?;
        Ok(self.engine.applier.applied())
    }

    fn wait_for_report(&mut self) -> Result<(), CoreFailure> {
        let done = self
            .flusher
            .reports
            .recv()
            .map_err(|_gone| CoreFailure::FlusherGone)??;
        self.flushed(done)
    }

    pub(super) fn carry_out(&mut self, actions: Actions) {
        for action in actions {
            match action {
                Action::Propose(id, change) => {
                    self.pending.push_back(Pending::Proposal(id, change));
                }
                Action::Note(change) => self.pending.push_back(Pending::Internal(change)),
                Action::Read(job) => self.reads.push_back(job),
                Action::Reply(call, answer) => self.reply(call, answer),
                Action::Send(stream, message) => {
                    let full = self.streams.get(&stream).is_none_or(|to| {
                        matches!(
                            to.try_send(message),
                            Err(mpsc::error::TrySendError::Full(_))
                        )
                    });
                    if full {
                        // Its edge takes the close for an end that the core knows of.
                        self.streams.remove(&stream);
                        self.orphans.push(stream);
                    }
                }
                Action::Close(stream) => drop(self.streams.remove(&stream)),
            }
        }
    }

    fn reply(&mut self, call: CallId, answer: Result<GroupReply, CallError>) {
        let Some(GroupCall { reply, messages }) = self.calls.remove(&call) else {
            return;
        };
        if let (Ok(GroupReply::Joined(stream)), Some(messages)) = (&answer, messages) {
            self.streams.insert(*stream, messages);
        }
        let Some(Err(answer)) = reply.map(|reply| reply.send(answer)) else {
            return;
        };
        // Who wanted to join is gone: nobody else would report the end of its stream.
        if let Ok(GroupReply::Joined(stream)) = answer {
            self.streams.remove(&stream);
            self.orphans.push(stream);
        }
    }

    pub(super) fn send_tasks(&mut self) -> Result<(), CoreFailure> {
        for task in self.engine.applier.take_tasks() {
            let mut task = Some(task);
            while let Some(next) = task.take() {
                match self.flusher.tasks.try_send(next) {
                    Ok(()) => {}
                    // The flusher may itself wait for room to report.
                    Err(TrySendError::Full(next)) => {
                        task = Some(next);
                        self.wait_for_report()?;
                    }
                    Err(TrySendError::Disconnected(_)) => {
                        self.wait_for_report()?;
                        return Err(CoreFailure::FlusherGone);
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls the group machine.
    pub(super) fn with_sessions(
        &mut self,
        act: impl FnOnce(&mut Sessions, &Applier, Now<'_>) -> Actions,
    ) -> Actions {
        let now = Now {
            mono: self.clock.mono(),
            wall: self.clock.wall(),
            dice: &mut *self.dice,
        };
        act(&mut self.sessions, &self.engine.applier, now)
    }

    fn send_reads(&mut self) -> Result<(), CoreFailure> {
        while let Some(job) = self.reads.pop_front() {
            match self.copier.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => {
                    self.reads.push_front(job);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => return Err(CoreFailure::CopierGone),
            }
        }
        Ok(())
    }

    fn flushed(&mut self, done: Done) -> Result<(), CoreFailure> {
        match done {
            Done::Checkpointed {
                wal_needed_from, ..
            } => {
                self.checkpointing = false;
                self.wal_debt.done();
                self.engine.release_wal(wal_needed_from)?;
            }
            Done::TopicRemoved(topic) => {
                self.removing.remove(&topic);
                self.pending
                    .push_back(Pending::Internal(Change::ForgetTopic { topic }));
            }
            Done::TopicKept(topic) => {
                self.removing.remove(&topic);
            }
            Done::Postponed => {
                self.checkpointing = false;
                self.timers.postponed(self.clock.mono());
                self.wal_debt.given_up(self.clock.mono());
                self.refuse_held();
            }
            Done::Performed => {}
        }
        Ok(())
    }

    /// Makes all that was applied durable, whatever the sync policy.
    fn settle_wal(&mut self) -> Result<(), CoreFailure> {
        if self.timers.is_syncing() {
            let through = self.syncer.results().recv();
            let through = through.map_err(|_gone| CoreFailure::SyncGone)??;
            self.engine.note_durable(through);
            self.timers.synced();
        }
        let through = self.engine.sync_job().run()?;
        self.engine.note_durable(through);
        self.unsynced_lazy = false;
        Ok(())
    }

    /// Asks the flusher for a checkpoint of what is applied. The log is settled first: one that
    /// ended before its checkpoint could not be gone on with.
    pub(super) fn request_checkpoint(&mut self) -> Result<(), CoreFailure> {
        if self.options.sync != SyncPolicy::Always || self.unsynced_lazy {
            self.settle_wal()?;
        }
        self.checkpointing = true;
        self.engine.applier.request_checkpoint();
        self.timers.checkpointed(self.engine.wal_bytes());
        self.wal_debt.asked(self.engine.wal_bytes());
        Ok(())
    }

    /// Does what is due.
    fn tick(&mut self) -> Result<(), CoreFailure> {
        let now = self.clock.mono();
        while let Some(stream) = self.orphans.pop() {
            self.ask_sessions(
                GroupRequest::StreamEnded {
                    stream,
                    how: StreamEnd::Broken,
                },
                None,
            );
        }
        if self.sessions.next_deadline().is_some_and(|due| due <= now) {
            let actions = self.with_sessions(Sessions::tick);
            self.carry_out(actions);
        }
        for due in self.timers.due(now, self.engine.wal_bytes()) {
            match due {
                Due::Flush => self.engine.applier.request_flush(true),
                Due::Checkpoint if !self.checkpointing => self.request_checkpoint()?,
                Due::Checkpoint => {}
                Due::Sync => self.syncer.begin(self.engine.sync_job()),
                Due::Maintain => self.maintain(),
                Due::Expire => self.expire_producers(),
            }
        }
        self.tick_replays();
        self.send_tasks()
    }
}
