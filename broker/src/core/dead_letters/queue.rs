//! One dead-letter topic.

use std::collections::BTreeMap;

use varvelog_store::{Offset, WallMs};

use super::causes::Causes;
use super::claims::Claims;
use super::death::Death;
use super::job::JobNumber;
use super::parked::ParkedKeys;
use super::trend::{Moves, Trend};
use crate::core::fields::holds;
use crate::core::topics::Topic;

/// An entry that was neither replayed nor discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// When it died.
    pub died: WallMs,
    /// Before compression.
    pub bytes: u32,
    /// Number of its cause.
    pub cause: u32,
    /// How often it was replayed before it died.
    pub replays: u32,
    /// The replay that has claimed it.
    pub job: Option<JobNumber>,
}

/// How an entry leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// It is given out again.
    Replayed,
    /// It is dropped.
    Discarded,
}

/// What came of entries that left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::core) struct Gone {
    /// How many there were.
    pub(in crate::core) count: u64,
    /// Of these, how many each replay had claimed.
    pub(in crate::core) claimed: BTreeMap<JobNumber, u64>,
    /// Keys of which no entry is left in their partition, that records followed for.
    pub(in crate::core) freed: Vec<u64>,
}

/// What is in a dead-letter topic. A record that is not among the entries is none any more.
///
/// Invariants: `depth`, `bytes` and `claimed` are those of the entries; every entry is counted with
/// its cause; partitions without entries are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Queue {
    pub(in crate::core) partitions: BTreeMap<u32, BTreeMap<Offset, Entry>>,
    pub(in crate::core) causes: Causes,
    pub(in crate::core) trend: Trend,
    pub(in crate::core) parked: ParkedKeys,
    depth: u64,
    bytes: u64,
    claimed: u64,
}

impl Queue {
    /// Entries.
    pub fn depth(&self) -> u64 {
        self.depth
    }

    /// Of all entries, before compression.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries that replays have claimed.
    pub fn claimed(&self) -> u64 {
        self.claimed
    }

    /// Whether records of its key follow an entry.
    pub fn is_parked(&self, partition: u32, offset: Offset) -> bool {
        self.parked.key_of(partition, offset).is_some()
    }

    /// What entries died of.
    pub fn causes(&self) -> &Causes {
        &self.causes
    }

    /// How they came and went.
    pub fn trend(&self) -> &Trend {
        &self.trend
    }

    /// Partitions that have entries, and how many.
    pub fn sizes(&self) -> impl Iterator<Item = (u32, usize)> {
        let each = self.partitions.iter();
        each.map(|(number, entries)| (*number, entries.len()))
    }

    /// Entries of a partition, by offset.
    pub fn entries(&self, partition: u32) -> impl Iterator<Item = (Offset, &Entry)> {
        let entries = self.partitions.get(&partition).into_iter().flatten();
        entries.map(|(offset, entry)| (*offset, entry))
    }

    /// An entry, if it is one.
    pub fn entry(&self, partition: u32, offset: Offset) -> Option<&Entry> {
        self.partitions.get(&partition)?.get(&offset)
    }

    /// The first entry of each partition, which are among its oldest.
    pub fn firsts(&self) -> impl Iterator<Item = &Entry> {
        let each = self.partitions.values();
        each.filter_map(|entries| entries.first_key_value().map(|(_, entry)| entry))
    }

    /// The last entry of each partition, which are among its newest.
    pub fn lasts(&self) -> impl Iterator<Item = &Entry> {
        let each = self.partitions.values();
        each.filter_map(|entries| entries.last_key_value().map(|(_, entry)| entry))
    }

    /// Entries of a partition within a run, by offset.
    pub fn within(
        &self,
        partition: u32,
        (first, last): (Offset, Offset),
    ) -> impl Iterator<Item = (Offset, &Entry)> {
        let entries = self.partitions.get(&partition).into_iter();
        let entries = entries.flat_map(move |entries| entries.range(first..=last));
        entries.map(|(offset, entry)| (*offset, entry))
    }

    /// What a replay has claimed of a partition and is still there, oldest first.
    pub fn claimed_by<'q>(
        &'q self,
        job: JobNumber,
        (partition, claims): (u32, &'q Claims),
    ) -> impl Iterator<Item = (Offset, &'q Entry)> {
        let runs = claims.of(partition).iter();
        let within = runs.flat_map(move |run| self.within(partition, *run));
        within.filter(move |(_, entry)| entry.job == Some(job))
    }

    /// Records died; the first one's copy lies at `base`.
    pub(super) fn bury(&mut self, partition: u32, base: Offset, deaths: &[Death], at: WallMs) {
        let placed = (0_u64..).map(|delta| base.plus(delta)).zip(deaths);
        for (offset, death) in placed {
            let entry = Entry {
                died: death.at,
                bytes: death.bytes,
                cause: self.causes.add(&death.cause),
                replays: death.replays,
                job: None,
            };
            self.put(partition, offset, entry);
            if let Some(key) = death.parked_key {
                self.parked.add(partition, offset, key);
            }
        }
        let arrived = u64::try_from(deaths.len()).unwrap_or(u64::MAX);
        let moves = Moves {
            arrived,
            ..Moves::default()
        };
        self.trend.add(at, moves, self.depth);
    }

