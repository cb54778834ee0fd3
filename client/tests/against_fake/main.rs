//! The client against a broker in memory: no socket, no disk, and a clock that stands still unless
//! everybody waits.

#![expect(
    clippy::indexing_slicing,
    clippy::result_large_err,
    reason = "a test may panic, and its errors are the messages of the contract"
)]

mod consume;
mod fake;
mod produce;
mod produce_faults;
mod read;
mod settle;
mod worker;
mod worker_ends;
mod worker_holds;
