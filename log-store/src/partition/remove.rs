//! Removing the files of a partition whose topic is gone.

use std::io;
use std::sync::Arc;

use super::error::WriteError;
use super::manifest::PartitionManifest;
use super::stored::Volume;
use crate::fs::Dir;
use crate::layout::{self, PartitionFile};
use crate::offset::{Offset, PartitionId};

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
/// removed. All else stays.
pub fn remove_below(volume: &Volume, manifest: &PartitionManifest) -> Result<(), WriteError> {
    let Some(first) = manifest.segments.first().map(|segment| segment.base) else {
        return Ok(());
    };
    let below = first.min(manifest.start);
    sweep(&volume.root, &layout::partition_folder(manifest.id), below).map_err(|source| {
        WriteError::Io {
            partition: manifest.id,
            source,
        }
    })
}

fn sweep(root: &Arc<dyn Dir>, name: &str, below: Offset) -> io::Result<()> {
    let folder = match root.open_dir(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut removed = false;
    for name in folder.list()? {
        if PartitionFile::parse(&name).is_some_and(|file| file.base() < below) {
            folder.remove(&name)?;
            removed = true;
        }
    }
    if removed { folder.sync() } else { Ok(()) }
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
