//! Replays of dead letters, and who did what to them.

use super::topics::rising;
use crate::core::codec_replay::{claims, job as number, order, put_claims, put_order};
use crate::core::dead_letters::{Audit, AuditEntry, Canary, Job, JobState, Jobs};
use crate::core::fields::{FieldError, FieldReader, FieldWriter};

const JOB_BYTES_MIN: usize = 180;
const AUDIT_BYTES_MIN: usize = 32;

pub(super) fn put_jobs(out: &mut FieldWriter, jobs: &Jobs) {
    out.u64(jobs.made);
    out.count(jobs.iter().count());
    jobs.iter().for_each(|job| put_job(out, job));
}

pub(super) fn jobs(fields: &mut FieldReader<'_>) -> Result<Jobs, FieldError> {
    let mut jobs = Jobs::default();
    jobs.made = fields.u64()?;
    for _ in 0..fields.count(JOB_BYTES_MIN)? {
        if !jobs.restore(job(fields)?) {
            return Err(FieldError::Value("replays are not in order"));
        }
    }
    Ok(jobs)
}

fn put_job(out: &mut FieldWriter, job: &Job) {
    out.u64(job.number.0);
    out.topic(job.queue);
    out.text(job.queue_name.as_str());
    out.text(job.group.as_str());
    out.topic(job.source);
    put_order(out, &job.order);
    out.u8(match job.state {
        JobState::Running => 1,
        JobState::Paused => 2,
        JobState::Succeeded => 3,
        JobState::Failed => 4,
        JobState::Cancelled => 5,
    });
    let counts = [
        job.matched,
        job.replayed,
        job.failed,
        job.failed_again,
        job.skipped,
        job.left,
    ];
    for count in counts {
        out.u64(count);
    }
    put_claims(out, &job.claims);
    out.u32(job.canary.left);
    out.count(job.canary.open.len());
    for (partition, offset) in &job.canary.open {
        out.u32(*partition);
        out.offset(*offset);
    }
    out.wall(job.started);
    out.bool(job.ended.is_some());
    if let Some(ended) = job.ended {
        out.wall(ended);
    }
    out.text(&job.error);
}

fn job(fields: &mut FieldReader<'_>) -> Result<Job, FieldError> {
    Ok(Job {
        number: number(fields)?,
        queue: fields.topic()?,
        queue_name: fields.topic_name()?,
        group: fields.group_name()?,
        source: fields.topic()?,
        order: order(fields)?,
        state: match fields.u8()? {
            1 => JobState::Running,
            2 => JobState::Paused,
            3 => JobState::Succeeded,
            4 => JobState::Failed,
            5 => JobState::Cancelled,
            _ => return Err(FieldError::Value("no replay is in that state")),
        },
        matched: fields.u64()?,
        replayed: fields.u64()?,
        failed: fields.u64()?,
        failed_again: fields.u64()?,
        skipped: fields.u64()?,
        left: fields.u64()?,
        claims: claims(fields)?,
        canary: canary(fields)?,
        started: fields.wall()?,
        ended: if fields.bool()? {
            Some(fields.wall()?)
        } else {
            None
        },
        error: fields.text()?.to_owned(),
    })
}

fn canary(fields: &mut FieldReader<'_>) -> Result<Canary, FieldError> {
    let mut canary = Canary {
        left: fields.u32()?,
        ..Canary::default()
    };
    let mut last = None;
    for _ in 0..fields.count(12)? {
        let at = (fields.u32()?, fields.offset()?);
        rising(&mut last, at)?;
        canary.open.insert(at);
    }
    Ok(canary)
}

pub(super) fn put_audit(out: &mut FieldWriter, audit: &Audit) {
    out.u64(audit.made);
    out.count(audit.entries.len());
    for entry in &audit.entries {
        out.wall(entry.at);
        out.text(&entry.action);
        out.text(&entry.subject);
        out.text(&entry.detail);
        out.u64(entry.count);
        out.text(&entry.note);
    }
}

pub(super) fn audit(fields: &mut FieldReader<'_>) -> Result<Audit, FieldError> {
    let made = fields.u64()?;
    let entries = fields.list(AUDIT_BYTES_MIN, |each| {
        Ok(AuditEntry {
            at: each.wall()?,
            action: each.text()?.to_owned(),
            subject: each.text()?.to_owned(),
            detail: each.text()?.to_owned(),
            count: each.u64()?,
            note: each.text()?.to_owned(),
        })
    })?;
    Ok(Audit {
        entries: entries.into(),
        made,
    })
}
