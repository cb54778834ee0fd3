//! Topics, groups and the cluster: what an operator does, one method for each call.
//!
//! Answers are the messages of the API contract ([`crate::proto`]): nothing of them is hidden.
//! No method repeats itself; [`CallError::is_retryable`](crate::CallError::is_retryable) says
//! whether a caller may.

mod cluster;
mod dead_letters;
mod groups;
mod handle;
mod topics;

pub use groups::Shift;
pub use handle::Admin;
use handle::{PAGE_SIZE, PAGES_MAX};
pub use topics::NewTopic;
pub(crate) use topics::duration;
