//! The durable state as bytes, for checkpoints; the layout is in `log-store/FORMAT.md`,
//! "Snapshot".
//!
//! The same state always gives the same bytes. What is decoded is checked as a whole before it is
//! used, so that bytes which no encoder wrote are an error and not a broken state.

mod dead_letters;
mod error;
mod groups;
mod message_ids;
mod producers;
mod replays;
mod requests;
mod state;
mod topics;

pub use error::SnapshotError;
pub use state::{SNAPSHOT_VERSION, Snapshot};
