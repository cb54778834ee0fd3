//! The ids of one topic, oldest first.
//!
//! Invariants: times never fall from one id to the next; `index` leads to the newest entry of each
//! hash that is kept, and to nothing else. An entry takes 32 bytes and 5 to 12 in the index.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashTable;
use varvelog_store::{Offset, WallMs};

use super::id_hash::IdHash;
use crate::core::fields::holds;

/// Ids of one chunk: little enough to copy one when a checkpoint still holds it.
const CHUNK_IDS: usize = 4_096;
/// Tables of the index: each grows by itself, so that no append waits for all of them.
const SHARDS: usize = 256;
/// Bits of a slot's `when_where` that are the partition.
const PARTITION_BITS: u32 = 16;

/// Where the first record of an id lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstAppend {
    /// Of the topic.
    pub partition: u32,
    /// In it.
    pub offset: Offset,
}

/// An id that is kept: 32 bytes, since there may be millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) hash: IdHash,
    /// Append time in ms, and the partition in the low bits.
    pub(super) when_where: u64,
    pub(super) offset: Offset,
}

const _: () = assert!(size_of::<Slot>() == 32);
const _: () = assert!(crate::core::topic_changes::TOPIC_PARTITIONS_MAX <= 1 << PARTITION_BITS);

impl Slot {
    pub(super) fn new(hash: IdHash, at: WallMs, first: FirstAppend) -> Self {
        let ms = u64::try_from(at.0).unwrap_or(0);
        Self {
            hash,
            when_where: (ms << PARTITION_BITS) | u64::from(first.partition),
            offset: first.offset,
        }
    }

    fn ms(&self) -> u64 {
        self.when_where >> PARTITION_BITS
    }

    fn first(&self) -> FirstAppend {
        let partition = self.when_where & ((1 << PARTITION_BITS) - 1);
        FirstAppend {
            partition: u32::try_from(partition).unwrap_or(u32::MAX),
            offset: self.offset,
        }
    }
}

/// From when on ids count, as of `now`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    since_ms: u64,
    /// The topic has no window.
    none: bool,
}

impl Live {
    pub(super) fn within(window_ms: u64, now: WallMs) -> Self {
        let now = u64::try_from(now.0).unwrap_or(0);
        Self {
            // An id is over when it is as old as the window.
            since_ms: (now + 1).saturating_sub(window_ms),
            none: window_ms == 0,
        }
    }

    fn has(self, slot: &Slot) -> bool {
        !self.none && slot.ms() >= self.since_ms
    }
}

/// The ids of one topic.
#[derive(Debug)]
pub(super) struct Window {
    /// All but the last are full.
    chunks: VecDeque<Arc<Vec<Slot>>>,
    /// Slots of the first chunk that are given up.
    given_up: usize,
    len: usize,
    /// Number of the oldest one kept. Numbers rise by one and begin anew after 2^32.
    first: u32,
    /// Numbers, by hash.
    index: Vec<HashTable<u32>>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            chunks: VecDeque::new(),
            given_up: 0,
            len: 0,
            first: 0,
            index: vec![HashTable::new(); SHARDS],
        }
    }

    /// How many are kept, some of them perhaps past their time.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, hash: IdHash, live: Live) -> Option<FirstAppend> {
        let found = self.index.get(hash.shard())?.find(hash.short(), |number| {
            self.numbered(*number).is_some_and(|it| it.hash == hash)
        });
        let slot = self.numbered(*found?)?;
        live.has(slot).then(|| slot.first())
    }

    /// How many count.
    pub(super) fn count(&self, live: Live) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            if self.nth(middle).is_some_and(|slot| live.has(slot)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        self.len - low
    }

    /// Whether the oldest is past its time.
    pub(super) fn has_past(&self, live: Live) -> bool {
        self.nth(0).is_some_and(|oldest| !live.has(oldest))
    }

    /// Whether all of them are past their time.
    pub(super) fn is_past(&self, live: Live) -> bool {
        let newest = self.len.checked_sub(1).and_then(|last| self.nth(last));
        newest.is_none_or(|newest| !live.has(newest))
    }

    /// Takes in the newest one. A time below that of the one before is brought up to it.
    pub(super) fn push(&mut self, slot: Slot) {
        let number = self.first.wrapping_add(narrow(self.len));
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK_IDS => Arc::make_mut(last).push(slot),
            _ => self.chunks.push_back(Arc::new(vec![slot])),
        }
        self.len += 1;
        let Self {
            chunks,
            given_up,
            first,
            index,
            ..
        } = self;
        let slot_of = |number: u32| numbered(chunks, *given_up, *first, number);
        let Some(table) = index.get_mut(slot.hash.shard()) else {
            return;
        };
        let same = |other: &u32| slot_of(*other).is_some_and(|it| it.hash == slot.hash);
        if let Some(known) = table.find_mut(slot.hash.short(), same) {
            *known = number;
            return;
        }
        table.insert_unique(slot.hash.short(), number, |other| {
            slot_of(*other).map_or(0, |it| it.hash.short())
        });
    }

    /// Gives up what is past its time, so many at most; returns how many.
    pub(super) fn forget(&mut self, live: Live, at_most: usize) -> usize {
        let mut forgotten = 0;
        while forgotten < at_most {
            match self.nth(0).copied() {
                Some(oldest) if !live.has(&oldest) => self.pop(&oldest),
                _ => break,
            }
            forgotten += 1;
        }
        forgotten
    }

    fn pop(&mut self, oldest: &Slot) {
        let number = self.first;
        if let Some(table) = self.index.get_mut(oldest.hash.shard())
            && let Ok(entry) = table.find_entry(oldest.hash.short(), |it| *it == number)
        {
            entry.remove();
        }
        self.first = number.wrapping_add(1);
        self.len -= 1;
        self.given_up += 1;
        if self.given_up == CHUNK_IDS || self.len == 0 {
            self.chunks.pop_front();
            self.given_up = 0;
        }
    }

    /// All, oldest first: the chunks, and how many of the first are given up.
    pub(super) fn shared(&self) -> (Vec<Arc<Vec<Slot>>>, usize) {
        (self.chunks.iter().cloned().collect(), self.given_up)
    }

    fn nth(&self, place: usize) -> Option<&Slot> {
        nth(&self.chunks, self.given_up + place)
    }

    fn numbered(&self, number: u32) -> Option<&Slot> {
        numbered(&self.chunks, self.given_up, self.first, number)
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let kept = self.chunks.iter().flat_map(|chunk| chunk.iter());
        let kept = kept.skip(self.given_up);
        holds(
            kept.clone().is_sorted_by_key(Slot::ms),
            "message ids are not in order",
        )?;
        holds(kept.count() == self.len, "message ids are miscounted")?;
        let indexed = self.index.iter().map(HashTable::len).sum::<usize>();
        holds(indexed <= self.len, "a message id is remembered for ever")
    }
}

fn nth(chunks: &VecDeque<Arc<Vec<Slot>>>, place: usize) -> Option<&Slot> {
    chunks.get(place / CHUNK_IDS)?.get(place % CHUNK_IDS)
}

fn numbered(
    chunks: &VecDeque<Arc<Vec<Slot>>>,
    given_up: usize,
    first: u32,
    number: u32,
) -> Option<&Slot> {
    let place = usize::try_from(number.wrapping_sub(first)).ok()?;
    nth(chunks, given_up.checked_add(place)?)
}

/// There are never 2^32 of them.
fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
