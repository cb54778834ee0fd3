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
mod calls;
mod changes;
mod describe;
mod durable;
mod feed;
mod grants;
mod group;
mod join;
mod lease;
mod member;
mod membership;
mod rebalance;
mod sessions;
mod settle;
#[cfg(test)]
mod tests;
mod timers;
mod turn;

pub use action::{Action, Actions, CallId, ProposalId};
pub use describe::{GroupDescription, MemberDescription, PartitionDescription, PinnedRecord};
pub use durable::{Durable, GroupFacts, Position, TopicFacts};
pub use sessions::Sessions;
pub use turn::SessionLimits;
