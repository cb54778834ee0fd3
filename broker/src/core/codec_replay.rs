//! Replays and discards of dead letters as fields, the same in commands and snapshots where both
//! have them.

use super::codec::{append, put_append};
use super::codec_delivery::{put_retries, retries};
use super::command::Change;
use super::dead_letters::{Claims, JobNumber, ReplayOrder};
use super::fields::{FieldError, FieldReader, FieldWriter};
use super::replay_command::{Discard, JobControl, ReplayStep, StartReplay};

pub(super) const START_REPLAY: u8 = 22;
pub(super) const REPLAY: u8 = 23;
pub(super) const CONTROL_REPLAY: u8 = 24;
pub(super) const DISCARD: u8 = 25;

/// The change of one of these kinds; none of another.
pub(super) fn replay_change(
    fields: &mut FieldReader<'_>,
    kind: u8,
) -> Result<Option<Change>, FieldError> {
    Ok(Some(match kind {
        START_REPLAY => Change::StartReplay(start(fields)?),
        REPLAY => Change::Replay(step(fields)?),
        CONTROL_REPLAY => {
            let (job, control) = control(fields)?;
            Change::ControlReplay { job, control }
        }
        DISCARD => Change::Discard(discard(fields)?),
        _ => return Ok(None),
    }))
}

pub(super) fn put_start(out: &mut FieldWriter, start: &StartReplay) {
    out.topic(start.queue);
    put_claims(out, &start.claims);
    out.u64(start.selected);
    out.u64(start.skipped);
    put_order(out, &start.order);
}

fn start(fields: &mut FieldReader<'_>) -> Result<StartReplay, FieldError> {
    Ok(StartReplay {
        queue: fields.topic()?,
        claims: claims(fields)?,
        selected: fields.u64()?,
        skipped: fields.u64()?,
        order: order(fields)?,
    })
}

pub(super) fn put_step(out: &mut FieldWriter, step: &ReplayStep) {
    out.u64(step.job.0);
    out.partition(step.partition);
    for offsets in [&step.done, &step.failed] {
        out.count(offsets.len());
        for offset in offsets {
            out.offset(*offset);
        }
    }
    out.text(&step.error);
    put_append(out, &step.append);
    put_retries(out, &step.retries);
}

fn step(fields: &mut FieldReader<'_>) -> Result<ReplayStep, FieldError> {
    Ok(ReplayStep {
        job: job(fields)?,
        partition: fields.partition()?,
        done: fields.list(8, FieldReader::offset)?,
        failed: fields.list(8, FieldReader::offset)?,
        error: fields.text()?.to_owned(),
        append: append(fields)?,
        retries: retries(fields)?,
    })
}

pub(super) fn put_control(out: &mut FieldWriter, job: JobNumber, control: JobControl) {
    out.u64(job.0);
    out.u8(match control {
        JobControl::Pause => 1,
        JobControl::Resume => 2,
        JobControl::Cancel => 3,
    });
}

fn control(fields: &mut FieldReader<'_>) -> Result<(JobNumber, JobControl), FieldError> {
    let job = job(fields)?;
    let control = match fields.u8()? {
        1 => JobControl::Pause,
        2 => JobControl::Resume,
        3 => JobControl::Cancel,
        _ => return Err(FieldError::Value("nothing like that is done to a replay")),
    };
    Ok((job, control))
}

pub(super) fn put_discard(out: &mut FieldWriter, discard: &Discard) {
    out.topic(discard.queue);
    put_claims(out, &discard.claims);
    out.u64(discard.selected);
    out.text(&discard.note);
    out.text(&discard.detail);
}

fn discard(fields: &mut FieldReader<'_>) -> Result<Discard, FieldError> {
    Ok(Discard {
        queue: fields.topic()?,
        claims: claims(fields)?,
        selected: fields.u64()?,
        note: fields.text()?.to_owned(),
        detail: fields.text()?.to_owned(),
    })
}

pub(super) fn job(fields: &mut FieldReader<'_>) -> Result<JobNumber, FieldError> {
    match fields.u64()? {
        0 => Err(FieldError::Value("no replay has number 0")),
        number => Ok(JobNumber(number)),
    }
}

pub(super) fn put_claims(out: &mut FieldWriter, claims: &Claims) {
    out.count(claims.iter().count());
    for (partition, runs) in claims.iter() {
        out.u32(partition);
        out.count(runs.len());
        for (first, last) in runs {
            out.offset(*first);
            out.offset(*last);
        }
    }
}

pub(super) fn claims(fields: &mut FieldReader<'_>) -> Result<Claims, FieldError> {
    const DISORDER: FieldError = FieldError::Value("runs of dead letters do not rise");
    let mut claims = Claims::new();
    let mut last = None;
    for _ in 0..fields.count(24)? {
        let partition = fields.u32()?;
        let runs = fields.list(16, |each| Ok((each.offset()?, each.offset()?)))?;
        if runs.is_empty() || last.is_some_and(|last| last >= partition) {
            return Err(DISORDER);
        }
        last = Some(partition);
        for run in runs {
            if !claims.restore(partition, run) {
                return Err(DISORDER);
            }
        }
    }
    Ok(claims)
}

pub(super) fn put_order(out: &mut FieldWriter, order: &ReplayOrder) {
    out.text(&order.request_id);
    out.u64(order.content_hash);
    out.bool(order.target.is_some());
    if let Some((topic, name)) = &order.target {
        out.topic(*topic);
        out.text(name);
    }
    out.u32(order.millis_per_second);
    out.u32(order.canary);
    out.bool(order.keep_on_refail);
    out.text(&order.note);
    out.text(&order.detail);
}

pub(super) fn order(fields: &mut FieldReader<'_>) -> Result<ReplayOrder, FieldError> {
    Ok(ReplayOrder {
        request_id: fields.text()?.to_owned(),
        content_hash: fields.u64()?,
        target: if fields.bool()? {
            Some((fields.topic()?, fields.text()?.to_owned()))
        } else {
            None
        },
        millis_per_second: fields.u32()?,
        canary: fields.u32()?,
        keep_on_refail: fields.bool()?,
        note: fields.text()?.to_owned(),
        detail: fields.text()?.to_owned(),
    })
}
