//! A disk in memory that fails in every way that a real one may, for tests.
//!
//! The model:
//!
//! - A file is a durable image and the ordered list of operations since (writes, lengths); a folder
//!   is the same for names. A sync of a file settles its data and length, a sync of a folder its
//!   names, and nothing else settles anything.
//! - A power loss keeps any subset of what is unsettled. A write is torn at sectors of 512 bytes;
//!   length and data go separate ways; a sector that was being written holds old bytes, zeros,
//!   noise or the new bytes. Bytes outside a write's range are never touched by it. Half of the
//!   sampled states obey what ext4 promises besides: names and lengths survive in order, and a
//!   length only with its data.
//! - A mapped file's words are each old or new after a power loss.
//! - A killed process loses nothing: the page cache lives on.
//! - After a failed sync the unsettled data counts as clean: it is read back until the cache is
//!   dropped, and is never written to the device.
//!
//! Everything is a function of the calls and the seeds: the same run gives the same states.

mod crash;
mod disk;
mod fault;
mod handle;
mod image;
mod node;

pub use crash::CrashStates;
pub use disk::SimDisk;
pub use fault::{Call, Failure};

#[cfg(test)]
mod tests;
