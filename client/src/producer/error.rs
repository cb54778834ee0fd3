//! Why a record was not sent, or not known to be.

use std::time::Duration;

use varvelog_store::batch::BatchError;

use crate::error::CallError;

/// A record that was not appended, or of which that is not known.
///
/// [`may_have_applied`](Self::may_have_applied) tells the two apart.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SendError {
    /// The record can never be sent as it is.
    #[error(transparent)]
    Invalid(#[from] RecordError),
    /// The buffer stayed full for as long as a send may wait: the broker is slower than this
    /// producer, or refuses.
    #[error("the buffer of {buffer_bytes} bytes stayed full for {waited:?}")]
    BufferFull {
        /// How long the send waited.
        waited: Duration,
        /// Size of the buffer.
        buffer_bytes: usize,
    },
    /// The broker refused producers of the topic for as long as a send may block: a group is too
    /// far behind, or the disk is full.
    #[error("the broker refused producers for {waited:?}: {error}")]
    Backpressure {
        /// Since the record was sent, or since the refusals began if that was later.
        waited: Duration,
        /// What it said last: the group, its limit, and when to come back.
        #[source]
        error: CallError,
        /// An earlier try of the same batch went unanswered and may have worked.
        may_have_applied: bool,
    },
    /// The broker refused the batch, and trying again would not help.
    #[error("the broker refused the record: {error}")]
    Refused {
        /// What it said.
        #[source]
        error: CallError,
        /// An earlier try of the same batch went unanswered and may have worked.
        may_have_applied: bool,
    },
    /// There was no answer that settled it within the delivery timeout.
    #[error("not delivered within {after:?}")]
    TimedOut {
        /// The delivery timeout.
        after: Duration,
        /// A try went unanswered and may have worked.
        may_have_applied: bool,
        /// What the last try met with.
        #[source]
        last: Option<CallError>,
    },
    /// The producer was closed before the record was sent.
    #[error("the producer is closed")]
    Closed,
    /// The producer's task ended with the runtime it ran on, before there was an answer.
    #[error("the producer's runtime ended before there was an answer")]
    Lost,
}

impl SendError {
    /// Whether the record may be in the log all the same. False is a promise.
    pub fn may_have_applied(&self) -> bool {
        match self {
            Self::Refused {
                may_have_applied, ..
            }
            | Self::Backpressure {
                may_have_applied, ..
            }
            | Self::TimedOut {
                may_have_applied, ..
            } => *may_have_applied,
            Self::Lost => true,
            Self::Invalid(_) | Self::BufferFull { .. } | Self::Closed => false,
        }
    }

    /// Whether sending the record again later may work. If it
    /// [may have been applied](Self::may_have_applied), it may then be there twice.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { error, .. } => error.is_retryable(),
            Self::BufferFull { .. } | Self::Backpressure { .. } | Self::TimedOut { .. } => true,
            Self::Invalid(_) | Self::Closed | Self::Lost => false,
        }
    }
}

/// What is wrong with a record.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RecordError {
    /// It needs more room than the whole buffer has.
    #[error("a record of {bytes} bytes never fits the buffer of {buffer_bytes}")]
    TooLarge {
        /// What it takes.
        bytes: usize,
        /// What there is.
        buffer_bytes: usize,
    },
    /// No topic has such a partition.
    #[error("partition {partition} is beyond what any topic has ({max} at most)")]
    Partition {
        /// As asked for.
        partition: u32,
        /// The most partitions of a topic.
        max: u32,
    },
    /// A header's name is not UTF-8.
    #[error("the name of header {header} is not UTF-8")]
    HeaderName {
        /// Its place in the record, from 0.
        header: usize,
    },
    /// A time before 1970.
    #[error("timestamp {timestamp_ms} ms is negative")]
    Timestamp {
        /// As given.
        timestamp_ms: i64,
    },
    /// This producer sends no message ids.
    #[error("the producer was not opened to send message ids")]
    MessageId,
    /// It cannot be written into a record batch.
    #[error("the record cannot be encoded: {0}")]
    Encoding(#[from] BatchError),
}
