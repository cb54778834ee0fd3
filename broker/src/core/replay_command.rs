//! Commands about dead letters: replays of them, and discards.

use varvelog_store::{Offset, PartitionId, TopicId};

use super::command::Append;
use super::dead_letters::{Claims, JobNumber, ReplayOrder};
use super::retries::RetryEntry;

/// Most bytes of the text that an audit entry has of a selection.
pub const DETAIL_BYTES_MAX: usize = 1_024;
/// Most bytes of a caller's note.
pub const NOTE_BYTES_MAX: usize = 512;
/// Most bytes of a request id.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// Most bytes of the text that tells why an entry could not be appended.
pub const ERROR_BYTES_MAX: usize = 512;
/// Most runs of entries that one replay or discard is about.
pub const CLAIM_RUNS_MAX: usize = 1_000_000;
/// Most entries of a canary.
pub const CANARY_MAX: u32 = 10_000;

/// A replay to start. The same request again starts nothing and is answered with the first job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartReplay {
    /// The dead-letter topic.
    pub queue: TopicId,
    /// Which entries; those that another replay has, or that are gone, are passed over.
    pub claims: Claims,
    /// How many entries those were when they were chosen.
    pub selected: u64,
    /// Entries that were passed over when they were chosen.
    pub skipped: u64,
    /// How, and for whom.
    pub order: ReplayOrder,
}

/// Entries of one partition that a replay gives out again, all or none. They are the next ones of
/// that partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayStep {
    /// Whose.
    pub job: JobNumber,
    /// Of the dead-letter topic.
    pub partition: PartitionId,
    /// Appended with this command, rising.
    pub done: Vec<Offset>,
    /// These cannot be appended, rising: they are dead letters again.
    pub failed: Vec<Offset>,
    /// Why the last of those cannot; empty if there are none. At most 512 bytes.
    pub error: String,
    /// Their copies; no part has a producer.
    pub append: Append,
    /// By index of a part, rising: what becomes of each of its records, if they go to the retry
    /// topic.
    pub retries: Vec<(u32, Vec<RetryEntry>)>,
}

/// What is done to a replay by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobControl {
    /// It is held and keeps what it has claimed.
    Pause,
    /// It goes on.
    Resume,
    /// It ends, and what it has claimed is released.
    Cancel,
}

/// Entries to drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discard {
    /// The dead-letter topic.
    pub queue: TopicId,
    /// Which entries; those that a replay has, or that are gone, are passed over.
    pub claims: Claims,
    /// How many entries those were when they were chosen.
    pub selected: u64,
    /// For the audit; at most 512 bytes.
    pub note: String,
    /// What was selected, in short, for the audit; at most 1 KiB.
    pub detail: String,
}
