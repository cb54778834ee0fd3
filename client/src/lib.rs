//! The Rust client of Varvelog, a commit log with the manners of a work queue.

pub mod admin;
mod clock;
pub mod connection;
pub mod error;
mod record;
pub mod retry;

pub use admin::{Admin, NewTopic, Shift};
pub use connection::{ConnectError, Connection, ConnectionConfig};
pub use error::{CallError, FieldViolation};
pub use record::{Position, ReadRecord, Record};
/// The messages and generated clients of the API contract.
pub use varvelog_proto::v1 as proto;
