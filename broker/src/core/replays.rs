//! Replays at work: what each job reads and proposes next.
//!
//! A pure machine beside the group machine, and as that one it may be lost at any moment: what is
//! replayed is durable state, and a job goes on from there. A job has one step on its way at a
//! time: its next entries are read on the copier's thread, and come back as batches for one
//! command that appends the copies and takes the entries out.

use std::collections::BTreeMap;
use std::time::Duration;

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::command::{Append, Change};
use super::copies::{ReadDone, ReadId, ReadJob, ReadResult, ReplayJob, ReplayTo, Replayed};
use super::dead_letters::{Job, JobNumber, JobState};
use super::groups::{Action, Actions, ProposalId};
use super::refusal::{Refusal, ReplayRefusal};
use super::replay_command::{ERROR_BYTES_MAX, ReplayStep};
use super::state::State;
use crate::clock::MonoMs;
use crate::names::GroupName;

/// Steps of one second, where as many entries are to be replayed in it.
const STEPS_PER_SECOND: u64 = 10;
/// Most entries of one step.
const STEP_ENTRIES_MAX: u64 = 1_000;
/// How often a step is tried before its first entry counts as one that cannot be appended.
const TRIES_MAX: u32 = 5;
/// Time between two tries, and between two looks at what holds a job.
const PAUSE: Duration = Duration::from_millis(500);
/// Ids of this machine, among those of the group machine.
const OWN_IDS: u64 = 1 << 63;

/// Why a job that runs does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// The first entries are not processed yet.
    Canary,
    /// The group is over one of the limits that it has producers refused by.
    Backpressure,
}

impl Hold {
    /// As callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Backpressure => "backpressure",
        }
    }
}

/// Whether producers of a topic are refused for a group's sake.
pub type IsOverLimit<'a> = &'a dyn Fn(&GroupName, TopicId) -> bool;

/// What holds a job that runs, if anything does. All that holds jobs is decided here.
pub fn hold_of(job: &Job, is_over_limit: IsOverLimit<'_>) -> Option<Hold> {
    if job.state != JobState::Running {
        return None;
    }
    if job.canary.is_waiting() {
        return Some(Hold::Canary);
    }
    is_over_limit(&job.group, job.source).then_some(Hold::Backpressure)
}

/// Both clocks, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// For pacing.
    pub mono: MonoMs,
    /// For what is due.
    pub wall: WallMs,
}

/// Jobs at work.
#[derive(Debug, Default)]
pub struct Replays {
    at_work: BTreeMap<JobNumber, AtWork>,
    ids: u64,
}

/// One job at work.
#[derive(Debug)]
struct AtWork {
    stage: Stage,
    /// When its present or last step began.
    began: MonoMs,
    /// How often the present step was tried in vain.
    tries: u32,
    /// What the last try ended with.
    trouble: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The next step begins then.
    Idle(MonoMs),
    /// An order to read is out, of a partition.
    Reading(ReadId, PartitionId),
    /// A step is proposed.
    Proposed(ProposalId),
}

impl Replays {
    /// Whether an answer of the copier is for this machine.
    pub fn asked(&self, id: ReadId) -> bool {
        id.0 >= OWN_IDS
    }

    /// Whether it knows of a job.
    pub fn is_at_work(&self) -> bool {
        !self.at_work.is_empty()
    }

    /// Begins what is due.
    pub fn tick(&mut self, state: &State, over: IsOverLimit<'_>, now: Moment) -> Actions {
        let is_active = |number: &JobNumber| state.dead_letters.jobs().get(*number);
        self.at_work
            .retain(|number, _| is_active(number).is_some_and(|job| job.state.is_active()));
        let mut actions = Vec::new();
        let jobs = state.dead_letters.jobs().active();
        for job in jobs.filter(|job| job.state == JobState::Running) {
            match hold_of(job, over) {
                None => actions.extend(self.begin(state, job, now)),
                // What holds it is looked at again.
                Some(Hold::Backpressure) => self.put_off(job, now),
                Some(Hold::Canary) => {}
            }
        }
        actions
    }

