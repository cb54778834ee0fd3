//! What the core knows of a group, taken on its thread in one piece.

use varvelog_store::{Offset, PartitionId, WallMs};

use crate::core::durable_groups::{DurableGroup, Progress};
use crate::core::groups::{GroupDescription, MemberDescription, PinnedRecord};
use crate::core::handle::CoreView;
use crate::core::refusal::Refusal;
use crate::core::settings::GroupSettings;
use crate::names::{GroupName, TopicName};

/// A group, durable and live.
#[derive(Debug, Clone)]
pub(super) struct GroupSnapshot {
    pub(super) name: GroupName,
    pub(super) settings: GroupSettings,
    pub(super) settings_version: u64,
    pub(super) generation: u64,
    pub(super) last_active: WallMs,
    pub(super) members: Vec<MemberDescription>,
    pub(super) topics: Vec<TopicName>,
    /// By topic name and partition.
    pub(super) partitions: Vec<PartitionSnapshot>,
    /// Records in its dead-letter topics.
    pub(super) dead_letters: u64,
}

/// A group in a partition.
#[derive(Debug, Clone)]
pub(super) struct PartitionSnapshot {
    /// Index into the topics of the group.
    pub(super) topic: usize,
    pub(super) id: PartitionId,
    pub(super) low: Offset,
    pub(super) end: Offset,
    pub(super) lag: u64,
    pub(super) done_ahead: u64,
    pub(super) expired_unsettled: u64,
    pub(super) owner: Option<String>,
    pub(super) in_flight: u64,
    pub(super) pinned: Option<PinnedRecord>,
}

impl GroupSnapshot {
    /// A group by name.
    pub(super) fn find(view: &CoreView<'_>, name: &GroupName) -> Result<Self, Refusal> {
        Ok(Self::of(view, view.state.groups.find(name)?))
    }

    pub(super) fn of(view: &CoreView<'_>, group: &DurableGroup) -> Self {
        let live = view.sessions.describe(&group.name).unwrap_or_default();
        let topics = &view.state.topics;
        let mut names = Vec::new();
        let mut partitions = Vec::new();
        let mut dead_letters = 0_u64;
        for (topic, read) in group.topics_by_name(topics) {
            let depth = topics
                .by_id(read.dead_letter)
                .map_or(0, crate::core::topics::Topic::depth);
            dead_letters = dead_letters.saturating_add(depth);
            let ids = topic
                .partition_ids()
                .zip(&topic.partitions)
                .zip(&read.partitions);
            for ((id, partition), progress) in ids {
                let place = (names.len(), id, partition.next());
                partitions.push(partition_snapshot(place, progress, &live));
            }
            names.push(topic.name.clone());
        }
        Self {
            name: group.name.clone(),
            settings: group.settings.clone(),
            settings_version: group.settings_version,
            generation: group.generation,
            last_active: group.last_active.wall,
            members: live.members,
            topics: names,
            partitions,
            dead_letters,
        }
    }

    /// Records not done, in all partitions.
    pub(super) fn lag(&self) -> u64 {
        self.partitions
            .iter()
            .map(|partition| partition.lag)
            .fold(0, u64::saturating_add)
    }
}

fn partition_snapshot(
    (topic, id, end): (usize, PartitionId, Offset),
    progress: &Progress,
    live: &GroupDescription,
) -> PartitionSnapshot {
    let described = live.partitions.get(&id);
    let lag = progress.not_done(end);
    PartitionSnapshot {
        topic,
        id,
        low: progress.low(),
        end,
        lag,
        // Everything from the low watermark to the end is either done or not.
        done_ahead: end.since(progress.low()).saturating_sub(lag),
        expired_unsettled: progress.expired_unsettled(),
        owner: described.and_then(|described| described.owner.clone()),
        in_flight: described.map_or(0, |described| described.in_flight),
        pinned: described.and_then(|described| described.pinned.clone()),
    }
}
