//! Makes files ready: new ones, and old ones again.
//!
//! A file is ready when its header, its length and its name are on disk. Only then is a frame
//! written to it. So a header is never torn, and a generation that a file's frames were written
//! under is always that of a header that reached the disk; the next one is greater.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::WalError;
use super::file::{FILE_HEADER_BYTES, FileHeader, LogFile, read_header};
use super::sync::Shared;
use super::tail::write_zeros;
use crate::fs::{Dir, File, lacks_descriptors, lacks_room};
use crate::layout::{WalFile, parse_temporary, temporary};
use crate::limits::{WAL_SPARE_BYTES_MAX, WAL_SPARE_FILES_MAX};
use crate::{FolderId, Sequence};

/// Numbers files and keeps those that may be used again.
#[derive(Debug)]
pub(super) struct Maker {
    dir: Arc<dyn Dir>,
    folder: FolderId,
    file_bytes: u64,
    next_number: u64,
    next_generation: u32,
    /// Names of spare files, each `file_bytes` long; their names are on disk.
    spares: VecDeque<String>,
}

impl Maker {
    /// Takes stock of the folder: removes what was not finished, and spare files of another size.
    pub(super) fn open(
        dir: Arc<dyn Dir>,
        folder: FolderId,
        file_bytes: u64,
        logs: &[&LogFile],
    ) -> Result<Self, WalError> {
        let mut maker = Self {
            dir,
            folder,
            file_bytes,
            next_number: 1,
            next_generation: 1,
            spares: VecDeque::new(),
        };
        for log in logs {
            maker.note_used(&log.header);
        }
        for name in maker.dir.list().map_err(WalError::io("list", "."))? {
            if let Some(WalFile::Spare(number)) = WalFile::parse(&name) {
                maker.next_number = maker.next_number.max(number.saturating_add(1));
                maker.open_spare(name)?;
            } else if parse_temporary(&name).and_then(WalFile::parse).is_some() {
                maker
                    .dir
                    .remove(&name)
                    .map_err(WalError::io("remove", &name))?;
            }
        }
        maker.dir.sync().map_err(WalError::io("sync", "."))?;
        Ok(maker)
    }

    fn note_used(&mut self, header: &FileHeader) {
        self.next_number = self.next_number.max(header.number.saturating_add(1));
        self.next_generation = self
            .next_generation
            .max(header.generation.saturating_add(1));
    }

    fn open_spare(&mut self, name: String) -> Result<(), WalError> {
        let file = self.dir.open(&name).map_err(WalError::io("open", &name))?;
        file.drop_cache()
            .map_err(WalError::io("drop the cache of", &name))?;
        let header = read_header(file.as_ref()).map_err(WalError::io("read", &name))?;
        let bytes = file.len().map_err(WalError::io("read", &name))?;
        // Without its header nobody knows which generations its frames were written under.
        let usable = header.filter(|it| it.folder == self.folder && bytes == self.file_bytes);
        match usable.filter(|_| self.spares.len() < self.spares_max()) {
            Some(header) => {
                self.note_used(&header);
                self.spares.push_back(name);
            }
            None => self
                .dir
                .remove(&name)
                .map_err(WalError::io("remove", &name))?,
        }
        Ok(())
    }

    fn spares_max(&self) -> usize {
        let files = (WAL_SPARE_BYTES_MAX / self.file_bytes).clamp(1, WAL_SPARE_FILES_MAX);
        usize::try_from(files).unwrap_or(1)
    }

    /// What it takes to have another file, of at least `bytes_min`. A spare one is used up.
    pub(super) fn plan(&mut self, bytes_min: u64, next: Sequence) -> Making {
        let file_bytes = self
            .file_bytes
            .max(bytes_min.next_multiple_of(FILE_HEADER_BYTES));
        let spare = if file_bytes == self.file_bytes {
            self.spares.pop_front()
        } else {
            None
        };
        let header = FileHeader {
            folder: self.folder,
            number: self.next_number,
            generation: self.next_generation,
            recycled: spare.is_some(),
            file_bytes,
            next_when_made: next,
        };
        self.next_number = self.next_number.saturating_add(1);
        self.next_generation = self.next_generation.saturating_add(1);
        Making {
            dir: Arc::clone(&self.dir),
            header,
            spare,
        }
    }

    /// Gives up files that are no longer needed: keeps some as spare files, removes the others.
    pub(super) fn retire(&mut self, files: &[(u64, u64)]) -> Result<(), WalError> {
        let mut kept = Vec::new();
        for &(number, bytes) in files {
            let name = WalFile::Log(number).name();
            let room = self.spares.len() + kept.len() < self.spares_max();
            if room && bytes == self.file_bytes {
                let spare = WalFile::Spare(number).name();
                self.dir
                    .rename(&name, &spare)
                    .map_err(WalError::io("rename", &name))?;
                kept.push(spare);
            } else {
                self.dir
                    .remove(&name)
                    .map_err(WalError::io("remove", &name))?;
            }
        }
        if !files.is_empty() {
            self.dir.sync().map_err(WalError::io("sync", "."))?;
        }
        self.spares.extend(kept);
        Ok(())
    }
}

