//! A worker: a handler that is called for each record of a group, several at a time.
//!
//! The worker takes care of everything around the handler. It joins the group and comes back after
//! broken connections; holds on to what the handler works at and to what waits for it; settles
//! records as their handlers end; gives back, uncounted, what it could not begin.
//!
//! | The handler | The record |
//! |---|---|
//! | returns `Ok` | is done |
//! | returns [`HandlerError::transient`] | comes again as the group's retry policy says |
//! | returns any [`Error`](std::error::Error) by `?` | comes again likewise |
//! | panics | comes again likewise, with the code `panic` |
//! | returns [`HandlerError::permanent`] | is a dead letter at once |
//! | returns [`HandlerError::by_code`] | is what the group's rules say |
//! | returns [`HandlerError::released`] | is given out again, uncounted |
//!
//! A record that comes again is a dead letter when none of its deliveries is left.
//!
//! ```
//! use varvelog_client::{Connection, HandlerError, Message, Worker};
//! # use varvelog_client::{Admin, NewTopic, Producer, Record};
//!
//! async fn handle(message: Message) -> Result<(), HandlerError> {
//!     let text = std::str::from_utf8(message.value().unwrap_or_default())
//!         .map_err(HandlerError::decode)?;
//!     let number: u64 = text.parse()?; // not a number: comes again
//!     println!("{}/{}: {number}", message.topic(), message.offset());
//!     Ok(())
//! }
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
//!     # Admin::new(&connection).create_topic(NewTopic::new("numbers")).await?;
//!     # let producer = Producer::open(&connection, "numbers").await?;
//!     # for number in 0..20 { drop(producer.send(Record::new(number.to_string())).await?); }
//!     # producer.close().await?;
//!     let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//!     # let stop_later = stop;
//!     let worker = Worker::builder(&connection, "adders")
//!         .topics(["numbers"])
//!         .concurrency(4)
//!         # .limit(20)
//!         .handler(handle);
//!     let summary = worker.run_until(async { drop(stopped.await) }).await?;
//!     println!("{} done, {} failed", summary.done, summary.retried + summary.dead_lettered);
//!     # assert_eq!(summary.done, 20);
//!     # drop(stop_later);
//!     # broker.stop().await?;
//!     Ok(())
//! }
//! ```
//!
//! # Once, at least
//!
//! A record that was worked at may come again: when this program or the broker dies before the
//! settlement is stored, or when a hold could not be extended in time. A handler whose effect must
//! not be doubled stores [`Message::message_id`] in the same transaction as the effect, and
//! returns `Ok` where it finds it there. A store can also refuse a late writer by
//! [`Message::fence`].
//!
//! # Order
//!
//! Handlers run side by side, so with more than one the order of a partition is lost. With
//! [`ordered`](WorkerBuilder::ordered) each partition has at most one handler at a time. In a
//! stream group that holds its partition on failure the worker is ordered by itself, and begins
//! nothing behind a record that failed. In a queue that holds keys, the broker gives out one
//! record of a key at a time.
//!
//! # Ending
//!
//! When the future given to [`run_until`](Worker::run_until) resolves, nothing more is begun. What
//! runs may finish, for [`drain_timeout`](WorkerBuilder::drain_timeout) at most; what was not begun
//! is given back, uncounted. Dropping the future of a run aborts the handlers and gives everything
//! back.

mod builder;
mod error;
mod ledger;
mod message;
mod run;

pub use builder::{Worker, WorkerBuilder};
pub use error::HandlerError;
pub use message::Message;
pub use run::WorkerSummary;
