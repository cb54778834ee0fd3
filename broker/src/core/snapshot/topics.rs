//! Topics, partitions and deleted topics.

use varvelog_store::{Epoch, TopicId};

use super::state::{put_stamp, stamp};
use crate::core::codec_settings::{put_topic_settings, topic_settings};
use crate::core::delays::Delays;
use crate::core::fields::{FieldError, FieldReader, FieldWriter};
use crate::core::partitions::Partition;
use crate::core::topics::{DeletedTopic, Derived, DerivedKind, Topic, Topics};

const RETRY: u8 = 1;
const DEAD_LETTER: u8 = 2;

pub(super) fn put_topics(out: &mut FieldWriter, topics: &Topics) {
    out.count(topics.by_id.len());
    topics
        .by_id
        .values()
        .for_each(|topic| put_topic(out, topic));
    out.count(topics.deleted.len());
    for (id, deleted) in &topics.deleted {
        out.topic(*id);
        out.u32(deleted.partitions);
        put_stamp(out, deleted.stamp);
    }
}

pub(super) fn topics(fields: &mut FieldReader<'_>) -> Result<Topics, FieldError> {
    let mut topics = Topics::default();
    let mut last = None;
    for _ in 0..fields.count(70)? {
        let topic = topic(fields)?;
        rising(&mut last, topic.id)?;
        topics.insert(topic);
    }
    let mut last = None;
    for _ in 0..fields.count(36)? {
        let id = fields.topic()?;
        rising(&mut last, id)?;
        let deleted = DeletedTopic {
            partitions: fields.u32()?,
            stamp: stamp(fields)?,
        };
        topics.deleted.insert(id, deleted);
    }
    Ok(topics)
}

/// Refuses a key that does not rise.
pub(super) fn rising<K: Ord + Clone>(last: &mut Option<K>, key: K) -> Result<(), FieldError> {
    if last.as_ref().is_some_and(|last| *last >= key) {
        return Err(FieldError::Value("keys do not rise"));
    }
    *last = Some(key);
    Ok(())
}

fn put_topic(out: &mut FieldWriter, topic: &Topic) {
    let Topic {
        id,
        name,
        settings,
        created,
        derived,
        partitions,
    } = topic;
    out.topic(*id);
    out.text(name.as_str());
    out.wall(*created);
    put_topic_settings(out, settings);
    match derived {
        None => out.u8(0),
        Some(Derived {
            group,
            source,
            kind,
        }) => {
            out.u8(match kind {
                DerivedKind::Retry => RETRY,
                DerivedKind::DeadLetter => DEAD_LETTER,
            });
            out.topic(*source);
            out.text(group.as_str());
        }
    }
    out.count(partitions.len());
    for partition in partitions {
        put_partition(out, partition);
    }
}

fn topic(fields: &mut FieldReader<'_>) -> Result<Topic, FieldError> {
    Ok(Topic {
        id: fields.topic()?,
        name: fields.topic_name()?,
        created: fields.wall()?,
        settings: topic_settings(fields)?,
        derived: derived(fields)?,
        partitions: fields.list(45, partition)?,
    })
}

fn derived(fields: &mut FieldReader<'_>) -> Result<Option<Derived>, FieldError> {
    let kind = match fields.u8()? {
        0 => return Ok(None),
        RETRY => DerivedKind::Retry,
        DEAD_LETTER => DerivedKind::DeadLetter,
        _ => return Err(FieldError::Value("there is no such kind of derived topic")),
    };
    let source: TopicId = fields.topic()?;
    Ok(Some(Derived {
        group: fields.group_name()?,
        source,
        kind,
    }))
}

fn put_partition(out: &mut FieldWriter, partition: &Partition) {
    let Partition {
        start,
        next,
        append_time,
        shard,
        epochs,
        delayed,
    } = partition;
    out.offset(*start);
    out.offset(*next);
    out.wall(*append_time);
    out.u8(*shard);
    out.count(epochs.len());
    for (epoch, first) in epochs {
        out.u32(epoch.0);
        out.offset(*first);
    }
    out.count(delayed.iter().count());
    for (at, due) in delayed.iter() {
        out.offset(at);
        out.wall(due);
    }
}

fn partition(fields: &mut FieldReader<'_>) -> Result<Partition, FieldError> {
    Ok(Partition {
        start: fields.offset()?,
        next: fields.offset()?,
        append_time: fields.wall()?,
        shard: fields.u8()?,
        epochs: fields.list(12, |each| Ok((Epoch(each.u32()?), each.offset()?)))?,
        delayed: delays(fields)?,
    })
}

fn delays(fields: &mut FieldReader<'_>) -> Result<Delays, FieldError> {
    let mut delays = Delays::default();
    let mut last = None;
    for _ in 0..fields.count(16)? {
        let at = fields.offset()?;
        rising(&mut last, at)?;
        delays.insert(at, fields.wall()?);
    }
    Ok(delays)
}
