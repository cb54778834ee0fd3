//! What the edges ask of the core, and what they get.

mod appends;
mod changes;
mod groups;
mod members;
mod settling;

pub use appends::{AppendRequest, AppendRequestPart, Appended, PartAppended, Repeat};
pub use changes::{ChangeDone, ChangeRequest, CommitRequest, StartAt};
pub use groups::{
    Credit, GroupReply, GroupRequest, JoinRequest, LeaseId, OperatorAction, StreamEnd, StreamKey,
};
pub use members::{Grant, MemberEnd, MemberEvent, MemberMessage};
pub use settling::{
    AckToken, Conflict, FailureAction, Outputs, RETRY_RUN_MAX, RecordFailure, SettleRequest,
    Settled,
};
