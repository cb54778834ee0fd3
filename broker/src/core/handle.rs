//! The way into the core. Cheap to clone; every method waits for the core's answer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};

use super::admission::{Admission, Unsure};
use super::command::{Change, Stamp};
use super::flusher::Task;
use super::groups::Sessions;
use super::refusal::CallError;
use super::request::{
    AppendRequest, Appended, ChangeDone, ChangeRequest, GroupReply, GroupRequest, JoinRequest,
    MemberMessage, StreamKey,
};
use super::state::State;
use crate::clock::MonoMs;
use crate::meters::Meters;
use varvelog_store::{PartitionId, WallMs};

/// What a query may look at, on the core's thread, between two rounds.
#[derive(Debug)]
pub struct CoreView<'a> {
    /// Committed state.
    pub state: &'a State,
    /// Members, leases and the like.
    pub sessions: &'a Sessions,
    /// Who lets producers in.
    pub admission: &'a Admission,
    /// Now, as commands are stamped.
    pub stamp: Stamp,
    /// Now.
    pub now: MonoMs,
    /// Bytes of the write-ahead log behind the newest checkpoint of this run's beginning.
    pub wal_bytes: u64,
    /// Committed bytes that are not in segments yet.
    pub unflushed_bytes: u64,
}

/// A question to the core.
pub type Query = Box<dyn FnOnce(&CoreView<'_>) + Send>;

/// One entry of the core's queue.
pub enum Submission {
    /// Append, with the permit for its bytes.
    Append(AppendRequest, Reply<Appended>),
    /// Change; with the flag set, check and answer as if done, change nothing.
    Change(ChangeRequest, bool, Reply<ChangeDone>),
    /// A call on the group machine.
    Group(
        GroupRequest,
        Option<mpsc::Sender<MemberMessage>>,
        Option<Reply<GroupReply>>,
    ),
    /// A question.
    Query(Query),
    /// A change that the broker makes by itself; nobody waits for it.
    Internal(Change),
    /// A task for the flusher.
    Flusher(Task),
    /// Append times that were looked up, for those who watch ages.
    AppendTimes(Vec<(Unsure, WallMs)>),
    /// Work is to end: refuse what comes, answer what is there.
    Stop,
}

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, CallError>>;

impl fmt::Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Append(..) => "Append",
            Self::Change(..) => "Change",
            Self::Group(..) => "Group",
            Self::Query(_) => "Query",
            Self::Internal(_) => "Internal",
            Self::Flusher(_) => "Flusher",
            Self::AppendTimes(_) => "AppendTimes",
            Self::Stop => "Stop",
        })
    }
}

/// The way into the core.
#[derive(Debug, Clone)]
pub struct CoreHandle {
    queue: crossbeam_channel::Sender<Queued>,
    room: Arc<Semaphore>,
    limit_bytes: u32,
    wait_max: Duration,
    draining: Arc<AtomicBool>,
    meters: Meters,
}

/// A submission and the room it takes; the room is free again when the core takes it up.
#[derive(Debug)]
pub struct Queued {
    /// What is asked.
    pub submission: Submission,
    /// Held while the bytes are the core's to keep.
    pub room: Option<tokio::sync::OwnedSemaphorePermit>,
}

/// Room of the smallest submission: bounds how many small ones can wait.
const SUBMISSION_BYTES_MIN: u32 = 1024;

impl CoreHandle {
    /// A handle and the queue that it feeds. `limit_bytes` bounds the bytes of requests that wait
    /// for or are being committed; a caller waits up to `wait_max` for room.
    pub fn new(
        limit_bytes: u32,
        wait_max: Duration,
        meters: Meters,
    ) -> (Self, crossbeam_channel::Receiver<Queued>) {
        let entries = usize::try_from(limit_bytes / SUBMISSION_BYTES_MIN).unwrap_or(1) + 1024;
        let (queue, received) = crossbeam_channel::bounded(entries);
        let permits = usize::try_from(limit_bytes).unwrap_or(usize::MAX);
        let handle = Self {
            queue,
            room: Arc::new(Semaphore::new(permits)),
            limit_bytes,
            wait_max,
            draining: Arc::default(),
            meters,
        };
        (handle, received)
    }

    /// Appends batches, all or none, and waits until they are committed.
    pub async fn append(&self, request: AppendRequest) -> Result<Appended, CallError> {
        self.begin_append(request).await?.await
    }

    /// [`Self::append`] in two steps: this one gives the request its place in the queue, what it
    /// returns waits for the answer. Requests are committed in the order of their places.
    pub async fn begin_append(
        &self,
        request: AppendRequest,
    ) -> Result<impl Future<Output = Result<Appended, CallError>> + use<>, CallError> {
        let bytes = request
            .parts
            .iter()
            .map(|part| part.body.len())
            .sum::<usize>();
        let (reply, answer) = oneshot::channel();
        let (meters, began) = (self.meters.clone(), self.meters.start());
        self.submit(Submission::Append(request, reply), bytes)
            .await?;
        Ok(async move {
            let appended = answer.await.map_err(|_gone| CallError::Fenced)??;
            meters.took(&meters.commit, began);
            Ok(appended)
        })
    }

    /// Changes topics, groups or positions and waits until that is committed. With
    /// `validate_only` the answer is as if it had been done.
    pub async fn change(
        &self,
        request: ChangeRequest,
        validate_only: bool,
    ) -> Result<ChangeDone, CallError> {
        let (reply, answer) = oneshot::channel();
        let began = self.meters.start();
        self.submit(Submission::Change(request, validate_only, reply), 0)
            .await?;
        let done = answer.await.map_err(|_gone| CallError::Fenced)??;
        if !validate_only {
            self.meters.took(&self.meters.commit, began);
        }
        Ok(done)
    }

