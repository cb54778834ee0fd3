//! Changes of topics: checks and effects.

use varvelog_store::{Offset, PartitionId, TopicId};

use super::applied::{Effect, Outcome};
use super::command::{CreateTopic, Stamp};
use super::dead_letters::Queue;
use super::derived::{follow_source, shards_of};
use super::durable_groups::Progress;
use super::partitions::Partition;
use super::refusal::{QuotaRefusal, Refusal, TopicRefusal};
use super::retries::RetryProgress;
use super::settings::TopicSettings;
use super::state::{Carried, State};
use super::topics::{Topic, derived_refusal};

/// Most partitions in all, derived ones too, whatever the configured limits.
pub(super) const PARTITIONS_MAX: u64 = 4_000_000;
/// Most partitions of a topic.
pub(super) const TOPIC_PARTITIONS_MAX: u32 = 10_000;

impl State {
    pub(super) fn check_create_topic(&self, create: &CreateTopic) -> Result<(), Refusal> {
        if create.name.is_derived() {
            return Err(derived_refusal(&create.name, ""));
        }
        if self.topics.by_name(&create.name).is_some() {
            return Err(TopicRefusal::Exists {
                topic: create.name.to_string(),
            }
            .into());
        }
        self.check_fresh(create.topic)?;
        check_partition_count(create.partitions, 0)?;
        self.check_partition_room(create.partitions.into())
    }

    pub(super) fn create_topic(&mut self, create: &CreateTopic, stamp: Stamp) -> Carried {
        let topic = create.topic;
        let to = create.partitions;
        self.topics.insert(Topic {
            id: topic,
            name: create.name.clone(),
            settings: create.settings.clone(),
            created: stamp.wall,
            derived: None,
            partitions: Partition::range(topic, 0, to).collect(),
        });
        let added = Effect::PartitionsAdded { topic, from: 0, to };
        (Outcome::Topic(topic), vec![added, Effect::CatalogChanged])
    }

    pub(super) fn update_topic(&mut self, topic: TopicId, settings: &TopicSettings) -> Carried {
        if let Some(topic) = self.topics.by_id.get_mut(&topic) {
            topic.settings.clone_from(settings);
        }
        if settings.message_id_window_ms == 0 {
            self.message_ids.drop_topic(topic);
        }
        let mut effects = vec![Effect::TopicUpdated { topic }];
        let derived = self.topics.derived_of(topic).map(|derived| derived.id);
        for topic in derived.collect::<Vec<TopicId>>() {
            let derived = self.topics.by_id.get_mut(&topic);
            if derived.is_some_and(|derived| follow_source(derived, settings)) {
                effects.push(Effect::TopicUpdated { topic });
            }
        }
        effects.push(Effect::CatalogChanged);
        (Outcome::Topic(topic), effects)
    }

    pub(super) fn check_add_partitions(&self, topic: TopicId, total: u32) -> Result<(), Refusal> {
        let found = self.topics.find_own(topic)?;
        let current = found.partition_count();
        if total < current {
            return Err(TopicRefusal::PartitionsFewer {
                topic: found.name.to_string(),
                current,
            }
            .into());
        }
        check_partition_count(total, current)?;
        let growing = 1 + u64::try_from(self.topics.derived_of(topic).count()).unwrap_or(u64::MAX);
        self.check_partition_room(growing.saturating_mul((total - current).into()))
    }

    pub(super) fn add_partitions(&mut self, topic: TopicId, total: u32) -> Carried {
        let from = self
            .topics
            .by_id(topic)
            .map_or(total, Topic::partition_count);
        if from == total {
            return (Outcome::Topic(topic), Vec::new());
        }
        self.topics
            .grow(topic, Partition::range(topic, from, total));
        let shards: Vec<u8> = self
            .topics
            .by_id(topic)
            .map(shards_of)
            .into_iter()
            .flatten()
            .collect();
        let mut effects = vec![Effect::PartitionsAdded {
            topic,
            from,
            to: total,
        }];
        let derived: Vec<_> = self
            .topics
            .derived_of(topic)
            .map(|derived| derived.id)
            .collect();
        for topic in derived {
            let had = usize::try_from(from).unwrap_or(usize::MAX);
            self.topics
                .grow(topic, shards.iter().skip(had).copied().map(Partition::new));
            effects.push(Effect::PartitionsAdded {
                topic,
                from,
                to: total,
            });
        }
        self.groups.for_readers(topic, |reads| {
            reads
                .partitions
                .resize_with(shards.len(), Progress::default);
            reads
                .retries
                .resize_with(shards.len(), RetryProgress::default);
        });
        effects.push(Effect::CatalogChanged);
        (Outcome::Topic(topic), effects)
    }

