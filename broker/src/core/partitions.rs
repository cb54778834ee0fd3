//! The durable part of a partition: where its log begins and ends, and its epochs.

use varvelog_store::{Epoch, Offset, PartitionId, TopicId, WallMs};

use super::delays::Delays;
use super::fields::holds;

/// How many shards there are.
pub const SHARDS: u8 = 16;
/// Most epochs remembered of a partition; the oldest go first.
pub const EPOCHS_MAX: usize = 1_024;

/// The shard of a partition that is not of a derived topic.
pub fn shard_of(id: PartitionId) -> u8 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&id.topic.0);
    hasher.update(&id.partition.to_le_bytes());
    u8::try_from(hasher.finalize() % u32::from(SHARDS)).expect("below the number of shards")
}

/// A partition.
///
/// Invariants: `start <= next`; epochs and their first offsets rise, the last one is the present
/// one; the append time never falls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub(super) start: Offset,
    pub(super) next: Offset,
    pub(super) append_time: WallMs,
    pub(super) shard: u8,
    /// Never empty.
    pub(super) epochs: Vec<(Epoch, Offset)>,
    pub(super) delayed: Delays,
}

impl Partition {
    pub(super) fn new(shard: u8) -> Self {
        Self {
            start: Offset::ZERO,
            next: Offset::ZERO,
            append_time: WallMs(0),
            shard,
            epochs: vec![(Epoch(0), Offset::ZERO)],
            delayed: Delays::default(),
        }
    }

    /// Partitions `from` up to, not including, `to` of a topic that is not derived.
    pub(super) fn range(topic: TopicId, from: u32, to: u32) -> impl Iterator<Item = Self> {
        (from..to).map(move |partition| Self::new(shard_of(PartitionId { topic, partition })))
    }

    /// Log start: the first offset kept.
    pub fn start(&self) -> Offset {
        self.start
    }

    /// The offset that the next record gets; one past the last.
    pub fn next(&self) -> Offset {
        self.next
    }

    /// Append time of the newest batch; 0 if there never was one.
    pub fn append_time(&self) -> WallMs {
        self.append_time
    }

    /// Below [`SHARDS`]. A derived partition is on the shard of the source partition of its number.
    pub fn shard(&self) -> u8 {
        self.shard
    }

    /// The present epoch.
    pub fn epoch(&self) -> Epoch {
        self.epochs.last().map_or(Epoch(0), |last| last.0)
    }

    /// First offset of each epoch that is remembered, rising; the last may have no record yet.
    pub fn epochs(&self) -> &[(Epoch, Offset)] {
        &self.epochs
    }

    /// The epoch in which the record at `offset` was appended; of one that is older than what is
    /// remembered, the oldest.
    pub fn epoch_of(&self, offset: Offset) -> Epoch {
        let after = self.epochs.partition_point(|(_, first)| *first <= offset);
        let at = self.epochs.get(after.saturating_sub(1));
        at.map_or(Epoch(0), |(epoch, _)| *epoch)
    }

    /// Records that groups are not given before their time. Some may have come due.
    pub fn delayed(&self) -> &Delays {
        &self.delayed
    }

    /// The first record from `from` on that was delayed, and when it is due.
    pub fn next_delayed(&self, from: Offset) -> Option<(Offset, WallMs)> {
        self.delayed.next(from)
    }

    /// Appends records and returns the first one's offset and the append time. Delays that are
    /// over at `wall` are forgotten.
    pub(super) fn append(
        &mut self,
        record_count: u32,
        delays: &[(u32, WallMs)],
        wall: WallMs,
    ) -> (Offset, WallMs) {
        let base = self.next;
        self.delayed.drop_due(wall);
        for (delta, due) in delays.iter().filter(|(_, due)| *due > wall) {
            self.delayed.insert(base.plus(u64::from(*delta)), *due);
        }
        self.next = base.plus(u64::from(record_count));
        self.append_time = self.append_time.max(wall);
        (base, self.append_time)
    }

    /// Begins the next epoch.
    pub(super) fn raise_epoch(&mut self) {
        let next = self.next;
        let epoch = Epoch(self.epoch().0.saturating_add(1));
        match self.epochs.last_mut() {
            Some(last) if last.1 == next => last.0 = epoch,
            _ => self.epochs.push((epoch, next)),
        }
        if self.epochs.len() > EPOCHS_MAX {
            self.epochs.remove(0);
        }
    }

    /// Moves the log start up; `start` is not beyond the end.
    pub(super) fn move_start(&mut self, start: Offset) {
        self.start = self.start.max(start);
        self.delayed.drop_below(self.start);
        let after = self
            .epochs
            .partition_point(|(_, first)| *first <= self.start);
        self.epochs.drain(..after.saturating_sub(1));
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        holds(self.start <= self.next, "a log starts behind its end")?;
        holds(self.shard < SHARDS, "there is no such shard")?;
        holds(
            self.epochs.len() <= EPOCHS_MAX,
            "more epochs than are remembered",
        )?;
        let rising = self.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1);
        holds(rising, "epochs and their first offsets do not rise")?;
        let last = self.epochs.last().is_some_and(|last| last.1 <= self.next);
        holds(last, "the last epoch begins behind the end of the log")?;
        self.delayed.verify(self.start, self.next)
    }
}
