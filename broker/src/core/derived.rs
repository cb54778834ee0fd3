//! Making the retry and dead-letter topics of a group.

use varvelog_store::{TopicId, WallMs};

use super::partitions::Partition;
use super::settings::{DeadLetterSettings, TopicSettings};
use super::topics::{Derived, DerivedKind, Topic};
use crate::names::{GroupName, NameError, TopicName};

/// A derived topic takes records of so many bytes more than its source: the headers that tell of
/// a failure.
pub(super) const COPY_BYTES_MORE: u32 = 16 * 1024;

impl DerivedKind {
    /// The name of the topic of this kind.
    pub fn name(self, source: &TopicName, group: &GroupName) -> Result<TopicName, NameError> {
        match self {
            Self::Retry => source.retry_of(group),
            Self::DeadLetter => source.dead_letter_of(group),
        }
    }
}

/// A derived topic without records: as many partitions as its source, on the same shards.
pub(super) fn derive(
    source: &Topic,
    (group, settings): (&GroupName, &DeadLetterSettings),
    (kind, id): (DerivedKind, TopicId),
    created: WallMs,
) -> Result<Topic, NameError> {
    let mut topic = Topic {
        id,
        name: kind.name(&source.name, group)?,
        settings: TopicSettings {
            retention_age_ms: 0,
            retention_bytes: 0,
            segment_bytes: source.settings.segment_bytes,
            record_bytes_max: source.settings.record_bytes_max,
            message_id_window_ms: 0,
            labels: std::collections::BTreeMap::new(),
        },
        created,
        derived: Some(Derived {
            group: group.clone(),
            source: source.id,
            kind,
        }),
        partitions: shards_of(source).map(Partition::new).collect(),
    };
    follow_source(&mut topic, &source.settings);
    follow_group(&mut topic, settings);
    Ok(topic)
}

/// Brings a derived topic's settings in line with those of its source; true if they change.
pub(super) fn follow_source(derived: &mut Topic, source: &TopicSettings) -> bool {
    let settings = &mut derived.settings;
    let before = (settings.segment_bytes, settings.record_bytes_max);
    settings.segment_bytes = source.segment_bytes;
    settings.record_bytes_max = source.record_bytes_max.saturating_add(COPY_BYTES_MORE);
    before != (settings.segment_bytes, settings.record_bytes_max)
}

/// Brings a dead-letter topic's settings in line with those of its group; true if they change. A
/// retry topic has no retention at all.
pub(super) fn follow_group(derived: &mut Topic, group: &DeadLetterSettings) -> bool {
    let kind = derived.derived.as_ref().map(|derived| derived.kind);
    if kind != Some(DerivedKind::DeadLetter) {
        return false;
    }
    let settings = &mut derived.settings;
    let before = (settings.retention_age_ms, settings.retention_bytes);
    settings.retention_age_ms = group.retention_age_ms;
    settings.retention_bytes = if group.drop_oldest_when_full {
        group.bytes_max
    } else {
        0
    };
    before != (settings.retention_age_ms, settings.retention_bytes)
}

/// The shard of each partition of a topic, by number.
pub(super) fn shards_of(source: &Topic) -> impl Iterator<Item = u8> {
    source.partitions.iter().map(Partition::shard)
}