/// A file about to be made ready. It may be done on any thread.
#[derive(Debug)]
pub(super) struct Making {
    dir: Arc<dyn Dir>,
    header: FileHeader,
    spare: Option<String>,
}

impl Making {
    pub(super) fn run(self) -> Result<LogFile, WalError> {
        let name = WalFile::Log(self.header.number).name();
        let (file, old_name) = match &self.spare {
            Some(spare) => (self.open_spare(spare)?, spare.clone()),
            None => (self.create(&name)?, temporary(&name)),
        };
        let mut header = self.header.encode();
        header.resize(usize::try_from(FILE_HEADER_BYTES).unwrap_or_default(), 0);
        file.write_at(&header, 0)
            .map_err(WalError::io("write", &old_name))?;
        file.sync_data().map_err(WalError::io("sync", &old_name))?;
        self.dir
            .rename(&old_name, &name)
            .map_err(WalError::io("rename", &old_name))?;
        self.dir.sync().map_err(WalError::io("sync", "."))?;
        Ok(LogFile::made(file, self.header))
    }

    fn open_spare(&self, spare: &str) -> Result<Arc<dyn File>, WalError> {
        let opened = self.dir.open(spare);
        opened.map_err(|error| not_opened("open", spare, error))
    }

    /// Makes a file of zeros. A volume without room is left as it was.
    fn create(&self, name: &str) -> Result<Arc<dyn File>, WalError> {
        let temp = temporary(name);
        let bytes = self.header.file_bytes;
        let file = match self.dir.create(&temp) {
            Ok(file) => file,
            Err(error) if lacks_room(&error) => return Err(WalError::NoSpace { bytes }),
            Err(error) => return Err(not_opened("create", &temp, error)),
        };
        match file
            .allocate(bytes)
            .and_then(|()| write_zeros(file.as_ref(), 0, bytes))
        {
            Ok(()) => Ok(file),
            Err(error) if lacks_room(&error) => {
                self.dir
                    .remove(&temp)
                    .map_err(WalError::io("remove", &temp))?;
                Err(WalError::NoSpace { bytes })
            }
            Err(error) => Err(WalError::io("fill", &temp)(error)),
        }
    }
}

fn not_opened(action: &'static str, file: &str, error: io::Error) -> WalError {
    if lacks_descriptors(&error) {
        let file = file.to_owned();
        WalError::NoDescriptor { file }
    } else {
        WalError::io(action, file)(error)
    }
}

/// Where the file that will be used next waits.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<SlotState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Empty,
    /// A [`PrepareJob`] is on its way.
    Making,
    Ready(LogFile),
}

impl Slot {
    pub(super) fn with(ready: Option<LogFile>) -> Self {
        let state = ready.map_or(SlotState::Empty, SlotState::Ready);
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Takes the ready file; waits for one on its way.
    pub(super) fn take(&self) -> Option<LogFile> {
        let mut state = self.lock();
        while matches!(*state, SlotState::Making) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::take(&mut *state) {
            SlotState::Ready(log) => Some(log),
            SlotState::Empty | SlotState::Making => None,
        }
    }

    /// Whether a file is neither there nor on its way; if so, one is on its way from now on.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.lock();
        let empty = matches!(*state, SlotState::Empty);
        if empty {
            *state = SlotState::Making;
        }
        empty
    }

    fn finish(&self, made: Option<LogFile>) {
        *self.lock() = made.map_or(SlotState::Empty, SlotState::Ready);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the next file ready, ahead of need. Meant for another thread: without it the append that
/// fills a file makes the next one itself. It must be run or
/// dropped: an append that needs the file waits for it.
#[derive(Debug)]
pub struct PrepareJob {
    making: Option<Making>,
    slot: Arc<Slot>,
    shared: Arc<Shared>,
}

impl PrepareJob {
    pub(super) fn new(making: Making, slot: Arc<Slot>, shared: Arc<Shared>) -> Self {
        Self {
            making: Some(making),
            slot,
            shared,
        }
    }

    /// Does it. A volume without room ([`WalError::NoSpace`]), or too many open files
    /// ([`WalError::NoDescriptor`]), are no harm yet; any other error is
    /// final for the log.
    pub fn run(mut self) -> Result<(), WalError> {
        let Some(making) = self.making.take() else {
            return Ok(());
        };
        let made = making.run().map_err(|error| self.shared.fail(error));
        let (made, result) = match made {
            Ok(log) => (Some(log), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.slot.finish(made);
        result
    }
}

impl Drop for PrepareJob {
    fn drop(&mut self) {
        if self.making.is_some() {
            self.slot.finish(None);
        }
    }
}
