//! Groups as far as they are durable: settings, topics, generation, and for each partition what
//! is done.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::ack_set::AckSet;
use super::command::Stamp;
use super::endings::Endings;
use super::failure::FailureNote;
use super::fields::holds;
use super::handed_out::{HandOuts, HandedOut};
use super::partitions::Partition;
use super::refusal::{GroupRefusal, Refusal};
use super::retries::RetryProgress;
use super::settings::GroupSettings;
use super::topics::{Derived, DerivedKind, Topic, Topics};
use crate::names::GroupName;

/// How far beyond the low watermark records may be settled.
pub const ACK_WINDOW: u64 = 262_144;

/// Keys of one partition that may be parked: a record that would park another waits in place.
pub const PARKED_KEYS_MAX: usize = 10_000;

/// What a group has done of a partition.
///
/// Invariants: `start <= low <= end` of the partition; `done` holds offsets above `low` and below
/// the end only, within [`ACK_WINDOW`] when they were settled.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    pub(super) low: Offset,
    pub(super) done: AckSet,
    pub(super) metadata: String,
    pub(super) reset_count: u64,
    pub(super) expired_unsettled: u64,
    /// Of records that failed and stayed.
    pub(super) notes: BTreeMap<Offset, FailureNote>,
    pub(super) endings: Endings,
    pub(super) out: HandOuts,
    pub(super) parked: BTreeMap<u64, Offset>,
}

impl Progress {
    /// Nothing done from `low` on.
    pub(super) fn starting_at(low: Offset) -> Self {
        Self {
            low,
            ..Self::default()
        }
    }

    /// Low watermark, the committed offset: all below is done.
    pub fn low(&self) -> Offset {
        self.low
    }

    /// What is done above the low watermark.
    pub fn done(&self) -> &AckSet {
        &self.done
    }

    /// As given with the last commit.
    pub fn metadata(&self) -> &str {
        &self.metadata
    }

    /// Resets so far: a token from before the last one is void.
    pub fn reset_count(&self) -> u64 {
        self.reset_count
    }

    /// Records that went with the log start before they were settled.
    pub fn expired_unsettled(&self) -> u64 {
        self.expired_unsettled
    }

    /// Whether the record at `offset` is done.
    pub fn is_done(&self, offset: Offset) -> bool {
        offset < self.low || self.done.contains(offset)
    }

    /// The first offset from `from` on that is not done; may be the end of the log.
    pub fn first_not_done(&self, from: Offset) -> Offset {
        self.done.first_missing(from.max(self.low))
    }

    /// Records below `end` that are not done.
    pub fn not_done(&self, end: Offset) -> u64 {
        end.since(self.low).saturating_sub(self.done.count())
    }

    /// What is noted of records that failed and stayed.
    pub fn notes(&self) -> &BTreeMap<Offset, FailureNote> {
        &self.notes
    }

    /// How the newest records ended that were not simply processed.
    pub fn endings(&self) -> &Endings {
        &self.endings
    }

    /// Hand-outs that are neither settled nor given back, as far as they were noted.
    pub fn out(&self) -> &HandOuts {
        &self.out
    }

    /// Hashes of keys whose records go to the dead-letter topic, each until its log starts at this
    /// offset or later. At most [`PARKED_KEYS_MAX`] and what one command adds.
    pub fn parked(&self) -> &BTreeMap<u64, Offset> {
        &self.parked
    }

    /// Marks `first` up to, not including, `end` as done; returns how many were not.
    pub(super) fn settle(&mut self, first: Offset, end: Offset) -> u64 {
        let added = self.done.insert(first.max(self.low), end);
        self.low = self.done.advance(self.low);
        self.forget(first, end);
        added
    }

    /// Drops what is kept of records from `first` up to, not including, `end`: they are done.
    fn forget(&mut self, first: Offset, end: Offset) {
        self.out.settle(first, end);
        if first < end && !self.notes.is_empty() {
            let noted: Vec<Offset> = self.notes.range(first..end).map(|(at, _)| *at).collect();
            for at in noted {
                self.notes.remove(&at);
            }
        }
    }

    /// Notes a hand-out; what is done of it is nobody's.
    pub(super) fn hand_out(&mut self, first: Offset, out: HandedOut) {
        let end = out.last.plus(1);
        self.out.note(first, out);
        self.out.settle(first, self.low.min(end));
        let mut from = first;
        while let Some(done) = self.done.first_present(from).filter(|at| *at < end) {
            from = self.done.first_missing(done).min(end);
            self.out.settle(done, from);
        }
    }

    /// All below `offset` is done, and if it lies below the low watermark, nothing from it on.
    pub(super) fn commit(&mut self, offset: Offset, metadata: &str) {
        if offset < self.low {
            self.done.clear();
            self.endings.clear();
        }
        self.low = self.done.advance(offset);
        self.forget(Offset::ZERO, self.low);
        metadata.clone_into(&mut self.metadata);
    }

