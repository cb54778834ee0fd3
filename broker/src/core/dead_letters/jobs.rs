//! All replays that are listed.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::WallMs;

use super::job::{Job, JobNumber};
use crate::core::fields::holds;

/// Jobs that are listed, ended ones included.
pub const JOBS_MAX: usize = 1_000;
/// Jobs that run or are paused at a time.
pub const JOBS_ACTIVE_MAX: usize = 100;
/// How long an ended job is listed.
pub const JOBS_MAX_AGE_MS: i64 = 30 * 24 * 3_600 * 1_000;

/// Jobs by number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Jobs {
    pub(super) by_number: BTreeMap<JobNumber, Job>,
    pub(super) active: BTreeSet<JobNumber>,
    requests: BTreeMap<String, JobNumber>,
    /// Jobs so far.
    pub(in crate::core) made: u64,
}

impl Jobs {
    /// A job that is still remembered.
    pub fn get(&self, number: JobNumber) -> Option<&Job> {
        self.by_number.get(&number)
    }

    /// All that are remembered, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.by_number.values()
    }

    /// Those that run or are paused, oldest first.
    pub fn active(&self) -> impl Iterator<Item = &Job> {
        let numbers = self.active.iter();
        numbers.filter_map(|number| self.by_number.get(number))
    }

    /// The job that a request started, unless it is not listed any more.
    pub fn of_request(&self, request_id: &str, now: WallMs) -> Option<&Job> {
        let job = self.get(*self.requests.get(request_id)?)?;
        is_listed(job, now).then_some(job)
    }

    /// The number of the next one.
    pub(super) fn next(&self) -> JobNumber {
        JobNumber(self.made + 1)
    }

    /// Takes in a job that starts now; what is too old or too many goes.
    pub(super) fn start(&mut self, job: Job) {
        let now = job.started;
        let is_old = |old: &Job| !is_listed(old, now);
        let old: Vec<JobNumber> = self
            .iter()
            .filter(|old| is_old(old))
            .map(|old| old.number)
            .collect();
        for number in old {
            self.forget(number);
        }
        while self.by_number.len() >= JOBS_MAX {
            let ended = self.iter().find(|job| !job.state.is_active());
            let Some(ended) = ended.map(|job| job.number) else {
                break;
            };
            self.forget(ended);
        }
        self.made = job.number.0;
        self.put(job);
    }

    /// Takes in a job as it was; false unless its number comes behind the others.
    pub(in crate::core) fn restore(&mut self, job: Job) -> bool {
        let last = self.by_number.last_key_value();
        let is_behind = last.is_none_or(|(last, _)| *last < job.number);
        self.put(job);
        is_behind
    }

    fn put(&mut self, job: Job) {
        let number = job.number;
        if job.state.is_active() {
            self.active.insert(number);
        }
        if !job.order.request_id.is_empty() {
            self.requests.insert(job.order.request_id.clone(), number);
        }
        self.by_number.insert(number, job);
    }

    fn forget(&mut self, number: JobNumber) {
        if let Some(job) = self.by_number.remove(&number) {
            let id = &job.order.request_id;
            if self.requests.get(id) == Some(&number) {
                self.requests.remove(id);
            }
        }
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let active = self.iter().filter(|job| job.state.is_active());
        holds(
            active.map(|job| &job.number).eq(&self.active),
            "active replays are not those that are",
        )?;
        let last = self.by_number.last_key_value();
        holds(
            self.by_number.len() <= JOBS_MAX && last.is_none_or(|(last, _)| last.0 <= self.made),
            "a replay was never started",
        )?;
        for job in self.iter() {
            let claimed = job.claims.run_count() > 0;
            holds(
                (job.state.is_active() || (job.left == 0 && !claimed))
                    && job.ended.is_none() == job.state.is_active(),
                "an ended replay claims something",
            )?;
            let counted = [job.replayed, job.failed, job.left].into_iter();
            let counted = counted.fold(0, u64::saturating_add);
            holds(
                !job.state.is_active() || counted <= job.matched,
                "a replay is miscounted",
            )?;
        }
        Ok(())
    }
}

/// Whether a job is listed.
pub(super) fn is_listed(job: &Job, now: WallMs) -> bool {
    job.ended
        .is_none_or(|ended| now.0.saturating_sub(ended.0) <= JOBS_MAX_AGE_MS)
}
