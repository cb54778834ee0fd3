//! What can go wrong with the write-ahead log.

use std::fmt;
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
    /// Files of the log are gone: it does not reach what is wanted of it. Nothing was changed.
    #[error(
        "the write-ahead log in the folder wal {reach}, but everything from command {wanted} on is \
         needed: files of it are gone"
    )]
    Missing {
        /// The first command wanted, which need not be there, but those before and behind it.
        wanted: Sequence,
        /// What there is.
        reach: Reach,
    },
    /// The volume has no room for another file. Nothing was written; it may work later.
    #[error("the volume has no room for a write-ahead log file of {bytes} bytes")]
    NoSpace {
        /// Size of the file.
        bytes: u64,
    },
    /// Too many files are open for another. Nothing was written; it may work later.
    #[error("too many files are open to use the write-ahead log file {file}")]
    NoDescriptor {
        /// The file.
        file: String,
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

/// Which commands a log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// None that is known.
    Nothing,
    /// This one and later ones.
    From(Sequence),
    /// This one at most.
    Through(Sequence),
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("holds no command"),
            Self::From(oldest) => write!(f, "begins only at command {oldest}"),
            Self::Through(last) => write!(f, "ends at command {last}"),
        }
    }
}

impl WalError {
    /// Whether the log takes no more after this.
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::NoSpace { .. } | Self::NoDescriptor { .. } | Self::TooLarge { .. }
        )
    }

    /// Wraps a failure of the disk.
    pub(crate) fn io(action: &'static str, file: &str) -> impl Fn(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io {
            action,
            file: file.clone(),
            source: Arc::new(source),
        }
    }
}
