//! The core: one owner of all state.
//!
//! Durable state changes only by [`state::State::apply`], a deterministic function of state and
//! committed command. Soft state ([`groups`]) may be lost at any moment.

pub mod ack_set;
mod answer;
mod append;
pub mod applied;
pub mod applier;
pub mod codec;
mod codec_settings;
pub mod command;
pub mod decide;
mod derived;
pub mod durable_groups;
pub mod engine;
mod fields;
pub mod flusher;
pub mod forecast;
mod group_changes;
pub mod groups;
pub mod handle;
mod intake;
mod maintain;
pub mod partitions;
mod pending;
pub mod producers;
pub mod recover;
pub mod refusal;
pub mod request;
pub mod request_ids;
mod round;
pub mod run;
pub mod settings;
pub mod snapshot;
pub mod state;
#[cfg(test)]
mod state_tests;
mod sync;
mod timers;
mod topic_changes;
pub mod topics;
