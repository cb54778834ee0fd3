//! Groups and what they have done.

use std::collections::BTreeMap;

use varvelog_store::TopicId;

use super::state::{put_stamp, stamp};
use super::topics::rising;
use crate::core::ack_set::AckSet;
use crate::core::codec_settings::{group_settings, put_group_settings};
use crate::core::durable_groups::{DurableGroup, GroupReads, Groups, Progress};
use crate::core::fields::{FieldError, FieldReader, FieldWriter};

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
    for _ in 0..fields.count(52)? {
        let topic = fields.topic()?;
        rising(&mut last, topic)?;
        let reads = GroupReads {
            retry: fields.topic()?,
            dead_letter: fields.topic()?,
            partitions: fields.list(32, progress)?,
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
}

fn progress(fields: &mut FieldReader<'_>) -> Result<Progress, FieldError> {
    Ok(Progress {
        low: fields.offset()?,
        metadata: fields.text()?.to_owned(),
        reset_count: fields.u64()?,
        expired_unsettled: fields.u64()?,
        done: done(fields)?,
    })
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
