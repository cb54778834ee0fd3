//! What the group machine has read from logs before it goes on: copies of records for retry and
//! dead-letter topics, and keys. A thread of its own reads them; the core never waits for a log.

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::command::AppendPart;
use super::dead_letters::{Death, JobNumber};
use super::failure::{DeadReason, ErrorClass, FailureNote, FailureText};
use super::retries::RetryEntry;
use crate::names::{GroupName, TopicName};

/// One order to read. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// What to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadJob {
    /// Make copies of records.
    Copy(CopyJob),
    /// Look at the keys of records.
    Keys(KeysJob),
    /// Make copies of dead letters.
    Replay(ReplayJob),
}

/// Records of one partition to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches, as the group has them"
)]
pub struct CopyJob {
    /// Comes back with the answer.
    pub id: ReadId,
    /// Whose retry and dead-letter topics.
    pub group: GroupName,
    /// The topic of the first appends.
    pub topic: TopicName,
    /// Where the records lie: in the topic, or in its retry topic.
    pub from: PartitionId,
    /// Where copies for another delivery go.
    pub retry: PartitionId,
    /// Where copies go that are dead.
    pub dead_letter: PartitionId,
    /// When it was ordered: the time of death of what is dead.
    pub at: WallMs,
    /// Which, by rising offsets.
    pub copies: Vec<Copy>,
    /// Failed records first appended before then are dead, whatever else is said of them.
    pub dead_before: Option<WallMs>,
    /// Error messages are not stored.
    pub omit_error_message: bool,
    /// Error stacks are not stored.
    pub omit_error_stack: bool,
    /// Keys of what is dead are told.
    pub tells_keys: bool,
    /// What is dead for its age in place stays there, without a copy.
    pub halts: bool,
}

/// A record to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// Where it lies in [`CopyJob::from`].
    pub offset: Offset,
    /// Where the copy goes.
    pub to: CopyTo,
    /// Why; none if it did not fail now, as a delayed record, or one that an operator moves. What
    /// headers of a retry tell of its last failure is then kept.
    pub failed: Option<Failed>,
}

/// Where a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyTo {
    /// To the retry topic.
    Retry(RetryEntry),
    /// To the dead-letter topic.
    DeadLetter(DeadReason),
    /// Nowhere: the record waits in place, unless it is dead for its age.
    InPlace,
}

/// A failed delivery, as headers tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Counted failures, this one included.
    pub failures: u32,
    /// Of this one.
    pub class: ErrorClass,
    /// What the consumer said, whole.
    pub text: FailureText,
    /// When.
    pub at: WallMs,
    /// Member name, else member id, of who had it; at most 128 bytes.
    pub consumer: String,
    /// What was noted of it before, in place.
    pub before: Option<FailureNote>,
}

/// Keys to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeysJob {
    /// Comes back with the answer.
    pub id: ReadId,
    /// Where.
    pub partition: PartitionId,
    /// First offset.
    pub from: Offset,
    /// One past the last.
    pub until: Offset,
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadDone {
    /// Of the order.
    pub id: ReadId,
    /// What came of it.
    pub result: Result<ReadResult, ReadTrouble>,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadResult {
    /// Of [`ReadJob::Copy`].
    Copies(Copies),
    /// Of [`ReadJob::Keys`].
    Keys(Keys),
    /// Of [`ReadJob::Replay`].
    Replay(Replayed),
}

/// Dead letters of one partition to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayJob {
    /// Comes back with the answer.
    pub id: ReadId,
    /// The job that replays them.
    pub job: JobNumber,
    /// Name of the dead-letter topic.
    pub queue: TopicName,
    /// Where they lie.
    pub from: PartitionId,
    /// Which, rising.
    pub offsets: Vec<Offset>,
    /// Where to.
    pub to: ReplayTo,
    /// When they are due in a retry topic.
    pub due: WallMs,
}

/// Where a replay goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayTo {
    /// To the retry topic, into the partition of the same number.
    Retry(PartitionId),
    /// To another topic.
    Topic {
        /// Which.
        topic: TopicId,
        /// How many it has. As many as the dead-letter topic: each record keeps its number. Else
        /// records with a key go where its producers send the key.
        partitions: u32,
        /// Whether it has as many as the dead-letter topic.
        keeps_partition: bool,
        /// Most bytes of a record there: key, value and headers of the producer.
        record_bytes_max: u32,
    },
}

/// Copies of dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replayed {
    /// Without predictions and producers.
    pub parts: Vec<AppendPart>,
    /// By index of a part, rising: what becomes of each of its records in the retry topic.
    pub retries: Vec<(u32, Vec<RetryEntry>)>,
    /// Those that have a copy. Rising.
    pub done: Vec<Offset>,
    /// Those that cannot be copied, and why. Rising. With `done` the first of the order; the rest
    /// found no room.
    pub failed: Vec<(Offset, String)>,
}

/// Batches of copies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Copies {
    /// For the retry and the dead-letter partition; without predictions and producers.
    pub parts: Vec<AppendPart>,
    /// By index of a part for the retry partition, rising: one entry for each of its records.
    pub retries: Vec<(u32, Vec<RetryEntry>)>,
    /// By index of a part for the dead-letter partition, rising: how each of its records died.
    pub deaths: Vec<(u32, Vec<Death>)>,
    /// Records that are not there any more, or cannot be read: the log start passed them, or
    /// their batch is damaged. Nothing was copied of these. Rising.
    pub missing: Vec<Offset>,
    /// Records that were to be given out again and are dead for their age. Rising.
    pub aged: Vec<Offset>,
    /// Hashes of the keys of what goes to the dead-letter partition, if they were asked for; each
    /// once, rising.
    pub dead_keys: Vec<u64>,
    /// Records that were not copied since the answer was full: to be ordered again. Rising, and
    /// behind all that were looked at; the first of an order is never among them.
    pub left: Vec<Offset>,
}

/// Keys of records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    /// Up to here, exclusively, the range was read. At least one record further than it began,
    /// unless there is none.
    pub until: Offset,
    /// A hash of each record's key by offset, rising; none for a record without one. Offsets that
    /// are not listed are not there.
    pub keys: Vec<(Offset, Option<u64>)>,
}

/// The log cannot be read now; worth trying again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("records cannot be read: {reason}")]
pub struct ReadTrouble {
    /// Why.
    pub reason: String,
}
