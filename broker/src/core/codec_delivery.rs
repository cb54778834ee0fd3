//! Settlements, hand-outs and failures as fields, the same in commands and snapshots where both
//! have them.

use super::codec::{append, put_append};
use super::command::{HandBack, HandOut, MakeDue, Settle};
use super::dead_letters::{Cause, Death, JobNumber};
use super::failure::{
    ATTEMPT_LOG_MAX, DeadReason, Ending, ErrorClass, FailedAttempt, FailureNote, FailureText, Wait,
};
use super::fields::{FieldError, FieldReader, FieldWriter};
use super::handed_out::HandedOut;
use super::request::LeaseId;
use super::retries::RetryEntry;

pub(super) fn put_settle(out: &mut FieldWriter, settle: &Settle) {
    out.text(settle.group.as_str());
    out.u64(settle.group_id);
    out.u64(settle.reset_count);
    out.partition(settle.partition);
    out.count(settle.ranges.len());
    for (first, last) in &settle.ranges {
        out.offset(*first);
        out.offset(*last);
    }
    out.count(settle.endings.len());
    for (offset, ending) in &settle.endings {
        out.offset(*offset);
        put_ending(out, *ending);
    }
    out.count(settle.notes.len());
    for (offset, note) in &settle.notes {
        out.offset(*offset);
        put_note(out, note);
    }
    out.count(settle.parked.len());
    settle.parked.iter().for_each(|key| out.u64(*key));
    put_append(out, &settle.append);
    put_retries(out, &settle.retries);
    out.count(settle.deaths.len());
    for (part, deaths) in &settle.deaths {
        out.u32(*part);
        out.count(deaths.len());
        for death in deaths {
            out.wall(death.at);
            out.u32(death.bytes);
            put_cause(out, &death.cause);
            out.u32(death.replays);
            out.u64(death.replayed_by.map_or(0, |job| job.0));
            out.bool(death.parked_key.is_some());
            if let Some(key) = death.parked_key {
                out.u64(key);
            }
        }
    }
}

pub(super) fn put_retries(out: &mut FieldWriter, retries: &[(u32, Vec<RetryEntry>)]) {
    out.count(retries.len());
    for (part, entries) in retries {
        out.u32(*part);
        out.count(entries.len());
        for entry in entries {
            put_entry(out, entry);
        }
    }
}

pub(super) fn settle(fields: &mut FieldReader<'_>) -> Result<Settle, FieldError> {
    Ok(Settle {
        group: fields.group_name()?,
        group_id: fields.u64()?,
        reset_count: fields.u64()?,
        partition: fields.partition()?,
        ranges: fields.list(16, |each| Ok((each.offset()?, each.offset()?)))?,
        endings: fields.list(9, |each| Ok((each.offset()?, ending(each)?)))?,
        notes: fields.list(NOTE_BYTES_MIN + 8, |each| Ok((each.offset()?, note(each)?)))?,
        parked: fields.list(8, FieldReader::u64)?,
        append: append(fields)?,
        retries: retries(fields)?,
        deaths: fields.list(8, |each| {
            Ok((each.u32()?, each.list(25 + CAUSE_BYTES_MIN, death)?))
        })?,
    })
}

pub(super) fn put_hand_out(out: &mut FieldWriter, hand_out: &HandOut) {
    out.text(hand_out.group.as_str());
    out.u64(hand_out.group_id);
    out.u64(hand_out.reset_count);
    out.partition(hand_out.partition);
    out.offset(hand_out.first);
    put_handed_out(out, &hand_out.out);
}

pub(super) fn hand_out(fields: &mut FieldReader<'_>) -> Result<HandOut, FieldError> {
    Ok(HandOut {
        group: fields.group_name()?,
        group_id: fields.u64()?,
        reset_count: fields.u64()?,
        partition: fields.partition()?,
        first: fields.offset()?,
        out: handed_out(fields)?,
    })
}

pub(super) fn put_hand_back(out: &mut FieldWriter, back: &HandBack) {
    out.text(back.group.as_str());
    out.u64(back.group_id);
    out.partition(back.partition);
    out.count(back.ranges.len());
    for (first, last) in &back.ranges {
        out.offset(*first);
        out.offset(*last);
    }
}

