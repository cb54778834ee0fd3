//! Removing the files of a partition whose topic is gone.

use std::io;
use std::sync::Arc;

use super::error::WriteError;
use super::manifest::PartitionManifest;
use super::stored::Volume;
use super::walk::OffsetRange;
use crate::fs::Dir;
use crate::layout::{self, PartitionFile};
use crate::offset::{Offset, PartitionId};
use crate::recovery::plan_partition;

/// Removes the files of a partition and its folder. What is not ours stays, and so does the
/// folder then. A partition without a folder is no error, and a removal that was interrupted can
/// be made again.
pub fn remove_files(volume: &Volume, id: PartitionId) -> Result<(), WriteError> {
    remove(&volume.root, &layout::partition_folder(id)).map_err(|source| WriteError::Io {
        partition: id,
        source,
    })
}

/// Removes files of segments that lie wholly below the start of a partition and in front of every
/// segment of its manifest: retention let them go, and the process ended before their files were
/// removed. All else stays. Returns the records of the manifest whose segments are not there,
/// neighbours in one range.
pub fn remove_below(
    volume: &Volume,
    manifest: &PartitionManifest,
) -> Result<Vec<OffsetRange>, WriteError> {
    let Some(first) = manifest.segments.first().map(|segment| segment.base) else {
        return Ok(Vec::new());
    };
    let below = first.min(manifest.start);
    let name = layout::partition_folder(manifest.id);
    let names = sweep(&volume.root, &name, below).map_err(|source| WriteError::Io {
        partition: manifest.id,
        source,
    })?;
    let mut missing: Vec<OffsetRange> = Vec::new();
    for range in plan_partition(manifest, &names).missing {
        match missing.last_mut() {
            Some(last) if last.last.plus(1) == range.first => last.last = range.last,
            Some(_) | None => missing.push(range),
        }
    }
    Ok(missing)
}

/// Returns the names that were in the folder; none if it is not there.
fn sweep(root: &Arc<dyn Dir>, name: &str, below: Offset) -> io::Result<Vec<String>> {
    let folder = match root.open_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut removed = false;
    let names = folder.list()?;
    for name in &names {
        if PartitionFile::parse(name).is_some_and(|file| file.base() < below) {
            folder.remove(name)?;
            removed = true;
        }
    }
    if removed {
        folder.sync()?;
    }
    Ok(names)
}

fn remove(root: &Arc<dyn Dir>, name: &str) -> io::Result<()> {
    let folder = match root.open_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let names = folder.list()?;
    let ours = |name: &str| {
        let name = layout::parse_temporary(name).unwrap_or(name);
        PartitionFile::parse(name).is_some()
    };
    let (ours, foreign): (Vec<_>, Vec<_>) = names.iter().partition(|name| ours(name));
    for name in ours {
        folder.remove(name)?;
    }
    folder.sync()?;
    if foreign.is_empty() {
        root.remove_dir(name)?;
        root.sync()?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
