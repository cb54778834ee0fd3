//! Idempotent producers: ids, epochs, and what each wrote last to each partition.
//!
//! A batch carries the sequence of its first record; sequences run on from batch to batch and wrap
//! from 2^31 - 1 to 0. The last five batches of a producer on a partition are remembered, so that
//! one sent again is told from a new one.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::batch::ProducerStamp;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::fields::holds;
use super::refusal::{AppendRefusal, QuotaRefusal, Refusal};

/// Batches remembered of a producer on a partition.
pub const BATCHES_REMEMBERED: usize = 5;
/// Most producer ids at a time.
pub const PRODUCERS_MAX: u64 = 1_000_000;
/// Most producers that a partition may remember, whatever the configured limit.
pub const PRODUCERS_PER_PARTITION_MAX: u64 = 1_000_000;

/// Producers that a partition keeps past their expiry because their last batch is in its log.
/// Beyond, those used longest ago go, so that no log that is kept for ever fills the partition's
/// limit with them.
pub const KEPT_BY_LOG_MAX: usize = 5_000;

/// Sequences are 0 up to, not including, this.
const SEQUENCES: u32 = 1 << 31;

/// A batch that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BatchMark {
    pub(super) base_sequence: u32,
    pub(super) record_count: u32,
    pub(super) base_offset: Offset,
}

/// What a producer wrote last to a partition. Holds at least one batch, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batches {
    pub(super) epoch: i16,
    pub(super) len: u8,
    pub(super) marks: [BatchMark; BATCHES_REMEMBERED],
}

/// What a batch is to a producer's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The next one in order.
    New,
    /// It was appended at this offset before.
    Duplicate(Offset),
}

impl Batches {
    pub(super) fn first(epoch: i16, mark: BatchMark) -> Self {
        let mut marks = [BatchMark::default(); BATCHES_REMEMBERED];
        if let Some(slot) = marks.first_mut() {
            *slot = mark;
        }
        Self {
            epoch,
            len: 1,
            marks,
        }
    }

    pub(super) fn marks(&self) -> &[BatchMark] {
        self.marks
            .get(..usize::from(self.len))
            .unwrap_or(&self.marks)
    }

    /// The sequence that follows the newest batch.
    pub(super) fn expected(&self) -> u32 {
        let newest = self.marks().last().copied().unwrap_or_default();
        wrapped(newest.base_sequence, newest.record_count)
    }

    /// Whether the last record of the newest batch is in a log that begins at `start`.
    fn is_in_log(&self, start: Offset) -> bool {
        let newest = self.marks().last().copied().unwrap_or_default();
        newest.base_offset.plus(newest.record_count.into()) > start
    }

    /// Adds the next batch of the same epoch; the oldest goes when there are five.
    pub(super) fn push(&mut self, mark: BatchMark) {
        let len = usize::from(self.len);
        if let Some(slot) = self.marks.get_mut(len) {
            *slot = mark;
            self.len += 1;
        } else {
            self.marks.rotate_left(1);
            if let Some(slot) = self.marks.last_mut() {
                *slot = mark;
            }
        }
    }

    fn judge(&self, producer: i64, got: i32, count: u32) -> Result<Verdict, AppendRefusal> {
        let expected = self.expected();
        let gap = AppendRefusal::SequenceGap {
            expected: signed(expected),
            got,
        };
        let Ok(base) = u32::try_from(got) else {
            return Err(gap);
        };
        if base == expected {
            return Ok(Verdict::New);
        }
        let same = |mark: &&BatchMark| mark.base_sequence == base && mark.record_count == count;
        if let Some(mark) = self.marks().iter().find(same) {
            return Ok(Verdict::Duplicate(mark.base_offset));
        }
        // Behind by at most half the numbers is the past, the rest lies ahead. Only when five are
        // remembered can there have been batches before the oldest of them.
        let oldest = self
            .marks()
            .first()
            .copied()
            .unwrap_or_default()
            .base_sequence;
        let before_oldest = behind(oldest, base);
        let is_past = before_oldest != 0 && before_oldest <= SEQUENCES / 2;
        if usize::from(self.len) == BATCHES_REMEMBERED && is_past && count <= before_oldest {
            return Err(AppendRefusal::SequenceTooOld { producer, got });
        }
        Err(gap)
    }
}

/// The sequence `count` records behind `base`.
fn wrapped(base: u32, count: u32) -> u32 {
    let sum = (u64::from(base) + u64::from(count)) % u64::from(SEQUENCES);
    u32::try_from(sum).expect("below 2^31")
}

/// How far `base` is behind `from`.
fn behind(from: u32, base: u32) -> u32 {
    wrapped(from, SEQUENCES - base)
}

fn signed(sequence: u32) -> i32 {
    i32::try_from(sequence).expect("below 2^31")
}

/// A producer id that was given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Empty for one without a name.
    pub(super) name: Box<str>,
    pub(super) epoch: i16,
    pub(super) used: WallMs,
    /// Its entry in the order of use: not above `used`.
    used_indexed: WallMs,
    partitions: BTreeSet<PartitionId>,
}