pub(super) fn hand_back(fields: &mut FieldReader<'_>) -> Result<HandBack, FieldError> {
    Ok(HandBack {
        group: fields.group_name()?,
        group_id: fields.u64()?,
        partition: fields.partition()?,
        ranges: fields.list(16, |each| Ok((each.offset()?, each.offset()?)))?,
    })
}

pub(super) fn put_make_due(out: &mut FieldWriter, due: &MakeDue) {
    out.text(due.group.as_str());
    out.count(due.records.len());
    for (partition, offset) in &due.records {
        out.partition(*partition);
        out.offset(*offset);
    }
}

pub(super) fn make_due(fields: &mut FieldReader<'_>) -> Result<MakeDue, FieldError> {
    Ok(MakeDue {
        group: fields.group_name()?,
        records: fields.list(28, |each| Ok((each.partition()?, each.offset()?)))?,
    })
}

pub(super) fn put_handed_out(out: &mut FieldWriter, handed: &HandedOut) {
    out.offset(handed.last);
    out.u32(handed.attempt);
    out.u64(handed.lease.0);
    out.u64(handed.run);
    out.text(&handed.member);
    out.u64(handed.ack_timeout_ms);
}

/// Fewest bytes of a [`HandedOut`].
pub(super) const HANDED_OUT_BYTES_MIN: usize = 40;

pub(super) fn handed_out(fields: &mut FieldReader<'_>) -> Result<HandedOut, FieldError> {
    Ok(HandedOut {
        last: fields.offset()?,
        attempt: fields.u32()?,
        lease: LeaseId(fields.u64()?),
        run: fields.u64()?,
        member: fields.text()?.to_owned(),
        ack_timeout_ms: fields.u64()?,
    })
}

/// Bytes of a [`RetryEntry`].
pub(super) const ENTRY_BYTES: usize = 21;

pub(super) fn put_entry(out: &mut FieldWriter, entry: &RetryEntry) {
    out.wall(entry.due);
    out.offset(entry.origin);
    out.u32(entry.failures);
    out.bool(entry.suspect);
}

pub(super) fn entry(fields: &mut FieldReader<'_>) -> Result<RetryEntry, FieldError> {
    Ok(RetryEntry {
        due: fields.wall()?,
        origin: fields.offset()?,
        failures: fields.u32()?,
        suspect: fields.bool()?,
    })
}

pub(super) fn put_ending(out: &mut FieldWriter, ending: Ending) {
    out.u8(match ending {
        Ending::Retried => 1,
        Ending::DeadLettered => 2,
        Ending::Skipped => 3,
        Ending::Expired => 4,
    });
}

pub(super) fn ending(fields: &mut FieldReader<'_>) -> Result<Ending, FieldError> {
    Ok(match fields.u8()? {
        1 => Ending::Retried,
        2 => Ending::DeadLettered,
        3 => Ending::Skipped,
        4 => Ending::Expired,
        _ => return Err(FieldError::Value("no record ends like that")),
    })
}

/// Fewest bytes of a [`FailureNote`].
pub(super) const NOTE_BYTES_MIN: usize = 34;

pub(super) fn put_note(out: &mut FieldWriter, note: &FailureNote) {
    out.u32(note.failures);
    put_class(out, note.class);
    put_wait(out, note.wait);
    out.wall(note.first_failure);
    out.text(&note.text.code);
    out.text(&note.text.message);
    out.text(&note.text.stack);
    out.text(&note.consumer);
    out.count(note.log.len());
    for failed in &note.log {
        out.u32(failed.attempt);
        out.wall(failed.at);
        put_class(out, failed.class);
        out.text(&failed.code);
    }
}

pub(super) fn note(fields: &mut FieldReader<'_>) -> Result<FailureNote, FieldError> {
    let note = FailureNote {
        failures: fields.u32()?,
        class: class(fields)?,
        wait: wait(fields)?,
        first_failure: fields.wall()?,
        text: FailureText {
            code: fields.text()?.to_owned(),
            message: fields.text()?.to_owned(),
            stack: fields.text()?.to_owned(),
        },
        consumer: fields.text()?.to_owned(),
        log: fields.list(17, |each| {
            Ok(FailedAttempt {
                attempt: each.u32()?,
                at: each.wall()?,
                class: class(each)?,
                code: each.text()?.to_owned(),
            })
        })?,
    };
    if note.log.len() > ATTEMPT_LOG_MAX {
        return Err(FieldError::Value("an attempt log is longer than it may be"));
    }
    Ok(note)
}

