//! Changes of groups: checks and effects.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, PartitionId, TopicId};

use super::applied::{Effect, Outcome};
use super::command::{CommitOffsets, CreateGroup, GroupTopic, Stamp};
use super::derived::{derive, follow_group};
use super::durable_groups::{DurableGroup, GroupReads, Progress};
use super::partitions::Partition;
use super::refusal::{GroupRefusal, Refusal};
use super::retries::RetryProgress;
use super::settings::{DeadLetterSettings, GroupMode, GroupSettings};
use super::state::{Carried, State};
use super::topic_changes::check_within;
use super::topics::{DerivedKind, Topic};
use crate::names::{GroupName, NameError, TOPIC_NAME_BYTES_MAX};

impl State {
    pub(super) fn check_create_group(&self, create: &CreateGroup) -> Result<(), Refusal> {
        let group = &create.group;
        if self.groups.get(group).is_some() {
            return Err(GroupRefusal::Exists {
                group: group.to_string(),
            }
            .into());
        }
        if create.topics.is_empty() {
            return Err(GroupRefusal::TopicsMissing {
                group: group.to_string(),
            }
            .into());
        }
        self.check_group_topics(group, create.topics.iter())
    }

    pub(super) fn create_group(&mut self, create: &CreateGroup, stamp: Stamp) -> Carried {
        self.broker.group_ids += 1;
        self.groups.insert(DurableGroup {
            name: create.group.clone(),
            id: self.broker.group_ids,
            settings: create.settings.clone(),
            settings_version: 1,
            created: stamp.wall,
            generation: 0,
            topics: BTreeMap::new(),
            last_active: stamp,
        });
        self.add_group_topics(&create.group, &create.topics, stamp)
    }

    pub(super) fn check_add_topics(
        &self,
        group: &GroupName,
        topics: &[GroupTopic],
    ) -> Result<(), Refusal> {
        let found = self.groups.find(group)?;
        let lacks = |new: &&GroupTopic| !found.topics.contains_key(&new.topic);
        self.check_group_topics(group, topics.iter().filter(lacks))
    }

    /// Topics that the group has, or that were named before, are passed over.
    pub(super) fn add_group_topics(
        &mut self,
        group: &GroupName,
        topics: &[GroupTopic],
        stamp: Stamp,
    ) -> Carried {
        let mut effects = Vec::new();
        for new in topics {
            let known = self
                .groups
                .get(group)
                .is_some_and(|g| g.topics.contains_key(&new.topic));
            if !known {
                effects.extend(self.add_group_topic(group, new, stamp));
            }
        }
        if !effects.is_empty() {
            effects.push(Effect::CatalogChanged);
        }
        self.touch(group, stamp);
        (Outcome::Done, effects)
    }

