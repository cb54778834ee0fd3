//! What Varvelog keeps on disk: record batches, the write-ahead log, partition logs with their
//! indexes, and checkpoints.
//!
//! Nothing here knows tokio, the API or a clock: time comes in as an argument, the disk through
//! [`fs::Dir`]. Every file is described to the byte below, in `FORMAT.md`.
//!
#![doc = include_str!("../FORMAT.md")]

pub mod batch;
pub mod checkpoint;
pub mod error;
mod field;
pub mod fs;
pub mod identity;
pub mod layout;
pub mod limits;
pub mod mapped;
mod offset;
pub mod partition;
pub mod recovery;
pub mod retention;
pub mod sim_fs;
mod volume_sync;
pub mod wal;

pub use offset::{Epoch, FolderId, Offset, PartitionId, Sequence, TopicId, WallMs};
