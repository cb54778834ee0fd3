//! What was found at the end of the log, and how it is cut off.
//!
//! The cut is synced, with what is kept, before a frame is written behind it, so that nothing of
//! what was cut can ever be read as part of what comes. A crash in between leaves less to cut, or
//! the same.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::error::WalError;
use super::file::LogFile;
use super::judge::Cut;
use crate::Sequence;
use crate::fs::{Dir, File, read_exact_at, replace_file};
use crate::layout::WalFile;
use crate::limits::{WAL_TORN_BYTES_MAX, WAL_TORN_FILES_MAX};

/// What a start found in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailReport {
    /// The last sequence that was kept.
    pub last: Sequence,
    /// How many frames were read.
    pub frames: u64,
    /// What was cut off behind it, if anything.
    pub cut: Option<TailCut>,
}

/// What was cut off the end of the log. None of it can have been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailCut {
    /// The file that the log was cut in.
    pub file: String,
    /// Where in it, bytes.
    pub position: u64,
    /// How many bytes were cut off, in that file and in later ones.
    pub bytes: u64,
    /// How many whole frames were behind the bad one and went with it.
    pub frames: u64,
    /// Why.
    pub reason: CutReason,
    /// The first of the bytes that were cut off in that file.
    pub saved: Bytes,
    /// The file that they were saved in; none when the volume had no room.
    pub saved_as: Option<String>,
}

/// Why the log was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CutReason {
    /// The last frame is not whole.
    Torn,
    /// A batch that the last frame names is not in its place.
    Refused,
}

impl fmt::Display for TailCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            CutReason::Torn => "its last frame was not whole",
            CutReason::Refused => "a batch that its last frame names is not there",
        };
        write!(
            f,
            "write-ahead log file {} was cut at byte {}: {reason}; \
             {} bytes were never acknowledged",
            self.file, self.position, self.bytes
        )
    }
}

/// Cuts `log` at `position`, and removes what lies in later files. The caller syncs `log` and
/// the folder.
pub(super) fn cut_off(
    dir: &Arc<dyn Dir>,
    log: &LogFile,
    position: u64,
    cut: &Cut,
) -> Result<TailCut, WalError> {
    let bytes = cut.end.saturating_sub(position);
    let mut saved = vec![0; usize::try_from(bytes.min(WAL_TORN_BYTES_MAX)).unwrap_or_default()];
    read_exact_at(log.file.as_ref(), &mut saved, position).map_err(log.io("read"))?;
    let saved_as = save(dir, log.header.number, &saved)?;
    for name in &cut.files {
        dir.remove(name).map_err(WalError::io("remove", name))?;
    }
    write_zeros(log.file.as_ref(), position, cut.end).map_err(log.io("write"))?;
    Ok(TailCut {
        file: log.name.clone(),
        position,
        bytes: cut.bytes,
        frames: cut.frames,
        reason: cut.reason,
        saved: saved.into(),
        saved_as,
    })
}

/// Saves what is about to be cut off; the oldest saved ones give way.
fn save(dir: &Arc<dyn Dir>, number: u64, bytes: &[u8]) -> Result<Option<String>, WalError> {
    let name = WalFile::Torn(number).name();
    let mut old = dir.list().map_err(WalError::io("list", "."))?;
    old.retain(|other| matches!(WalFile::parse(other), Some(WalFile::Torn(_))) && *other != name);
    for other in old
        .iter()
        .take((old.len() + 1).saturating_sub(WAL_TORN_FILES_MAX))
    {
        dir.remove(other).map_err(WalError::io("remove", other))?;
    }
    match replace_file(dir.as_ref(), &name, bytes) {
        Ok(()) => Ok(Some(name)),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(None),
        Err(error) => Err(WalError::io("save", &name)(error)),
    }
}

/// Writes zeros from `from` up to `to`.
pub(super) fn write_zeros(file: &dyn File, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; usize::try_from((to - from).min(1 << 20)).unwrap_or_default()];
    let mut at = from;
    while at < to {
        let some = usize::try_from(to - at)
            .unwrap_or(zeros.len())
            .min(zeros.len());
        let some = zeros.get(..some).unwrap_or_default();
        file.write_at(some, at)?;
        at += some.len() as u64;
    }
    Ok(())
}
