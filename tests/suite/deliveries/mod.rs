//! Deliveries through the real program: failures, retries, dead letters, kills.

mod backpressure;
mod kills;
mod order;
mod replays;
mod textbook;
pub(crate) mod workers;
