//! Plans, replay jobs and the audit as people and programs read them.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use varvelog_proto::v1;

use super::views::{above_zero, errors_block, or_dash};
use crate::output::{Block, View, show_age, show_bytes, show_count, show_text, show_time, to_json};

/// What a replay would do.
pub(super) fn replay_plan_view(
    queue: &str,
    plan: &v1::ReplayDeadLettersResponse,
    zone: &TimeZone,
) -> View {
    let duration = plan.estimated_duration.map(Duration::try_from);
    let takes = match duration {
        Some(Ok(duration)) => show_age(duration),
        Some(Err(_)) | None => String::from("-"),
    };
    let mut blocks = vec![Block::Pairs(vec![
        ("queue", queue.to_owned()),
        ("to replay", show_count(plan.matched)),
        ("bytes", show_bytes(plan.matched_bytes)),
        ("takes about", takes),
        ("skipped", above_zero(plan.skipped)),
        ("warning", plan.warning.clone()),
    ])];
    if !plan.errors.is_empty() {
        blocks.push(errors_block(&plan.errors, zone));
    }
    let json = to_json("ReplayDeadLettersResponse", plan);
    View::one(plan.plan_id.clone(), json, blocks)
}

/// What a discard would drop, or has dropped.
pub(super) fn discard_view(queue: &str, done: &v1::DiscardDeadLettersResponse) -> View {
    let blocks = vec![Block::Pairs(vec![
        ("queue", queue.to_owned()),
        ("matched", show_count(done.matched)),
        ("discarded", above_zero(done.discarded)),
        ("skipped", above_zero(done.skipped)),
    ])];
    let json = to_json("DiscardDeadLettersResponse", done);
    View::one(queue, json, blocks)
}

/// A list of jobs.
pub(super) fn jobs_view(jobs: &[v1::ReplayJob], zone: &TimeZone) -> View {
    let row = |job: &v1::ReplayJob| {
        vec![
            job.id.clone(),
            job.queue.clone(),
            state(job),
            show_count(job.matched),
            show_count(job.replayed),
            show_count(job.failed),
            show_count(job.failed_again),
            show_count(job.skipped),
            show_time(job.start_time.as_ref(), zone),
            remaining(job),
        ]
    };
    let items: Vec<Value> = jobs.iter().map(|job| to_json("ReplayJob", job)).collect();
    let header = vec![
        "JOB",
        "QUEUE",
        "STATE",
        ">MATCHED",
        ">REPLAYED",
        ">FAILED",
        ">AGAIN",
        ">SKIPPED",
        "STARTED",
        ">LEFT",
    ];
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows: jobs.iter().map(row).collect(),
        }],
        json: json!({ "jobs": items }),
        items,
        names: jobs.iter().map(|job| job.id.clone()).collect(),
    }
}

/// One job.
pub(super) fn job_view(job: &v1::ReplayJob, zone: &TimeZone) -> View {
    let ended = job.end_time.as_ref();
    let blocks = vec![Block::Pairs(vec![
        ("job", job.id.clone()),
        ("queue", job.queue.clone()),
        ("target", job.target_topic.clone()),
        ("state", state(job)),
        ("matched", show_count(job.matched)),
        ("replayed", show_count(job.replayed)),
        ("failed", above_zero(job.failed)),
        ("failed again", above_zero(job.failed_again)),
        ("skipped", above_zero(job.skipped)),
        ("per second", job.max_per_second.to_string()),
        ("started", show_time(job.start_time.as_ref(), zone)),
        (
            "ended",
            ended.map_or_else(String::new, |time| show_time(Some(time), zone)),
        ),
        ("left", remaining(job).replace('-', "")),
        ("error", show_text(job.error.as_bytes())),
        ("note", show_text(job.note.as_bytes())),
    ])];
    View::one(job.id.clone(), to_json("ReplayJob", job), blocks)
}

/// Who did what.
pub(super) fn audit_view(entries: &[v1::AuditEntry], zone: &TimeZone) -> View {
    let row = |entry: &v1::AuditEntry| {
        vec![
            show_time(entry.time.as_ref(), zone),
            or_dash(&entry.principal),
            entry.action.clone(),
            entry.subject.clone(),
            show_count(entry.count),
            or_dash(&entry.detail),
            or_dash(&entry.note),
        ]
    };
    let items: Vec<Value> = entries
        .iter()
        .map(|entry| to_json("AuditEntry", entry))
        .collect();
    let header = vec![
        "TIME", "WHO", "ACTION", "SUBJECT", ">COUNT", "DETAIL", "NOTE",
    ];
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows: entries.iter().map(row).collect(),
        }],
        json: json!({ "entries": items }),
        items,
        names: entries.iter().map(|entry| entry.subject.clone()).collect(),
    }
}

/// `running`, or what it waits for.
fn state(job: &v1::ReplayJob) -> String {
    let state = match job.state() {
        v1::ReplayState::Running => "running",
        v1::ReplayState::Paused => "paused",
        v1::ReplayState::Succeeded => "succeeded",
        v1::ReplayState::Failed => "failed",
        v1::ReplayState::Cancelled => "cancelled",
        v1::ReplayState::Unspecified => "-",
    };
    if job.waiting_for.is_empty() {
        return state.to_owned();
    }
    format!(
        "{state}, waits for {}",
        show_text(job.waiting_for.as_bytes())
    )
}

/// Time until the end, while it runs.
fn remaining(job: &v1::ReplayJob) -> String {
    match job.estimated_remaining.map(Duration::try_from) {
        Some(Ok(left)) => show_age(left),
        Some(Err(_)) | None => String::from("-"),
    }
}

#[cfg(test)]
#[path = "job_views_tests.rs"]
mod tests;
