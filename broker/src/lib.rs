//! The Varvelog broker.
//!
//! One core thread owns all state and changes it only by applying committed commands
//! ([`core`]); the edges ([`service`]) decode, check limits, submit and encode; readers see
//! committed records through [`view`] without the core.

pub mod clock;
pub mod config;
pub mod core;
mod core_options;
mod descriptors;
pub mod housekeeping;
pub mod meters;
pub mod names;
pub mod service;
mod start;
pub mod traffic;
pub mod view;

pub use start::{BrokerHandle, StartError, StopError, start};
