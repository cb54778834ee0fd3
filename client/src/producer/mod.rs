//! Appending records: batched, pipelined, retried, without doubling any.
//!
//! A [`Producer`] belongs to one topic. [`Producer::send`] waits for room in its buffer and gives
//! a [`Ticket`], which resolves to where the record went. A task of its own gathers records into
//! batches, sends them ahead of their answers over one stream, and sends them again, the same
//! bytes in the same order, when the stream breaks; by producer id and sequence the broker knows
//! what it has already.
//!
//! With [`ProducerConfig::message_ids`] records have ids of their own: then a record that is sent a
//! second time, by another program or another day, is appended once within the topic's window.
//!
//! What cannot be promised is said: [`SendError::may_have_applied`] is true when a try went
//! unanswered and its outcome was never learned.

mod config;
mod driver;
mod error;
mod handle;
mod identified;
mod lane;
mod link;
mod pipeline;
#[cfg(test)]
mod pipeline_model;
#[cfg(test)]
mod pipeline_tests;
mod pressure;
mod ticket;
mod verdict;

pub use config::{Compression, IN_FLIGHT_MAX, ProducerConfig};
pub use error::{RecordError, SendError};
pub use handle::{OpenError, Producer, Slot};
pub use ticket::{Appended, Ticket};
