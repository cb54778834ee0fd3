//! All dead-letter topics, and the replays of what is in them.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::audit::{Audit, AuditEntry};
use super::claims::Claims;
use super::death::Death;
use super::job::{Canary, Job, JobNumber, JobState};
use super::jobs::Jobs;
use super::queue::{Gone, Left, Queue};
use crate::core::fields::holds;
use crate::core::topics::{DerivedKind, Topics};
use crate::names::GroupName;

/// What is in dead-letter topics. Those that never had an entry are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetters {
    pub(in crate::core) queues: BTreeMap<TopicId, Queue>,
    pub(in crate::core) jobs: Jobs,
    pub(in crate::core) audit: Audit,
}

impl DeadLetters {
    /// Replays.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Who did what.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// A queue by its dead-letter topic; none if it never had an entry.
    pub fn get(&self, topic: TopicId) -> Option<&Queue> {
        self.queues.get(&topic)
    }

    /// Records died; the first one's copy lies at `base` of a dead-letter partition.
    pub(crate) fn bury(
        &mut self,
        partition: PartitionId,
        base: Offset,
        deaths: &[Death],
        at: WallMs,
    ) {
        let queue = self.queues.entry(partition.topic).or_default();
        queue.bury(partition.partition, base, deaths, at);
        for number in deaths.iter().filter_map(|death| death.replayed_by) {
            if let Some(job) = self.jobs.by_number.get_mut(&number) {
                job.failed_again += 1;
            }
            self.judge(number, at);
        }
    }

    /// A log begins later than before. Returns keys that records follow no more.
    pub(in crate::core) fn log_starts_at(
        &mut self,
        partition: PartitionId,
        start: Offset,
        at: WallMs,
    ) -> Vec<u64> {
        let Some(queue) = self.queues.get_mut(&partition.topic) else {
            return Vec::new();
        };
        let gone = queue.log_starts_at(partition.partition, start, at);
        self.lost(partition, (&gone, start), at);
        gone.freed
    }

    /// Replays lose what they had claimed below `start`.
    fn lost(&mut self, partition: PartitionId, (gone, start): (&Gone, Offset), at: WallMs) {
        for (number, count) in &gone.claimed {
            if let Some(job) = self.jobs.by_number.get_mut(number) {
                job.left -= count;
                job.skipped += count;
                job.claims.cut(partition.partition, start);
            }
            self.judge(*number, at);
        }
    }

    /// A topic is gone: replays from it or to it end.
    pub(in crate::core) fn drop_topic(&mut self, topic: TopicId, at: WallMs) {
        let of_topic = |job: &Job| {
            let target = job.order.target.as_ref().map(|target| target.0);
            job.queue == topic || target == Some(topic)
        };
        self.end_all(
            of_topic,
            "its dead-letter topic or its target was deleted",
            at,
        );
        self.queues.remove(&topic);
    }

    /// A group is gone: replays into its retry topics end.
    pub(in crate::core) fn drop_group(&mut self, group: &GroupName, at: WallMs) {
        let of_group = |job: &Job| job.group == *group && job.order.target.is_none();
        self.end_all(of_group, "its group was deleted", at);
    }

    fn end_all(&mut self, which: impl Fn(&Job) -> bool, why: &str, at: WallMs) {
        let jobs = self.jobs.active().filter(|job| which(job));
        let jobs: Vec<JobNumber> = jobs.map(|job| job.number).collect();
        for number in jobs {
            self.end(number, (JobState::Failed, why), at);
        }
    }

    /// A replay starts, on what of its claims is nobody else's.
    pub(in crate::core) fn start_job(&mut self, mut job: Job, selected: u64) {
        let (number, at) = (job.number, job.started);
        let queue = self.queues.get_mut(&job.queue);
        let claimed = queue.map_or(0, |queue| queue.claim(number, &job.claims));
        (job.matched, job.left) = (claimed, claimed);
        job.skipped += selected.saturating_sub(claimed);
        let most = u32::try_from(claimed).unwrap_or(u32::MAX);
        job.canary.left = job.order.canary.min(most);
        self.jobs.start(job);
        self.judge(number, at);
    }

    /// The number of the next replay.
    pub(in crate::core) fn next_job(&self) -> JobNumber {
        self.jobs.next()
    }

