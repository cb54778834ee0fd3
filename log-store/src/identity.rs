//! Who a data folder is, whether it was left cleanly, and that one process at a time uses it.
//!
//! - The identity is made once, durably, before anything else in the folder. A folder that holds
//!   data and has no identity is refused: it is not new.
//! - The mark of a clean stop is taken, durably, before the log is written again. So while it is
//!   there, it is true.

use std::fs::{File as StdFile, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::field::{array_at, u32_at, u64_at};
use crate::fs::{Dir, open_lock_file, read_whole, replace_file};
use crate::layout::{CHECKPOINTS, CLEAN, IDENTITY, LOCK, PARTITIONS, WAL};
use crate::{FolderId, Sequence};

const IDENTITY_MAGIC: [u8; 8] = *b"VARVFLDR";
const IDENTITY_BYTES: usize = 72;
const CLEAN_MAGIC: [u8; 8] = *b"VARVCLEN";
const CLEAN_BYTES: usize = 28;
const VERSION: u32 = 1;
/// No file of this module is longer.
const FILE_BYTES_MAX: u64 = 4096;

/// Who a data folder is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The folder: random, and in the header of each of its files.
    pub folder: FolderId,
    /// The cluster that it belongs to: a UUID.
    pub cluster: [u8; 16],
    /// The node whose folder it is: a UUID.
    pub node: [u8; 16],
    /// Which features may have been used in it.
    pub feature_level: u32,
}

/// Why a data folder's identity or its mark cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The disk failed.
    #[error("cannot {action} the file {file}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        file: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The identity is damaged.
    #[error("the file {IDENTITY} is damaged: {what}")]
    Corrupt {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The folder is of another release.
    #[error("the data folder has format version {found}; this release reads version {VERSION}")]
    Version {
        /// What was found.
        found: u32,
    },
    /// There is data, but no identity.
    #[error("the data folder holds {found}/ with files in it, but no file {IDENTITY}")]
    Lost {
        /// A folder that holds data.
        found: &'static str,
    },
}

/// Reads the identity of the data folder `dir`, or makes `fresh` its identity when it is new.
pub fn open_or_create(dir: &Arc<dyn Dir>, fresh: Identity) -> Result<Identity, IdentityError> {
    let failed = |action| {
        move |source| IdentityError::Io {
            action,
            file: IDENTITY,
            source,
        }
    };
    let file = match dir.open(IDENTITY) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_data(dir)?;
            replace_file(dir.as_ref(), IDENTITY, &encode(&fresh)).map_err(failed("write"))?;
            return Ok(fresh);
        }
        Err(error) => return Err(failed("open")(error)),
    };
    let bytes = match read_whole(file.as_ref(), FILE_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(IdentityError::Corrupt {
                what: "it is too long",
            });
        }
        Err(error) => return Err(failed("read")(error)),
    };
    let identity = decode(&bytes)?;
    // A start that was cut short may have left the name unsettled.
    dir.sync().map_err(failed("settle"))?;
    Ok(identity)
}

fn refuse_data(dir: &Arc<dyn Dir>) -> Result<(), IdentityError> {
    for folder in [WAL, CHECKPOINTS, PARTITIONS] {
        let names = match dir.open_dir(folder).and_then(|inner| inner.list()) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => {
                return Err(IdentityError::Io {
                    action: "look beside",
                    file: IDENTITY,
                    source,
                });
            }
        };
        if !names.is_empty() {
            return Err(IdentityError::Lost { found: folder });
        }
    }
    Ok(())
}

fn encode(identity: &Identity) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(IDENTITY_BYTES);
    bytes.extend_from_slice(&IDENTITY_MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    bytes.extend_from_slice(&identity.folder.0);
    bytes.extend_from_slice(&identity.cluster);
    bytes.extend_from_slice(&identity.node);
    bytes.extend_from_slice(&identity.feature_level.to_le_bytes());
    seal(bytes)
}

