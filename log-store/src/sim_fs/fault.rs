//! Failures on demand.

use std::io;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Reading a file.
    Read,
    /// Writing a file: one call of the system, of which a long write may take several.
    Write,
    /// Setting a length.
    SetLen,
    /// Allocating room.
    Allocate,
    /// Syncing a file.
    Sync,
    /// Syncing a folder.
    SyncDir,
    /// Syncing the whole volume.
    SyncVolume,
    /// Opening a file or a folder.
    Open,
    /// Making a file or a folder.
    Create,
    /// Renaming a file.
    Rename,
    /// Removing a file or a folder.
    Remove,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// EIO.
    Broken,
    /// ENOSPC.
    NoSpace,
    /// EINTR.
    Interrupted,
    /// EMFILE.
    NoDescriptor,
    /// It moves about half of the bytes and says so; other calls than reads and writes do not
    /// know it.
    Short,
}

const EMFILE: i32 = 24;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The failures that are to come.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    waiting: Vec<Fault>,
}

#[derive(Debug, Clone)]
struct Fault {
    call: Call,
    /// How many calls of the kind still go well.
    after: u64,
    failure: Failure,
}

impl Faults {
    pub(super) fn add(&mut self, call: Call, nth: u64, failure: Failure) {
        self.waiting.push(Fault {
            call,
            after: nth.saturating_sub(1),
            failure,
        });
    }

    /// Whether this call is to be short; fails if it is to fail.
    pub(super) fn meet(&mut self, call: Call) -> io::Result<bool> {
        let mut met = None;
        self.waiting.retain_mut(|fault| {
            if fault.call != call {
                return true;
            }
            if fault.after == 0 && met.is_none() {
                met = Some(fault.failure);
                return false;
            }
            fault.after = fault.after.saturating_sub(1);
            true
        });
        match met {
            None => Ok(false),
            Some(Failure::Short) => Ok(true),
            Some(Failure::Broken) => Err(broken()),
            Some(Failure::NoSpace) => Err(no_space()),
            Some(Failure::NoDescriptor) => Err(io::Error::from_raw_os_error(EMFILE)),
            Some(Failure::Interrupted) => Err(io::Error::from(io::ErrorKind::Interrupted)),
        }
    }
}

pub(super) fn broken() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

pub(super) fn no_space() -> io::Error {
    io::Error::from_raw_os_error(ENOSPC)
}
