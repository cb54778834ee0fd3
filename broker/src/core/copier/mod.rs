//! Copies of records for retry and dead-letter topics.
//!
//! [`build`] is pure: records in, batches out. Key, value, the producer's headers and its timestamp
//! are copied byte for byte; reserved headers are replaced, never added to. [`start`] makes the
//! thread that reads the records, so that the core never waits for a log.

mod building;
#[cfg(test)]
mod building_tests;
mod header_set;
#[cfg(test)]
mod interop_tests;
#[cfg(test)]
mod lineage_tests;
mod parts;
mod reading;
#[cfg(test)]
mod reading_tests;
mod replaying;
#[cfg(test)]
mod replaying_tests;
#[cfg(test)]
mod samples;
mod thread;
#[cfg(test)]
mod thread_tests;

pub use building::{COPIES_BYTES_MAX, CopyBuilder, OpenBatch, build};
pub use parts::{PART_BYTES_MAX, PART_RECORDS_MAX};
pub use reading::{hash_of_key, perform};
pub use thread::start;
