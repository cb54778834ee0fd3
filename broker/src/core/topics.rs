//! Topics by name and id, their partitions, and which topics are derived from which.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{PartitionId, TopicId, WallMs};

use super::command::Stamp;
use super::derived::shards_of;
use super::fields::holds;
use super::partitions::Partition;
use super::refusal::{Refusal, TopicRefusal};
use super::settings::TopicSettings;
use crate::names::{GroupName, TopicName};

/// What a derived topic is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DerivedKind {
    /// Records that wait for another delivery.
    Retry,
    /// Records that no delivery could get processed.
    DeadLetter,
}

/// Where a derived topic comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// Of the group, which may be deleted while its dead letters are kept.
    pub group: GroupName,
    /// The topic that the group reads.
    pub source: TopicId,
    /// What for.
    pub kind: DerivedKind,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: TopicName,
    /// Its settings.
    pub settings: TopicSettings,
    /// When it was made.
    pub created: WallMs,
    /// Set for a retry or dead-letter topic.
    pub derived: Option<Derived>,
    /// By number; at least one.
    pub partitions: Vec<Partition>,
}

impl Topic {
    /// How many partitions it has.
    pub fn partition_count(&self) -> u32 {
        u32::try_from(self.partitions.len()).expect("partitions are numbered by u32")
    }

    /// Ids of its partitions, by number.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let topic = self.id;
        (0..self.partition_count()).map(move |partition| PartitionId { topic, partition })
    }

    /// A partition by number.
    pub fn partition(&self, number: u32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(number).ok()?)
    }
}

/// A topic whose files may still be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedTopic {
    /// How many it had.
    pub partitions: u32,
    /// When it was deleted.
    pub stamp: Stamp,
}

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TopicCounts {
    /// Topics that users made.
    pub topics: u64,
    /// Partitions of topics that users made.
    pub partitions: u64,
    /// Partitions of derived topics.
    pub derived_partitions: u64,
}

/// All topics.
///
/// Invariants: names and ids are unique, also against deleted ids; a derived topic's source is
/// there and not derived, and both have equally many partitions.
#[derive(Debug, Default)]
pub struct Topics {
    pub(super) by_id: BTreeMap<TopicId, Topic>,
    by_name: BTreeMap<TopicName, TopicId>,
    derived_of: BTreeMap<TopicId, BTreeSet<TopicId>>,
    pub(super) deleted: BTreeMap<TopicId, DeletedTopic>,
    counts: TopicCounts,
}

impl Topics {
    /// A topic by identity.
    pub fn by_id(&self, id: TopicId) -> Option<&Topic> {
        self.by_id.get(&id)
    }

    /// A topic by name.
    pub fn by_name(&self, name: &TopicName) -> Option<&Topic> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// A partition by identity.
    pub fn partition(&self, id: PartitionId) -> Option<&Partition> {
        self.by_id.get(&id.topic)?.partition(id.partition)
    }

