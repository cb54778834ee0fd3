//! The write-ahead log: every command, in order, in numbered files.
//!
//! - A file is made ready ahead of need: allocated, written with zeros once, synced, named. After
//!   that a sync of it moves data only. One that is no longer needed becomes a new one under a new
//!   number and generation.
//! - A frame is valid in one place only: its checksum covers the folder, the file's number and
//!   generation, and its position. What an earlier use left in a file is never taken for a frame.
//! - [`WalReader`] reads from a sequence to the end, tells a torn tail from damage, and becomes
//!   the [`Wal`] that writes on behind the last good frame.
//! - The first error of a [`Wal`] is final, but for refusals, which change nothing.

mod error;
mod file;
mod frame;
mod judge;
mod reader;
mod recycle;
mod scan;
mod sync;
mod tail;
mod writer;

pub use error::{Reach, WalError};
pub use frame::{Bulk, Frame, FrameKind, Place, ReadFrame};
pub use reader::WalReader;
pub use recycle::PrepareJob;
pub use sync::SyncJob;
pub use tail::{CutReason, TailCut, TailReport};
pub use writer::{Wal, WalConfig};

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod fixture_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod missing_tests;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