    /// A replay appended these, and could not append those. Returns keys that records follow no
    /// more.
    pub(in crate::core) fn replayed(
        &mut self,
        (number, partition): (JobNumber, u32),
        (done, failed, error): (&[Offset], &[Offset], &str),
        at: WallMs,
    ) -> Vec<u64> {
        let Some(job) = self.jobs.by_number.get_mut(&number) else {
            return Vec::new();
        };
        let mut freed = Vec::new();
        if let Some(queue) = self.queues.get_mut(&job.queue) {
            freed = queue.take(partition, done, Left::Replayed, at).freed;
            for offset in failed {
                queue.give_back(partition, *offset);
            }
        }
        let count = |offsets: &[Offset]| u64::try_from(offsets.len()).unwrap_or(u64::MAX);
        job.replayed += count(done);
        job.failed += count(failed);
        job.left -= count(done) + count(failed);
        if !error.is_empty() {
            error.clone_into(&mut job.error);
        }
        if let Some(last) = done.iter().chain(failed).max() {
            job.claims.cut(partition, last.plus(1));
        }
        freed
    }

    /// A replay, to be changed; [`Self::judge`] follows.
    pub(in crate::core) fn job_mut(&mut self, number: JobNumber) -> Option<&mut Job> {
        self.jobs.by_number.get_mut(&number)
    }

    /// Ends a replay if it comes to an end by itself.
    pub(in crate::core) fn judge(&mut self, number: JobNumber, at: WallMs) {
        let verdict = self.jobs.get(number).and_then(Job::verdict);
        if let Some(verdict) = verdict {
            self.end(number, verdict, at);
        }
    }

    /// Ends a replay; what it has left is released.
    pub(in crate::core) fn end(
        &mut self,
        number: JobNumber,
        (state, why): (JobState, &str),
        at: WallMs,
    ) {
        let Some(job) = self.jobs.by_number.get_mut(&number) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(&job.queue) {
            queue.release(number, &job.claims);
        }
        job.state = state;
        job.ended = Some(at);
        job.left = 0;
        job.claims = Claims::new();
        job.canary = Canary::default();
        if !why.is_empty() {
            why.clone_into(&mut job.error);
        }
        self.jobs.active.remove(&number);
    }

    /// Drops what is nobody's of these. Returns how many by partition, and keys that records
    /// follow no more.
    pub(in crate::core) fn discard(
        &mut self,
        topic: TopicId,
        claims: &Claims,
        at: WallMs,
    ) -> Vec<(u32, Gone)> {
        let Some(queue) = self.queues.get_mut(&topic) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (partition, runs) in claims.iter() {
            let within = runs.iter().flat_map(|run| queue.within(partition, *run));
            let free = within.filter(|(_, entry)| entry.job.is_none());
            let offsets: Vec<Offset> = free.map(|(offset, _)| offset).collect();
            all.push((
                partition,
                queue.take(partition, &offsets, Left::Discarded, at),
            ));
        }
        all
    }

    /// Notes who did what.
    pub(in crate::core) fn note(&mut self, entry: AuditEntry) {
        self.audit.add(entry);
    }

    fn verify_jobs(&self) -> Result<(), &'static str> {
        self.jobs.verify()?;
        let mut left = BTreeMap::<JobNumber, u64>::new();
        for (topic, queue) in &self.queues {
            for (partition, entries) in &queue.partitions {
                for (offset, entry) in entries {
                    let Some(number) = entry.job else { continue };
                    let job = self.jobs.get(number);
                    let claims = job.is_some_and(|job| {
                        job.queue == *topic && job.claims.contains(*partition, *offset)
                    });
                    holds(claims, "a dead letter is claimed by no replay")?;
                    *left.entry(number).or_default() += 1;
                }
            }
        }
        let mut active = self.jobs.active();
        let counted = active.all(|job| left.get(&job.number).copied().unwrap_or(0) == job.left);
        holds(counted, "what is left of a replay is miscounted")?;
        self.audit.verify()
    }

    /// What must hold and does not, if anything.
    pub(in crate::core) fn verify(&self, topics: &Topics) -> Result<(), &'static str> {
        for (id, queue) in &self.queues {
            let topic = topics
                .by_id(*id)
                .filter(|topic| {
                    let derived = topic.derived.as_ref();
                    derived.is_some_and(|derived| derived.kind == DerivedKind::DeadLetter)
                })
                .ok_or("dead letters have no topic")?;
            queue.verify(topic)?;
        }
        self.verify_jobs()
    }
}