    /// All topics by name, derived ones too.
    pub fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.by_name.values().filter_map(|id| self.by_id.get(id))
    }

    /// Retry and dead-letter topics of a topic, those of deleted groups too.
    pub fn derived_of(&self, source: TopicId) -> impl Iterator<Item = &Topic> {
        let ids = self.derived_of.get(&source).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id))
    }

    /// Deleted topics that are not forgotten yet.
    pub fn deleted(&self) -> impl Iterator<Item = (TopicId, DeletedTopic)> {
        self.deleted.iter().map(|(id, deleted)| (*id, *deleted))
    }

    /// How many there are.
    pub fn counts(&self) -> TopicCounts {
        self.counts
    }

    /// For how long message ids of a topic count; 0 if they do not.
    pub(super) fn id_window_ms(&self, id: TopicId) -> u64 {
        self.by_id(id)
            .map_or(0, |topic| topic.settings.message_id_window_ms)
    }

    /// The topic, or why there is none.
    pub fn find(&self, id: TopicId) -> Result<&Topic, Refusal> {
        let missing = || TopicRefusal::NotFound {
            topic: id.to_string(),
        };
        Ok(self.by_id(id).ok_or_else(missing)?)
    }

    /// The topic of that name, or why there is none.
    pub fn find_name(&self, name: &TopicName) -> Result<&Topic, Refusal> {
        let missing = || TopicRefusal::NotFound {
            topic: name.to_string(),
        };
        Ok(self.by_name(name).ok_or_else(missing)?)
    }

    /// The partition, or why there is none.
    pub fn find_partition(&self, id: PartitionId) -> Result<&Partition, Refusal> {
        let topic = self.find(id.topic)?;
        let missing = || TopicRefusal::PartitionNotFound {
            topic: topic.name.to_string(),
            partition: id.partition.into(),
            partitions: topic.partition_count(),
        };
        Ok(topic.partition(id.partition).ok_or_else(missing)?)
    }

    /// The topic if users may change it, or why not.
    pub fn find_own(&self, id: TopicId) -> Result<&Topic, Refusal> {
        let topic = self.find(id)?;
        match &topic.derived {
            None => Ok(topic),
            Some(derived) => Err(derived_refusal(&topic.name, derived.group.as_str())),
        }
    }

    /// Whether the id was ever given out, as far as is remembered.
    pub(super) fn is_taken(&self, id: TopicId) -> bool {
        self.by_id.contains_key(&id) || self.deleted.contains_key(&id)
    }

    pub(super) fn partition_mut(&mut self, id: PartitionId) -> Option<&mut Partition> {
        let number = usize::try_from(id.partition).ok()?;
        self.by_id.get_mut(&id.topic)?.partitions.get_mut(number)
    }

    pub(super) fn partitions_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.by_id
            .values_mut()
            .flat_map(|topic| &mut topic.partitions)
    }

    /// Takes in a topic whose name and id are free.
    pub(super) fn insert(&mut self, topic: Topic) {
        self.count(&topic, u64::saturating_add);
        if let Some(derived) = &topic.derived {
            self.derived_of
                .entry(derived.source)
                .or_default()
                .insert(topic.id);
        }
        self.by_name.insert(topic.name.clone(), topic.id);
        self.by_id.insert(topic.id, topic);
    }

    /// Moves a topic to the deleted ones and returns how many partitions it had.
    pub(super) fn delete(&mut self, id: TopicId, stamp: Stamp) -> Option<u32> {
        let topic = self.by_id.remove(&id)?;
        self.count(&topic, u64::saturating_sub);
        self.by_name.remove(&topic.name);
        if let Some(derived) = &topic.derived
            && let Some(siblings) = self.derived_of.get_mut(&derived.source)
        {
            siblings.remove(&id);
            if siblings.is_empty() {
                self.derived_of.remove(&derived.source);
            }
        }
        let partitions = topic.partition_count();
        self.deleted.insert(id, DeletedTopic { partitions, stamp });
        Some(partitions)
    }

    /// Lets a topic grow to the partitions that `more` gives behind those it has.
    pub(super) fn grow(&mut self, id: TopicId, more: impl Iterator<Item = Partition>) {
        if let Some(mut topic) = self.by_id.remove(&id) {
            self.count(&topic, u64::saturating_sub);
            topic.partitions.extend(more);
            self.count(&topic, u64::saturating_add);
            self.by_id.insert(id, topic);
        }
    }

    fn count(&mut self, topic: &Topic, change: impl Fn(u64, u64) -> u64) {
        let partitions = u64::from(topic.partition_count());
        let counts = &mut self.counts;
        if topic.derived.is_some() {
            counts.derived_partitions = change(counts.derived_partitions, partitions);
        } else {
            counts.topics = change(counts.topics, 1);
            counts.partitions = change(counts.partitions, partitions);
        }
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        holds(
            self.by_id.len() == self.by_name.len(),
            "two topics have one name",
        )?;
        for topic in self.by_id.values() {
            holds(
                self.by_name.get(&topic.name) == Some(&topic.id),
                "a name leads elsewhere",
            )?;
            holds(
                !self.deleted.contains_key(&topic.id),
                "a topic is deleted and there",
            )?;
            holds(!topic.partitions.is_empty(), "a topic has no partition")?;
            topic.partitions.iter().try_for_each(Partition::verify)?;
            let derived = &topic.derived;
            holds(
                derived.is_some() == topic.name.is_derived(),
                "a name does not fit its topic",
            )?;
            if let Some(derived) = derived {
                let source = self
                    .by_id(derived.source)
                    .ok_or("a derived topic has no source")?;
                holds(
                    source.derived.is_none(),
                    "a topic derives from a derived one",
                )?;
                let name = derived.kind.name(&source.name, &derived.group);
                holds(
                    name.as_ref() == Ok(&topic.name),
                    "a derived topic has another's name",
                )?;
                let same = shards_of(source).eq(shards_of(topic));
                holds(same, "a derived topic has other partitions than its source")?;
                let listed = self.derived_of.get(&source.id);
                let listed = listed.is_some_and(|ids| ids.contains(&topic.id));
                holds(listed, "a derived topic is not known from its source")?;
            }
        }
        let derived = self
            .by_id
            .values()
            .filter(|topic| topic.derived.is_some())
            .count();
        let listed = self.derived_of.values().map(BTreeSet::len).sum::<usize>();
        holds(
            listed == derived,
            "a derived topic that is gone is known from its source",
        )?;
        let mut counted = Self::default();
        self.by_id
            .values()
            .for_each(|topic| counted.count(topic, u64::saturating_add));
        holds(counted.counts == self.counts, "topics are miscounted")
    }
}

/// The refusal to change a retry or dead-letter topic by itself.
pub(super) fn derived_refusal(name: &TopicName, group: &str) -> Refusal {
    TopicRefusal::Derived {
        topic: name.to_string(),
        group: group.to_owned(),
    }
    .into()
}