    /// Nothing from `offset` on is done, all below is; tokens are void.
    pub(super) fn reset(&mut self, offset: Offset) {
        self.done.clear();
        self.metadata.clear();
        self.notes.clear();
        self.endings.clear();
        self.out.clear();
        self.parked.clear();
        self.low = offset;
        self.reset_count += 1;
    }

    /// The log starts at `start` now: what lay below counts as done.
    pub(super) fn log_starts_at(&mut self, start: Offset) {
        if start > self.low {
            let done = self.done.count_in(self.low, start);
            let lost = start.since(self.low).saturating_sub(done);
            self.expired_unsettled = self.expired_unsettled.saturating_add(lost);
            self.low = self.done.advance(start);
            self.forget(Offset::ZERO, self.low);
        }
    }

    fn verify(&self, partition: &Partition) -> Result<(), &'static str> {
        self.done.verify()?;
        let within = partition.start() <= self.low && self.low <= partition.next();
        holds(within, "a low watermark lies outside its log")?;
        let first = self.done.first_present(Offset::ZERO);
        holds(
            first.is_none_or(|first| first > self.low),
            "the low watermark is done",
        )?;
        let beyond = self.done.first_present(partition.next());
        holds(beyond.is_none(), "a record is done that is not there")?;
        let open = |at: &Offset| !self.is_done(*at) && *at < partition.next();
        holds(
            self.notes.keys().all(open),
            "something is noted of a record that is done or not there",
        )?;
        self.out.verify()?;
        let mut handed = self.out.iter();
        let open = handed.all(|(first, out)| {
            let end = out.last.plus(1);
            first >= self.low && end <= partition.next() && self.done.count_in(first, end) == 0
        });
        holds(open, "a record that is done or not there is handed out")
    }
}

/// A topic of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReads {
    /// Its retry topic.
    pub retry: TopicId,
    /// Its dead-letter topic.
    pub dead_letter: TopicId,
    /// By number; as many as the topic has.
    pub partitions: Vec<Progress>,
    /// Of its retry topic, by number; as many.
    pub retries: Vec<RetryProgress>,
}

impl GroupReads {
    fn verify(
        &self,
        group: &GroupName,
        topic: &Topic,
        topics: &Topics,
    ) -> Result<(), &'static str> {
        holds(topic.derived.is_none(), "a group reads a derived topic")?;
        let equal = self.partitions.len() == topic.partitions.len()
            && self.retries.len() == topic.partitions.len();
        holds(equal, "a group has other partitions than its topic")?;
        let kinds = [DerivedKind::Retry, DerivedKind::DeadLetter];
        for (kind, id) in kinds.into_iter().zip([self.retry, self.dead_letter]) {
            let derived = topics
                .by_id(id)
                .and_then(|derived| derived.derived.as_ref());
            let expected = Derived {
                group: group.clone(),
                source: topic.id,
                kind,
            };
            holds(derived == Some(&expected), "a group lacks a derived topic")?;
        }
        for (progress, partition) in self.partitions.iter().zip(&topic.partitions) {
            progress.verify(partition)?;
        }
        let retry = topics
            .by_id(self.retry)
            .ok_or("a group lacks a derived topic")?;
        for (progress, partition) in self.retries.iter().zip(&retry.partitions) {
            progress.verify(partition)?;
        }
        Ok(())
    }
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurableGroup {
    /// Its name.
    pub name: GroupName,
    /// Never used again: a group made again under the name has another.
    pub id: u64,
    /// Its settings.
    pub settings: GroupSettings,
    /// From 1; rises with each change of the settings.
    pub settings_version: u64,
    /// When it was made.
    pub created: WallMs,
    /// Of the assignment; 0 before the first.
    pub generation: u64,
    /// What it reads; empty when its last topic was deleted.
    pub topics: BTreeMap<TopicId, GroupReads>,
    /// When it last settled, committed, or changed its assignment or topics.
    pub last_active: Stamp,
}

impl DurableGroup {
    /// What is done of a partition.
    pub fn progress(&self, id: PartitionId) -> Option<&Progress> {
        self.topics
            .get(&id.topic)?
            .partitions
            .get(usize::try_from(id.partition).ok()?)
    }

    /// What there is in a partition of one of its retry topics; `topics` says which topic that is.
    pub fn retry(&self, id: PartitionId, topics: &Topics) -> Option<&RetryProgress> {
        let number = usize::try_from(id.partition).ok()?;
        self.topics
            .get(&self.retry_source(id.topic, topics)?)?
            .retries
            .get(number)
    }

    /// The topic whose retry topic `retry` is, if it is this group's.
    pub fn retry_source(&self, retry: TopicId, topics: &Topics) -> Option<TopicId> {
        let source = topics.by_id(retry)?.derived.as_ref()?.source;
        (self.topics.get(&source)?.retry == retry).then_some(source)
    }

    pub(super) fn retry_mut(&mut self, source: TopicId, number: u32) -> Option<&mut RetryProgress> {
        let number = usize::try_from(number).ok()?;
        self.topics.get_mut(&source)?.retries.get_mut(number)
    }

