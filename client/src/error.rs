//! What a failed call says: status, reason, when to try again, and whether it may have worked.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use varvelog_proto::v1;

/// The domain of the broker's own reasons in `google.rpc.ErrorInfo`.
pub const ERROR_DOMAIN: &str = "varvelog";

/// Reasons that programs act on; [`CallError::reason`] may give others.
pub mod reason {
    /// No such topic.
    pub const TOPIC_NOT_FOUND: &str = "TOPIC_NOT_FOUND";
    /// No such partition in the topic.
    pub const PARTITION_NOT_FOUND: &str = "PARTITION_NOT_FOUND";
    /// No such group.
    pub const GROUP_NOT_FOUND: &str = "GROUP_NOT_FOUND";
    /// A topic of this name is there.
    pub const TOPIC_EXISTS: &str = "TOPIC_EXISTS";
    /// A group of this name is there.
    pub const GROUP_EXISTS: &str = "GROUP_EXISTS";
    /// An offset before the log start or beyond its end; metadata `earliest`, `latest`.
    pub const OFFSET_OUT_OF_RANGE: &str = "OFFSET_OUT_OF_RANGE";
    /// The log was cut below what has been read; metadata `safe_offset`, `epoch`.
    pub const OFFSET_TRUNCATED: &str = "OFFSET_TRUNCATED";
    /// A producer's sequence leaves something out; metadata `expected`, `got`.
    pub const SEQUENCE_GAP: &str = "SEQUENCE_GAP";
    /// A producer's sequence repeats something older than the broker remembers.
    pub const SEQUENCE_TOO_OLD: &str = "SEQUENCE_TOO_OLD";
    /// The broker does not know, or no longer knows, the producer id.
    pub const PRODUCER_UNKNOWN: &str = "PRODUCER_UNKNOWN";
    /// Another producer of the same name took over.
    pub const PRODUCER_FENCED: &str = "PRODUCER_FENCED";
    /// Another stream of the same member took over, or the generation is old.
    pub const MEMBER_FENCED: &str = "MEMBER_FENCED";
    /// A record was given to another member in the meantime.
    pub const LEASE_LOST: &str = "LEASE_LOST";
    /// The broker ended itself after a failed sync: the outcome is unknown.
    pub const BROKER_FENCED: &str = "BROKER_FENCED";
    /// A group of the topic has too many records that are not done; metadata `group`, `limit`,
    /// `current`, `resume_at`, as of the three that follow.
    pub const BACKPRESSURE_DEPTH: &str = "BACKPRESSURE_DEPTH";
    /// Its oldest record that is not done is too old; in milliseconds.
    pub const BACKPRESSURE_AGE: &str = "BACKPRESSURE_AGE";
    /// Its records that are not done take too many bytes.
    pub const BACKPRESSURE_BYTES: &str = "BACKPRESSURE_BYTES";
    /// The broker's volume is filled up to its reserve; metadata `limit`, `current`.
    pub const BACKPRESSURE_DISK: &str = "BACKPRESSURE_DISK";
    /// The request is larger than the broker takes.
    pub const REQUEST_TOO_LARGE: &str = "REQUEST_TOO_LARGE";
}

/// A call that failed: refused by the broker, or broken on the way.
///
/// Two questions decide what to do with it: [`is_retryable`](Self::is_retryable), and for calls
/// that change something [`may_have_applied`](Self::may_have_applied).
#[derive(Clone)]
pub struct CallError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: Code,
    /// Empty: the answer, if it was one, did not come from the broker's own code.
    reason: String,
    message: String,
    metadata: BTreeMap<String, String>,
    retry_after: Option<Duration>,
    fields: Vec<FieldViolation>,
    origin: Origin,
    source: Option<Arc<Status>>,
}

/// Where an error was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// By the broker's own code: it has a reason.
    Broker,
    /// Somewhere else at the other end, such as a proxy: a bare status.
    Peer,
    /// Here, by a transport that broke: the request may have arrived.
    Transport,
    /// Here, before anything was sent.
    Unsent,
}

/// A field of the request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    /// Its path, such as `records[3].key`.
    pub field: String,
    /// What is wrong, for people.
    pub description: String,
}

impl CallError {
    /// The gRPC status code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The broker's reason, such as `TOPIC_NOT_FOUND`: stable, one for each kind of refusal.
    /// None when the error did not come from the broker's own code.
    pub fn reason(&self) -> Option<&str> {
        Some(self.0.reason.as_str()).filter(|reason| !reason.is_empty())
    }

    /// Whether the broker refuses producers for now: a group of the topic is too far behind, or the
    /// disk is full.
    pub fn is_backpressure(&self) -> bool {
        use reason::{BACKPRESSURE_AGE, BACKPRESSURE_BYTES, BACKPRESSURE_DEPTH, BACKPRESSURE_DISK};
        let all = [
            BACKPRESSURE_DEPTH,
            BACKPRESSURE_AGE,
            BACKPRESSURE_BYTES,
            BACKPRESSURE_DISK,
        ];
        all.iter().any(|reason| self.is(reason))
    }

