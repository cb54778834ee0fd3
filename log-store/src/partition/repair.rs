//! Removing what does not belong to the log: at the first write after a start, when retention says
//! so, and when the partition is deleted.

use std::io;

use crate::fs::Dir;
use crate::layout::{self, PartitionFile};
use crate::partition::chain::Chain;
use crate::partition::error::WriteError;
use crate::partition::log::{PartitionWriter, RetiredSegment};
use crate::partition::remove::remove_files;
use crate::partition::walk::OffsetRange;
use crate::recovery::plan_partition;

/// What a partition's folder held after a start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RepairReport {
    /// Records whose segments are not there.
    pub missing: Vec<OffsetRange>,
    /// Files that were left over from before a crash and are gone now.
    pub removed: Vec<String>,
    /// Files that nobody here made, or that should not be there; they are left alone.
    pub unknown: Vec<String>,
}

impl PartitionWriter {
    /// Compares the folder with the manifest, once, and removes what lies in front of the log or
    /// behind it. The first flush does it; whoever wants to know earlier calls it.
    pub fn repair(&mut self) -> Result<&RepairReport, WriteError> {
        if self.repaired.is_none() {
            let report = self
                .compare_and_remove()
                .map_err(|source| self.io(source))?;
            self.repaired = Some(report);
        }
        Ok(self.repaired.get_or_insert_default())
    }

    fn compare_and_remove(&self) -> io::Result<RepairReport> {
        let (folder, names) = match self.shared.open_folder() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, Vec::new()),
            opened => {
                let folder = opened?;
                let names = folder.list()?;
                (Some(folder), names)
            }
        };
        let plan = plan_partition(&self.manifest(), &names);
        if let Some(folder) = folder.filter(|_| !plan.remove.is_empty()) {
            for name in &plan.remove {
                remove_if_there(folder.as_ref(), name)?;
            }
            folder.sync()?;
        }
        Ok(RepairReport {
            missing: plan.missing,
            removed: plan.remove,
            unknown: plan.unknown,
        })
    }

    /// Removes the files of segments that [`PartitionWriter::set_start`] retired, and the folder
    /// when nothing is left in it. What could not be removed goes after the next start.
    pub fn remove_retired(&mut self, retired: Vec<RetiredSegment>) -> Result<(), WriteError> {
        if retired.is_empty() {
            return Ok(());
        }
        let removed = self.remove_segments(retired);
        removed.map_err(|source| self.io(source))
    }

    fn remove_segments(&mut self, retired: Vec<RetiredSegment>) -> io::Result<()> {
        let _no_index_is_written = self.shared.index_files();
        let folder = match self.shared.open_folder() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        for segment in retired {
            let base = segment.base;
            remove_if_there(folder.as_ref(), &PartitionFile::Segment(base).name())?;
            remove_if_there(folder.as_ref(), &PartitionFile::Index(base).name())?;
            remove_if_there(folder.as_ref(), &PartitionFile::TimeIndex(base).name())?;
        }
        folder.sync()?;
        if self.chain.segments().next().is_none() && folder.list()?.is_empty() {
            self.unsynced.folder = false;
            self.shared
                .volume
                .root
                .remove_dir(&layout::partition_folder(self.shared.id))?;
            self.shared.volume.root.sync()?;
        }
        Ok(())
    }

    /// Removes every file of the partition, and its folder unless something foreign is in it.
    /// Readers find the partition empty from then on.
    pub fn remove_all(mut self) -> Result<(), WriteError> {
        let end = self.shared.end();
        for segment in self.set_start(end) {
            self.shared
                .volume
                .files
                .forget(self.shared.token, segment.base);
        }
        self.chain = Chain::empty(end);
        self.shared.publish_chain(self.chain.clone());
        let _no_index_is_written = self.shared.index_files();
        remove_files(&self.shared.volume, self.shared.id)
    }
}

fn remove_if_there(folder: &dyn Dir, name: &str) -> io::Result<()> {
    match folder.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