fn decode(bytes: &[u8]) -> Result<Identity, IdentityError> {
    let corrupt = |what| IdentityError::Corrupt { what };
    if !bytes.starts_with(&IDENTITY_MAGIC) {
        return Err(corrupt("it does not begin as an identity does"));
    }
    let content = unseal(bytes).ok_or(corrupt("its checksum is wrong"))?;
    let version = u32_at(content, 8).ok_or(corrupt("it is too short"))?;
    if version != VERSION {
        return Err(IdentityError::Version { found: version });
    }
    if bytes.len() != IDENTITY_BYTES || u32_at(content, 12) != Some(0) {
        return Err(corrupt("its length or its flags are wrong"));
    }
    let read = || {
        Some(Identity {
            folder: FolderId(array_at(content, 16)?),
            cluster: array_at(content, 32)?,
            node: array_at(content, 48)?,
            feature_level: u32_at(content, 64)?,
        })
    };
    read().ok_or(corrupt("it is too short"))
}

/// Notes, durably, that the log ends after `sequence`, that all up to it is on disk, and that no
/// more will be written before [`take_clean_mark`].
pub fn write_clean_mark(dir: &Arc<dyn Dir>, sequence: Sequence) -> Result<(), IdentityError> {
    let mut bytes = Vec::with_capacity(CLEAN_BYTES);
    bytes.extend_from_slice(&CLEAN_MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    bytes.extend_from_slice(&sequence.get().to_le_bytes());
    replace_file(dir.as_ref(), CLEAN, &seal(bytes)).map_err(failed_mark("write"))
}

/// Where the log ended at a clean stop. Nothing when there was none, or no mark that can be
/// believed.
pub fn read_clean_mark(dir: &Arc<dyn Dir>) -> Result<Option<Sequence>, IdentityError> {
    find_clean_mark(dir)
        .map_err(failed_mark("read"))
        .map(Option::flatten)
}

/// Takes the mark of a clean stop away, durably, and tells what [`read_clean_mark`] does. To be
/// called when the log was read to its end and found whole, and before it is written: until then
/// the mark is needed to tell damage from a torn tail, by this start or by one after it.
pub fn take_clean_mark(dir: &Arc<dyn Dir>) -> Result<Option<Sequence>, IdentityError> {
    let Some(mark) = find_clean_mark(dir).map_err(failed_mark("read"))? else {
        return Ok(None);
    };
    dir.remove(CLEAN)
        .and_then(|()| dir.sync())
        .map_err(failed_mark("take"))?;
    Ok(mark)
}

fn failed_mark(action: &'static str) -> impl Fn(io::Error) -> IdentityError {
    move |source| IdentityError::Io {
        action,
        file: CLEAN,
        source,
    }
}

/// Nothing when there is no mark, and nothing in it when it is not a good one.
#[expect(
    clippy::option_option,
    reason = "a mark that is bad is there all the same"
)]
fn find_clean_mark(dir: &Arc<dyn Dir>) -> io::Result<Option<Option<Sequence>>> {
    let file = match dir.open(CLEAN) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match read_whole(file.as_ref(), FILE_BYTES_MAX) {
        Ok(bytes) => Ok(Some(decode_clean_mark(&bytes))),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Ok(Some(None)),
        Err(error) => Err(error),
    }
}

fn decode_clean_mark(bytes: &[u8]) -> Option<Sequence> {
    let content = unseal(bytes).filter(|_| bytes.len() == CLEAN_BYTES)?;
    let known = content.starts_with(&CLEAN_MAGIC)
        && u32_at(content, 8)? == VERSION
        && u32_at(content, 12)? == 0;
    let sequence = u64_at(content, 16)?;
    known.then_some(Sequence::new(sequence))
}

/// Appends the checksum of all before it.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// What [`seal`] was given, if the checksum is right.
fn unseal(bytes: &[u8]) -> Option<&[u8]> {
    let (content, checksum) = bytes.split_last_chunk::<4>()?;
    (crc32fast::hash(content) == u32::from_le_bytes(*checksum)).then_some(content)
}

/// Held while a process uses a data folder; it ends with the process whatever happens.
#[derive(Debug)]
pub struct FolderLock {
    _file: StdFile,
}

/// Why a data folder cannot be had for oneself.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process uses it.
    #[error("another process uses this data folder")]
    Held,
    /// The disk failed.
    #[error("cannot lock the data folder")]
    Io(#[source] io::Error),
}

/// Takes the data folder at `path` for this process alone; makes the folder when it is not there.
pub fn lock_folder(path: &Path) -> Result<FolderLock, LockError> {
    let file = open_lock_file(path, LOCK).map_err(LockError::Io)?;
    match file.try_lock() {
        Ok(()) => Ok(FolderLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(LockError::Held),
        Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