    /// The log of a partition begins at `start` now: entries below are gone.
    pub(super) fn log_starts_at(&mut self, partition: u32, start: Offset, at: WallMs) -> Gone {
        let entries = self.partitions.get(&partition).into_iter().flatten();
        let below = entries.take_while(|(offset, _)| **offset < start);
        let offsets: Vec<Offset> = below.map(|(offset, _)| *offset).collect();
        self.take(partition, &offsets, Left::Discarded, at)
    }

    /// Entries leave.
    pub(super) fn take(
        &mut self,
        partition: u32,
        offsets: &[Offset],
        how: Left,
        at: WallMs,
    ) -> Gone {
        let mut gone = Gone::default();
        let Some(entries) = self.partitions.get_mut(&partition) else {
            return gone;
        };
        for offset in offsets {
            let Some(entry) = entries.remove(offset) else {
                continue;
            };
            gone.count += 1;
            self.depth -= 1;
            self.bytes -= u64::from(entry.bytes);
            self.causes.remove(entry.cause);
            if let Some(job) = entry.job {
                self.claimed -= 1;
                *gone.claimed.entry(job).or_default() += 1;
            }
            gone.freed.extend(self.parked.remove(partition, *offset));
        }
        if entries.is_empty() {
            self.partitions.remove(&partition);
        }
        if gone.count > 0 {
            let mut moves = Moves::default();
            match how {
                Left::Replayed => moves.replayed = gone.count,
                Left::Discarded => moves.discarded = gone.count,
            }
            self.trend.add(at, moves, self.depth);
        }
        gone
    }

    /// Marks entries as those of a replay; returns how many, and leaves out those of another.
    pub(super) fn claim(&mut self, job: JobNumber, claims: &Claims) -> u64 {
        let mut claimed = 0;
        for (partition, runs) in claims.iter() {
            let Some(entries) = self.partitions.get_mut(&partition) else {
                continue;
            };
            for (first, last) in runs {
                let within = entries.range_mut(*first..=*last);
                for (_, entry) in within.filter(|(_, entry)| entry.job.is_none()) {
                    entry.job = Some(job);
                    claimed += 1;
                }
            }
        }
        self.claimed += claimed;
        claimed
    }

    /// What a replay still has is nobody's any more.
    pub(super) fn release(&mut self, job: JobNumber, claims: &Claims) {
        for (partition, runs) in claims.iter() {
            let Some(entries) = self.partitions.get_mut(&partition) else {
                continue;
            };
            for (first, last) in runs {
                let within = entries.range_mut(*first..=*last);
                for (_, entry) in within.filter(|(_, entry)| entry.job == Some(job)) {
                    entry.job = None;
                    self.claimed -= 1;
                }
            }
        }
    }

    /// One entry that a replay could not append is nobody's any more.
    pub(super) fn give_back(&mut self, partition: u32, offset: Offset) {
        let entries = self.partitions.get_mut(&partition);
        let entry = entries.and_then(|entries| entries.get_mut(&offset));
        if let Some(entry) = entry
            && entry.job.take().is_some()
        {
            self.claimed -= 1;
        }
    }

    /// Takes in an entry as it was, of a cause that was taken in; false if there is no such cause
    /// or it is there already.
    pub(in crate::core) fn restore(
        &mut self,
        partition: u32,
        offset: Offset,
        entry: Entry,
    ) -> bool {
        self.entry(partition, offset).is_none() && self.causes.restore_entry(entry.cause) && {
            self.put(partition, offset, entry);
            true
        }
    }

    fn put(&mut self, partition: u32, offset: Offset, entry: Entry) {
        self.depth += 1;
        self.bytes += u64::from(entry.bytes);
        self.claimed += u64::from(entry.job.is_some());
        let entries = self.partitions.entry(partition).or_default();
        entries.insert(offset, entry);
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self, topic: &Topic) -> Result<(), &'static str> {
        let (mut depth, mut bytes, mut by_cause) = (0, 0, BTreeMap::<u32, u64>::new());
        let mut claimed = 0;
        for (number, entries) in &self.partitions {
            let log = topic
                .partition(*number)
                .ok_or("a dead letter has no partition")?;
            let first = entries
                .first_key_value()
                .ok_or("a partition without dead letters is among those with some")?;
            let last = entries.last_key_value().unwrap_or(first);
            holds(
                *first.0 >= log.start() && *last.0 < log.next(),
                "a dead letter lies outside its log",
            )?;
            for entry in entries.values() {
                depth += 1;
                bytes += u64::from(entry.bytes);
                claimed += u64::from(entry.job.is_some());
                *by_cause.entry(entry.cause).or_default() += 1;
            }
        }
        holds(
            (depth, bytes, claimed) == (self.depth, self.bytes, self.claimed),
            "dead letters are miscounted",
        )?;
        let others = by_cause.remove(&super::OTHER).unwrap_or(0);
        let counts = self.causes.iter().map(|(number, _, count)| (number, count));
        holds(
            others == self.causes.others() && counts.eq(by_cause),
            "causes of death are miscounted",
        )?;
        self.causes.verify()?;
        let is_there = |partition, offset| self.entry(partition, offset).is_some();
        self.parked.verify(is_there)?;
        self.trend.verify(self.depth)
    }
}
