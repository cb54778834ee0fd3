//! Failures of deliveries: what a consumer says of one, what is kept of it, and how a record ends.

use varvelog_store::WallMs;

use super::copies::Failed;
use super::failure_text::{consumer_kept, start_of};
use super::settings::DeadLetterSettings;

/// Most bytes kept of an error code.
pub const ERROR_CODE_BYTES_MAX: usize = 128;
/// Most bytes kept of an error message in a dead letter.
pub const ERROR_MESSAGE_BYTES_MAX: usize = 1_024;
/// Most bytes kept of an error message while the record is tried again.
pub const RETRY_MESSAGE_BYTES_MAX: usize = 256;
/// Most bytes kept of an error stack; only a dead letter has one.
pub const ERROR_STACK_BYTES_MAX: usize = 8_192;
/// Most bytes kept of the name or id of who had a record.
pub const CONSUMER_BYTES_MAX: usize = 128;
/// Attempts that the attempt log remembers, the newest.
pub const ATTEMPT_LOG_MAX: usize = 5;
/// Most bytes of an error code in the attempt log.
pub const LOG_CODE_BYTES_MAX: usize = 48;

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// May go away by itself.
    Transient,
    /// Will not.
    Permanent,
    /// The lease ran out.
    Timeout,
    /// The consumer's session ended without a word.
    Crash,
    /// Too large for the consumer's limits.
    Undeliverable,
    /// Given back too often.
    ReleaseLoop,
}

impl ErrorClass {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Transient,
        Self::Permanent,
        Self::Timeout,
        Self::Crash,
        Self::Undeliverable,
        Self::ReleaseLoop,
    ];

    /// The class of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// As in the header `varvelog-error-class`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Permanent => "permanent",
            Self::Timeout => "timeout",
            Self::Crash => "crash",
            Self::Undeliverable => "undeliverable",
            Self::ReleaseLoop => "release_loop",
        }
    }

    /// Whether the record itself may be what brings consumers down.
    pub fn is_suspect(self) -> bool {
        matches!(self, Self::Timeout | Self::Crash)
    }
}

/// Why a record was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeadReason {
    /// No delivery was left.
    MaxDeliveries,
    /// It failed permanently.
    Permanent,
    /// It failed and was older than the policy allows.
    MaxAge,
    /// Too large for its consumer.
    Undeliverable,
    /// An earlier record of its key is dead.
    ParkedKey,
    /// An operator said so.
    Operator,
}

impl DeadReason {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::MaxDeliveries,
        Self::Permanent,
        Self::MaxAge,
        Self::Undeliverable,
        Self::ParkedKey,
        Self::Operator,
    ];

    /// The reason of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// As in the header `varvelog-dead-reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxDeliveries => "max_deliveries",
            Self::Permanent => "permanent",
            Self::MaxAge => "max_age",
            Self::Undeliverable => "undeliverable",
            Self::ParkedKey => "parked_key",
            Self::Operator => "operator",
        }
    }
}

/// What a consumer said of a failure, within the bounds above.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailureText {
    /// Stable: an application code or exception type. May be empty.
    pub code: String,
    /// For people.
    pub message: String,
    /// For people; empty if none was given.
    pub stack: String,
}

/// One counted delivery that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempt {
    /// From 1.
    pub attempt: u32,
    /// When it failed.
    pub at: WallMs,
    /// How.
    pub class: ErrorClass,
    /// Of the error, its first [`LOG_CODE_BYTES_MAX`] bytes; may be empty.
    pub code: String,
}

/// What a record waits for that failed and stays in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Nothing: it can be given out.
    Ready,
    /// For its next delivery.
    Until(WallMs),
    /// For room in the dead-letter topic; it is not given out again.
    Room(DeadReason),
    /// For an operator: it failed for good, and the group halts then.
    Operator(DeadReason),
}

/// What is kept of a record that failed and stays in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureNote {
    /// Counted failures so far, those before it came to a retry topic included.
    pub failures: u32,
    /// Of the last failure.
    pub class: ErrorClass,
    /// What it waits for.
    pub wait: Wait,
    /// When it failed first.
    pub first_failure: WallMs,
    /// Of the last failure. The message is at most [`RETRY_MESSAGE_BYTES_MAX`] long, and there is
    /// no stack unless it waits to be dead-lettered.
    pub text: FailureText,
    /// Who had it last.
    pub consumer: String,
    /// The newest failures, oldest first; at most [`ATTEMPT_LOG_MAX`].
    pub log: Vec<FailedAttempt>,
}

/// How a record ended that was not simply processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// A copy went to the retry topic.
    Retried,
    /// A copy went to the dead-letter topic, or it was dropped where there is none.
    DeadLettered,
    /// An operator, or the log start, passed it.
    Skipped,
    /// Its lease was over, and a copy went to the retry or the dead-letter topic.
    Expired,
}

impl FailureNote {
    /// What is kept of a record after this failure. `kept` says which texts are not.
    pub fn after(failed: &Failed, wait: Wait, kept: &DeadLetterSettings) -> Self {
        let is_dead = matches!(wait, Wait::Room(_) | Wait::Operator(_));
        let before = failed.before.as_ref();
        let mut log = before.map_or_else(Vec::new, |note| note.log.clone());
        FailedAttempt::of(failed).add_to(&mut log);
        let message_bytes_max = match (kept.omit_error_message, is_dead) {
            (true, _) => 0,
            (false, true) => ERROR_MESSAGE_BYTES_MAX,
            (false, false) => RETRY_MESSAGE_BYTES_MAX,
        };
        let has_stack = is_dead && !kept.omit_error_stack;
        let FailureText {
            code,
            message,
            stack,
        } = &failed.text;
        Self {
            failures: failed.failures,
            class: failed.class,
            wait,
            first_failure: before.map_or(failed.at, |note| note.first_failure),
            text: FailureText {
                code: start_of(code, ERROR_CODE_BYTES_MAX).to_owned(),
                message: start_of(message, message_bytes_max).to_owned(),
                stack: if has_stack {
                    stack.clone()
                } else {
                    String::new()
                },
            },
            consumer: consumer_kept(&failed.consumer).to_owned(),
            log,
        }
    }

    /// The failure that it tells of, to make a copy of the record without another one.
    pub fn last(&self) -> Failed {
        Failed {
            failures: self.failures,
            class: self.class,
            text: self.text.clone(),
            at: self.log.last().map_or(self.first_failure, |last| last.at),
            consumer: self.consumer.clone(),
            before: Some(self.clone()),
        }
    }

    /// Whether one of the failures that it remembers was a crash or a timeout.
    pub fn has_expired(&self) -> bool {
        self.class.is_suspect() || self.log.iter().any(|failed| failed.class.is_suspect())
    }
}

impl FailedAttempt {
    /// Of this failure.
    pub fn of(failed: &Failed) -> Self {
        Self {
            attempt: failed.failures,
            at: failed.at,
            class: failed.class,
            code: start_of(&failed.text.code, LOG_CODE_BYTES_MAX).to_owned(),
        }
    }

    /// Puts it behind the others, unless it is the last of them already, and drops the oldest
    /// beyond [`ATTEMPT_LOG_MAX`].
    pub fn add_to(self, log: &mut Vec<Self>) {
        let is_known = |last: &Self| {
            (last.attempt, last.at, last.class) == (self.attempt, self.at, self.class)
        };
        if !log.last().is_some_and(is_known) {
            log.push(self);
        }
        let surplus = log.len().saturating_sub(ATTEMPT_LOG_MAX);
        log.drain(..surplus);
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
