//! A command that failed: the cause, the broker's reason, and what to try next.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use tonic::Code;
use varvelog_client::CallError;

use crate::exit::Exit;

const GRPC_PORT: &str = "--server HOST:PORT with the broker's gRPC port, the `grpc=` of its ready \
                         line (7461 unless set otherwise)";

/// Why a command ended without doing all it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What the program exits with.
    pub(crate) exit: Exit,
    /// The cause, for people. Empty: nothing is printed.
    pub(crate) message: String,
    /// The broker's reason, such as `TOPIC_NOT_FOUND`.
    pub(crate) reason: Option<String>,
    /// The next command to try.
    pub(crate) hint: Option<String>,
    /// The same call may succeed later, though nobody changes it.
    pub(crate) passes: bool,
}

impl Failure {
    /// A failure without reason or hint.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            reason: None,
            hint: None,
            passes: false,
        }
    }

    /// The command line was wrong in a way that its definition cannot express.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// An end that needs no words.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }

    /// With the next command to try.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Something on this machine: a file, standard input.
    pub(crate) fn io(what: &str, error: &io::Error) -> Self {
        let exit = if error.kind() == io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Failed
        };
        Self::new(exit, format!("{what}: {error}"))
    }

    /// A call to `server` that failed.
    pub(crate) fn call(error: &CallError, server: &str) -> Self {
        if let Some(cause) = error.source().filter(|_| error.code() == Code::Unavailable) {
            return Self::unreachable(server, &innermost(cause));
        }
        if let Some(cause) = no_grpc(error) {
            return Self::no_grpc(server, &cause);
        }
        let is_local = matches!(
            error.code(),
            Code::Unknown | Code::Internal | Code::Cancelled
        );
        if let Some(cause) = error.source().filter(|_| is_local) {
            return Self::broken(server, &innermost(cause));
        }
        let mut message = if error.message().is_empty() {
            format!("the broker answered {:?}", error.code())
        } else {
            error.message().to_owned()
        };
        for field in error.fields() {
            if !message.contains(&field.description) {
                message = format!("{message}\n  {}: {}", field.field, field.description);
            }
        }
        let hint = match error.retry_after() {
            Some(wait) => Some(again_in(wait, error)),
            None => next_command(error.reason(), error.code()).map(str::to_owned),
        };
        let reason = error.reason().map(str::to_owned);
        Self {
            exit: error.code().into(),
            message,
            reason,
            hint,
            passes: error.is_retryable(),
        }
    }

    /// Nobody answers at `server`.
    pub(crate) fn unreachable(server: &str, cause: &str) -> Self {
        Self::new(Exit::Unavailable, format!("no broker at {server}: {cause}"))
            .hint("varvelog serve, or --server HOST:PORT for another one")
            .passing()
    }

    /// Something answers at `server`, and it is no broker.
    fn no_grpc(server: &str, cause: &str) -> Self {
        let message = format!("what answers at {server} does not speak gRPC: {cause}");
        Self::new(Exit::Unavailable, message).hint(GRPC_PORT)
    }

    /// The connection to `server` ended in the middle of a call.
    fn broken(server: &str, cause: &str) -> Self {
        let message = format!("the connection to {server} broke: {cause}");
        Self::new(Exit::Unavailable, message)
            .hint(format!("again, or {GRPC_PORT}"))
            .passing()
    }

    fn passing(mut self) -> Self {
        self.passes = true;
        self
    }
}

/// Where a group is behind, also what shows how far.
fn again_in(wait: Duration, error: &CallError) -> String {
    let wait = Duration::from_millis(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let wait = humantime::format_duration(wait);
    match error.metadata().get("group") {
        Some(group) if error.is_backpressure() => {
            format!("again in {wait}, or more workers: varvelog group advise {group}")
        }
        Some(_) | None => format!("again in {wait}"),
    }
}

/// Writing to standard output failed. A reader that has gone away, as `head` does, is no error.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::silent(Exit::Fine);
        }
        Self::new(Exit::Failed, format!("cannot write the output: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        if let Some(reason) = &self.reason {
            write!(f, " [{reason}]")?;
        }
        match &self.hint {
            Some(hint) => write!(f, "\n  try: {hint}"),
            None => Ok(()),
        }
    }
}

impl Error for Failure {}

/// Why the other end cannot be a broker, if it cannot: it broke the rules of HTTP/2, or answered as
/// a web server does.
fn no_grpc(error: &CallError) -> Option<String> {
    if error.reason().is_some() {
        return None;
    }
    let Some(cause) = error.source() else {
        // The words are tonic's.
        let web = error.message().contains("grpc-status header missing");
        return web.then(|| error.message().to_owned());
    };
    let cause = innermost(cause);
    let broken = [
        "frame with invalid size",
        "PROTOCOL_ERROR",
        "unspecific protocol error",
    ];
    broken
        .iter()
        .any(|words| cause.contains(words))
        .then_some(cause)
}

