//! Reading: plain readers that keep their own place, and members of groups.
//!
//! - [`Reader`] fetches partitions from offsets on, for programs that keep their own positions.
//! - [`Tail`] follows topics as they grow, without a group.
//! - [`GroupConsumer`] is a member of a group: the broker gives it records, counts deliveries,
//!   and gives them to another when it fails.

mod ack;
mod decode;
mod delivery;
mod error;
mod group;
mod member;
mod reader;
mod session;
mod tail;

pub use ack::{Conflict, Extended, Settled, Settlement};
pub use delivery::Delivery;
pub use error::{ConsumeError, ReadError};
pub use group::{GroupConsumer, GroupConsumerConfig, Membership};
pub use reader::{OnLost, ReadBatch, Reader, ReaderConfig};
pub use tail::{Tail, TailBatch, TailConfig};
