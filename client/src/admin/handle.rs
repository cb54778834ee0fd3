//! The handle that administration goes through.

use crate::connection::Connection;

/// Most entries asked for with one page of a list.
pub(super) const PAGE_SIZE: i32 = 1_000;

/// Most pages of one list: 10,000,000 entries, more than a broker holds.
pub(super) const PAGES_MAX: usize = 10_000;

/// Administration through a connection. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Admin {
    pub(super) connection: Connection,
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