    fn check_group_topics<'a>(
        &self,
        group: &GroupName,
        topics: impl Iterator<Item = &'a GroupTopic>,
    ) -> Result<(), Refusal> {
        let mut ids = BTreeSet::new();
        let mut named = BTreeSet::new();
        let mut partitions = 0_u64;
        for new in topics.filter(|new| named.insert(new.topic)) {
            let source = self.topics.find_own(new.topic)?;
            for kind in [DerivedKind::Retry, DerivedKind::DeadLetter] {
                kind.name(&source.name, group)
                    .map_err(|error| too_long(source, group, &error))?;
            }
            for id in [new.retry, new.dead_letter] {
                self.check_fresh(id)?;
                if !ids.insert(id) {
                    return Err(Refusal::from(super::refusal::TopicRefusal::Exists {
                        topic: id.to_string(),
                    }));
                }
            }
            partitions += 2 * u64::from(source.partition_count());
        }
        self.check_partition_room(partitions)
    }

    /// Registers one topic with a group; returns what its new derived topics bring with them.
    fn add_group_topic(
        &mut self,
        group: &GroupName,
        new: &GroupTopic,
        stamp: Stamp,
    ) -> Vec<Effect> {
        let source = self
            .topics
            .by_id(new.topic)
            .expect("the topic was checked")
            .clone();
        let settings = self
            .groups
            .get(group)
            .map(|group| group.settings.dead_letter);
        let settings = settings.expect("the group is there");
        let mut effects = Vec::new();
        let mut made = |kind: DerivedKind, id: TopicId| {
            let name = kind
                .name(&source.name, group)
                .expect("the name was checked");
            if let Some(topic) = self.topics.by_name(&name).map(|kept| kept.id) {
                effects.extend(self.follow_group(topic, &settings));
                return topic;
            }
            let topic = derive(&source, (group, &settings), (kind, id), stamp.wall);
            self.topics.insert(topic.expect("the name was checked"));
            let to = source.partition_count();
            effects.push(Effect::PartitionsAdded {
                topic: id,
                from: 0,
                to,
            });
            id
        };
        let retry = made(DerivedKind::Retry, new.retry);
        let dead_letter = made(DerivedKind::DeadLetter, new.dead_letter);
        let begin = |(number, partition): (usize, &Partition)| {
            let wanted = new.start.get(number).copied().unwrap_or(Offset::ZERO);
            Progress::starting_at(wanted.clamp(partition.start(), partition.next()))
        };
        let partitions = source.partitions.iter().enumerate().map(begin).collect();
        let retries = source.partitions.iter().map(|_| RetryProgress::default());
        let reads = GroupReads {
            retry,
            dead_letter,
            partitions,
            retries: retries.collect(),
        };
        self.groups.add_topic(group, new.topic, reads);
        effects
    }

    pub(super) fn update_group(&mut self, group: &GroupName, settings: &GroupSettings) -> Carried {
        let group = self.groups.get_mut(group).expect("the group was checked");
        group.settings.clone_from(settings);
        group.settings_version += 1;
        if !settings.parks() {
            let reads = group.topics.values_mut();
            let progress = reads.flat_map(|reads| &mut reads.partitions);
            progress.for_each(|progress| progress.parked.clear());
        }
        let dead_letters = group.topics.values().map(|reads| reads.dead_letter);
        let mut effects = Vec::new();
        for topic in dead_letters.collect::<Vec<TopicId>>() {
            effects.extend(self.follow_group(topic, &settings.dead_letter));
        }
        if !effects.is_empty() {
            effects.push(Effect::CatalogChanged);
        }
        (Outcome::Done, effects)
    }

    /// The settings of a group's dead-letter topic are the group's.
    fn follow_group(&mut self, topic: TopicId, settings: &DeadLetterSettings) -> Option<Effect> {
        let derived = self.topics.by_id.get_mut(&topic)?;
        follow_group(derived, settings).then_some(Effect::TopicUpdated { topic })
    }

    pub(super) fn delete_group(
        &mut self,
        group: &GroupName,
        purge_dead_letters: bool,
        stamp: Stamp,
    ) -> Carried {
        let removed = self.groups.remove(group).expect("the group was checked");
        self.dead_letters.drop_group(group, stamp.wall);
        let mut effects = Vec::new();
        for reads in removed.topics.values() {
            effects.extend(self.remove_topic(reads.retry, stamp));
            if purge_dead_letters {
                effects.extend(self.remove_topic(reads.dead_letter, stamp));
            }
        }
        if !effects.is_empty() {
            effects.push(Effect::CatalogChanged);
        }
        effects.push(Effect::GroupRemoved {
            group: removed.name,
            group_id: removed.id,
        });
        (Outcome::Done, effects)
    }

    pub(super) fn next_generation(&mut self, group: &GroupName, stamp: Stamp) -> Carried {
        self.touch(group, stamp);
        let group = self.groups.get_mut(group).expect("the group was checked");
        group.generation += 1;
        (Outcome::Generation(group.generation), Vec::new())
    }

    pub(super) fn check_commit(&self, commit: &CommitOffsets) -> Result<(), Refusal> {
        let group = self.groups.find(&commit.group)?;
        if group.settings.mode == GroupMode::Queue {
            return Err(GroupRefusal::Mode {
                group: commit.group.to_string(),
            }
            .into());
        }
        for wanted in &commit.offsets {
            let progress = group.find(wanted.partition, &self.topics)?;
            check_within(self.topics.find_partition(wanted.partition)?, wanted.offset)?;
            if wanted.offset < progress.low() && !commit.may_move_back {
                return Err(GroupRefusal::OffsetMovesBack {
                    committed: progress.low(),
                    got: wanted.offset,
                }
                .into());
            }
        }
        Ok(())
    }

    pub(super) fn commit_offsets(&mut self, commit: &CommitOffsets, stamp: Stamp) -> Carried {
        let group = self
            .groups
            .get_mut(&commit.group)
            .expect("the group was checked");
        for wanted in &commit.offsets {
            let start = self
                .topics
                .partition(wanted.partition)
                .map(Partition::start);
            if let Some(progress) = group.progress_mut(wanted.partition) {
                let offset = wanted.offset.max(start.unwrap_or_default());
                progress.commit(offset, &wanted.metadata);
            }
        }
        group.last_active = stamp;
        (Outcome::Done, Vec::new())
    }

    pub(super) fn check_reset(
        &self,
        group: &GroupName,
        positions: &[(PartitionId, Offset)],
    ) -> Result<(), Refusal> {
        let group = self.groups.find(group)?;
        positions
            .iter()
            .try_for_each(|(id, _)| group.find(*id, &self.topics).map(drop))
    }

    /// Positions outside a log are brought to its nearer end.
    pub(super) fn reset_offsets(
        &mut self,
        name: &GroupName,
        positions: &[(PartitionId, Offset)],
        stamp: Stamp,
    ) -> Carried {
        let group = self.groups.get_mut(name).expect("the group was checked");
        group.last_active = stamp;
        let mut moved = Vec::with_capacity(positions.len());
        let mut effects = Vec::with_capacity(positions.len());
        for (id, wanted) in positions {
            let partition = self
                .topics
                .partition(*id)
                .expect("the partition was checked");
            let to = (*wanted).clamp(partition.start(), partition.next());
            if let Some(progress) = group.progress_mut(*id) {
                moved.push((*id, progress.low(), to));
                progress.reset(to);
                effects.push(Effect::GroupReset {
                    group: name.clone(),
                    partition: *id,
                });
            }
        }
        (Outcome::Moved(moved), effects)
    }

    fn touch(&mut self, group: &GroupName, stamp: Stamp) {
        if let Some(group) = self.groups.get_mut(group) {
            group.last_active = stamp;
        }
    }
}

fn too_long(source: &Topic, group: &GroupName, _error: &NameError) -> Refusal {
    let name = format!("{}.{group}.retry", source.name);
    GroupRefusal::DerivedNameTooLong {
        name,
        limit: TOPIC_NAME_BYTES_MAX,
    }
    .into()
}