/// All producers.
///
/// Invariants: every batch history belongs to an id that is known, and its epoch is not above that
/// of the id; histories are found from the id and from the partition.
#[derive(Debug, Default)]
pub struct Producers {
    pub(super) by_id: BTreeMap<i64, Producer>,
    by_name: BTreeMap<Box<str>, i64>,
    /// By time of use as known when the entry was made, so that an append need not touch it.
    by_use: BTreeSet<(WallMs, i64)>,
    pub(super) histories: BTreeMap<PartitionId, BTreeMap<i64, Batches>>,
}

impl Producers {
    /// How many ids are known.
    pub fn count(&self) -> u64 {
        u64::try_from(self.by_id.len()).unwrap_or(u64::MAX)
    }

    /// How many producers a partition remembers.
    pub fn count_on(&self, partition: PartitionId) -> u64 {
        let known = self.histories.get(&partition).map_or(0, BTreeMap::len);
        u64::try_from(known).unwrap_or(u64::MAX)
    }

    pub(super) fn history(&self, partition: PartitionId, id: i64) -> Option<Batches> {
        self.histories.get(&partition)?.get(&id).copied()
    }

    /// What a batch is to `history`, the producer's on that partition.
    pub(super) fn judge(
        &self,
        history: Option<Batches>,
        stamp: ProducerStamp,
        record_count: u32,
    ) -> Result<Verdict, AppendRefusal> {
        let producer = stamp.id;
        let known = self
            .by_id
            .get(&producer)
            .filter(|known| stamp.epoch <= known.epoch);
        let known = known.ok_or(AppendRefusal::ProducerUnknown { producer })?;
        if stamp.epoch < known.epoch {
            return Err(AppendRefusal::ProducerFenced {
                producer,
                epoch: known.epoch,
            });
        }
        match history.filter(|history| history.epoch == stamp.epoch) {
            Some(history) => history.judge(producer, stamp.base_sequence, record_count),
            None if stamp.base_sequence == 0 => Ok(Verdict::New),
            None => Err(AppendRefusal::SequenceGap {
                expected: 0,
                got: stamp.base_sequence,
            }),
        }
    }

    /// Notes a batch that was judged to be new.
    pub(super) fn record(
        &mut self,
        partition: PartitionId,
        stamp: ProducerStamp,
        mark: BatchMark,
        wall: WallMs,
    ) {
        if let Some(producer) = self.by_id.get_mut(&stamp.id) {
            producer.used = producer.used.max(wall);
            let of_partition = self.histories.entry(partition).or_default();
            if let Some(history) = of_partition.get_mut(&stamp.id) {
                note(history, stamp.epoch, mark);
            } else {
                of_partition.insert(stamp.id, Batches::first(stamp.epoch, mark));
                producer.partitions.insert(partition);
            }
        }
    }

    /// Whether one more id may be given out under this name.
    pub(super) fn check_init(&self, name: &str) -> Result<(), Refusal> {
        let current = self.count();
        if self.by_name.contains_key(name) || current < PRODUCERS_MAX {
            return Ok(());
        }
        Err(QuotaRefusal {
            what: "producers",
            limit: PRODUCERS_MAX,
            current,
        }
        .into())
    }

    /// The id and epoch that `name` gets next; `fresh` is an id that was never given out.
    pub(super) fn next_of(&self, name: &str, fresh: i64) -> (i64, i16) {
        let known = self
            .by_name
            .get(name)
            .and_then(|id| Some((*id, self.by_id.get(id)?.epoch)));
        match known {
            // A name whose epochs are used up goes on with another id.
            Some((id, epoch)) if epoch < i16::MAX => (id, epoch + 1),
            _ => (fresh, 0),
        }
    }

    /// Gives out what [`Self::next_of`] says.
    pub(super) fn init(&mut self, name: &str, fresh: i64, wall: WallMs) -> (i64, i16) {
        let (id, epoch) = self.next_of(name, fresh);
        if let Some(producer) = self.by_id.get_mut(&id) {
            producer.epoch = epoch;
            producer.used = producer.used.max(wall);
            return (id, epoch);
        }
        if let Some(old) = self.by_name.get(name).copied() {
            self.forget(old);
        }
        self.insert(id, name.into(), epoch, wall);
        (id, epoch)
    }

    /// Takes in an id without histories.
    pub(super) fn insert(&mut self, id: i64, name: Box<str>, epoch: i16, used: WallMs) {
        if !name.is_empty() {
            self.by_name.insert(name.clone(), id);
        }
        self.by_use.insert((used, id));
        let partitions = BTreeSet::new();
        let producer = Producer {
            name,
            epoch,
            used,
            used_indexed: used,
            partitions,
        };
        self.by_id.insert(id, producer);
    }

    /// Takes in a history of a known id; false if there is one already or the id is unknown.
    pub(super) fn insert_history(&mut self, at: PartitionId, id: i64, batches: Batches) -> bool {
        let Some(producer) = self.by_id.get_mut(&id) else {
            return false;
        };
        let fits = batches.epoch <= producer.epoch && producer.partitions.insert(at);
        if fits {
            self.histories.entry(at).or_default().insert(id, batches);
        }
        fits
    }

