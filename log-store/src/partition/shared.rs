//! What the three sides of a partition have in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::fs::Dir;
use crate::partition::chain::Chain;
use crate::partition::file_header::Identity;
use crate::partition::stored::Volume;
use crate::partition::tail::Tail;
use crate::{Offset, PartitionId, layout};

/// Written by the appender (tail, end) and the writer (chain), read by all.
///
/// What is flushed is published in the chain before it leaves the tail, so whoever looks at the
/// tail first and then at the chain misses nothing.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) volume: Volume,
    pub(crate) id: PartitionId,
    /// Names this partition among the open files: one made again under the same id is another.
    pub(crate) token: u64,
    start: AtomicU64,
    end: AtomicU64,
    tail: Mutex<Tail>,
    chain: ArcSwap<Chain>,
    /// Held by the reader that builds an index from its segment, while others wait for it.
    index_scan: Mutex<()>,
    /// Held while files of an index are written by a reader, and while segments are removed.
    index_files: Mutex<()>,
}

impl Shared {
    pub(crate) fn new(volume: Volume, id: PartitionId, start: Offset, tail: Tail) -> Self {
        Self {
            token: volume.files.token(),
            volume,
            id,
            start: AtomicU64::new(start.get()),
            end: AtomicU64::new(tail.end().get()),
            chain: ArcSwap::from_pointee(Chain::empty(tail.base())),
            tail: Mutex::new(tail),
            index_scan: Mutex::default(),
            index_files: Mutex::default(),
        }
    }

    /// The tail. A thread that panicked with it had not changed it yet, or wholly.
    pub(crate) fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// See the field.
    pub(crate) fn index_scan(&self) -> MutexGuard<'_, ()> {
        self.index_scan
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// See the field; what it guards is on disk.
    pub(crate) fn index_files(&self) -> MutexGuard<'_, ()> {
        self.index_files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn chain(&self) -> Arc<Chain> {
        self.chain.load_full()
    }

    pub(crate) fn publish_chain(&self, chain: Chain) {
        self.chain.store(Arc::new(chain));
    }

    pub(crate) fn start(&self) -> Offset {
        offset(&self.start)
    }

    pub(crate) fn raise_start(&self, start: Offset) {
        self.start.fetch_max(start.get(), Ordering::AcqRel);
    }

    pub(crate) fn end(&self) -> Offset {
        offset(&self.end)
    }

    /// Called with the tail locked.
    pub(crate) fn publish_end(&self, end: Offset) {
        self.end.store(end.get(), Ordering::Release);
    }

    pub(crate) fn count_unflushed(&self, bytes: u64) {
        self.volume
            .unflushed_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn count_flushed(&self, bytes: u64) {
        self.volume
            .unflushed_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn identity(&self, base: Offset) -> Identity {
        Identity {
            folder: self.volume.folder,
            partition: self.id,
            base,
        }
    }

    pub(crate) fn open_folder(&self) -> std::io::Result<Arc<dyn Dir>> {
        self.volume
            .root
            .open_dir(&layout::partition_folder(self.id))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let left = self.tail().bytes();
        self.count_flushed(left);
    }
}

fn offset(value: &AtomicU64) -> Offset {
    Offset::new(value.load(Ordering::Acquire)).unwrap_or(Offset::MAX)
}
