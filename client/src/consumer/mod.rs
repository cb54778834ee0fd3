//! Reading: plain readers that keep their own place, and members of groups.
//!
//! - [`Reader`] fetches partitions from offsets on, for programs that keep their own positions.
//! - [`Tail`] follows topics as they grow, without a group.
//! - [`GroupConsumer`] is a member of a group: the broker gives it records, counts deliveries,
//!   and gives them to another when it fails.

mod ack;
mod credit;
mod decode;
mod delivery;
mod error;
mod failure;
mod group;
mod member;
mod reader;
mod session;
mod settlement;
mod tail;

pub use delivery::Delivery;
pub use error::{ConsumeError, ReadError};
pub use failure::Failure;
pub use group::{GroupConsumer, GroupConsumerConfig, Membership};
pub use reader::{OnLost, ReadBatch, Reader, ReaderConfig};
pub use settlement::{Conflict, Extended, Settled, Settlement};
pub use tail::{Tail, TailBatch, TailConfig};
