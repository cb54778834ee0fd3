//! What the group machine reads of the durable state, and nothing else of it.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use crate::core::command::RequestId;
use crate::core::durable_groups::{DurableGroup, Progress};
use crate::core::failure::{Ending, FailureNote};
use crate::core::handed_out::HandOuts;
use crate::core::refusal::Refusal;
use crate::core::request::Appended;
use crate::core::retries::{RetryEntry, RetryProgress};
use crate::core::settings::GroupSettings;
use crate::core::state::State;
use crate::core::topics::Topic;
use crate::names::{GroupName, TopicName};

/// Committed state, as the group machine sees it. A partition of a group is one of a topic that it
/// reads, or of such a topic's retry topic.
pub trait Durable {
    /// A group by name.
    fn group(&self, group: &GroupName) -> Option<GroupFacts<'_>>;
    /// All groups, by name.
    fn group_names(&self) -> Vec<GroupName>;
    /// The topics that a group reads; none for an unknown group.
    fn group_topics(&self, group: &GroupName) -> Vec<TopicFacts>;
    /// A topic that a group may be given: not derived.
    fn topic(&self, name: &TopicName) -> Result<TopicFacts, Refusal>;
    /// What a partition is to a group that has to do with it.
    fn place(&self, group: &GroupName, partition: PartitionId) -> Option<Place>;
    /// Where a group stands in a partition.
    fn position(&self, group: &GroupName, partition: PartitionId) -> Option<Position>;
    /// The first run of done records that ends at or after `from`, both ends included. What lies
    /// below the low watermark is such a run.
    fn next_done(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, Offset)>;
    /// The first record from `from` on of which something is noted, and what.
    fn next_note(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, &FailureNote)>;
    /// The first record from `from` on that is not done in a retry partition.
    fn next_retry(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, RetryEntry)>;
    /// How a record ended that was not simply processed, if it is remembered.
    fn ending(&self, group: &GroupName, partition: PartitionId, offset: Offset) -> Option<Ending>;
    /// Hand-outs of a partition that were noted and are open.
    fn handed_out(&self, group: &GroupName, partition: PartitionId) -> Option<&HandOuts>;
    /// Keys whose records go to the dead-letter topic; see [`Progress::parked`].
    fn parked(&self, group: &GroupName, partition: PartitionId) -> Option<&BTreeMap<u64, Offset>>;
    /// The first record from `from` on that is delayed, and until when.
    fn next_delayed(&self, partition: PartitionId, from: Offset) -> Option<(Offset, WallMs)>;
    /// What a request appended, if it was carried out, and the hash of its content.
    fn carried_out(&self, request: &RequestId) -> Option<(u64, Appended)>;
    /// Bytes that a partition's log takes.
    fn log_bytes(&self, partition: PartitionId) -> u64;
    /// The group of a dead-letter partition that is still there, and the source partition.
    fn dead_letters_of(&self, partition: PartitionId) -> Option<(GroupName, PartitionId)>;
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

/// What a partition is to a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the topic that the group reads.
    pub topic: TopicName,
    /// The partition of that topic.
    pub source: PartitionId,
    /// The partition of its retry topic.
    pub retry: PartitionId,
    /// The partition of its dead-letter topic.
    pub dead_letter: PartitionId,
}

/// Where a group stands in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// All below is done; never below the log start.
    pub low: Offset,
    /// One past the last visible record.
    pub end: Offset,
    /// Rises with each reset; 0 in a retry partition.
    pub reset_count: u64,
    /// Records from `low` to `end` that are not done.
    pub undone: u64,
}

fn progress_of<'a>(
    state: &'a State,
    group: &GroupName,
    partition: PartitionId,
) -> Option<&'a Progress> {
    state.groups.get(group)?.progress(partition)
}

