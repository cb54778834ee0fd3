//! Whether producers are let in: a group may ask that they are refused while it is too far behind.
//!
//! Soft state beside the durable one, made anew at each start. It is told of every command that
//! was applied and looks again at the partitions that the command touched, each at a cost that
//! does not grow with the backlog. A gate is then a function of how far its group is behind in a
//! topic and of whether it was closed before, and of nothing else.
//!
//! Only what producers append asks here. What a group moves to its retry and dead-letter topics,
//! outputs of a settlement and replays are changes that the broker proposes itself.

mod delay;
mod doors;
mod gate;
mod ledger;
mod logs;
mod rate;
mod watch;

pub use doors::{Admission, AdmissionView, Admitted, Source, Unsure};
pub use gate::{Behind, Gate, Measure};
pub use ledger::Ledger;
pub use logs::Logs;

use std::time::Duration;

use crate::names::GroupName;

/// Why producers of a topic have to wait, and how long about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "group {group} is too far behind in topic {topic}: {} is {current}, the limit is {limit}; \
     producers are let in again at {resume_at}",
    measure.name()
)]
pub struct TurnedAway {
    /// Whose gate is closed.
    pub group: GroupName,
    /// Name of the topic.
    pub topic: String,
    /// What is over its limit, or not yet back at its resume level.
    pub measure: Measure,
    /// In records, milliseconds or bytes, as the measure goes.
    pub limit: u64,
    /// Now, in the same unit.
    pub current: u64,
    /// At or below which the gate opens, in the same unit.
    pub resume_at: u64,
    /// When to come back: 100 ms to 30 s.
    pub retry_after: Duration,
}
