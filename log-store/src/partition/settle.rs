//! Making what many partitions flushed safe from a power loss.

use std::io;

use crate::fs::VolumeSync;
use crate::partition::error::WriteError;
use crate::partition::log::PartitionWriter;
use crate::partition::stored::Volume;

/// Why what was flushed could not be made safe. Whatever sync failed is final.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The files of one partition.
    #[error(transparent)]
    Partition(#[from] WriteError),
    /// All files at once. None of the writers writes any more.
    #[error("syncing the file system of the partitions: {0}")]
    Volume(#[source] io::Error),
}

/// Makes what these writers flushed survive a power loss. A file and a folder cost a sync each
/// while there are at most [`Volume::sync_each_max`] of them; of more the whole file system is
/// synced, once, if the disk can do that. Files of writers that have nothing to sync are closed.
///
/// For the sync of the file system to be as good as that of each file, this must hold:
/// - All was written before: the writers are borrowed here, and nobody else writes these files.
/// - All is on the file system of [`Volume::root`]: it was made below that folder.
/// - A write-back that lost something is not missed, whenever it happened. Such an error is
///   reported once through each descriptor that was open before, and the root's is: it was opened
///   at the start, before the first write of this process, and nobody else syncs through it. What
///   an earlier process wrote and did not sync is in no checkpoint, and is written again.
/// - It is the only report that there will be: after an error every writer is fenced.
pub fn sync_all(volume: &Volume, writers: &mut [&mut PartitionWriter]) -> Result<(), SyncError> {
    let unsynced: usize = writers.iter().map(|writer| writer.unsynced_count()).sum();
    if unsynced > volume.sync_each_max {
        for writer in writers.iter() {
            writer.check_fence()?;
        }
        match volume.root.sync_volume() {
            Ok(VolumeSync::Settled) => {
                for writer in writers.iter_mut() {
                    writer.note_synced();
                }
                return Ok(());
            }
            Ok(VolumeSync::Unavailable) => {}
            Err(error) => {
                for writer in writers.iter_mut() {
                    writer.fence();
                }
                return Err(SyncError::Volume(error));
            }
        }
    }
    for writer in writers.iter_mut() {
        writer.sync()?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;
