//! Replays and discards of dead letters, checked and applied.

use std::collections::BTreeSet;

use varvelog_store::{Offset, PartitionId, TopicId};

use super::applied::{Outcome, Settlement};
use super::command::{SETTLE_BYTES_MAX, SETTLE_PARTS_MAX, Settle, Stamp};
use super::dead_letters::{AuditEntry, JOBS_ACTIVE_MAX, Job, JobNumber, JobState, ReplayOrder};
use super::forecast::RoundForecast;
use super::refusal::{
    AppendRefusal, GroupRefusal, QuotaRefusal, Refusal, ReplayRefusal, TopicRefusal,
};
use super::replay_command::{Discard, JobControl, ReplayStep, StartReplay};
use super::request::Appended;
use super::settle_check::Place;
use super::state::{Carried, State};
use super::topics::{Derived, DerivedKind, Topic, derived_refusal};

impl State {
    pub(super) fn check_start_replay(
        &self,
        start: &StartReplay,
        stamp: Stamp,
    ) -> Result<(), Refusal> {
        if let Some(known) = self.started_before(&start.order, stamp) {
            if known.order.content_hash == start.order.content_hash {
                return Ok(());
            }
            let id = start.order.request_id.clone();
            return Err(AppendRefusal::RequestIdReused { id }.into());
        }
        let (_, derived) = self.dead_letter_topic(start.queue)?;
        match &start.order.target {
            Some((target, _)) => {
                let topic = self.topics.find(*target)?;
                if let Some(derived) = &topic.derived {
                    return Err(derived_refusal(&topic.name, derived.group.as_str()));
                }
            }
            None => {
                self.retry_topic_of(start.queue, derived)?;
            }
        }
        let current = self.dead_letters.jobs().active().count();
        if current >= JOBS_ACTIVE_MAX {
            return Err(quota("replays", JOBS_ACTIVE_MAX, current));
        }
        Ok(())
    }

    /// The job that this very request started.
    fn started_before(&self, order: &ReplayOrder, stamp: Stamp) -> Option<&Job> {
        let jobs = self.dead_letters.jobs();
        jobs.of_request(&order.request_id, stamp.wall)
    }

    /// The outcome that a start has.
    pub(super) fn replay_started(&self, start: &StartReplay, stamp: Stamp) -> Outcome {
        let known = self.started_before(&start.order, stamp);
        let number = known.map_or_else(|| self.dead_letters.next_job(), |job| job.number);
        Outcome::Replay(number)
    }

    pub(super) fn start_replay(&mut self, start: &StartReplay, stamp: Stamp) -> Carried {
        let outcome = self.replay_started(start, stamp);
        if self.started_before(&start.order, stamp).is_some() {
            return (outcome, Vec::new());
        }
        let (topic, derived) = self
            .dead_letter_topic(start.queue)
            .expect("the queue was checked");
        let number = self.dead_letters.next_job();
        let job = Job {
            number,
            queue: start.queue,
            queue_name: topic.name.clone(),
            group: derived.group.clone(),
            source: derived.source,
            order: start.order.clone(),
            state: JobState::Running,
            matched: 0,
            replayed: 0,
            failed: 0,
            failed_again: 0,
            skipped: start.skipped,
            left: 0,
            claims: start.claims.clone(),
            canary: super::dead_letters::Canary::default(),
            started: stamp.wall,
            ended: None,
            error: String::new(),
        };
        let audit = AuditEntry {
            at: stamp.wall,
            action: "ReplayDeadLetters".to_owned(),
            subject: topic.name.to_string(),
            detail: start.order.detail.clone(),
            count: 0,
            note: start.order.note.clone(),
        };
        self.dead_letters.start_job(job, start.selected);
        let count = self
            .dead_letters
            .jobs()
            .get(number)
            .map_or(0, |job| job.matched);
        self.dead_letters.note(AuditEntry { count, ..audit });
        (outcome, Vec::new())
    }