fn put_class(out: &mut FieldWriter, class: ErrorClass) {
    out.u8(match class {
        ErrorClass::Transient => 1,
        ErrorClass::Permanent => 2,
        ErrorClass::Timeout => 3,
        ErrorClass::Crash => 4,
        ErrorClass::Undeliverable => 5,
        ErrorClass::ReleaseLoop => 6,
    });
}

fn class(fields: &mut FieldReader<'_>) -> Result<ErrorClass, FieldError> {
    class_of(fields.u8()?)
}

fn class_of(number: u8) -> Result<ErrorClass, FieldError> {
    Ok(match number {
        1 => ErrorClass::Transient,
        2 => ErrorClass::Permanent,
        3 => ErrorClass::Timeout,
        4 => ErrorClass::Crash,
        5 => ErrorClass::Undeliverable,
        6 => ErrorClass::ReleaseLoop,
        _ => return Err(FieldError::Value("no failure is of that class")),
    })
}

pub(super) fn retries(
    fields: &mut FieldReader<'_>,
) -> Result<Vec<(u32, Vec<RetryEntry>)>, FieldError> {
    fields.list(8, |each| Ok((each.u32()?, each.list(ENTRY_BYTES, entry)?)))
}

fn death(fields: &mut FieldReader<'_>) -> Result<Death, FieldError> {
    Ok(Death {
        at: fields.wall()?,
        bytes: fields.u32()?,
        cause: cause(fields)?,
        replays: fields.u32()?,
        replayed_by: Some(fields.u64()?).filter(|job| *job > 0).map(JobNumber),
        parked_key: if fields.bool()? {
            Some(fields.u64()?)
        } else {
            None
        },
    })
}

pub(super) const CAUSE_BYTES_MIN: usize = 6;

pub(super) fn put_cause(out: &mut FieldWriter, cause: &Cause) {
    match cause.class {
        None => out.u8(0),
        Some(class) => put_class(out, class),
    }
    out.text(&cause.code);
    out.bool(cause.fingerprint.is_some());
    if let Some(fingerprint) = cause.fingerprint {
        out.u64(fingerprint);
    }
}

pub(super) fn cause(fields: &mut FieldReader<'_>) -> Result<Cause, FieldError> {
    let class = match fields.u8()? {
        0 => None,
        number => Some(class_of(number)?),
    };
    Ok(Cause {
        class,
        code: fields.text()?.to_owned(),
        fingerprint: if fields.bool()? {
            Some(fields.u64()?)
        } else {
            None
        },
    })
}

fn put_wait(out: &mut FieldWriter, wait: Wait) {
    match wait {
        Wait::Ready => out.u8(1),
        Wait::Until(due) => {
            out.u8(2);
            out.wall(due);
        }
        Wait::Room(reason) => {
            out.u8(3);
            put_reason(out, reason);
        }
        Wait::Operator(reason) => {
            out.u8(4);
            put_reason(out, reason);
        }
    }
}

fn wait(fields: &mut FieldReader<'_>) -> Result<Wait, FieldError> {
    Ok(match fields.u8()? {
        1 => Wait::Ready,
        2 => Wait::Until(fields.wall()?),
        3 => Wait::Room(reason(fields)?),
        4 => Wait::Operator(reason(fields)?),
        _ => return Err(FieldError::Value("nothing is waited for like that")),
    })
}

fn put_reason(out: &mut FieldWriter, reason: DeadReason) {
    out.u8(match reason {
        DeadReason::MaxDeliveries => 1,
        DeadReason::Permanent => 2,
        DeadReason::MaxAge => 3,
        DeadReason::Undeliverable => 4,
        DeadReason::ParkedKey => 5,
        DeadReason::Operator => 6,
    });
}

fn reason(fields: &mut FieldReader<'_>) -> Result<DeadReason, FieldError> {
    Ok(match fields.u8()? {
        1 => DeadReason::MaxDeliveries,
        2 => DeadReason::Permanent,
        3 => DeadReason::MaxAge,
        4 => DeadReason::Undeliverable,
        5 => DeadReason::ParkedKey,
        6 => DeadReason::Operator,
        _ => return Err(FieldError::Value("no record dies for that reason")),
    })
}
