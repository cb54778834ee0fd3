//! Groups and what they have done.

use std::collections::BTreeMap;

use varvelog_store::{Offset, TopicId};

use super::state::{put_stamp, stamp};
use super::topics::rising;
use crate::core::ack_set::AckSet;
use crate::core::codec_delivery::{
    ENTRY_BYTES, HANDED_OUT_BYTES_MIN, NOTE_BYTES_MIN, ending, entry, handed_out, note, put_ending,
    put_entry, put_handed_out, put_note,
};
use crate::core::codec_settings::{group_settings, put_group_settings};
use crate::core::durable_groups::{DurableGroup, GroupReads, Groups, Progress};
use crate::core::endings::{ENDINGS_MAX, Endings};
use crate::core::failure::FailureNote;
use crate::core::fields::{FieldError, FieldReader, FieldWriter};
use crate::core::handed_out::HandOuts;
use crate::core::retries::RetryProgress;

pub(super) fn put_groups(out: &mut FieldWriter, groups: &Groups) {
    out.count(groups.by_name.len());
    groups.iter().for_each(|group| put_group(out, group));
}

pub(super) fn groups(fields: &mut FieldReader<'_>) -> Result<Groups, FieldError> {
    let mut groups = Groups::default();
    let mut last = None;
    for _ in 0..fields.count(82)? {
        let group = group(fields)?;
        rising(&mut last, group.name.clone())?;
        groups.insert(group);
    }
    Ok(groups)
}

fn put_group(out: &mut FieldWriter, group: &DurableGroup) {
    let DurableGroup {
        name,
        id,
        settings,
        settings_version,
        created,
        generation,
        topics,
        last_active,
    } = group;
    out.text(name.as_str());
    out.u64(*id);
    put_group_settings(out, settings);
    out.u64(*settings_version);
    out.wall(*created);
    out.u64(*generation);
    put_stamp(out, *last_active);
    out.count(topics.len());
    for (topic, reads) in topics {
        out.topic(*topic);
        out.topic(reads.retry);
        out.topic(reads.dead_letter);
        out.count(reads.partitions.len());
        reads
            .partitions
            .iter()
            .for_each(|progress| put_progress(out, progress));
        out.count(reads.retries.len());
        reads
            .retries
            .iter()
            .for_each(|retries| put_retries(out, retries));
    }
}

fn group(fields: &mut FieldReader<'_>) -> Result<DurableGroup, FieldError> {
    Ok(DurableGroup {
        name: fields.group_name()?,
        id: fields.u64()?,
        settings: group_settings(fields)?,
        settings_version: fields.u64()?,
        created: fields.wall()?,
        generation: fields.u64()?,
        last_active: stamp(fields)?,
        topics: topics(fields)?,
    })
}

fn topics(fields: &mut FieldReader<'_>) -> Result<BTreeMap<TopicId, GroupReads>, FieldError> {
    let mut topics = BTreeMap::new();
    let mut last = None;
    for _ in 0..fields.count(56)? {
        let topic = fields.topic()?;
        rising(&mut last, topic)?;
        let reads = GroupReads {
            retry: fields.topic()?,
            dead_letter: fields.topic()?,
            partitions: fields.list(48, progress)?,
            retries: fields.list(16, retries)?,
        };
        topics.insert(topic, reads);
    }
    Ok(topics)
}

fn put_progress(out: &mut FieldWriter, progress: &Progress) {
    let Progress {
        low,
        done,
        metadata,
        reset_count,
        expired_unsettled,
        notes,
        endings,
        out: handed,
        parked,
    } = progress;
    out.offset(*low);
    out.text(metadata);
    out.u64(*reset_count);
    out.u64(*expired_unsettled);
    out.count(done.run_count());
    for run in done.runs() {
        out.offset(run.first);
        out.offset(run.end);
    }
    put_notes(out, notes);
    put_endings(out, endings);
    put_hand_outs(out, handed);
    out.count(parked.len());
    for (key, until) in parked {
        out.u64(*key);
        out.offset(*until);
    }
}

