//! A partition: a chain of segments with their indexes, and a tail in memory.
//!
//! Its three sides belong to three owners. [`TailAppender`] takes committed batches in, and readers
//! see them at once. [`PartitionWriter`] moves them into segments and looks after those.
//! [`PartitionReader`] is cheap to clone and reads from any thread, from the tail without a copy,
//! else from the files. A partition without records has no file and no folder.
//!
//! What must hold:
//! - The tail begins where the chain ends. A batch is published in the chain before it leaves the
//!   tail.
//! - Nothing is read that its checksums do not vouch for, and damage ends where it ends: what is
//!   whole before and behind it can be read.
//! - The manifest is the evidence of what is there; files are opened when they are needed.
//! - An index is a hint. Without its files everything is the same, but slower.

mod active;
mod body;
mod chain;
mod entry;
mod error;
mod fields;
mod file_header;
mod index;
mod index_file;
mod log;
mod manifest;
mod open;
mod open_files;
mod reader;
mod remove;
mod repair;
mod segment;
mod settle;
mod shared;
mod source;
mod stored;
mod tail;
mod take;
mod verify;
mod walk;

pub use error::{OpenError, ReadError, WriteError};
pub(crate) use fields::{Fields, size, size_u32, size_u64};
pub(crate) use file_header::is_segment_of;
pub(crate) use index_file::create_anew;
pub use log::{Flushed, PartitionWriter, RetiredSegment};
pub use manifest::{ManifestError, PartitionManifest, SegmentManifest};
pub use open::{PartitionParts, create, open};
pub use open_files::OpenFiles;
pub use reader::PartitionReader;
pub use remove::{remove_below, remove_files};
pub use repair::RepairReport;
pub use settle::{SyncError, sync_all};
pub use stored::{CommittedBatch, PartitionConfig, SegmentInfo, StoredBatch, Volume};
pub use tail::TailAppender;
pub use take::ReadLimit;
pub use verify::damaged_headers;
pub use walk::OffsetRange;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod fixture_tests;
#[cfg(test)]
mod index_tests;
#[cfg(test)]
mod manifest_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod race_tests;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod writer_tests;
