//! Producer ids and their histories.

use super::topics::rising;
use crate::core::fields::{FieldError, FieldReader, FieldWriter};
use crate::core::producers::{BATCHES_REMEMBERED, BatchMark, Batches, Producers};

pub(super) fn put_producers(out: &mut FieldWriter, producers: &Producers) {
    out.count(producers.by_id.len());
    for (id, producer) in &producers.by_id {
        out.i64(*id);
        out.text(&producer.name);
        out.i16(producer.epoch);
        out.wall(producer.used);
    }
    out.count(producers.histories.len());
    for (partition, histories) in &producers.histories {
        out.partition(*partition);
        out.count(histories.len());
        for (id, batches) in histories {
            out.i64(*id);
            put_batches(out, batches);
        }
    }
}

pub(super) fn producers(fields: &mut FieldReader<'_>) -> Result<Producers, FieldError> {
    let mut producers = Producers::default();
    let mut last = None;
    for _ in 0..fields.count(22)? {
        let id = fields.i64()?;
        rising(&mut last, id)?;
        let name = fields.text()?.into();
        let epoch = fields.i16()?;
        producers.insert(id, name, epoch, fields.wall()?);
    }
    let mut last = None;
    for _ in 0..fields.count(24)? {
        let partition = fields.partition()?;
        rising(&mut last, partition)?;
        let mut last = None;
        for _ in 0..fields.count(27)? {
            let id = fields.i64()?;
            rising(&mut last, id)?;
            if !producers.insert_history(partition, id, batches(fields)?) {
                return Err(FieldError::Value("a history has no producer"));
            }
        }
    }
    Ok(producers)
}

fn put_batches(out: &mut FieldWriter, batches: &Batches) {
    out.i16(batches.epoch);
    out.u8(batches.len);
    for mark in batches.marks() {
        out.u32(mark.base_sequence);
        out.u32(mark.record_count);
        out.offset(mark.base_offset);
    }
}

fn batches(fields: &mut FieldReader<'_>) -> Result<Batches, FieldError> {
    let epoch = fields.i16()?;
    let len = usize::from(fields.u8()?);
    if !(1..=BATCHES_REMEMBERED).contains(&len) {
        return Err(FieldError::Value("a history has one to five batches"));
    }
    let mut batches = Batches::first(epoch, mark(fields)?);
    for _ in 1..len {
        let next = mark(fields)?;
        if next.base_sequence != batches.expected() {
            return Err(FieldError::Value(
                "the batches of a history do not follow each other",
            ));
        }
        batches.push(next);
    }
    Ok(batches)
}

fn mark(fields: &mut FieldReader<'_>) -> Result<BatchMark, FieldError> {
    let mark = BatchMark {
        base_sequence: fields.u32()?,
        record_count: fields.u32()?,
        base_offset: fields.offset()?,
    };
    if i32::try_from(mark.base_sequence).is_err() || mark.record_count == 0 {
        return Err(FieldError::Value("a remembered batch cannot be"));
    }
    Ok(mark)
}
