//! Why bytes are no snapshot.

use super::state::SNAPSHOT_VERSION;
use crate::core::fields::FieldError;

/// Why bytes are no snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Written by another release.
    #[error("snapshot version {0} is unknown, this release knows {SNAPSHOT_VERSION}")]
    Version(u8),
    /// It ends early.
    #[error("the snapshot ends early")]
    Truncated,
    /// Bytes follow the last field.
    #[error("bytes follow the snapshot")]
    Trailing,
    /// What it says cannot be.
    #[error("the snapshot contradicts itself: {0}")]
    Invalid(&'static str),
}

impl From<FieldError> for SnapshotError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Truncated => Self::Truncated,
            FieldError::Value(what) => Self::Invalid(what),
        }
    }
}
