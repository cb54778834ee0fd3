//! The edge: takes calls off the network, checks their limits, submits them to the core and
//! encodes what comes back. Nothing here owns durable state.

pub mod edge;
pub mod status;
pub mod token;
pub mod transcode;
pub mod wire;

mod ack;
mod checks;
mod cluster;
mod consume;
mod context;
mod dead_letters;
mod fetch;
mod generated;
mod group_service;
mod groups;
mod health;
mod http;
mod log_service;
mod lookup;
mod metrics;
mod not_implemented;
mod open_batches;
mod pages;
mod positions;
mod produce;
mod read;
mod results;
mod scaler;
mod serve;
mod settle;
mod tail;
mod topics;

pub use context::{BrokerIdentity, Services};
pub use edge::EdgeHandle;
pub use serve::serve;

#[cfg(test)]
mod tests;
