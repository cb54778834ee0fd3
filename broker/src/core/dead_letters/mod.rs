//! What lies in dead-letter topics: which entries are there, what they died of, and how they came
//! and went. Kept as commands are applied, so that no question about a queue reads its log.

mod audit;
mod causes;
mod claims;
mod death;
mod job;
mod jobs;
mod parked;
mod queue;
mod queues;
mod trend;

pub use audit::{AUDIT_MAX, Audit, AuditEntry};
pub use causes::{CAUSES_MAX, Causes, OTHER};
pub use claims::Claims;
pub use death::{Cause, Death};
pub use job::{Canary, Job, JobNumber, JobState, ReplayOrder};
pub use jobs::{JOBS_ACTIVE_MAX, JOBS_MAX, JOBS_MAX_AGE_MS, Jobs};
pub use queue::{Entry, Left, Queue};
pub use queues::DeadLetters;
pub use trend::{HOUR_MS, HOURS_MAX, MINUTE_MS, MINUTES_MAX, Moves, Step, Trend};

#[cfg(test)]
mod tests;
