//! The Rust client of Varvelog, a commit log with the manners of a work queue.

pub mod admin;
mod batcher;
mod clock;
pub mod connection;
pub mod consumer;
pub mod error;
mod partitioner;
pub mod producer;
mod record;
pub mod retry;

pub use admin::{Admin, NewTopic, Shift};
pub use connection::{ConnectError, Connection, ConnectionConfig};
pub use consumer::{
    Conflict, ConsumeError, Delivery, Extended, GroupConsumer, GroupConsumerConfig, Membership,
    OnLost, ReadBatch, ReadError, Reader, ReaderConfig, Settled, Settlement, Tail, TailBatch,
    TailConfig,
};
pub use error::{CallError, FieldViolation};
pub use producer::{
    Appended, Compression, Producer, ProducerConfig, RecordError, SendError, Slot, Ticket,
};
pub use record::{Position, ReadRecord, Record};
/// The messages and generated clients of the API contract.
pub use varvelog_proto::v1 as proto;
