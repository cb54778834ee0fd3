//! One replay of dead letters.

use std::collections::BTreeSet;

use varvelog_store::{Offset, TopicId, WallMs};

use super::claims::Claims;
use crate::names::{GroupName, TopicName};

/// The number of a job, from 1. Never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobNumber(pub u64);

/// How the ids of jobs begin.
const ID_PREFIX: &str = "replay-";

impl JobNumber {
    /// As callers know it: `replay-7`.
    pub fn id(self) -> String {
        format!("{ID_PREFIX}{}", self.0)
    }

    /// What [`Self::id`] gave.
    pub fn parse(id: &str) -> Option<Self> {
        let digits = id.strip_prefix(ID_PREFIX)?;
        let is_plain = digits.bytes().all(|digit| digit.is_ascii_digit());
        let is_plain = is_plain && !digits.starts_with('0');
        is_plain.then(|| digits.parse().ok().map(Self)).flatten()
    }
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// It goes on, or is held.
    Running,
    /// By hand; it keeps what it has claimed.
    Paused,
    /// It went through.
    Succeeded,
    /// It stopped by itself.
    Failed,
    /// By hand.
    Cancelled,
}

impl JobState {
    /// Whether it has claims.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// In words, for errors and details.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What a caller wants of a job, beside which entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayOrder {
    /// Of the caller; empty: none. At most 128 bytes.
    pub request_id: String,
    /// Of the arguments: the same id with others is refused.
    pub content_hash: u64,
    /// Where to, with its name; none: the group's retry topic.
    pub target: Option<(TopicId, String)>,
    /// Thousandths of an entry per second: 1,000 to 10,000,000.
    pub millis_per_second: u32,
    /// Entries that must be processed before others follow; 0: none.
    pub canary: u32,
    /// Go on though more than half have failed again.
    pub keep_on_refail: bool,
    /// For the audit; at most 512 bytes.
    pub note: String,
    /// What was selected, in short, for the audit.
    pub detail: String,
}

/// The entries that go first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Canary {
    /// Still to be replayed.
    pub left: u32,
    /// Replayed and not done: partition of the source, and offset of the first append.
    pub open: BTreeSet<(u32, Offset)>,
}

impl Canary {
    /// Whether all are replayed and some are not done.
    pub fn is_waiting(&self) -> bool {
        self.left == 0 && !self.open.is_empty()
    }

    fn is_over(&self) -> bool {
        self.left == 0 && self.open.is_empty()
    }
}

/// A replay, running or ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub number: JobNumber,
    /// The dead-letter topic.
    pub queue: TopicId,
    /// Name of the dead-letter topic.
    pub queue_name: TopicName,
    /// Whose dead letters.
    pub group: GroupName,
    /// Where their records were produced.
    pub source: TopicId,
    /// What the caller wants.
    pub order: ReplayOrder,
    /// Now.
    pub state: JobState,
    /// Entries claimed at the start.
    pub matched: u64,
    /// Of those, appended.
    pub replayed: u64,
    /// Of those, that could not be appended.
    pub failed: u64,
    /// Of the replayed, dead once more.
    pub failed_again: u64,
    /// Not claimed though selected, or gone meanwhile.
    pub skipped: u64,
    /// Claimed and neither replayed nor failed.
    pub left: u64,
    /// Where what is left lies. Empty when ended.
    pub claims: Claims,
    /// What goes first.
    pub canary: Canary,
    /// When it started.
    pub started: WallMs,
    /// When it ended.
    pub ended: Option<WallMs>,
    /// Why it failed, or the last entry did.
    pub error: String,
}

/// Records of a job that must have been replayed before too many failures end it.
const REFAILS_FROM: u64 = 20;

impl Job {
    /// What it comes to by itself, if it ends now.
    pub(super) fn verdict(&self) -> Option<(JobState, &'static str)> {
        if !self.state.is_active() {
            return None;
        }
        let has_canary = self.order.canary > 0 && !self.is_past_canary();
        if has_canary && self.failed_again > 0 {
            return Some((JobState::Failed, "a record of the canary failed again"));
        }
        let most = self.replayed >= REFAILS_FROM && self.failed_again * 2 > self.replayed;
        if most && !self.order.keep_on_refail && self.left > 0 {
            let why = "more than half of the replayed records failed again";
            return Some((JobState::Failed, why));
        }
        let is_through = self.left == 0 && self.canary.open.is_empty();
        (is_through && self.state == JobState::Running).then_some((JobState::Succeeded, ""))
    }

    /// Whether all of the canary was processed, or there was none.
    fn is_past_canary(&self) -> bool {
        self.canary.is_over()
    }

    /// Entries that may be replayed now, by the canary alone.
    pub fn room(&self) -> u64 {
        if self.canary.left > 0 {
            self.canary.left.into()
        } else if self.canary.is_waiting() {
            0
        } else {
            u64::MAX
        }
    }
}
