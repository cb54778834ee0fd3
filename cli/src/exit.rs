//! What the program's exit code says.

use std::process::ExitCode;

/// Exit codes: a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Fine = 0,
    /// It failed, and no other code says why.
    Failed = 1,
    /// The command line, the configuration or a request was wrong, or a folder is not ours.
    Usage = 2,
    /// No such topic, group, partition or file.
    NotFound = 3,
    /// Something is there already, or is not in the state that the command needs; of `serve`:
    /// the data folder is in use.
    Conflict = 4,
    /// The broker cannot be reached, or refuses for now.
    Unavailable = 5,
    /// Not authenticated or not allowed.
    Denied = 6,
    /// No answer in time.
    Timeout = 7,
    /// Some of it was done.
    Partly = 8,
    /// Of `cluster health`.
    Unhealthy = 10,
    /// Damage on disk that the broker will not start on, that `log verify` found, or that a read
    /// came upon.
    Damage = 65,
    /// A sync failed, so the broker ended itself.
    SyncFailed = 74,
    /// Ended by Ctrl-C or SIGTERM.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<tonic::Code> for Exit {
    fn from(code: tonic::Code) -> Self {
        use tonic::Code;
        match code {
            Code::Ok => Self::Fine,
            Code::InvalidArgument => Self::Usage,
            Code::NotFound => Self::NotFound,
            Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted | Code::OutOfRange => {
                Self::Conflict
            }
            Code::Unavailable | Code::ResourceExhausted => Self::Unavailable,
            Code::Unauthenticated | Code::PermissionDenied => Self::Denied,
            Code::DeadlineExceeded => Self::Timeout,
            Code::Cancelled | Code::Unknown | Code::Internal | Code::Unimplemented => Self::Failed,
            Code::DataLoss => Self::Damage,
        }
    }
}
