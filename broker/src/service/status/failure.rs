//! What an edge can answer instead of a reply.

use std::fmt;
use std::time::Duration;

use varvelog_store::Offset;

use crate::core::refusal::{
    AppendRefusal, CallError, GroupRefusal, QuotaRefusal, Refusal, ReplayRefusal, TopicRefusal,
};
use crate::service::wire::Malformed;

/// Why a call has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// The core's word.
    #[error(transparent)]
    Core(#[from] CallError),
    /// The bytes are no such message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A field that cannot be.
    #[error(transparent)]
    Field(#[from] FieldViolation),
    /// Several such fields, at least one.
    #[error("{}", Listed(.0))]
    Fields(Vec<FieldViolation>),
    /// A record or batch that cannot be appended.
    #[error(transparent)]
    Record(#[from] RecordRefusal),
    /// A name that nothing has.
    #[error(transparent)]
    Lookup(#[from] LookupRefusal),
    /// A log that cannot be read there.
    #[error(transparent)]
    Read(#[from] ReadRefusal),
    /// The edge's own limits and gaps.
    #[error(transparent)]
    Edge(#[from] EdgeRefusal),
}

impl CallFailure {
    /// The failure of a request with these fields wrong; none if there are none.
    pub fn of_fields(mut wrong: Vec<FieldViolation>) -> Option<Self> {
        match wrong.len() {
            0 | 1 => wrong.pop().map(Self::Field),
            _ => Some(Self::Fields(wrong)),
        }
    }
}

/// One sentence for each.
struct Listed<'a>(&'a [FieldViolation]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { "; " };
            write!(f, "{between}{violation}")?;
        }
        Ok(())
    }
}

/// A field out of its bounds, or at odds with another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {what}")]
pub struct FieldViolation {
    /// Path in the request, for example `records[3].timestamp_ms`.
    pub field: String,
    /// What is wrong, for people.
    pub what: String,
    /// The bound, with its unit; empty if it is none.
    pub limit: String,
    /// What came; empty if it is not to be repeated.
    pub value: String,
}

impl FieldViolation {
    /// A field that is wrong in itself.
    pub fn new(field: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            what: what.into(),
            limit: String::new(),
            value: String::new(),
        }
    }

    /// A field whose value passes a bound.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and references alike"
    )]
    pub fn bound(
        field: impl Into<String>,
        limit: impl ToString,
        value: impl ToString,
        what: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            what: what.into(),
            limit: limit.to_string(),
            value: value.to_string(),
        }
    }
}

/// A record or batch that is refused; nothing of its request was appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordRefusal {
    /// Over the topic's limit.
    #[error("{field}: key, value and headers take {size} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Path in the request.
        field: String,
        /// The most allowed, bytes.
        limit: u64,
        /// What came, bytes.
        size: u64,
    },
    /// A reserved header.
    #[error(
        "{field}: headers whose names begin with \"varvelog-\" are the broker's; a record read \
         from a retry or dead-letter topic carries them"
    )]
    ReservedHeader {
        /// Path in the request.
        field: String,
    },
    /// A batch that is none.
    #[error("{field}: {what}")]
    BatchInvalid {
        /// Path in the request.
        field: String,
        /// What is wrong.
        what: String,
    },
}

/// A name that nothing has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupRefusal {
    /// No such topic.
    #[error("there is no topic {name}{}", Nearest(nearest.as_deref()))]
    Topic {
        /// As asked.
        name: String,
        /// The name most like it.
        nearest: Option<String>,
    },
    /// No such group.
    #[error("there is no group {name}{}", Nearest(nearest.as_deref()))]
    Group {
        /// As asked.
        name: String,
        /// The name most like it.
        nearest: Option<String>,
    },
    /// No such dead-letter topic.
    #[error("there is no dead-letter topic {name}{}", Nearest(nearest.as_deref()))]
    Queue {
        /// As asked.
        name: String,
        /// The name most like it.
        nearest: Option<String>,
    },
}

/// The end of a sentence that names the nearest name, if there is one.
struct Nearest<'a>(Option<&'a str>);

impl fmt::Display for Nearest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, "; the nearest name is {name}"),
            None => Ok(()),
        }
    }
}

/// A log that cannot be read as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefusal {
    /// The log was cut.
    #[error(
        "the log was cut at {safe_offset} since epoch {epoch} was read; go on from there, what \
         was read beyond it is gone"
    )]
    Truncated {
        /// Where to go on.
        safe_offset: Offset,
        /// The epoch that holds there.
        epoch: i32,
    },
    /// A damaged range.
    #[error("records {first} to {last} of {topic}/{partition} are damaged")]
    Corrupt {
        /// Its name.
        topic: String,
        /// Its number.
        partition: u32,
        /// First record of the range.
        first: Offset,
        /// Last record of the range.
        last: Offset,
    },
    /// The disk did not answer; nothing is known to be lost.
    #[error("the log could not be read: {what}")]
    Unreadable {
        /// What the disk said.
        what: String,
    },
}

/// Limits and gaps of the edge itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EdgeRefusal {
    /// Larger than such a request may be.
    #[error("the request has {size} bytes, at most {limit} are allowed")]
    RequestTooLarge {
        /// The most allowed, bytes.
        limit: u64,
        /// What came, bytes.
        size: u64,
    },
    /// An ack token that this broker did not make.
    #[error("the ack token does not decode")]
    AckTokenInvalid,
    /// Dead letters are dropped in two steps.
    #[error("first ask with validate_only, then drop what it counted by its plan_id")]
    PlanRequired,
    /// A plan that is not good any more.
    #[error("plan {plan:?} is used, older than 10 minutes or unknown: make a new one")]
    PlanExpired {
        /// Its id.
        plan: String,
    },
    /// A replay into a group that holds order.
    #[error(
        "group {group} holds order, and later records of these keys may be done already: set \
         accept_reordering to replay all the same"
    )]
    WouldReorder {
        /// Its name.
        group: String,
    },
    /// In the contract, not in this release.
    #[error("{feature} is not in this release")]
    NotImplemented {
        /// What is missing.
        feature: &'static str,
    },
    /// The budget of all buffers is used up.
    #[error("the broker is busy: {limit_bytes} bytes of buffers are in use")]
    BuffersFull {
        /// The budget.
        limit_bytes: u64,
        /// When to come back.
        retry_after: Duration,
    },
    /// Recovery is not done.
    #[error("the broker is starting")]
    Starting,
}

impl EdgeRefusal {
    /// What is in the contract and not in this release.
    pub const fn not_implemented(feature: &'static str) -> Self {
        Self::NotImplemented { feature }
    }
}

macro_rules! from_refusals {
    ($($refusal:ident),+) => {
        $(impl From<$refusal> for CallFailure {
            fn from(refusal: $refusal) -> Self {
                Self::Core(CallError::Refused(refusal.into()))
            }
        })+
    };
}

from_refusals!(
    Refusal,
    AppendRefusal,
    TopicRefusal,
    GroupRefusal,
    QuotaRefusal,
    ReplayRefusal
);
