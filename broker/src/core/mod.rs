//! The core: one owner of all state.
//!
//! Durable state changes only by [`state::State::apply`], a deterministic function of state and
//! committed command. Soft state ([`groups`],
//! [`admission`]) may be lost at any moment.

pub mod ack_set;
pub mod admission;
mod answer;
mod append;
pub mod applied;
pub mod applier;
pub mod attempt_log;
mod backlog;
pub mod codec;
mod codec_delivery;
mod codec_ids;
mod codec_replay;
mod codec_settings;
pub mod command;
pub mod copier;
pub mod copies;
pub mod dead_letters;
pub mod decide;
pub mod delays;
mod derived;
pub mod durable_groups;
pub mod endings;
pub mod engine;
pub mod failure;
pub mod failure_text;
mod fields;
mod fingerprint;
pub mod flusher;
pub mod forecast;
mod group_changes;
pub mod groups;
mod hand_out_changes;
pub mod handed_out;
pub mod handle;
mod intake;
pub mod judgement;
mod maintain;
pub mod message_ids;
pub mod partitions;
mod pending;
pub mod policy_check;
mod preview;
pub mod producers;
mod quota;
pub mod recover;
pub mod refusal;
mod replay_changes;
pub mod replay_command;
mod replay_turns;
pub mod replays;
pub mod request;
pub mod request_ids;
pub mod reserved_headers;
mod retention_floor;
pub mod retries;
pub mod retry_policy;
mod round;
pub mod run;
pub mod settings;
mod settle_check;
mod settlement;
pub mod snapshot;
pub mod state;
#[cfg(test)]
mod state_tests;
mod sync;
mod timers;
mod topic_changes;
pub mod topics;
mod touched;
mod wal_debt;