    /// Forgets ids that were last used before `used_since`, but for those whose last batch is still
    /// in the log of a partition: what was sent can then be sent again as a duplicate. `start_of`
    /// tells where the log of a partition begins.
    pub(super) fn expire(
        &mut self,
        used_since: WallMs,
        start_of: impl Fn(PartitionId) -> Option<Offset>,
    ) {
        for entry in self.indexed_before(used_since).collect::<Vec<_>>() {
            let (_, id) = entry;
            let Some(producer) = self.by_id.get_mut(&id) else {
                continue;
            };
            producer.used_indexed = producer.used;
            let used = producer.used;
            self.by_use.remove(&entry);
            self.by_use.insert((used, id));
        }
        // Now in the order of their use, which the state alone decides.
        for (_, id) in self.indexed_before(used_since).collect::<Vec<_>>() {
            if !self.is_kept_by_log(id, &start_of) {
                self.forget(id);
            }
        }
    }

    /// Whether [`Self::expire`] would forget one.
    pub(super) fn has_expired(
        &self,
        used_since: WallMs,
        start_of: impl Fn(PartitionId) -> Option<Offset>,
    ) -> bool {
        let is_unused = |id: &i64| {
            let used = self.by_id.get(id).map(|producer| producer.used);
            used.is_some_and(|used| used < used_since)
        };
        self.indexed_before(used_since)
            .map(|(_, id)| id)
            .any(|id| is_unused(&id) && !self.is_kept_by_log(id, &start_of))
    }

    fn indexed_before(&self, used_since: WallMs) -> impl Iterator<Item = (WallMs, i64)> {
        self.by_use.range(..(used_since, i64::MIN)).copied()
    }

    fn is_kept_by_log(&self, id: i64, start_of: impl Fn(PartitionId) -> Option<Offset>) -> bool {
        let partitions = self.by_id.get(&id).map(|producer| &producer.partitions);
        partitions.into_iter().flatten().any(|at| {
            let Some(of_partition) = self.histories.get(at) else {
                return false;
            };
            let history = of_partition.get(&id).zip(start_of(*at));
            of_partition.len() <= KEPT_BY_LOG_MAX
                && history.is_some_and(|(history, start)| history.is_in_log(start))
        })
    }

    /// Forgets what was written to the partitions of a topic.
    pub(super) fn drop_topic(&mut self, topic: TopicId, partitions: u32) {
        for partition in (0..partitions).map(|partition| PartitionId { topic, partition }) {
            for id in self
                .histories
                .remove(&partition)
                .unwrap_or_default()
                .into_keys()
            {
                if let Some(producer) = self.by_id.get_mut(&id) {
                    producer.partitions.remove(&partition);
                }
            }
        }
    }

    fn forget(&mut self, id: i64) {
        let Some(producer) = self.by_id.remove(&id) else {
            return;
        };
        self.by_use.remove(&(producer.used_indexed, id));
        if self.by_name.get(&producer.name) == Some(&id) {
            self.by_name.remove(&producer.name);
        }
        for partition in producer.partitions {
            if let Some(of_partition) = self.histories.get_mut(&partition) {
                of_partition.remove(&id);
                if of_partition.is_empty() {
                    self.histories.remove(&partition);
                }
            }
        }
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        holds(
            self.by_use.len() == self.by_id.len(),
            "the order of use has other producers",
        )?;
        let mut histories = 0;
        for (id, producer) in &self.by_id {
            holds(
                *id >= 0 && producer.epoch >= 0,
                "a producer id or epoch is negative",
            )?;
            let indexed = self.by_use.contains(&(producer.used_indexed, *id));
            let indexed = indexed && producer.used_indexed <= producer.used;
            holds(indexed, "the order of use has a producer at another time")?;
            let named = producer.name.is_empty() || self.by_name.get(&producer.name) == Some(id);
            holds(named, "two producers have one name")?;
            for partition in &producer.partitions {
                let history = self
                    .history(*partition, *id)
                    .ok_or("a history is missing")?;
                let fits = (0..=producer.epoch).contains(&history.epoch);
                holds(fits, "a history is of an epoch that was not given out")?;
                holds(!history.marks().is_empty(), "a history has no batch")?;
                histories += 1;
            }
        }
        let known = self.by_name.values().all(|id| self.by_id.contains_key(id));
        holds(known, "a name leads to no producer")?;
        let filled = self
            .histories
            .values()
            .all(|of_partition| !of_partition.is_empty());
        holds(filled, "a partition is listed without a history")?;
        let all = self.histories.values().map(BTreeMap::len).sum::<usize>();
        holds(all == histories, "a history belongs to no producer")
    }
}

/// Adds a batch to a history; one of a later epoch begins it anew.
pub(super) fn note(history: &mut Batches, epoch: i16, mark: BatchMark) {
    if history.epoch == epoch {
        history.push(mark);
    } else {
        *history = Batches::first(epoch, mark);
    }
}