    /// When [`Self::tick`] has something to do next, if nothing happens.
    pub fn next_deadline(&self, state: &State) -> Option<MonoMs> {
        let jobs = state.dead_letters.jobs();
        let idle = self.at_work.iter().filter_map(|(number, at_work)| {
            let job = jobs.get(*number)?;
            let waits = job.state == JobState::Running && !job.canary.is_waiting();
            match at_work.stage {
                Stage::Idle(at) if waits => Some(at),
                Stage::Idle(_) | Stage::Reading(..) | Stage::Proposed(_) => None,
            }
        });
        idle.min()
    }

    fn put_off(&mut self, job: &Job, now: Moment) {
        let at_work = self.at_work.entry(job.number);
        let at_work = at_work.or_insert_with(|| AtWork::beginning(now));
        if matches!(at_work.stage, Stage::Idle(at) if at <= now.mono) {
            at_work.stage = Stage::Idle(now.mono.plus(PAUSE));
        }
    }

    /// Begins the next step of a job, if it is time.
    fn begin(&mut self, state: &State, job: &Job, now: Moment) -> Option<Action> {
        let at_work = self.at_work.entry(job.number);
        let at_work = at_work.or_insert_with(|| AtWork::beginning(now));
        let Stage::Idle(at) = at_work.stage else {
            return None;
        };
        if at > now.mono {
            return None;
        }
        let partition = next_partition(state, job)?;
        let most = if at_work.tries > 0 {
            1
        } else {
            entries_per_step(job).min(job.room())
        };
        let queue = state.dead_letters.get(job.queue)?;
        let next = queue.claimed_by(job.number, (partition.partition, &job.claims));
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let offsets: Vec<Offset> = next.map(|(offset, _)| offset).take(most).collect();
        at_work.began = now.mono;
        self.ids += 1;
        let id = OWN_IDS | self.ids;
        if at_work.tries >= TRIES_MAX {
            let trouble = std::mem::take(&mut at_work.trouble);
            let failed = offsets.into_iter().map(|offset| (offset, trouble.clone()));
            let given_up = Replayed {
                failed: failed.collect(),
                ..Replayed::default()
            };
            at_work.stage = Stage::Proposed(ProposalId(id));
            let step = step_of((job.number, partition), given_up);
            return Some(Action::Propose(ProposalId(id), Change::Replay(step)));
        }
        let to = destination(state, job, partition)?;
        at_work.stage = Stage::Reading(ReadId(id), partition);
        Some(Action::Read(ReadJob::Replay(ReplayJob {
            id: ReadId(id),
            job: job.number,
            queue: job.queue_name.clone(),
            from: partition,
            offsets,
            to,
            due: now.wall,
        })))
    }

    /// Something that was to be read is read, or could not be.
    pub fn read(&mut self, done: ReadDone, now: Moment) -> Actions {
        let is_it = |at_work: &AtWork| match at_work.stage {
            Stage::Reading(id, _) => id == done.id,
            Stage::Idle(_) | Stage::Proposed(_) => false,
        };
        let found = self.at_work.iter_mut().find(|(_, at_work)| is_it(at_work));
        let Some((number, at_work)) = found else {
            return Vec::new();
        };
        let Stage::Reading(id, partition) = at_work.stage else {
            return Vec::new();
        };
        match done.result {
            Ok(ReadResult::Replay(replayed)) => {
                let id = ProposalId(id.0);
                at_work.stage = Stage::Proposed(id);
                let step = step_of((*number, partition), replayed);
                vec![Action::Propose(id, Change::Replay(step))]
            }
            Ok(ReadResult::Copies(_) | ReadResult::Keys(_)) => {
                unreachable!("a replay was answered with something else")
            }
            Err(trouble) => {
                at_work.failed(trouble.reason, now);
                Vec::new()
            }
        }
    }

