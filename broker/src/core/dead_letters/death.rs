//! How a record died.

use varvelog_store::WallMs;

use super::super::failure::ErrorClass;
use super::job::JobNumber;

/// What a record died of. The same for entries that count as one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cause {
    /// Of the last failure; none if it never failed.
    pub class: Option<ErrorClass>,
    /// Of the last failure; may be empty.
    pub code: String,
    /// Of the last failure; none if it never failed.
    pub fingerprint: Option<u64>,
}

/// The death of one record, as its copy in the dead-letter topic tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// When it died.
    pub at: WallMs,
    /// Of the copy, before compression.
    pub bytes: u32,
    /// What of.
    pub cause: Cause,
    /// How often it was replayed before.
    pub replays: u32,
    /// The job that replayed it last; none if none did.
    pub replayed_by: Option<JobNumber>,
    /// A hash of its key, if later records of the key follow it.
    pub parked_key: Option<u64>,
}
