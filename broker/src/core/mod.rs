//! The core: one owner of all state.
//!
//! Durable state changes only by [`state::State::apply`], a deterministic function of state and
//! committed command. Soft state ([`groups`]) may be lost at any moment.

pub mod command;
pub mod groups;
pub mod handle;
pub mod refusal;
pub mod request;
pub mod settings;
pub mod state;
