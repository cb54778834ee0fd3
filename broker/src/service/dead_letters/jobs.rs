//! Replay jobs: looked at, held, continued and ended.

use varvelog_proto::v1;

use super::queues::{self, count};
use super::replay::seconds_of;
use crate::core::dead_letters::{JOBS_MAX, JOBS_MAX_AGE_MS, Job, JobNumber, JobState};
use crate::core::handle::CoreView;
use crate::core::refusal::ReplayRefusal;
use crate::core::replay_command::JobControl;
use crate::core::replays::{Hold, hold_of};
use crate::core::request::ChangeRequest;
use crate::names::GroupName;
use crate::service::context::Context;
use crate::service::status::CallFailure;
use crate::service::topics::timestamp;

/// Bytes of an id that are repeated in a refusal.
const ID_SHOWN_MAX: usize = 64;

/// A job by its number.
pub(super) async fn find(
    context: &Context,
    number: JobNumber,
) -> Result<v1::ReplayJob, CallFailure> {
    let now = context.wall();
    let ask = move |view: &CoreView<'_>| {
        let job = view.state.dead_letters.jobs().get(number);
        job.filter(|job| is_listed(job, now.0))
            .map(|job| shown(view, job))
    };
    let found = context.core().query(ask).await?;
    found.ok_or_else(|| missing(&number.id()))
}

/// A job by its id.
pub(super) async fn get(context: &Context, id: &str) -> Result<v1::ReplayJob, CallFailure> {
    find(context, number_of(id)?).await
}

/// `ListReplayJobs`.
pub(super) async fn list(
    context: &Context,
    request: v1::ListReplayJobsRequest,
) -> Result<v1::ListReplayJobsResponse, CallFailure> {
    let queue = match request.queue.as_str() {
        "" => None,
        name => Some(queues::find(context, name)?.id),
    };
    let now = context.wall();
    let ask = move |view: &CoreView<'_>| {
        let jobs = view.state.dead_letters.jobs().iter().rev();
        let jobs = jobs.filter(|job| queue.is_none_or(|queue| job.queue == queue));
        let listed = jobs.filter(|job| is_listed(job, now.0));
        listed.map(|job| shown(view, job)).take(JOBS_MAX).collect()
    };
    let jobs = context.core().query(ask).await?;
    Ok(v1::ListReplayJobsResponse { jobs })
}

/// Holds, continues or ends a job.
pub(super) async fn control(
    context: &Context,
    id: &str,
    control: JobControl,
) -> Result<v1::ReplayJob, CallFailure> {
    let job = number_of(id)?;
    find(context, job).await?;
    let request = ChangeRequest::ControlReplay { job, control };
    context.core().change(request, false).await?;
    find(context, job).await
}

fn is_listed(job: &Job, now_ms: i64) -> bool {
    let ended = job.ended.map(|ended| ended.0);
    ended.is_none_or(|ended| now_ms.saturating_sub(ended) <= JOBS_MAX_AGE_MS)
}

fn number_of(id: &str) -> Result<JobNumber, CallFailure> {
    JobNumber::parse(id).ok_or_else(|| missing(id))
}

fn missing(id: &str) -> CallFailure {
    let mut id = id.to_owned();
    id.truncate(id.floor_char_boundary(ID_SHOWN_MAX));
    ReplayRefusal::NotFound { id }.into()
}

/// A job as callers see it.
pub(super) fn shown(view: &CoreView<'_>, job: &Job) -> v1::ReplayJob {
    let state = match job.state {
        JobState::Running => v1::ReplayState::Running,
        JobState::Paused => v1::ReplayState::Paused,
        JobState::Succeeded => v1::ReplayState::Succeeded,
        JobState::Failed => v1::ReplayState::Failed,
        JobState::Cancelled => v1::ReplayState::Cancelled,
    };
    let rate = job.order.millis_per_second;
    let is_over = |group: &GroupName, topic| {
        let over = view.admission.over_limit(group, topic, view.stamp);
        over.is_some()
    };
    let hold = hold_of(job, &is_over);
    let is_moving = job.state == JobState::Running && hold.is_none();
    v1::ReplayJob {
        id: job.number.id(),
        queue: job.queue_name.to_string(),
        state: state.into(),
        matched: count(job.matched),
        replayed: count(job.replayed),
        failed: count(job.failed),
        failed_again: count(job.failed_again),
        start_time: Some(timestamp(job.started.0)),
        end_time: job.ended.map(|ended| timestamp(ended.0)),
        error: job.error.clone(),
        started_by: String::new(),
        note: job.order.note.clone(),
        skipped: count(job.skipped),
        max_per_second: f64::from(rate) / 1_000.0,
        target_topic: job
            .order
            .target
            .as_ref()
            .map(|it| it.1.clone())
            .unwrap_or_default(),
        estimated_remaining: is_moving.then(|| seconds_of(job.left, rate)),
        waiting_for: hold.map(Hold::as_str).unwrap_or_default().to_owned(),
    }
}