/// What began it.
pub(crate) fn innermost(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn next_command(reason: Option<&str>, code: Code) -> Option<&'static str> {
    match reason {
        Some("TOPIC_NOT_FOUND") => Some("varvelog topic list"),
        Some("PARTITION_NOT_FOUND") => Some("varvelog topic describe TOPIC"),
        Some("GROUP_NOT_FOUND") => Some("varvelog group list"),
        Some("QUEUE_NOT_FOUND") => Some("varvelog dlq list --all"),
        Some("TOPIC_EXISTS") => Some("--if-not-exists, or varvelog topic describe TOPIC"),
        Some("OFFSET_OUT_OF_RANGE") => Some("varvelog topic describe TOPIC shows what is kept"),
        Some("GROUP_NOT_EMPTY") => Some("stop its members, see varvelog group describe GROUP"),
        Some("DEAD_LETTERS_NOT_EMPTY" | "WOULD_REORDER") => Some("--force, if that is acceptable"),
        Some("BROKER_FENCED") => Some("the broker's log; restart it when the disk is sound"),
        Some("SEGMENT_CORRUPT") => {
            Some("on the broker's machine, when it is stopped: varvelog log verify FOLDER")
        }
        Some("BACKPRESSURE_DISK") => Some("free space on the broker's data volume"),
        _ if code == Code::DeadlineExceeded => Some("--timeout with more time"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt as _};

    use super::*;

    #[test]
    fn a_refusal_names_cause_reason_and_next_command() {
        let details = ErrorDetails::with_error_info(
            "TOPIC_NOT_FOUND",
            "varvelog",
            HashMap::<String, String>::new(),
        );
        let text = "topic \"ordres\" does not exist, nearest is \"orders\"";
        let status = Status::with_error_details(Code::NotFound, text, details);
        let failure = Failure::call(&status.into(), "127.0.0.1:1");
        assert_eq!(failure.exit, Exit::NotFound);
        assert_eq!(
            failure.to_string(),
            "error: topic \"ordres\" does not exist, nearest is \"orders\" [TOPIC_NOT_FOUND]\n  \
             try: varvelog topic list"
        );
    }

    #[test]
    fn a_refusal_that_passes_says_when_to_come_back() {
        let mut details = ErrorDetails::with_retry_info(Some(Duration::from_millis(1500)));
        details.set_error_info("BROKER_BUSY", "varvelog", HashMap::<String, String>::new());
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", details);
        let failure = Failure::call(&status.into(), "127.0.0.1:1");
        assert_eq!(failure.exit, Exit::Unavailable);
        assert_eq!(
            failure.to_string(),
            "error: busy [BROKER_BUSY]\n  try: again in 1s 500ms"
        );
    }

    #[test]
    fn a_producer_that_is_refused_learns_when_to_come_back_and_what_would_help() {
        let mut details = ErrorDetails::with_retry_info(Some(Duration::from_millis(1500)));
        let metadata = HashMap::from([("group".to_owned(), "email".to_owned())]);
        details.set_error_info("BACKPRESSURE_DEPTH", "varvelog", metadata);
        let text = "group email is too far behind";
        let status = Status::with_error_details(Code::ResourceExhausted, text, details);
        let failure = Failure::call(&status.into(), "127.0.0.1:1");
        assert_eq!(failure.exit, Exit::Unavailable);
        assert_eq!(
            failure.to_string(),
            "error: group email is too far behind [BACKPRESSURE_DEPTH]\n  \
             try: again in 1s 500ms, or more workers: varvelog group advise email"
        );
    }

    #[test]
    fn refused_fields_are_listed_once() {
        let details = ErrorDetails::with_bad_request_violation("topic.name", "has a blank in it");
        let status = Status::with_error_details(Code::InvalidArgument, "bad name", details);
        let failure = Failure::call(&status.into(), "x");
        assert_eq!(failure.exit, Exit::Usage);
        assert_eq!(failure.message, "bad name\n  topic.name: has a blank in it");
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure, Failure::silent(Exit::Fine));
        let failure = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(failure.exit, Exit::Failed);
    }

    #[test]
    fn every_status_code_has_its_exit_code() {
        let exits: Vec<(i32, u8)> = (0..=16)
            .map(|code| (code, Exit::from(Code::from_i32(code)) as u8))
            .collect();
        assert_eq!(
            exits,
            [
                (0, 0),
                (1, 1),
                (2, 1),
                (3, 2),
                (4, 7),
                (5, 3),
                (6, 4),
                (7, 6),
                (8, 5),
                (9, 4),
                (10, 4),
                (11, 4),
                (12, 1),
                (13, 1),
                (14, 5),
                (15, 65),
                (16, 6)
            ]
        );
    }
}