    /// Predicts what a step appends against state and the earlier commands of the round, of which
    /// there are none: a step has a round for itself. So it is carried out for sure, or refused
    /// here.
    pub fn predict_replay(
        &self,
        round: &mut RoundForecast,
        step: &mut ReplayStep,
        stamp: Stamp,
    ) -> Result<(), Refusal> {
        self.check_replay(step, self.broker.not_before(stamp))?;
        self.predict(round, &mut step.append, stamp)
    }

    pub(super) fn check_replay(&self, step: &ReplayStep, stamp: Stamp) -> Result<(), Refusal> {
        let job = self.dead_letters.jobs().get(step.job);
        let job = job.filter(|job| job.state == JobState::Running);
        let job = job.filter(|job| job.queue == step.partition.topic);
        let job = job.ok_or_else(|| overtaken(step.job))?;
        let done = u64::try_from(step.done.len()).unwrap_or(u64::MAX);
        if done > job.room() || !self.is_next(job, step) {
            return Err(overtaken(step.job));
        }
        let (_, derived) = self.dead_letter_topic(job.queue)?;
        let to = match &job.order.target {
            Some((target, _)) => Destination::Topic(*target),
            None => Destination::Retry(PartitionId {
                topic: self.retry_topic_of(job.queue, derived)?,
                partition: step.partition.partition,
            }),
        };
        check_step_parts(step, to)?;
        self.check_append(&step.append, stamp)
    }

    /// Whether a step is about the next entries of a replay in its partition.
    fn is_next(&self, job: &Job, step: &ReplayStep) -> bool {
        let both = step.done.iter().chain(&step.failed);
        let named: BTreeSet<Offset> = both.copied().collect();
        let rises = |offsets: &[Offset]| offsets.is_sorted_by(|a, b| a < b);
        let is_told = named.len() == step.done.len() + step.failed.len() && !named.is_empty();
        let queue = self.dead_letters.get(job.queue);
        let next = queue.into_iter().flat_map(|queue| {
            let claims = (step.partition.partition, &job.claims);
            queue
                .claimed_by(job.number, claims)
                .map(|(offset, _)| offset)
        });
        is_told
            && rises(&step.done)
            && rises(&step.failed)
            && next.take(named.len()).eq(named.iter().copied())
    }

    pub(super) fn apply_replay(
        &mut self,
        step: &ReplayStep,
        stamp: Stamp,
    ) -> Result<Carried, Refusal> {
        self.check_replay(step, stamp)?;
        let mut settlement = Settlement::default();
        let mut effects = Vec::new();
        if !step.append.parts.is_empty() {
            let (outcome, appends) = self.apply_append(&step.append, stamp)?;
            if let Outcome::Appended(appended) = outcome {
                settlement.appended = appended;
            }
            effects = appends;
        }
        self.schedule_replayed(step, &settlement.appended);
        let what = (
            step.done.as_slice(),
            step.failed.as_slice(),
            step.error.as_str(),
        );
        let partition = step.partition.partition;
        let freed = self
            .dead_letters
            .replayed((step.job, partition), what, stamp.wall);
        self.note_canary(step);
        self.dead_letters.judge(step.job, stamp.wall);
        self.free_keys(step.partition, &freed);
        Ok((Outcome::Settled(settlement), effects))
    }

    /// Notes what becomes of each copy in the retry topic.
    fn schedule_replayed(&mut self, step: &ReplayStep, appended: &Appended) {
        let derived = self.topics.by_id(step.partition.topic);
        let Some(derived) = derived.and_then(|topic| topic.derived.clone()) else {
            return;
        };
        let group = self.groups.get_mut(&derived.group);
        let retries =
            group.and_then(|group| group.retry_mut(derived.source, step.partition.partition));
        let Some(retries) = retries else { return };
        for (index, entries) in &step.retries {
            let part = usize::try_from(*index).ok();
            let Some(part) = part.and_then(|index| appended.parts.get(index)) else {
                continue;
            };
            for (delta, entry) in (0_u64..).zip(entries) {
                retries.add(part.base_offset.plus(delta), *entry);
            }
        }
    }

