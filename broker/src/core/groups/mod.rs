//! Soft state of groups: members, assignment, leases, credit.
//!
//! A pure machine: [`Sessions`] is told what edges ask and which commands were applied, and
//! answers with [`Actions`]. Time and randomness come as arguments. It may be lost at any moment
//! without breaking a promise: what is settled is durable state, which it reads through
//! [`Durable`].
//!
//! Records go to members in two steps. A *grant* says what an edge may read; what the edge then
//! confirms to have handed on is *leased*: nobody else is given it until it is settled, given
//! back, or its time is over.

mod action;
mod assignment;
mod breaker;
mod calls;
mod candidate;
mod changes;
mod confirms;
mod copied;
mod describe;
mod durable;
mod durable_logs;
mod extend;
mod fates;
mod feed;
mod feeds;
mod grants;
mod group;
mod join;
mod judge;
mod key_window;
mod lease;
mod losses;
mod member;
mod membership;
mod operate;
mod parking;
mod pump;
mod ready;
mod rebalance;
mod restore;
mod sessions;
mod settle;
mod settling;
mod share;
mod spent;
mod tally;
#[cfg(test)]
mod tests;
mod timers;
mod turn;
mod underway;
mod waiting;

pub use action::{Action, Actions, CallId, ProposalId};
pub use describe::{
    GroupDescription, MemberDescription, OpenState, PartitionDescription, PinnedRecord, StallReason,
};
pub use durable::{Durable, GroupFacts, Place, Position, TopicFacts};
pub use sessions::Sessions;
pub use tally::{GroupTally, Tally};
pub use turn::{Now, SessionLimits};
