//! Makes durable what was written, and remembers the first error.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::error::WalError;
use super::file::LogFile;
use crate::Sequence;
use crate::fs::File;

/// What the writer and its jobs share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The first error, which is final.
    failed: OnceLock<WalError>,
    /// Guards the run of a [`SyncJob`]: one at a time.
    syncing: Mutex<()>,
    /// Guards what is written and not synced, by file number.
    unsynced: Mutex<BTreeMap<u64, Unsynced>>,
}

#[derive(Debug, Clone)]
struct Unsynced {
    name: String,
    file: Arc<dyn File>,
    first: Sequence,
    last: Sequence,
}

impl Shared {
    /// Refuses after the first final error.
    pub(super) fn check(&self) -> Result<(), WalError> {
        self.failed.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Notes an error, if it is final, and gives it back.
    pub(super) fn fail(&self, error: WalError) -> WalError {
        if error.is_final() {
            self.failed.get_or_init(|| error).clone()
        } else {
            error
        }
    }

    pub(super) fn note_written(&self, log: &LogFile, first: Sequence, last: Sequence) {
        let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = unsynced
            .entry(log.header.number)
            .or_insert_with(|| Unsynced {
                name: log.name.clone(),
                file: Arc::clone(&log.file),
                first,
                last,
            });
        entry.last = last;
    }

    fn sync(&self, through: Sequence) -> Result<(), WalError> {
        let one_at_a_time = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let due: Vec<(u64, Unsynced)> = {
            let unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            let due = unsynced.iter().filter(|(_, it)| it.first <= through);
            due.map(|(number, it)| (*number, it.clone())).collect()
        };
        for (number, it) in due {
            let synced = it.file.sync_data().map_err(WalError::io("sync", &it.name));
            synced.map_err(|error| self.fail(error))?;
            let mut unsynced = self.unsynced.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(now) = unsynced.get_mut(&number) {
                now.first = it.last.next();
                if now.last <= it.last {
                    unsynced.remove(&number);
                }
            }
        }
        drop(one_at_a_time);
        Ok(())
    }
}

/// A sync of what was written when it was taken. Dropping it leaves that to the next one.
#[derive(Debug)]
pub struct SyncJob {
    shared: Arc<Shared>,
    through: Sequence,
}

impl SyncJob {
    pub(super) fn new(shared: Arc<Shared>, through: Sequence) -> Self {
        Self { shared, through }
    }

    /// The last sequence that it makes durable.
    pub fn through(&self) -> Sequence {
        self.through
    }

    /// Syncs; the answer is the sequence that is durable now. An error is final for the log: the
    /// sync must not be tried again.
    pub fn run(self) -> Result<Sequence, WalError> {
        self.shared.sync(self.through)?;
        Ok(self.through)
    }
}