    /// A proposal came back: carried out, or why not.
    pub fn applied(
        &mut self,
        state: &State,
        (id, change, outcome): (ProposalId, &Change, Result<(), &Refusal>),
        now: Moment,
    ) {
        let is_it = |at_work: &AtWork| at_work.stage == Stage::Proposed(id);
        let found = self.at_work.iter_mut().find(|(_, at_work)| is_it(at_work));
        let Some((number, at_work)) = found else {
            return;
        };
        match (outcome, change) {
            (Ok(()), Change::Replay(step)) => {
                let job = state.dead_letters.jobs().get(*number);
                let rate = job.map_or(1, |job| u64::from(job.order.millis_per_second));
                let entries = u64::try_from(step.done.len()).unwrap_or(u64::MAX);
                let pace = Duration::from_millis(entries.saturating_mul(1_000_000) / rate.max(1));
                at_work.tries = 0;
                at_work.stage = Stage::Idle(at_work.began.plus(pace));
            }
            (Ok(()), _) => at_work.stage = Stage::Idle(now.mono),
            // The job was held, or its entries went: no fault of the step.
            (Err(Refusal::Replay(ReplayRefusal::Overtaken { .. })), _) => {
                at_work.stage = Stage::Idle(now.mono.plus(PAUSE));
            }
            (Err(refusal), _) => at_work.failed(refusal.to_string(), now),
        }
    }
}

impl AtWork {
    fn beginning(now: Moment) -> Self {
        Self {
            stage: Stage::Idle(now.mono),
            began: now.mono,
            tries: 0,
            trouble: String::new(),
        }
    }

    fn failed(&mut self, why: String, now: Moment) {
        self.tries += 1;
        self.trouble = why;
        self.stage = Stage::Idle(now.mono.plus(PAUSE));
    }
}

/// As many as come in a tenth of a second, at least one.
fn entries_per_step(job: &Job) -> u64 {
    let rate = u64::from(job.order.millis_per_second);
    let entries = rate.div_ceil(1_000 * STEPS_PER_SECOND);
    entries.clamp(1, STEP_ENTRIES_MAX)
}

/// The partition whose next entry died first.
fn next_partition(state: &State, job: &Job) -> Option<PartitionId> {
    let queue = state.dead_letters.get(job.queue)?;
    let firsts = job.claims.iter().filter_map(|(partition, _)| {
        let mut next = queue.claimed_by(job.number, (partition, &job.claims));
        next.next().map(|(_, entry)| (entry.died, partition))
    });
    let (_, partition) = firsts.min()?;
    Some(PartitionId {
        topic: job.queue,
        partition,
    })
}

fn destination(state: &State, job: &Job, from: PartitionId) -> Option<ReplayTo> {
    let queue = state.topics.by_id(job.queue)?;
    match &job.order.target {
        None => {
            let topic = state.retry_topic_of(job.queue, queue.derived.as_ref()?);
            let partition = from.partition;
            Some(ReplayTo::Retry(PartitionId {
                topic: topic.ok()?,
                partition,
            }))
        }
        Some((target, _)) => {
            let topic = state.topics.by_id(*target)?;
            Some(ReplayTo::Topic {
                topic: topic.id,
                partitions: topic.partition_count(),
                keeps_partition: topic.partition_count() == queue.partition_count(),
                record_bytes_max: topic.settings.record_bytes_max,
            })
        }
    }
}

fn step_of((job, partition): (JobNumber, PartitionId), replayed: Replayed) -> ReplayStep {
    let mut error = replayed.failed.last().map(|(_, why)| why.clone());
    if let Some(error) = &mut error {
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    }
    ReplayStep {
        job,
        partition,
        done: replayed.done,
        failed: replayed
            .failed
            .into_iter()
            .map(|(offset, _)| offset)
            .collect(),
        error: error.unwrap_or_default(),
        append: Append {
            request: None,
            parts: replayed.parts,
        },
        retries: replayed.retries,
    }
}
