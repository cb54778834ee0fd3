//! What can go wrong with a partition, one enum an operation.

use std::io;

use crate::partition::manifest::ManifestError;
use crate::{Offset, PartitionId};

/// Why a partition could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The manifest contradicts itself.
    #[error("partition {partition}: {source}")]
    Manifest {
        /// Which.
        partition: PartitionId,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// The disk failed.
    #[error("opening partition {partition}: {source}")]
    Io {
        /// Which.
        partition: PartitionId,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a writer could not do what it was told. What was readable before still is, and what was not
/// flushed is still in the tail.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk refused; after [`io::ErrorKind::StorageFull`] the same call may be tried again.
    #[error("writing partition {partition}: {source}")]
    Io {
        /// Which.
        partition: PartitionId,
        /// What the system said.
        source: io::Error,
    },
    /// A body is no record batch.
    #[error("partition {partition}, offset {offset}: the body is no record batch")]
    NotABatch {
        /// Which.
        partition: PartitionId,
        /// Where it would be.
        offset: Offset,
    },
    /// A sync failed earlier. What is on disk is unknown until the next start verifies it.
    #[error("partition {partition}: an earlier sync failed, and nothing more is written")]
    Fenced {
        /// Which.
        partition: PartitionId,
    },
}

/// Why a read brings nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset is not one of the partition's.
    #[error("offset is outside the partition, which holds {start} up to, not including, {end}")]
    OutOfRange {
        /// First offset that may be read.
        start: Offset,
        /// One past the last.
        end: Offset,
    },
    /// These offsets are damaged on disk. Others can be read.
    #[error("offsets {first} to {last} are damaged")]
    Corrupt {
        /// The first.
        first: Offset,
        /// The last, included.
        last: Offset,
    },
    /// The disk failed; the same read may succeed later.
    #[error("reading a partition: {0}")]
    Io(#[from] io::Error),
}
