//! Topics, groups and the cluster: what an operator does, one method for each call.
//!
//! Answers are the messages of the API contract ([`crate::proto`]): nothing of them is hidden.
//! No method repeats itself; [`CallError::is_retryable`](crate::CallError::is_retryable) says
//! whether a caller may.

mod cluster;
mod groups;
mod topics;

pub use groups::Shift;
pub use topics::NewTopic;
pub(crate) use topics::duration;

use crate::connection::Connection;

/// Most entries asked for with one page of a list.
const PAGE_SIZE: i32 = 1_000;

/// Most pages of one list: 10,000,000 entries, more than a broker holds.
const PAGES_MAX: usize = 10_000;

/// Administration through a connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admin {
    connection: Connection,
}

impl Admin {
    /// Through this connection.
    pub fn new(connection: &Connection) -> Self {
        Self {
            connection: connection.clone(),
        }
    }

    /// The connection it goes through.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}