fn put_notes(out: &mut FieldWriter, notes: &BTreeMap<Offset, FailureNote>) {
    out.count(notes.len());
    for (offset, note) in notes {
        out.offset(*offset);
        put_note(out, note);
    }
}

fn put_endings(out: &mut FieldWriter, endings: &Endings) {
    out.count(endings.iter().count());
    for (offset, ending) in endings.iter() {
        out.offset(offset);
        put_ending(out, ending);
    }
}

fn put_hand_outs(out: &mut FieldWriter, handed: &HandOuts) {
    out.count(handed.count());
    for (first, handed) in handed.iter() {
        out.offset(first);
        put_handed_out(out, handed);
    }
}

fn put_retries(out: &mut FieldWriter, retries: &RetryProgress) {
    let (pending, notes) = (retries.pending(), retries.notes());
    let (endings, handed) = (retries.endings(), retries.out());
    out.count(pending.len());
    for (offset, entry) in pending {
        out.offset(*offset);
        put_entry(out, entry);
    }
    put_notes(out, notes);
    put_endings(out, endings);
    put_hand_outs(out, handed);
}

fn retries(fields: &mut FieldReader<'_>) -> Result<RetryProgress, FieldError> {
    let pending = by_offset(fields, ENTRY_BYTES, entry)?;
    let notes = by_offset(fields, NOTE_BYTES_MIN, note)?;
    let rest = (endings(fields)?, hand_outs(fields)?);
    Ok(RetryProgress::restored(pending, notes, rest))
}

fn endings(fields: &mut FieldReader<'_>) -> Result<Endings, FieldError> {
    let by_offset = by_offset(fields, 1, ending)?;
    if by_offset.len() > ENDINGS_MAX {
        return Err(FieldError::Value("more endings than are remembered"));
    }
    Ok(Endings { by_offset })
}

fn hand_outs(fields: &mut FieldReader<'_>) -> Result<HandOuts, FieldError> {
    let by_first = by_offset(fields, HANDED_OUT_BYTES_MIN, handed_out)?;
    Ok(HandOuts { by_first })
}

/// A map by rising offsets.
fn by_offset<T>(
    fields: &mut FieldReader<'_>,
    element_bytes: usize,
    element: fn(&mut FieldReader<'_>) -> Result<T, FieldError>,
) -> Result<BTreeMap<Offset, T>, FieldError> {
    let mut map = BTreeMap::new();
    let mut last = None;
    for _ in 0..fields.count(8 + element_bytes)? {
        let offset = fields.offset()?;
        rising(&mut last, offset)?;
        map.insert(offset, element(fields)?);
    }
    Ok(map)
}

fn progress(fields: &mut FieldReader<'_>) -> Result<Progress, FieldError> {
    Ok(Progress {
        low: fields.offset()?,
        metadata: fields.text()?.to_owned(),
        reset_count: fields.u64()?,
        expired_unsettled: fields.u64()?,
        done: done(fields)?,
        notes: by_offset(fields, NOTE_BYTES_MIN, note)?,
        endings: endings(fields)?,
        out: hand_outs(fields)?,
        parked: parked(fields)?,
    })
}

fn parked(fields: &mut FieldReader<'_>) -> Result<BTreeMap<u64, Offset>, FieldError> {
    let mut parked = BTreeMap::new();
    let mut last = None;
    for _ in 0..fields.count(16)? {
        let key = fields.u64()?;
        rising(&mut last, key)?;
        parked.insert(key, fields.offset()?);
    }
    Ok(parked)
}

fn done(fields: &mut FieldReader<'_>) -> Result<AckSet, FieldError> {
    let mut done = AckSet::default();
    let mut last_end = None;
    for _ in 0..fields.count(16)? {
        let (first, end) = (fields.offset()?, fields.offset()?);
        let is_apart = last_end.is_none_or(|last| last < first);
        if !is_apart || first >= end {
            return Err(FieldError::Value("runs of settled records are not apart"));
        }
        last_end = Some(end);
        done.insert(first, end);
    }
    Ok(done)
}
