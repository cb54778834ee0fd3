//! The core: one owner of all state.
//!
//! Durable state changes only by [`state::State::apply`], a deterministic function of state and
//! committed command. Soft state ([`groups`]) may be lost at any moment.

pub mod ack_set;
mod append;
pub mod applied;
pub mod codec;
mod codec_settings;
pub mod command;
pub mod decide;
mod derived;
pub mod durable_groups;
mod fields;
pub mod forecast;
mod group_changes;
pub mod groups;
pub mod handle;
pub mod partitions;
pub mod producers;
pub mod refusal;
pub mod request;
pub mod request_ids;
pub mod settings;
pub mod snapshot;
pub mod state;
mod topic_changes;
pub mod topics;
