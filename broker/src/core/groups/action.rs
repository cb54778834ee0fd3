//! What the group machine wants done: it answers with a list of these and does nothing itself.

use crate::core::command::Change;
use crate::core::copies::ReadJob;
use crate::core::refusal::CallError;
use crate::core::request::{GroupReply, MemberMessage, StreamKey};

/// One call of an edge that waits for an answer. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A change that the machine proposed. Never used twice in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProposalId(pub u64);

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Commit this change. Each proposal comes back exactly once, through
    /// [`Sessions::applied`](super::Sessions::applied), also when it was refused.
    Propose(ProposalId, Change),
    /// Commit this change some time, or never: nobody waits for it.
    Note(Change),
    /// Read something; the answer comes back through [`Sessions::read`](super::Sessions::read).
    Read(ReadJob),
    /// Answer a call. When the caller of a join is gone, the core reports the stream that was to
    /// be opened as ended: [`StreamEnd::Broken`](crate::core::request::StreamEnd::Broken).
    Reply(CallId, Result<GroupReply, CallError>),
    /// Send a message on a member's stream; in order, never before the answer to its join.
    Send(StreamKey, MemberMessage),
    /// No message follows on this stream.
    Close(StreamKey),
}

/// What to do, in order.
pub type Actions = Vec<Action>;