    /// Whether the broker gave this reason.
    pub fn is(&self, reason: &str) -> bool {
        self.reason() == Some(reason)
    }

    /// The text, for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What belongs to the reason, such as `limit` and `size`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.0.metadata
    }

    /// A number of the metadata.
    pub fn metadata_number(&self, key: &str) -> Option<i64> {
        self.0.metadata.get(key).and_then(|text| text.parse().ok())
    }

    /// How long to wait before the same call has a chance; none when the broker did not say.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The fields that were refused.
    pub fn fields(&self) -> &[FieldViolation] {
        &self.0.fields
    }

    /// Whether the same call, sent again later, may be answered differently without anybody
    /// changing it. Says nothing about whether sending it again is harmless.
    pub fn is_retryable(&self) -> bool {
        match self.0.code {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => true,
            Code::ResourceExhausted => match self.0.origin {
                Origin::Broker | Origin::Peer => self.0.retry_after.is_some(),
                Origin::Transport | Origin::Unsent => true,
            },
            Code::Unknown => self.0.origin != Origin::Broker,
            Code::Internal => self.0.origin == Origin::Transport,
            Code::Ok
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::DataLoss
            | Code::Unauthenticated => false,
        }
    }

    /// Whether the call may have changed something although it failed. False is a promise, true
    /// is not knowing.
    pub fn may_have_applied(&self) -> bool {
        match self.0.origin {
            Origin::Unsent => false,
            Origin::Broker => self.broker_leaves_open(),
            Origin::Peer | Origin::Transport => !matches!(
                self.0.code,
                Code::InvalidArgument
                    | Code::NotFound
                    | Code::AlreadyExists
                    | Code::PermissionDenied
                    | Code::FailedPrecondition
                    | Code::ResourceExhausted
                    | Code::Unimplemented
                    | Code::Unauthenticated
            ),
        }
    }

    fn broker_leaves_open(&self) -> bool {
        self.is(reason::BROKER_FENCED)
            || self.is(reason::SEQUENCE_TOO_OLD)
            || matches!(
                self.0.code,
                Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal
            )
    }

    /// An error of this crate's own making: a wait that was given up, an answer that is none.
    pub(crate) fn local(code: Code, message: impl Into<String>) -> Self {
        Self::plain(code, message.into(), Origin::Transport)
    }

    fn plain(code: Code, message: String, origin: Origin) -> Self {
        Self(Box::new(Inner {
            code,
            reason: String::new(),
            message,
            metadata: BTreeMap::new(),
            retry_after: None,
            fields: Vec::new(),
            origin,
            source: None,
        }))
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        let mut error = Self::plain(
            status.code(),
            status.message().to_owned(),
            origin_of(&status),
        );
        let inner = error.0.as_mut();
        if let Some(info) = status.get_details_error_info()
            && info.domain == ERROR_DOMAIN
        {
            inner.origin = Origin::Broker;
            inner.reason = info.reason;
            inner.metadata = info.metadata.into_iter().collect();
        }
        inner.retry_after = status
            .get_details_retry_info()
            .and_then(|info| info.retry_delay);
        if let Some(bad) = status.get_details_bad_request() {
            let violation = |v: tonic_types::FieldViolation| FieldViolation {
                field: v.field,
                description: v.description,
            };
            inner.fields = bad.field_violations.into_iter().map(violation).collect();
        }
        if matches!(inner.origin, Origin::Transport | Origin::Unsent) {
            inner.source = Some(Arc::new(status));
        }
        error
    }
}

impl From<v1::StreamError> for CallError {
    fn from(error: v1::StreamError) -> Self {
        let origin = if error.reason.is_empty() {
            Origin::Peer
        } else {
            Origin::Broker
        };
        let mut call = Self::plain(Code::from_i32(error.code), error.message, origin);
        call.0.reason = error.reason;
        call.0.metadata = error.metadata.into_iter().collect();
        call.0.retry_after = error
            .retry_after
            .and_then(|after| Duration::try_from(after).ok());
        call
    }
}

/// A status with a cause was made on this side of the wire.
fn origin_of(status: &Status) -> Origin {
    let mut cause = status.source();
    if cause.is_none() {
        return Origin::Peer;
    }
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return Origin::Unsent;
        }
        cause = error.source();
    }
    Origin::Transport
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = if self.0.message.is_empty() {
            "no text"
        } else {
            &self.0.message
        };
        match self.reason() {
            Some(reason) => write!(f, "{message} ({:?}, {reason})", self.0.code),
            None => write!(f, "{message} ({:?})", self.0.code),
        }
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for CallError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_ref()
            .map(|status| status.as_ref() as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
