//! Why reading stopped.

use std::time::Duration;

use varvelog_store::batch::BatchError;

use crate::error::CallError;

/// Why a [`Reader`](super::Reader) does not go on with a partition.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The broker refused.
    #[error("partition {partition} cannot be read: {error}")]
    Refused {
        /// From 0.
        partition: u32,
        /// What it said.
        #[source]
        error: CallError,
    },
    /// The records at the reader's place are gone: retention passed it, or they were deleted.
    #[error("partition {partition} begins at {earliest} by now, after {offset}")]
    Lost {
        /// From 0.
        partition: u32,
        /// Where the reader was.
        offset: i64,
        /// The oldest record that is left.
        earliest: i64,
    },
    /// A record batch is damaged.
    #[error("the batch at offset {offset} of partition {partition} cannot be read: {error}")]
    Corrupt {
        /// From 0.
        partition: u32,
        /// Of its first record.
        offset: i64,
        /// What is wrong with it.
        #[source]
        error: BatchError,
    },
}

/// Why a [`GroupConsumer`](super::GroupConsumer) gives an error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConsumeError {
    /// The broker refused, or another stream of the same member took over. The consumer ends.
    #[error("the group cannot be consumed: {0}")]
    Refused(#[source] CallError),
    /// The broker could not be reached for as long as the consumer was to try. It ends.
    #[error("no way to the broker for {after:?}")]
    GaveUp {
        /// How long it tried.
        after: Duration,
        /// What the last try met with.
        #[source]
        last: CallError,
    },
    /// Somebody ended this membership. The consumer ends.
    #[error("the membership was ended from outside")]
    Left,
    /// A record batch is damaged. Its records come again when their visibility timeout has
    /// passed; the consumer goes on.
    #[error("the batch at offset {offset} of {topic}/{partition} cannot be read: {error}")]
    Corrupt {
        /// Where it is from.
        topic: String,
        /// From 0.
        partition: u32,
        /// Of its first record.
        offset: i64,
        /// What is wrong with it.
        #[source]
        error: BatchError,
    },
}