    /// What it reads, by topic name.
    pub fn topics_by_name<'a>(&'a self, topics: &'a Topics) -> Vec<(&'a Topic, &'a GroupReads)> {
        let found = |(id, reads): (&TopicId, &'a GroupReads)| Some((topics.by_id(*id)?, reads));
        let mut found: Vec<_> = self.topics.iter().filter_map(found).collect();
        found.sort_unstable_by(|a, b| a.0.name.cmp(&b.0.name));
        found
    }

    /// What is done of a partition, or why there is no such partition in the group.
    pub fn find(&self, id: PartitionId, topics: &Topics) -> Result<&Progress, Refusal> {
        if let Some(progress) = self.progress(id) {
            return Ok(progress);
        }
        topics.find_partition(id)?;
        let topic = topics.find(id.topic)?.name.to_string();
        Err(GroupRefusal::TopicNotOfGroup {
            group: self.name.to_string(),
            topic,
        }
        .into())
    }

    pub(super) fn progress_mut(&mut self, id: PartitionId) -> Option<&mut Progress> {
        let number = usize::try_from(id.partition).ok()?;
        self.topics.get_mut(&id.topic)?.partitions.get_mut(number)
    }
}

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    pub(super) by_name: BTreeMap<GroupName, DurableGroup>,
    readers: BTreeMap<TopicId, BTreeSet<GroupName>>,
}

impl Groups {
    /// A group by name.
    pub fn get(&self, name: &GroupName) -> Option<&DurableGroup> {
        self.by_name.get(name)
    }

    /// The group, or why there is none.
    pub fn find(&self, name: &GroupName) -> Result<&DurableGroup, Refusal> {
        let missing = || GroupRefusal::NotFound {
            group: name.to_string(),
        };
        Ok(self.get(name).ok_or_else(missing)?)
    }

    /// All groups by name.
    pub fn iter(&self) -> impl Iterator<Item = &DurableGroup> {
        self.by_name.values()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        u64::try_from(self.by_name.len()).unwrap_or(u64::MAX)
    }

    /// Groups that read a topic, by name.
    pub fn readers_of(&self, topic: TopicId) -> impl Iterator<Item = &DurableGroup> {
        let names = self.readers.get(&topic).into_iter().flatten();
        names.filter_map(|name| self.by_name.get(name))
    }

    pub(super) fn get_mut(&mut self, name: &GroupName) -> Option<&mut DurableGroup> {
        self.by_name.get_mut(name)
    }

    /// Does something to what each reader of a topic keeps of it.
    pub(super) fn for_readers(&mut self, topic: TopicId, mut act: impl FnMut(&mut GroupReads)) {
        for name in self.readers.get(&topic).into_iter().flatten() {
            let group = self.by_name.get_mut(name);
            if let Some(reads) = group.and_then(|group| group.topics.get_mut(&topic)) {
                act(reads);
            }
        }
    }

    /// Takes in a group whose name is free.
    pub(super) fn insert(&mut self, group: DurableGroup) {
        for topic in group.topics.keys() {
            self.readers
                .entry(*topic)
                .or_default()
                .insert(group.name.clone());
        }
        self.by_name.insert(group.name.clone(), group);
    }

    pub(super) fn add_topic(&mut self, name: &GroupName, topic: TopicId, reads: GroupReads) {
        if let Some(group) = self.by_name.get_mut(name) {
            group.topics.insert(topic, reads);
            self.readers.entry(topic).or_default().insert(name.clone());
        }
    }

    pub(super) fn remove(&mut self, name: &GroupName) -> Option<DurableGroup> {
        let group = self.by_name.remove(name)?;
        for topic in group.topics.keys() {
            if let Some(names) = self.readers.get_mut(topic) {
                names.remove(name);
                if names.is_empty() {
                    self.readers.remove(topic);
                }
            }
        }
        Some(group)
    }

    /// No group reads the topic any more.
    pub(super) fn drop_topic(&mut self, topic: TopicId) {
        for name in self.readers.remove(&topic).unwrap_or_default() {
            if let Some(group) = self.by_name.get_mut(&name) {
                group.topics.remove(&topic);
            }
        }
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self, topics: &Topics) -> Result<(), &'static str> {
        for (name, group) in &self.by_name {
            holds(name == &group.name, "a group stands under another name")?;
            for (id, reads) in &group.topics {
                let topic = topics
                    .by_id(*id)
                    .ok_or("a group reads a topic that is gone")?;
                let listed = self
                    .readers
                    .get(id)
                    .is_some_and(|names| names.contains(name));
                holds(listed, "a reader of a topic is not known from it")?;
                reads.verify(name, topic, topics)?;
            }
        }
        for (topic, names) in &self.readers {
            let reads = |name| {
                self.get(name)
                    .is_some_and(|group| group.topics.contains_key(topic))
            };
            let right = !names.is_empty() && names.iter().all(reads);
            holds(right, "a topic knows of a reader that does not read it")?;
        }
        Ok(())
    }
}
