//! What the group machine reads of the durable state, and nothing else of it.

use varvelog_store::{Offset, PartitionId, TopicId};

use crate::core::durable_groups::DurableGroup;
use crate::core::refusal::Refusal;
use crate::core::settings::GroupSettings;
use crate::core::state::State;
use crate::core::topics::Topic;
use crate::names::{GroupName, TopicName};

/// Committed state, as the group machine sees it.
pub trait Durable {
    /// A group by name.
    fn group(&self, group: &GroupName) -> Option<GroupFacts<'_>>;
    /// The topics that a group reads; none for an unknown group.
    fn group_topics(&self, group: &GroupName) -> Vec<TopicFacts>;
    /// A topic that a group may be given: not derived.
    fn topic(&self, name: &TopicName) -> Result<TopicFacts, Refusal>;
    /// Where a group stands in a partition that it reads.
    fn position(&self, group: &GroupName, partition: PartitionId) -> Option<Position>;
    /// The first run of done records that ends at or after `from`, both ends included. What lies
    /// below the low watermark is such a run.
    fn next_done(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, Offset)>;
}

/// A group.
#[derive(Debug, Clone, Copy)]
pub struct GroupFacts<'a> {
    /// Of its creation.
    pub id: u64,
    /// Of its assignment.
    pub generation: u64,
    /// In force.
    pub settings: &'a GroupSettings,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// How many partitions it has.
    pub partitions: u32,
}

/// Where a group stands in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// All below is done; never below the log start.
    pub low: Offset,
    /// One past the last visible record.
    pub end: Offset,
    /// Rises with each reset.
    pub reset_count: u64,
    /// Records from `low` to `end` that are not done.
    pub undone: u64,
}

impl Durable for State {
    fn group(&self, group: &GroupName) -> Option<GroupFacts<'_>> {
        let group = self.groups.get(group)?;
        let DurableGroup {
            id,
            generation,
            settings,
            ..
        } = group;
        Some(GroupFacts {
            id: *id,
            generation: *generation,
            settings,
        })
    }

    fn group_topics(&self, group: &GroupName) -> Vec<TopicFacts> {
        let group = self.groups.get(group);
        let ids = group.into_iter().flat_map(|group| group.topics.keys());
        ids.filter_map(|id| self.topics.by_id(*id).map(TopicFacts::of))
            .collect()
    }

    fn topic(&self, name: &TopicName) -> Result<TopicFacts, Refusal> {
        let topic = self.topics.find_name(name)?;
        self.topics.find_own(topic.id).map(TopicFacts::of)
    }

    fn position(&self, group: &GroupName, partition: PartitionId) -> Option<Position> {
        let progress = self.groups.get(group)?.progress(partition)?;
        let end = self.topics.partition(partition)?.next();
        Some(Position {
            low: progress.low(),
            end,
            reset_count: progress.reset_count(),
            undone: progress.not_done(end),
        })
    }

    fn next_done(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, Offset)> {
        let progress = self.groups.get(group)?.progress(partition)?;
        if from < progress.low() {
            return Some((Offset::ZERO, progress.low().minus(1)));
        }
        let first = progress.done().first_present(from)?;
        Some((first, progress.done().first_missing(first).minus(1)))
    }
}

impl TopicFacts {
    fn of(topic: &Topic) -> Self {
        Self {
            id: topic.id,
            name: topic.name.clone(),
            partitions: topic.partition_count(),
        }
    }
}