fn retries_of<'a>(
    state: &'a State,
    group: &GroupName,
    partition: PartitionId,
) -> Option<&'a RetryProgress> {
    state.groups.get(group)?.retry(partition, &state.topics)
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

    fn group_names(&self) -> Vec<GroupName> {
        self.groups.iter().map(|group| group.name.clone()).collect()
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

    fn place(&self, group: &GroupName, partition: PartitionId) -> Option<Place> {
        let group = self.groups.get(group)?;
        let number = partition.partition;
        let source = if group.topics.contains_key(&partition.topic) {
            partition.topic
        } else {
            group.retry_source(partition.topic, &self.topics)?
        };
        let reads = group.topics.get(&source)?;
        let topic = self.topics.by_id(source)?;
        topic.partition(number)?;
        let of = |topic| PartitionId {
            topic,
            partition: number,
        };
        Some(Place {
            topic: topic.name.clone(),
            source: of(source),
            retry: of(reads.retry),
            dead_letter: of(reads.dead_letter),
        })
    }

    fn position(&self, group: &GroupName, partition: PartitionId) -> Option<Position> {
        let end = self.topics.partition(partition)?.next();
        if let Some(progress) = progress_of(self, group, partition) {
            return Some(Position {
                low: progress.low(),
                end,
                reset_count: progress.reset_count(),
                undone: progress.not_done(end),
            });
        }
        let retries = retries_of(self, group, partition)?;
        Some(Position {
            low: retries.low(end),
            end,
            reset_count: 0,
            undone: u64::try_from(retries.pending().len()).unwrap_or(u64::MAX),
        })
    }

    fn next_done(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, Offset)> {
        if let Some(progress) = progress_of(self, group, partition) {
            if from < progress.low() {
                return Some((Offset::ZERO, progress.low().minus(1)));
            }
            let first = progress.done().first_present(from)?;
            return Some((first, progress.done().first_missing(first).minus(1)));
        }
        let retries = retries_of(self, group, partition)?;
        let end = self.topics.partition(partition)?.next();
        retries.next_done(from, end)
    }

    fn next_note(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, &FailureNote)> {
        let notes = match progress_of(self, group, partition) {
            Some(progress) => progress.notes(),
            None => retries_of(self, group, partition)?.notes(),
        };
        let next = notes.range(from..).next();
        next.map(|(offset, note)| (*offset, note))
    }

    fn next_retry(
        &self,
        group: &GroupName,
        partition: PartitionId,
        from: Offset,
    ) -> Option<(Offset, RetryEntry)> {
        let retries = retries_of(self, group, partition)?;
        let next = retries.pending().range(from..).next();
        next.map(|(offset, entry)| (*offset, *entry))
    }

    fn ending(&self, group: &GroupName, partition: PartitionId, offset: Offset) -> Option<Ending> {
        match progress_of(self, group, partition) {
            Some(progress) => progress.endings().get(offset),
            None => retries_of(self, group, partition)?.endings().get(offset),
        }
    }

    fn handed_out(&self, group: &GroupName, partition: PartitionId) -> Option<&HandOuts> {
        match progress_of(self, group, partition) {
            Some(progress) => Some(progress.out()),
            None => retries_of(self, group, partition).map(RetryProgress::out),
        }
    }

    fn parked(&self, group: &GroupName, partition: PartitionId) -> Option<&BTreeMap<u64, Offset>> {
        progress_of(self, group, partition).map(Progress::parked)
    }

    fn next_delayed(&self, partition: PartitionId, from: Offset) -> Option<(Offset, WallMs)> {
        self.topics.partition(partition)?.next_delayed(from)
    }

    fn carried_out(&self, request: &RequestId) -> Option<(u64, Appended)> {
        let running_ms = self.broker.stamp().running_ms;
        let known = self.requests.get(request.topic, &request.id, running_ms)?;
        let appended = Appended {
            parts: known.parts.to_vec(),
            repeats: known.repeats.to_vec(),
            duplicate: true,
        };
        Some((known.content_hash, appended))
    }

    /// The state knows of no bytes.
    fn log_bytes(&self, _partition: PartitionId) -> u64 {
        0
    }

    fn dead_letters_of(&self, partition: PartitionId) -> Option<(GroupName, PartitionId)> {
        let derived = self.topics.by_id(partition.topic)?.derived.as_ref()?;
        let reads = self
            .groups
            .get(&derived.group)?
            .topics
            .get(&derived.source)?;
        let source = PartitionId {
            topic: derived.source,
            partition: partition.partition,
        };
        (reads.dead_letter == partition.topic).then(|| (derived.group.clone(), source))
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
