//! Why a handler did not process its record.

use std::any::{Any, type_name};
use std::error::Error;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use crate::consumer::Failure;

/// The code of a handler that panicked.
const CODE_PANIC: &str = "panic";
/// The code of a record that cannot be read.
const CODE_DECODE: &str = "decode";
/// Causes of an error that are told, the error itself not included.
const CAUSES_MAX: usize = 16;

/// Why a handler did not process its record, and what is to become of the record.
///
/// Any [`Error`] becomes one by `?`: transient, with the name of its type as the code, its text as
/// the message, and its causes as the stack.
///
/// ```
/// use varvelog_client::HandlerError;
/// use varvelog_client::proto::FailureAction;
///
/// fn parse(text: &str) -> Result<u32, HandlerError> {
///     if text.is_empty() {
///         return Err(HandlerError::permanent("empty", "there is nothing to parse"));
///     }
///     Ok(text.parse()?)
/// }
///
/// let error = parse("seven").unwrap_err();
/// assert_eq!(error.failure().action(), FailureAction::Retry);
/// assert_eq!(error.failure().message(), "invalid digit found in string");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerError(Failure);

impl HandlerError {
    /// As [`Failure::transient`]: it may work later.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Failure::transient(code, message))
    }

    /// As [`Failure::permanent`]: it can never work.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Failure::permanent(code, message))
    }

    /// As [`Failure::by_code`]: the group's rules on the code decide.
    pub fn by_code(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Failure::by_code(code, message))
    }

    /// As [`Failure::released`]: the record was not looked at.
    pub fn released() -> Self {
        Self(Failure::released())
    }

    /// The record cannot be read: permanent, with the code `decode`.
    pub fn decode(error: impl fmt::Display) -> Self {
        Self::permanent(CODE_DECODE, error.to_string())
    }

    /// As [`Failure::retry_after`].
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Self(self.0.retry_after(after))
    }

    /// As [`Failure::stack`].
    #[must_use]
    pub fn stack(self, stack: impl Into<String>) -> Self {
        Self(self.0.stack(stack))
    }

    /// What the broker is told.
    pub fn failure(&self) -> &Failure {
        &self.0
    }

    /// What the broker is told.
    pub fn into_failure(self) -> Failure {
        self.0
    }

    pub(super) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self::transient(CODE_PANIC, text.unwrap_or("the handler panicked"))
    }
}

impl From<Failure> for HandlerError {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

impl<E: Error> From<E> for HandlerError {
    fn from(error: E) -> Self {
        let mut causes = String::new();
        let mut next = error.source();
        for _ in 0..CAUSES_MAX {
            let Some(cause) = next else { break };
            writeln!(causes, "caused by: {cause}").expect("writing to a String cannot fail");
            next = cause.source();
        }
        Self::transient(type_name::<E>(), error.to_string()).stack(causes.trim_end())
    }
}

#[cfg(test)]
mod tests {
    use varvelog_proto::v1::FailureAction;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot charge")]
    struct Charge(#[source] std::num::ParseIntError);

    #[test]
    fn any_error_is_transient_with_its_type_its_text_and_its_causes() {
        let cause = "x".parse::<u8>().expect_err("no number");
        let error = HandlerError::from(Charge(cause));
        let wanted = Failure::transient(type_name::<Charge>(), "cannot charge")
            .stack("caused by: invalid digit found in string");
        assert_eq!(error.into_failure(), wanted);
        assert!(type_name::<Charge>().ends_with("::Charge"));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_a_dead_letter() {
        let failure = HandlerError::decode("expected a comma").into_failure();
        assert_eq!(failure.action(), FailureAction::DeadLetter);
        assert_eq!(
            (failure.code(), failure.message()),
            ("decode", "expected a comma")
        );
    }

    #[test]
    fn a_panic_tells_its_text() {
        let text = |payload: Box<dyn Any + Send>| {
            let failure = HandlerError::panicked(payload.as_ref()).into_failure();
            assert_eq!(
                (failure.action(), failure.code()),
                (FailureAction::Retry, "panic")
            );
            failure.message().to_owned()
        };
        assert_eq!(text(Box::new("out of seats")), "out of seats");
        assert_eq!(text(Box::new(String::from("seat 7"))), "seat 7");
        assert_eq!(text(Box::new(7)), "the handler panicked");
    }
}
