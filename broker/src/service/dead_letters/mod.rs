//! Dead letters: which queues there are, what is in them, and what it died of.

mod audit;
mod discard;
mod entries;
mod filter;
mod jobs;
mod letter;
mod list;
mod plans;
mod queues;
mod replay;
mod select;
mod service;
mod stats;
mod texts;
mod trend;

pub(super) use plans::Plans;
pub(super) use service::DeadLetters;
