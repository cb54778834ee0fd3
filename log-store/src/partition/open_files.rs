//! The segments that readers have open, bounded over all partitions of a volume.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Offset;
use crate::partition::segment::OpenSegment;
use crate::partition::walk::Extent;

/// A partition's token and a segment's base.
type Key = (u64, Offset);

/// Keeps the segments that were read last open, each with its file and its two indexes. What
/// readers still hold stays open beyond the bound until they let go.
#[derive(Debug)]
pub struct OpenFiles {
    segments_max: usize,
    tokens: AtomicU64,
    /// Held to look up and to note, never to open a file.
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    uses: u64,
    by_key: BTreeMap<Key, Slot>,
    by_use: BTreeMap<u64, Key>,
}

#[derive(Debug)]
struct Slot {
    segment: Arc<OpenSegment>,
    /// How far the segment reached when it was opened.
    extent: Extent,
    last_use: u64,
}

impl OpenFiles {
    /// Room for `segments_max` segments, at least one.
    pub fn new(segments_max: usize) -> Self {
        let segments_max = segments_max.max(1);
        Self {
            segments_max,
            tokens: AtomicU64::new(0),
            recent: Mutex::default(),
        }
    }

    /// How many segments are kept open.
    pub fn count(&self) -> usize {
        self.recent().by_key.len()
    }

    /// A number for a partition that no other has had.
    pub(crate) fn token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// The segment, if it is open and was opened at this extent.
    pub(crate) fn get(&self, token: u64, base: Offset, extent: Extent) -> Option<Arc<OpenSegment>> {
        let key = (token, base);
        let mut guard = self.recent();
        let recent = &mut *guard;
        let slot = recent
            .by_key
            .get_mut(&key)
            .filter(|slot| slot.extent == extent)?;
        recent.by_use.remove(&slot.last_use);
        recent.uses += 1;
        slot.last_use = recent.uses;
        recent.by_use.insert(recent.uses, key);
        Some(Arc::clone(&slot.segment))
    }

    /// Notes an open segment, in place of one with the same key; those used longest ago make room.
    pub(crate) fn put(&self, token: u64, base: Offset, extent: Extent, segment: Arc<OpenSegment>) {
        let key = (token, base);
        let mut recent = self.recent();
        recent.forget(&key);
        recent.uses += 1;
        let last_use = recent.uses;
        recent.by_use.insert(last_use, key);
        recent.by_key.insert(
            key,
            Slot {
                segment,
                extent,
                last_use,
            },
        );
        while recent.by_key.len() > self.segments_max
            && let Some((_, oldest)) = recent.by_use.pop_first()
        {
            recent.by_key.remove(&oldest);
        }
    }

    /// Lets a segment go.
    pub(crate) fn forget(&self, token: u64, base: Offset) {
        self.recent().forget(&(token, base));
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recent {
    fn forget(&mut self, key: &Key) {
        if let Some(slot) = self.by_key.remove(key) {
            self.by_use.remove(&slot.last_use);
        }
    }
}
