//! What can go wrong with the write-ahead log.

use std::io;
use std::sync::Arc;

use crate::Sequence;

/// Why the write-ahead log cannot be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WalError {
    /// The disk failed. Final: what is on disk is no longer known, and only a new start finds out.
    #[error("cannot {action} the write-ahead log file {file}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file, or `.` for the folder.
        file: String,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// A frame that was known to be on disk, or a file's header, cannot be read, and it is no torn
    /// tail. Nothing was changed.
    #[error(
        "the write-ahead log file {file} is damaged at byte {position}: {what} \
         (command {sequence} cannot be read)"
    )]
    Corrupt {
        /// The file.
        file: String,
        /// Where in it, bytes.
        position: u64,
        /// The first command that cannot be read.
        sequence: Sequence,
        /// What is wrong.
        what: &'static str,
    },
    /// A file is not of this folder, or of another release.
    #[error("the write-ahead log file {file} cannot be used: {what}")]
    Foreign {
        /// The file.
        file: String,
        /// Why.
        what: String,
    },
    /// The log begins after the first command that is wanted.
    #[error("the write-ahead log begins at command {oldest}, but command {wanted} is needed")]
    Missing {
        /// The first command wanted.
        wanted: Sequence,
        /// The first command that there may be.
        oldest: Sequence,
    },
    /// The volume has no room for another file. Nothing was written; it may work later.
    #[error("the volume has no room for a write-ahead log file of {bytes} bytes")]
    NoSpace {
        /// Size of the file.
        bytes: u64,
    },
    /// A frame is larger than may be. Nothing was written.
    #[error("a write-ahead log frame may hold {bytes_max} bytes and {bulks_max} batches")]
    TooLarge {
        /// The bound on its payload.
        bytes_max: u32,
        /// The bound on its batches.
        bulks_max: u32,
    },
}

impl WalError {
    /// Whether the log takes no more after this.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::NoSpace { .. } | Self::TooLarge { .. })
    }

    /// Wraps a failure of the disk.
    pub(super) fn io(action: &'static str, file: &str) -> impl Fn(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io {
            action,
            file: file.clone(),
            source: Arc::new(source),
        }
    }
}
