//! Why a request was refused: one small enum for each family of operations. `service/status.rs`
//! holds the one table from these to gRPC status and details.

use std::time::Duration;

use varvelog_store::Offset;

use super::admission::TurnedAway;

/// Any refusal; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Of an append.
    #[error(transparent)]
    Append(#[from] AppendRefusal),
    /// Of a change of topics.
    #[error(transparent)]
    Topic(#[from] TopicRefusal),
    /// Of a call on a group.
    #[error(transparent)]
    Group(#[from] GroupRefusal),
    /// A count of things is at its limit.
    #[error(transparent)]
    Quota(#[from] QuotaRefusal),
    /// Of a call on a replay.
    #[error(transparent)]
    Replay(#[from] ReplayRefusal),
}

/// Why an append was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefusal {
    /// The batches of a producer left out a sequence.
    #[error("the producer's next sequence is {expected}, not {got}")]
    SequenceGap {
        /// The next one in order.
        expected: i32,
        /// What came.
        got: i32,
    },
    /// A duplicate that is too old to be told from a gap.
    #[error("sequence {got} of producer {producer} is older than the batches remembered")]
    SequenceTooOld {
        /// Its id.
        producer: i64,
        /// What came.
        got: i32,
    },
    /// The id was never given out, or is forgotten.
    #[error("producer {producer} is unknown: call InitProducer")]
    ProducerUnknown {
        /// Its id.
        producer: i64,
    },
    /// A later epoch of the producer is at work.
    #[error("producer {producer} has gone on to epoch {epoch}")]
    ProducerFenced {
        /// Its id.
        producer: i64,
        /// The epoch at work.
        epoch: i16,
    },
    /// The request id came with other content before.
    #[error("request id {id:?} was used for other content")]
    RequestIdReused {
        /// As sent.
        id: String,
    },
}

/// Why a change of a topic was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicRefusal {
    /// No such topic.
    #[error("there is no topic {topic}")]
    NotFound {
        /// Its name, or its id where only that is known.
        topic: String,
    },
    /// No such partition.
    #[error("topic {topic} has {partitions} partitions, there is no {partition}")]
    PartitionNotFound {
        /// Its name.
        topic: String,
        /// As asked.
        partition: i64,
        /// How many there are.
        partitions: u32,
    },
    /// The name is taken.
    #[error("there is a topic {topic} already")]
    Exists {
        /// Its name.
        topic: String,
    },
    /// Retry and dead-letter topics are changed only through their group.
    #[error("{topic} is a retry or dead-letter topic and is changed only through its group")]
    Derived {
        /// Its name.
        topic: String,
        /// Of the group; empty if there is none.
        group: String,
    },
    /// Beyond the log.
    #[error("offset {offset} is outside {earliest} to {latest}")]
    OffsetOutOfRange {
        /// As asked.
        offset: i64,
        /// Log start.
        earliest: Offset,
        /// One past the last visible record.
        latest: Offset,
    },
    /// Partitions are never taken away.
    #[error("topic {topic} has {current} partitions already, and they are never taken away")]
    PartitionsFewer {
        /// Its name.
        topic: String,
        /// How many there are.
        current: u32,
    },
    /// A dead-letter topic of it still holds records.
    #[error("dead-letter topic {queue} still holds {depth} records")]
    DeadLettersNotEmpty {
        /// Its name.
        queue: String,
        /// Records in it.
        depth: u64,
    },
}

/// Why a call on a group was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupRefusal {
    /// No such group.
    #[error("there is no group {group}")]
    NotFound {
        /// Its name.
        group: String,
    },
    /// The name is taken.
    #[error("there is a group {group} already")]
    Exists {
        /// Its name.
        group: String,
    },
    /// It has live members or leases.
    #[error("group {group} has {members} live members and {leases} open leases")]
    NotEmpty {
        /// Its name.
        group: String,
        /// Live ones, those that are waited for included.
        members: u32,
        /// Hand-outs that are neither settled nor given back.
        leases: u32,
    },
    /// Its mode has no such call: the positions of a queue are not a program's to keep.
    #[error("group {group} is a queue: its records are acknowledged one by one")]
    Mode {
        /// Its name.
        group: String,
    },
    /// The member was replaced, or its generation is over.
    #[error("the member was replaced or its generation is over; the present one is {generation}")]
    MemberFenced {
        /// The present one.
        generation: u64,
    },
    /// Lower than what is committed.
    #[error("offset {got} is below the committed {committed}; use ResetOffsets to move back")]
    OffsetMovesBack {
        /// The low watermark.
        committed: Offset,
        /// As asked.
        got: Offset,
    },
    /// A new group needs topics.
    #[error("group {group} is new: name the topics that it shall read")]
    TopicsMissing {
        /// Its name.
        group: String,
    },
    /// The name of its retry or dead-letter topic would be longer than a topic name may be.
    #[error("the name of the derived topic {name} is too long: at most {limit} bytes")]
    DerivedNameTooLong {
        /// The longer of the two names.
        name: String,
        /// The most allowed, bytes.
        limit: usize,
    },
    /// The topic is not one of the group's.
    #[error("topic {topic} is not one of group {group}")]
    TopicNotOfGroup {
        /// Its name.
        group: String,
        /// Its name.
        topic: String,
    },
    /// A record of the lease was lost.
    #[error("the lease of offset {offset} was lost")]
    LeaseLost {
        /// The first one lost.
        offset: Offset,
    },
}

/// Why a call on a replay was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayRefusal {
    /// No such job.
    #[error("there is no replay job {id}")]
    NotFound {
        /// As asked.
        id: String,
    },
    /// It neither runs nor is paused.
    #[error("replay job {id} has {state}")]
    Ended {
        /// Its id.
        id: String,
        /// How, in a word.
        state: &'static str,
    },
    /// The job or its entries changed while the step was on its way.
    #[error("replay job {id} has changed meanwhile")]
    Overtaken {
        /// Its id.
        id: String,
    },
}

/// A limit on how many there may be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there are {current} {what} already, at most {limit} are allowed")]
pub struct QuotaRefusal {
    /// As in the config key below `limits.`, for example `topics`.
    pub what: &'static str,
    /// The most allowed.
    pub limit: u64,
    /// How many there are.
    pub current: u64,
}

/// Why a call got no answer from the core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was refused; nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The core's bounded queue stayed full; nothing changed.
    #[error("the broker is busy: {limit_bytes} bytes of requests wait already")]
    Busy {
        /// Of the queue.
        limit_bytes: u64,
        /// When to come back.
        retry_after: Duration,
    },
    /// The volume is filled up to its reserve; nothing changed.
    #[error("the disk has {free_bytes} bytes free, {reserve_bytes} are kept in reserve")]
    DiskReserve {
        /// Free now.
        free_bytes: u64,
        /// Kept free.
        reserve_bytes: u64,
    },
    /// A group is over its limit, or not yet back at its resume level; nothing changed.
    #[error(transparent)]
    TurnedAway(Box<TurnedAway>),
    /// The broker is stopping; nothing changed.
    #[error("the broker is stopping")]
    Draining,
    /// A write or sync failed: whether the change will be there after a restart is unknown.
    #[error("the broker could not reach its disk and has stopped; the outcome is unknown")]
    Fenced,
}
