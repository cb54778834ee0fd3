//! A failure in all that a status can say, and the two forms it goes out in.

use std::collections::HashMap;
use std::time::Duration;

use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic_types::{ErrorDetails, StatusExt};
use varvelog_proto::v1;

use super::failure::CallFailure;
use super::reason::Reason;

/// The `domain` of every `google.rpc.ErrorInfo`.
pub const DOMAIN: &str = "varvelog";

/// The trailer that tells a client's automatic retry when to come: milliseconds, or -1 for never.
pub const RETRY_PUSHBACK: &str = "grpc-retry-pushback-ms";

/// All that a failure says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Code and reason.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// Of `ErrorInfo`.
    pub metadata: Vec<(&'static str, String)>,
    /// When to come back; unset: waiting does not help.
    pub retry_after: Option<Duration>,
    /// Of `BadRequest`: the field, and what is wrong with it.
    pub field: Option<(String, String)>,
    /// Further ones.
    pub further_fields: Vec<(String, String)>,
    /// Of `QuotaFailure`: what is exhausted.
    pub quota: Option<String>,
    /// Of `ResourceInfo`: type and name.
    pub resource: Option<(&'static str, String)>,
}

impl Explanation {
    /// With a reason and a text; the rest is added.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            metadata: Vec::new(),
            retry_after: None,
            field: None,
            further_fields: Vec::new(),
            quota: None,
            resource: None,
        }
    }

    /// Adds an entry of `ErrorInfo.metadata`.
    #[must_use]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and references alike"
    )]
    pub fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.metadata.push((key, value.to_string()));
        self
    }

    /// Says when to come back.
    #[must_use]
    pub fn retry(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Names the field.
    #[must_use]
    pub fn at(mut self, field: impl Into<String>, what: impl Into<String>) -> Self {
        self.field = Some((field.into(), what.into()));
        self
    }

    /// Names what is exhausted.
    #[must_use]
    pub fn exhausted(mut self, what: impl Into<String>) -> Self {
        self.quota = Some(what.into());
        self
    }

    /// Names the thing.
    #[must_use]
    pub fn about(mut self, kind: &'static str, name: impl Into<String>) -> Self {
        self.resource = Some((kind, name.into()));
        self
    }

    /// What automatic retry is told; nothing where it does not try anyway.
    pub fn pushback_ms(&self) -> Option<i64> {
        let tried = matches!(
            self.reason.code(),
            tonic::Code::Unavailable | tonic::Code::ResourceExhausted
        );
        let wait = |after: Duration| i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        tried.then(|| self.retry_after.map_or(-1, wait))
    }

    fn details(&self) -> ErrorDetails {
        let metadata: HashMap<String, String> = self
            .metadata
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.clone()))
            .collect();
        let mut details = ErrorDetails::with_error_info(self.reason.as_str(), DOMAIN, metadata);
        if let Some(after) = self.retry_after {
            details.set_retry_info(Some(after));
        }
        for (field, what) in self.field.iter().chain(&self.further_fields) {
            details.add_bad_request_violation(field, what);
        }
        if let Some(what) = &self.quota {
            details.add_quota_failure_violation(what.as_str(), self.message.as_str());
        }
        if let Some((kind, name)) = &self.resource {
            details.set_resource_info(*kind, name, "", self.message.as_str());
        }
        details
    }
}

impl From<Explanation> for Status {
    fn from(explanation: Explanation) -> Self {
        let mut trailers = MetadataMap::new();
        if let Some(pushback) = explanation.pushback_ms() {
            trailers.insert(RETRY_PUSHBACK, MetadataValue::from(pushback));
        }
        let details = explanation.details();
        let code = explanation.reason.code();
        Self::with_error_details_and_metadata(code, explanation.message, details, trailers)
    }
}

impl From<CallFailure> for Status {
    fn from(failure: CallFailure) -> Self {
        Explanation::from(&failure).into()
    }
}

impl From<&CallFailure> for v1::StreamError {
    fn from(failure: &CallFailure) -> Self {
        let explanation = Explanation::from(failure);
        Self {
            code: i32::from(explanation.reason.code()),
            reason: explanation.reason.as_str().to_owned(),
            message: explanation.message,
            retry_after: explanation
                .retry_after
                .map(|after| after.try_into().unwrap_or_default()),
            metadata: explanation
                .metadata
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        }
    }
}
