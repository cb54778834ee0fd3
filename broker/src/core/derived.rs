//! Making the retry and dead-letter topics of a group.

use varvelog_store::{TopicId, WallMs};

use super::partitions::Partition;
use super::settings::TopicSettings;
use super::topics::{Derived, DerivedKind, Topic};
use crate::names::{GroupName, NameError, TopicName};

/// Milliseconds since death after which a dead letter may go.
pub(super) const DEAD_LETTER_RETENTION_MS: u64 = 30 * 24 * 3_600 * 1_000;

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
    group: &GroupName,
    kind: DerivedKind,
    id: TopicId,
    created: WallMs,
) -> Result<Topic, NameError> {
    let retention_age_ms = match kind {
        DerivedKind::Retry => 0,
        DerivedKind::DeadLetter => DEAD_LETTER_RETENTION_MS,
    };
    Ok(Topic {
        id,
        name: kind.name(&source.name, group)?,
        settings: TopicSettings {
            retention_age_ms,
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
    })
}

/// The shard of each partition of a topic, by number.
pub(super) fn shards_of(source: &Topic) -> impl Iterator<Item = u8> {
    source.partitions.iter().map(Partition::shard)
}
