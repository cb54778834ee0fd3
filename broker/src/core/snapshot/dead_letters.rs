//! What lies in dead-letter topics.

use std::collections::VecDeque;

use super::topics::rising;
use crate::core::codec_delivery::{CAUSE_BYTES_MIN, cause, put_cause};
use crate::core::dead_letters::{DeadLetters, Entry, JobNumber, Moves, Queue, Step};
use crate::core::fields::{FieldError, FieldReader, FieldWriter};

const ENTRY_BYTES: usize = 36;
const PARKED_BYTES: usize = 20;
const STEP_BYTES: usize = 40;

pub(super) fn put_dead_letters(out: &mut FieldWriter, dead_letters: &DeadLetters) {
    out.count(dead_letters.queues.len());
    for (topic, queue) in &dead_letters.queues {
        out.topic(*topic);
        put_queue(out, queue);
    }
}

pub(super) fn dead_letters(fields: &mut FieldReader<'_>) -> Result<DeadLetters, FieldError> {
    let mut all = DeadLetters::default();
    let mut last = None;
    for _ in 0..fields.count(32)? {
        let topic = fields.topic()?;
        rising(&mut last, topic)?;
        all.queues.insert(topic, queue(fields)?);
    }
    Ok(all)
}

fn put_queue(out: &mut FieldWriter, queue: &Queue) {
    out.count(queue.causes.count());
    for (number, cause, _) in queue.causes.iter() {
        out.u32(number);
        put_cause(out, cause);
    }
    out.count(queue.partitions.len());
    for (number, entries) in &queue.partitions {
        out.u32(*number);
        out.count(entries.len());
        for (offset, entry) in entries {
            out.offset(*offset);
            out.wall(entry.died);
            out.u32(entry.bytes);
            out.u32(entry.cause);
            out.u32(entry.replays);
            out.u64(entry.job.map_or(0, |job| job.0));
        }
    }
    out.count(queue.parked.iter().len());
    for (partition, offset, key) in queue.parked.iter() {
        out.u32(partition);
        out.offset(offset);
        out.u64(key);
    }
    put_steps(out, &queue.trend.minutes);
    put_steps(out, &queue.trend.hours);
}

fn queue(fields: &mut FieldReader<'_>) -> Result<Queue, FieldError> {
    let mut queue = Queue::default();
    for _ in 0..fields.count(4 + CAUSE_BYTES_MIN)? {
        let number = fields.u32()?;
        if !queue.causes.restore(number, cause(fields)?) {
            return Err(FieldError::Value("causes of death are not in order"));
        }
    }
    let mut last = None;
    for _ in 0..fields.count(8)? {
        let number = fields.u32()?;
        rising(&mut last, number)?;
        entries(fields, &mut queue, number)?;
    }
    let mut last = None;
    for _ in 0..fields.count(PARKED_BYTES)? {
        let at = (fields.u32()?, fields.offset()?);
        rising(&mut last, at)?;
        queue.parked.add(at.0, at.1, fields.u64()?);
    }
    queue.trend.minutes = steps(fields)?;
    queue.trend.hours = steps(fields)?;
    Ok(queue)
}

fn entries(
    fields: &mut FieldReader<'_>,
    queue: &mut Queue,
    partition: u32,
) -> Result<(), FieldError> {
    let count = fields.count(ENTRY_BYTES)?;
    if count == 0 {
        return Err(FieldError::Value("a partition has no dead letters"));
    }
    let mut last = None;
    for _ in 0..count {
        let offset = fields.offset()?;
        rising(&mut last, offset)?;
        let entry = Entry {
            died: fields.wall()?,
            bytes: fields.u32()?,
            cause: fields.u32()?,
            replays: fields.u32()?,
            job: Some(fields.u64()?).filter(|job| *job > 0).map(JobNumber),
        };
        if !queue.restore(partition, offset, entry) {
            return Err(FieldError::Value("a dead letter has no cause"));
        }
    }
    Ok(())
}

fn put_steps(out: &mut FieldWriter, steps: &VecDeque<Step>) {
    out.count(steps.len());
    for step in steps {
        let Step {
            number,
            moves,
            depth,
        } = *step;
        out.i64(number);
        out.u64(moves.arrived);
        out.u64(moves.replayed);
        out.u64(moves.discarded);
        out.u64(depth);
    }
}

fn steps(fields: &mut FieldReader<'_>) -> Result<VecDeque<Step>, FieldError> {
    let steps = fields.list(STEP_BYTES, |each| {
        Ok(Step {
            number: each.i64()?,
            moves: Moves {
                arrived: each.u64()?,
                replayed: each.u64()?,
                discarded: each.u64()?,
            },
            depth: each.u64()?,
        })
    })?;
    Ok(steps.into())
}
