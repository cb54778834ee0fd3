//! What must be there: a vector a partition and a map of committed offsets.

use std::collections::{BTreeMap, BTreeSet};

use super::deliveries::{Deliveries, Delivery};

/// One thing that a scenario does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    CreateTopic(&'static str, u32),
    AddPartitions(&'static str, u32),
    DeleteTopic(&'static str),
    /// Records appended in one batch.
    Append(&'static str, u32, u32),
    /// Records with these message ids, which are their values: those that are new are appended.
    Named(&'static str, u32, &'static [&'static str]),
    /// One command with a batch for each of two partitions.
    AppendToTwo(&'static str, u32, u32),
    DeleteRecords(&'static str, u32, u64),
    CreateGroup(&'static str, &'static str),
    Commit(&'static str, &'static str, u32, u64),
    Settle(&'static str, &'static str, u32, u64, u64),
    ResetOffsets(&'static str, &'static str, u32, u64),
    DeleteGroup(&'static str),
    Deliver(Delivery),
    InitProducer,
    Flush,
    Roll(&'static str, u32),
    Checkpoint,
    RemoveFiles,
    /// Stop with the mark of a clean stop, and start again.
    CleanRestart,
    /// Be killed and start again.
    KillRestart,
}

/// A partition: its first offset, and the values from offset 0 on, those before the start too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) start: u64,
    pub(super) values: Vec<String>,
}

/// Everything that a user can see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Model {
    pub(super) topics: BTreeMap<String, Vec<Partition>>,
    /// Low watermarks by group, topic and partition.
    pub(super) low: BTreeMap<(String, String, u32), u64>,
    pub(super) deliveries: Deliveries,
    /// Message ids appended to topic `a`.
    pub(super) named: BTreeSet<&'static str>,
    /// Values made so far, so that each is unique.
    made: u64,
}

impl Model {
    /// Values of the next batch of `count` records.
    pub(super) fn next_values(&self, count: u32) -> Vec<String> {
        (0..u64::from(count))
            .map(|number| format!("value-{}", self.made + number))
            .collect()
    }

    /// What an operation does if it is carried out.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::CreateTopic(name, partitions) => {
                let partitions = (0..*partitions).map(|_| Partition::default()).collect();
                self.topics.insert((*name).to_owned(), partitions);
            }
            Op::AddPartitions(name, total) => {
                let partitions = self.topics.get_mut(*name).unwrap();
                partitions.resize(*total as usize, Partition::default());
                self.begin_new_partitions(name, *total);
            }
            Op::DeleteTopic(name) => {
                self.topics.remove(*name);
                if *name == "a" {
                    self.named.clear();
                    self.deliveries = Deliveries::default();
                }
                self.low.retain(|(_, topic, _), _| topic != name);
            }
            Op::Append(name, partition, count) => self.append(name, *partition, *count),
            Op::Named(_, partition, ids) => self.append_named(*partition, ids),
            Op::AppendToTwo(name, first, second) => {
                self.append(name, *first, 1);
                self.append(name, *second, 2);
            }
            Op::DeleteRecords(name, partition, before) => {
                let partitions = self.topics.get_mut(*name).unwrap();
                partitions[*partition as usize].start = *before;
                if (*name, *partition) == ("a", 0) {
                    self.deliveries.delayed.retain(|at| at >= before);
                    self.deliveries.notes.retain(|at| at >= before);
                }
                for ((_, topic, number), low) in &mut self.low {
                    if topic == name && number == partition {
                        *low = (*low).max(*before);
                    }
                }
            }
            Op::CreateGroup(group, topic) => self.join(group, topic),
            Op::Commit(group, topic, partition, offset)
            | Op::ResetOffsets(group, topic, partition, offset) => {
                let key = ((*group).to_owned(), (*topic).to_owned(), *partition);
                self.low.insert(key, *offset);
            }
            Op::Settle(group, topic, partition, first, last) => {
                let key = ((*group).to_owned(), (*topic).to_owned(), *partition);
                let low = self.low.get_mut(&key).unwrap();
                assert_eq!(*low, *first, "scenarios settle in order");
                *low = last + 1;
            }
            Op::DeleteGroup(group) => {
                self.low.retain(|(name, _, _), _| name != group);
                if *group == "g" {
                    let delayed = std::mem::take(&mut self.deliveries.delayed);
                    self.deliveries = Deliveries {
                        delayed,
                        ..Deliveries::default()
                    };
                }
            }
            Op::Deliver(delivery) => self.deliver(*delivery),
            Op::InitProducer
            | Op::Flush
            | Op::Roll(..)
            | Op::Checkpoint
            | Op::RemoveFiles
            | Op::CleanRestart
            | Op::KillRestart => {}
        }
    }

    /// Of topic `a`, the only one that has ids.
    fn append_named(&mut self, partition: u32, ids: &[&'static str]) {
        let partitions = self.topics.get_mut("a").unwrap();
        let values = &mut partitions[partition as usize].values;
        let fresh = ids.iter().filter(|id| self.named.insert(id));
        values.extend(fresh.map(|id| (*id).to_owned()));
    }

    /// A group that reads a topic has a position in each of its partitions.
    fn join(&mut self, group: &str, topic: &str) {
        for (number, partition) in self.topics[topic].iter().enumerate() {
            let key = (
                group.to_owned(),
                topic.to_owned(),
                u32::try_from(number).unwrap(),
            );
            self.low.entry(key).or_insert(partition.start);
        }
    }

    fn begin_new_partitions(&mut self, topic: &str, total: u32) {
        let groups: Vec<String> = self
            .low
            .keys()
            .filter(|(_, name, _)| name == topic)
            .map(|(group, _, _)| group.clone())
            .collect();
        for group in groups {
            for partition in 0..total {
                self.low
                    .entry((group.clone(), topic.to_owned(), partition))
                    .or_insert(0);
            }
        }
    }

    pub(super) fn append(&mut self, name: &str, partition: u32, count: u32) {
        let values = self.next_values(count);
        self.made += u64::from(count);
        let partitions = self.topics.get_mut(name).unwrap();
        partitions[partition as usize].values.extend(values);
    }

    /// Values that were appended and not deleted, as they can be read.
    pub(super) fn visible(&self) -> Seen {
        let topics = self.topics.iter().map(|(name, partitions)| {
            let partitions = partitions
                .iter()
                .map(|partition| {
                    let from = usize::try_from(partition.start).unwrap();
                    (partition.start, partition.values[from..].to_vec())
                })
                .collect();
            (name.clone(), partitions)
        });
        Seen {
            topics: topics.collect(),
            low: self.low.clone(),
            deliveries: self.deliveries.clone(),
        }
    }
}

/// What can be read: start and values of each partition, and low watermarks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) topics: BTreeMap<String, Vec<(u64, Vec<String>)>>,
    pub(super) low: BTreeMap<(String, String, u32), u64>,
    pub(super) deliveries: Deliveries,
}