    pub(super) fn check_delete_topic(&self, topic: TopicId, force: bool) -> Result<(), Refusal> {
        self.topics.find_own(topic)?;
        let depth = |topic: &Topic| self.dead_letters.get(topic.id).map_or(0, Queue::depth);
        let dead = self.topics.derived_of(topic).find(|topic| depth(topic) > 0);
        match dead {
            Some(dead) if !force => Err(TopicRefusal::DeadLettersNotEmpty {
                queue: dead.name.to_string(),
                depth: depth(dead),
            }
            .into()),
            _ => Ok(()),
        }
    }

    pub(super) fn delete_topic(&mut self, topic: TopicId, stamp: Stamp) -> Carried {
        let mut gone: Vec<_> = self
            .topics
            .derived_of(topic)
            .map(|derived| derived.id)
            .collect();
        gone.push(topic);
        self.groups.drop_topic(topic);
        let mut effects = Vec::with_capacity(gone.len() + 1);
        effects.extend(
            gone.into_iter()
                .filter_map(|topic| self.remove_topic(topic, stamp)),
        );
        effects.push(Effect::CatalogChanged);
        (Outcome::Done, effects)
    }

    /// Removes a topic that no group reads, with what is kept of its partitions.
    pub(super) fn remove_topic(&mut self, topic: TopicId, stamp: Stamp) -> Option<Effect> {
        let partitions = self.topics.delete(topic, stamp)?;
        self.producers.drop_topic(topic, partitions);
        self.requests.drop_topic(topic);
        self.message_ids.drop_topic(topic);
        self.dead_letters.drop_topic(topic, stamp.wall);
        Some(Effect::TopicRemoved { topic, partitions })
    }

    pub(super) fn check_forget_topic(&self, topic: TopicId) -> Result<(), Refusal> {
        if self.topics.deleted.contains_key(&topic) {
            return Ok(());
        }
        Err(TopicRefusal::NotFound {
            topic: topic.to_string(),
        }
        .into())
    }

    pub(super) fn check_move_log_start(
        &self,
        partition: PartitionId,
        start: Offset,
    ) -> Result<(), Refusal> {
        let found = self.topics.find_partition(partition)?;
        check_within(found, start)
    }

    pub(super) fn move_log_start(
        &mut self,
        (partition, start): (PartitionId, Offset),
        stamp: Stamp,
    ) -> Carried {
        let found = self
            .topics
            .partition_mut(partition)
            .expect("the partition was checked");
        let before = found.start();
        found.move_start(start);
        let start = found.start();
        if start == before {
            return (Outcome::LogStart(start), Vec::new());
        }
        let number = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        self.groups.for_readers(partition.topic, |reads| {
            if let Some(progress) = reads.partitions.get_mut(number) {
                progress.log_starts_at(start);
            }
        });
        self.retries_start_at(partition, start);
        self.dead_letters_start_at(partition, start);
        let freed = self
            .dead_letters
            .log_starts_at(partition, start, stamp.wall);
        self.free_keys(partition, &freed);
        (
            Outcome::LogStart(start),
            vec![Effect::LogStartMoved { partition, start }],
        )
    }

    pub(super) fn check_fresh(&self, topic: TopicId) -> Result<(), Refusal> {
        if self.topics.is_taken(topic) {
            return Err(TopicRefusal::Exists {
                topic: topic.to_string(),
            }
            .into());
        }
        Ok(())
    }

    pub(super) fn check_partition_room(&self, more: u64) -> Result<(), Refusal> {
        let counts = self.topics.counts();
        let current = counts.partitions.saturating_add(counts.derived_partitions);
        if current.saturating_add(more) <= PARTITIONS_MAX {
            return Ok(());
        }
        Err(QuotaRefusal {
            what: "partitions",
            limit: PARTITIONS_MAX,
            current,
        }
        .into())
    }
}

fn check_partition_count(partitions: u32, current: u32) -> Result<(), Refusal> {
    if (1..=TOPIC_PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    let limit = TOPIC_PARTITIONS_MAX.into();
    Err(QuotaRefusal {
        what: "partitions_of_a_topic",
        limit,
        current: current.into(),
    }
    .into())
}

/// Refuses an offset beyond the end of a log.
pub(super) fn check_within(partition: &Partition, offset: Offset) -> Result<(), Refusal> {
    if offset <= partition.next() {
        return Ok(());
    }
    Err(TopicRefusal::OffsetOutOfRange {
        offset: offset.as_i64(),
        earliest: partition.start(),
        latest: partition.next(),
    }
    .into())
}
