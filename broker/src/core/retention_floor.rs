//! What retention must keep though it is old or large.

use std::collections::BTreeMap;

use varvelog_store::{Offset, PartitionId, TopicId};

use super::durable_groups::{DurableGroup, GroupReads, Progress};
use super::state::State;
use super::topics::DerivedKind;

impl State {
    /// The lowest offset that retention must keep of a partition, if it is told: of a retry topic
    /// the first record that is not done; of a topic the lowest watermark of the groups that want
    /// it kept until consumed.
    pub fn retention_floor(&self, id: PartitionId) -> Option<Offset> {
        let topic = self.topics.by_id(id.topic)?;
        if let Some(derived) = &topic.derived {
            if derived.kind != DerivedKind::Retry {
                return None;
            }
            let group = self.groups.get(&derived.group)?;
            let end = topic.partition(id.partition)?.next();
            return Some(group.retry(id, &self.topics)?.low(end));
        }
        let readers = self.groups.readers_of(id.topic);
        let keeping = readers.filter(|group| group.settings.retain_until_consumed);
        let lows = keeping.filter_map(|group| group.progress(id).map(Progress::low));
        lows.min()
    }

    /// All that [`Self::retention_floor`] tells of partitions that hold something.
    pub fn retention_floors(&self) -> BTreeMap<PartitionId, Offset> {
        let mut floors = BTreeMap::new();
        for group in self.groups.iter() {
            for (source, reads) in &group.topics {
                self.add_retries(&mut floors, reads);
                if group.settings.retain_until_consumed {
                    add_lows(&mut floors, group, *source);
                }
            }
        }
        floors
    }

    /// Of each dead-letter partition that holds something, the first offset that is a dead letter,
    /// else its end: all below was replayed, discarded or dropped.
    pub fn dead_letter_floors(&self) -> BTreeMap<PartitionId, Offset> {
        let mut floors = BTreeMap::new();
        for topic in self.topics.iter() {
            let derived = topic.derived.as_ref();
            if derived.is_none_or(|derived| derived.kind != DerivedKind::DeadLetter) {
                continue;
            }
            let queue = self.dead_letters.get(topic.id);
            for (id, partition) in topic.partition_ids().zip(&topic.partitions) {
                let mut entries = queue.into_iter().flat_map(|it| it.entries(id.partition));
                let first = entries.next().map(|(offset, _)| offset);
                if partition.start() < partition.next() {
                    floors.insert(id, first.unwrap_or(partition.next()));
                }
            }
        }
        floors
    }

    fn add_retries(&self, floors: &mut BTreeMap<PartitionId, Offset>, reads: &GroupReads) {
        let Some(topic) = self.topics.by_id(reads.retry) else {
            return;
        };
        let partitions = topic.partition_ids().zip(&topic.partitions);
        for ((id, partition), retries) in partitions.zip(&reads.retries) {
            if partition.start() < partition.next() {
                floors.insert(id, retries.low(partition.next()));
            }
        }
    }
}

fn add_lows(floors: &mut BTreeMap<PartitionId, Offset>, group: &DurableGroup, topic: TopicId) {
    let partitions = group.topics.get(&topic).map(|reads| &reads.partitions);
    for (partition, progress) in (0_u32..).zip(partitions.into_iter().flatten()) {
        let id = PartitionId { topic, partition };
        let floor = floors.entry(id).or_insert(progress.low());
        *floor = (*floor).min(progress.low());
    }
}
