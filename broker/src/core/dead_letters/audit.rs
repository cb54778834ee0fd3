//! Who did what to dead letters.

use std::collections::VecDeque;

use varvelog_store::WallMs;

use crate::core::fields::holds;

/// Entries that are remembered: the newest.
pub const AUDIT_MAX: usize = 4_096;

/// One thing that someone did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditEntry {
    /// When.
    pub at: WallMs,
    /// The call, as `ReplayDeadLetters`.
    pub action: String,
    /// The dead-letter topic.
    pub subject: String,
    /// What was selected, or which job it was, in short; at most 1 KiB.
    pub detail: String,
    /// Entries touched.
    pub count: u64,
    /// As given; at most 512 bytes.
    pub note: String,
}

/// The newest entries, at most [`AUDIT_MAX`]. Each has a number that is never used again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Audit {
    pub(in crate::core) entries: VecDeque<AuditEntry>,
    /// Entries so far; the number of the next one.
    pub(in crate::core) made: u64,
}

impl Audit {
    /// Newest first, each with its number.
    pub fn newest_first(&self) -> impl Iterator<Item = (u64, &AuditEntry)> {
        let numbers = (0..self.made).rev();
        numbers.zip(self.entries.iter().rev())
    }

    pub(super) fn add(&mut self, entry: AuditEntry) {
        if self.entries.len() == AUDIT_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
        self.made += 1;
    }

    /// What must hold and does not, if anything.
    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let kept = u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        holds(
            self.entries.len() <= AUDIT_MAX && kept <= self.made,
            "the audit is longer than it may be",
        )
    }
}
