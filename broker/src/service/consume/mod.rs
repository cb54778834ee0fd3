//! Members of groups: `Consume` and `ConsumeSession`.
//!
//! A member's stream is a task. It gets messages from the core, reads the log for each grant,
//! confirms what it hands on, and tells the core how the stream ended. The task outlives the call
//! by the moment that it takes to see what became of the connection.

mod delivery;
mod join;
mod member;
mod session;
mod stream;

pub(super) use join::{ACK_TIMEOUT, named_topics, start_at};
pub(super) use session::consume_session;
pub(super) use stream::consume;
