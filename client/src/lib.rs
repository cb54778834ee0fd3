//! The Rust client of Varvelog, a commit log with the manners of a work queue.
//!
//! Everything begins with a [`Connection`]. Over it go
//! - [`Producer`]: appends records to a topic, in batches, without doubling any;
//! - [`GroupConsumer`]: a member of a group, to which the broker gives records until they are
//!   settled;
//! - [`Worker`]: a handler that is called for each record of a group, and all that takes;
//! - [`idempotent`]: handlers whose effect in a database happens once;
//! - [`Reader`] and [`Tail`]: reading without a group;
//! - [`Admin`]: topics, groups, offsets, the cluster;
//! - and the generated clients for all the rest, such as [`Connection::dead_letters`], with the
//!   messages of [`proto`].
//!
//! # Produce and consume
//!
//! ```
//! use varvelog_client::{Admin, Connection, GroupConsumer, NewTopic, Producer, Record};
//!
//! # use varvelog_broker::config::{Config, FileText, Sources};
//! # async fn broker(data: &std::path::Path) -> varvelog_broker::BrokerHandle {
//! #     let any = "127.0.0.1:0";
//! #     let text = format!("data_dir = {data:?}\nlisten = '{any}'\nhttp_listen = '{any}'");
//! #     let file = Some(FileText { name: "varvelog.toml".into(), text });
//! #     let config = Config::load(&Sources { file, ..Sources::default() }).unwrap();
//! #     varvelog_broker::start(config).await.unwrap()
//! # }
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     # let data = tempfile::tempdir()?;
//!     # let broker = broker(data.path()).await;
//!     # let address = broker.grpc_addr().to_string();
//!     let connection = Connection::open(address).await?;
//!     let topic = NewTopic::new("orders").partitions(6).ok_if_exists(true);
//!     Admin::new(&connection).create_topic(topic).await?;
//!
//!     let producer = Producer::open(&connection, "orders").await?;
//!     for number in 0..100 {
//!         let customer = format!("customer {}", number % 7);
//!         let order = Record::new(format!("order {number}")).key(customer);
//!         // Waits for room in the buffer; the ticket resolves when the record is committed.
//!         let ticket = producer.send(order).await?;
//!         if number == 0 {
//!             let place = ticket.await?;
//!             println!("first at {}/{}", place.partition, place.offset);
//!         }
//!     }
//!     producer.close().await?;
//!
//!     let mut email = GroupConsumer::config("email").topics(["orders"]).open(&connection).await?;
//!     let mut left = 100_usize;
//!     while left > 0
//!         && let Some(delivery) = email.next().await
//!     {
//!         let delivery = delivery?;
//!         left -= delivery.records().len();
//!         delivery.ack().await?;
//!     }
//!     email.close().await?;
//!     # broker.stop().await?;
//!     Ok(())
//! }
//! ```
//!
//! # When something fails
//!
//! A [`CallError`] says whether the same call [may work later](CallError::is_retryable) and
//! whether it [may have worked](CallError::may_have_applied) although it failed; [`SendError`]
//! does the same for a record. `false` of the latter is a promise, `true` is not knowing. Producer
//! and consumers wait out what passes by itself: broken connections, a broker that restarts or is
//! busy. What they give as an error does not pass by itself.
//!
//! # Bounds
//!
//! A producer holds at most [`buffer_bytes`](ProducerConfig::buffer_bytes) and makes senders wait;
//! a group consumer holds at most [`credit`](GroupConsumerConfig::credit) deliveries, buffered
//! ones included; a worker holds at most [`buffer`](WorkerBuilder::buffer) records; a reader has at
//! most 64 fetches in flight. Messages above [`connection::MESSAGE_BYTES_MAX`] are not taken.

pub mod admin;
mod batcher;
mod clock;
pub mod connection;
pub mod consumer;
pub mod error;
pub mod idempotent;
mod partitioner;
pub mod producer;
mod record;
pub mod retry;
pub mod worker;

pub use admin::{Admin, NewTopic, Shift};
pub use connection::{ConnectError, Connection, ConnectionConfig};
pub use consumer::{
    Conflict, ConsumeError, Delivery, Extended, Failure, GroupConsumer, GroupConsumerConfig,
    Membership, OnLost, ReadBatch, ReadError, Reader, ReaderConfig, Settled, Settlement, Tail,
    TailBatch, TailConfig,
};
pub use error::{CallError, FieldViolation};
pub use producer::{
    Appended, Compression, OpenError, Producer, ProducerConfig, RecordError, SendError, Slot,
    Ticket,
};
pub use record::{Position, ReadRecord, Record};
/// The messages and generated clients of the API contract.
pub use varvelog_proto::v1 as proto;
pub use worker::{HandlerError, Message, Worker, WorkerBuilder, WorkerSummary};