    /// Opens a member's stream; its messages come through `messages`, which must have room for
    /// the credit the stream is given and 16 more.
    pub async fn join(
        &self,
        request: JoinRequest,
        messages: mpsc::Sender<MemberMessage>,
    ) -> Result<StreamKey, CallError> {
        let (reply, answer) = oneshot::channel();
        let submission =
            Submission::Group(GroupRequest::Join(request), Some(messages), Some(reply));
        self.submit(submission, 0).await?;
        match answer.await.map_err(|_gone| CallError::Fenced)?? {
            GroupReply::Joined(stream) => Ok(stream),
            other @ (GroupReply::Left
            | GroupReply::Settled(_)
            | GroupReply::Extended { .. }
            | GroupReply::Operated { .. }) => {
                unreachable!("a join was answered by {other:?}")
            }
        }
    }

    /// A call on the group machine that is answered: `Leave`, `Settle`, `Extend`,
    /// `SettleRecords`.
    pub async fn group(&self, request: GroupRequest) -> Result<GroupReply, CallError> {
        let (reply, answer) = oneshot::channel();
        let bytes = if let GroupRequest::Settle(settle) = &request {
            settle.bytes()
        } else {
            0
        };
        self.submit(Submission::Group(request, None, Some(reply)), bytes)
            .await?;
        answer.await.map_err(|_gone| CallError::Fenced)?
    }

    /// A message to the group machine that has no answer: `Confirm`, `AddCredit`.
    pub async fn tell(&self, request: GroupRequest) -> Result<(), CallError> {
        self.submit(Submission::Group(request, None, None), 0).await
    }

    /// As [`Self::tell`] where nothing can be awaited (a dropped stream). Never lost: the queue
    /// keeps entries beyond its byte limit for it, and a thread is blocked if those are full.
    pub fn tell_now(&self, request: GroupRequest) {
        let submission = Submission::Group(request, None, None);
        // The core is gone only when the process ends.
        drop(self.queue.send(Queued {
            submission,
            room: None,
        }));
    }

    /// Proposes a change that the broker makes by itself. Blocks while the queue is full; nothing
    /// comes of it when the core has ended.
    pub fn propose(&self, change: Change) {
        let submission = Submission::Internal(change);
        drop(self.queue.send(Queued {
            submission,
            room: None,
        }));
    }

    /// Closes the active segment of a partition, so that retention can let it go.
    pub fn roll(&self, partition: PartitionId) {
        let submission = Submission::Flusher(Task::Roll(partition));
        drop(self.queue.send(Queued {
            submission,
            room: None,
        }));
    }

    /// Instruments of the broker.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Bytes of requests that wait for the core or are being committed, small ones rounded up.
    pub fn queued_bytes(&self) -> u64 {
        let free = u64::try_from(self.room.available_permits()).unwrap_or(u64::MAX);
        u64::from(self.limit_bytes).saturating_sub(free)
    }

    /// Tells append times that were asked for. Blocks while the queue is full.
    pub fn tell_append_times(&self, times: Vec<(Unsure, WallMs)>) {
        let submission = Submission::AppendTimes(times);
        drop(self.queue.send(Queued {
            submission,
            room: None,
        }));
    }

    /// Asks about state; `ask` runs on the core's thread and must be short.
    pub async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&CoreView<'_>) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (reply, answer) = oneshot::channel();
        let query: Query = Box::new(move |view| drop(reply.send(ask(view))));
        self.submit(Submission::Query(query), 0).await?;
        answer.await.map_err(|_gone| CallError::Fenced)
    }

    /// [`Self::query`] for a thread that may block; none when the core has ended.
    pub fn query_blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&CoreView<'_>) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = crossbeam_channel::bounded(1);
        let query: Query = Box::new(move |view| drop(reply.send(ask(view))));
        let submission = Submission::Query(query);
        let queued = Queued {
            submission,
            room: None,
        };
        self.queue.send(queued).ok()?;
        answer.recv().ok()
    }

    /// Refuses all that comes from now on, and tells the core to end when it has answered what it
    /// has.
    pub fn stop(&self) {
        self.draining.store(true, Ordering::SeqCst);
        drop(self.queue.send(Queued {
            submission: Submission::Stop,
            room: None,
        }));
    }

    async fn submit(&self, submission: Submission, bytes: usize) -> Result<(), CallError> {
        if self.draining.load(Ordering::SeqCst) {
            return Err(CallError::Draining);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let wanted = bytes.clamp(SUBMISSION_BYTES_MIN, self.limit_bytes);
        let room = Arc::clone(&self.room).acquire_many_owned(wanted);
        let room = match tokio::time::timeout(self.wait_max, room).await {
            Ok(room) => room.map_err(|_closed| CallError::Draining)?,
            Err(_elapsed) => return Err(self.busy()),
        };
        match self.queue.try_send(Queued {
            submission,
            room: Some(room),
        }) {
            Ok(()) => Ok(()),
            Err(crossbeam_channel::TrySendError::Full(_)) => Err(self.busy()),
            Err(crossbeam_channel::TrySendError::Disconnected(_)) => Err(CallError::Fenced),
        }
    }

    fn busy(&self) -> CallError {
        CallError::Busy {
            limit_bytes: u64::from(self.limit_bytes),
            retry_after: Duration::from_millis(200),
        }
    }
}