    fn note_canary(&mut self, step: &ReplayStep) {
        let partition = step.partition.partition;
        let Some(job) = self.dead_letters.job_mut(step.job) else {
            return;
        };
        if job.canary.left == 0 {
            return;
        }
        let count = u32::try_from(step.done.len()).unwrap_or(u32::MAX);
        job.canary.left -= count;
        let left = u32::try_from(job.left).unwrap_or(u32::MAX);
        job.canary.left = job.canary.left.min(left);
        let entries = step.retries.iter().flat_map(|(_, entries)| entries);
        let origins = entries.map(|entry| (partition, entry.origin));
        job.canary.open.extend(origins);
    }

    /// Records of a retry partition are to be settled: of those that end for good no canary waits
    /// any more. To be told before they are.
    pub(super) fn settle_canaries(&mut self, settle: &Settle, place: Place, stamp: Stamp) {
        let Place::Retry(source) = place else { return };
        let waiting = self.dead_letters.jobs().active().filter(|job| {
            job.source == source && job.group == settle.group && !job.canary.open.is_empty()
        });
        let waiting: Vec<JobNumber> = waiting.map(|job| job.number).collect();
        if waiting.is_empty() {
            return;
        }
        let partition = settle.partition.partition;
        let group = self.groups.get_mut(&settle.group);
        let retries = group.and_then(|group| group.retry_mut(source, partition));
        let Some(retries) = retries else { return };
        let mut over = BTreeSet::new();
        for (first, last) in &settle.ranges {
            let pending = retries.pending.range(*first..=*last);
            over.extend(pending.map(|(_, entry)| (partition, entry.origin)));
        }
        for entry in settle.retries.iter().flat_map(|(_, entries)| entries) {
            over.remove(&(partition, entry.origin));
        }
        for number in waiting {
            if let Some(job) = self.dead_letters.job_mut(number) {
                job.canary.open.retain(|at| !over.contains(at));
            }
            self.dead_letters.judge(number, stamp.wall);
        }
    }

    pub(super) fn check_control_replay(
        &self,
        number: JobNumber,
        control: JobControl,
    ) -> Result<(), Refusal> {
        let Some(job) = self.dead_letters.jobs().get(number) else {
            return Err(ReplayRefusal::NotFound { id: number.id() }.into());
        };
        if job.state.is_active() || control == JobControl::Cancel {
            return Ok(());
        }
        let (id, state) = (number.id(), job.state.as_str());
        Err(ReplayRefusal::Ended { id, state }.into())
    }

    pub(super) fn control_replay(
        &mut self,
        number: JobNumber,
        control: JobControl,
        stamp: Stamp,
    ) -> Carried {
        let done = (Outcome::Done, Vec::new());
        let Some(job) = self.dead_letters.job_mut(number) else {
            return done;
        };
        let (action, is_new) = match control {
            JobControl::Pause => ("PauseReplayJob", job.state == JobState::Running),
            JobControl::Resume => ("ResumeReplayJob", job.state == JobState::Paused),
            JobControl::Cancel => ("CancelReplayJob", job.state.is_active()),
        };
        if !is_new {
            return done;
        }
        let audit = AuditEntry {
            at: stamp.wall,
            action: action.to_owned(),
            subject: job.queue_name.to_string(),
            detail: number.id(),
            count: job.left,
            note: String::new(),
        };
        match control {
            JobControl::Pause => job.state = JobState::Paused,
            JobControl::Resume => job.state = JobState::Running,
            JobControl::Cancel => {
                self.dead_letters
                    .end(number, (JobState::Cancelled, ""), stamp.wall);
            }
        }
        self.dead_letters.judge(number, stamp.wall);
        self.dead_letters.note(audit);
        done
    }

    pub(super) fn check_discard(&self, discard: &Discard) -> Result<(), Refusal> {
        self.dead_letter_topic(discard.queue).map(drop)
    }

    pub(super) fn discard(&mut self, discard: &Discard, stamp: Stamp) -> Carried {
        let (topic, claims) = (discard.queue, &discard.claims);
        let mut discarded = 0;
        for (partition, gone) in self.dead_letters.discard(topic, claims, stamp.wall) {
            discarded += gone.count;
            self.free_keys(PartitionId { topic, partition }, &gone.freed);
        }
        let subject = self.topics.by_id(topic).map(|topic| topic.name.to_string());
        self.dead_letters.note(AuditEntry {
            at: stamp.wall,
            action: "DiscardDeadLetters".to_owned(),
            subject: subject.unwrap_or_default(),
            detail: discard.detail.clone(),
            count: discarded,
            note: discard.note.clone(),
        });
        let skipped = discard.selected.saturating_sub(discarded);
        (Outcome::Discarded { discarded, skipped }, Vec::new())
    }

    /// Nothing of these keys is left in a dead-letter partition: their records follow no more.
    pub(super) fn free_keys(&mut self, partition: PartitionId, keys: &[u64]) {
        let derived = self.topics.by_id(partition.topic);
        let Some(derived) = derived.and_then(|topic| topic.derived.as_ref()) else {
            return;
        };
        let number = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        if let Some(group) = self.groups.by_name.get_mut(&derived.group)
            && let Some(reads) = group.topics.get_mut(&derived.source)
            && reads.dead_letter == partition.topic
            && let Some(progress) = reads.partitions.get_mut(number)
        {
            for key in keys {
                progress.parked.remove(key);
            }
        }
    }

    fn dead_letter_topic(&self, id: TopicId) -> Result<(&Topic, &Derived), Refusal> {
        let topic = self.topics.find(id)?;
        match &topic.derived {
            Some(derived) if derived.kind == DerivedKind::DeadLetter => Ok((topic, derived)),
            Some(_) | None => Err(TopicRefusal::NotFound {
                topic: topic.name.to_string(),
            }
            .into()),
        }
    }

    /// The retry topic of the group whose dead letters these are.
    pub(super) fn retry_topic_of(
        &self,
        queue: TopicId,
        derived: &Derived,
    ) -> Result<TopicId, Refusal> {
        let group = self.groups.get(&derived.group);
        let reads = group.and_then(|group| group.topics.get(&derived.source));
        let reads = reads.filter(|reads| reads.dead_letter == queue);
        reads.map(|reads| reads.retry).ok_or_else(|| {
            GroupRefusal::NotFound {
                group: derived.group.to_string(),
            }
            .into()
        })
    }
}

/// Where copies of a step must go.
#[derive(Debug, Clone, Copy)]
enum Destination {
    Retry(PartitionId),
    Topic(TopicId),
}

/// Every record of a step has its copy where the job's copies go, and those of a retry topic come
/// with what becomes of them.
fn check_step_parts(step: &ReplayStep, to: Destination) -> Result<(), Refusal> {
    let parts = &step.append.parts;
    let bytes = parts.iter().map(|part| part.body.len()).sum::<usize>();
    let bytes_max = usize::try_from(SETTLE_BYTES_MAX).unwrap_or(usize::MAX);
    if bytes > bytes_max {
        return Err(quota("settle_bytes", bytes_max, bytes));
    }
    let parts_max = usize::try_from(SETTLE_PARTS_MAX).unwrap_or(usize::MAX);
    if parts.len() > parts_max {
        return Err(quota("settle_parts", parts_max, parts.len()));
    }
    let mut entries = step.retries.iter().peekable();
    let mut copied = 0;
    for (index, part) in (0_u32..).zip(parts) {
        let told = entries.next_if(|(at, _)| *at == index);
        let count = usize::try_from(part.record_count).unwrap_or(usize::MAX);
        let fits = match to {
            Destination::Retry(partition) => {
                part.partition == partition
                    && told.is_some_and(|(_, entries)| entries.len() == count)
            }
            Destination::Topic(topic) => part.partition.topic == topic && told.is_none(),
        };
        if !fits || part.producer.is_some() {
            return Err(overtaken(step.job));
        }
        copied += count;
    }
    let is_whole =
        copied == step.done.len() && entries.next().is_none() && step.append.request.is_none();
    if is_whole {
        Ok(())
    } else {
        Err(overtaken(step.job))
    }
}

fn overtaken(job: JobNumber) -> Refusal {
    ReplayRefusal::Overtaken { id: job.id() }.into()
}

fn quota(what: &'static str, limit: usize, current: usize) -> Refusal {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    QuotaRefusal {
        what,
        limit: count(limit),
        current: count(current),
    }
    .into()
}
