//! What to do with what a crash left, decided from what was found.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::fs::Dir;
use crate::layout::{self, PartitionFile};
use crate::limits::BATCH_BYTES_MAX;
use crate::partition::{OffsetRange, PartitionManifest, is_segment_of, size};
use crate::wal::{Place, WalError, WalReader};
use crate::{FolderId, Offset, Sequence};

/// What to do with the folder of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionPlan {
    /// The segment that is written to next, and the size to cut it to first.
    pub cut: Option<(Offset, u32)>,
    /// Files wholly in front of the log, which retention was about to remove, or behind it, which
    /// the write-ahead log brings again; and what belongs to no segment.
    pub remove: Vec<String>,
    /// Records of the manifest whose segments were not found.
    pub missing: Vec<OffsetRange>,
    /// Files that are not ours, or are segments that the manifest should know and does not: left
    /// alone, since a missing entry is no reason to delete.
    pub unknown: Vec<String>,
}

/// Compares the names in the folder of a partition with its manifest.
pub fn plan_partition(manifest: &PartitionManifest, names: &[String]) -> PartitionPlan {
    let mut plan = PartitionPlan::default();
    let listed: BTreeSet<Offset> = manifest
        .segments
        .iter()
        .map(|segment| segment.base)
        .collect();
    let first = manifest
        .segments
        .first()
        .map_or(manifest.end, |segment| segment.base);
    let mut found = BTreeSet::new();
    for name in names {
        let Some(file) = PartitionFile::parse(name) else {
            let own = layout::parse_temporary(name).and_then(PartitionFile::parse);
            let pile = if own.is_some() {
                &mut plan.remove
            } else {
                &mut plan.unknown
            };
            pile.push(name.clone());
            continue;
        };
        let is_segment = matches!(file, PartitionFile::Segment(_));
        let base = file.base();
        if listed.contains(&base) {
            if is_segment {
                found.insert(base);
            }
        } else if base < first || base >= manifest.end || !is_segment {
            plan.remove.push(name.clone());
        } else {
            plan.unknown.push(name.clone());
        }
    }
    for segment in manifest
        .segments
        .iter()
        .filter(|segment| !found.contains(&segment.base))
    {
        let last = segment.end.min(manifest.end).minus(1);
        plan.missing.push(OffsetRange {
            first: segment.base,
            last,
        });
    }
    plan.cut = manifest
        .segments
        .last()
        .filter(|last| !last.sealed && found.contains(&last.base))
        .map(|last| (last.base, last.bytes));
    plan
}

/// Opens the write-ahead log in the folder `wal` for reading what is not in the checkpoint of the
/// command `checkpoint`, and makes it judge as damage that something is gone: what the checkpoint
/// or `clean`, the mark of a clean stop, say that there was, and any log at all if there are files
/// of partitions.
pub fn open_log(
    (wal, partitions): (Arc<dyn Dir>, &dyn Dir),
    folder: FolderId,
    checkpoint: Option<Sequence>,
    clean: Option<Sequence>,
) -> Result<WalReader, WalError> {
    let from = checkpoint.unwrap_or(Sequence::ZERO).next();
    let mut reader = WalReader::open(wal, folder, from)?;
    if let Some(clean) = clean {
        reader.expect_clean_end(clean);
    }
    let names = partitions
        .list()
        .map_err(WalError::io("list", layout::PARTITIONS))?;
    if names
        .iter()
        .any(|name| layout::parse_partition_folder(name).is_some())
    {
        reader.expect_a_file();
    }
    Ok(reader)
}

/// The batch that a frame of the write-ahead log says was written straight to a segment below
/// `root`, the folder of all partitions; `None` if it is not there, or not as it was written. It is
/// read from the device, not from what the system remembers of a sync that failed.
pub fn read_placed(
    root: &Arc<dyn Dir>,
    folder: FolderId,
    place: &Place,
) -> io::Result<Option<Bytes>> {
    if place.bytes > BATCH_BYTES_MAX {
        return Ok(None);
    }
    let opened = root
        .open_dir(&layout::partition_folder(place.partition))
        .and_then(|partition| partition.open(&PartitionFile::Segment(place.segment).name()));
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !is_segment_of(file.as_ref(), folder, place.partition, place.segment)? {
        return Ok(None);
    }
    file.drop_cache()?;
    let mut bytes = vec![0; size(place.bytes)];
    let read = file.read_at(&mut bytes, place.position.into())?;
    let is_whole = read == bytes.len() && crc32fast::hash(&bytes) == place.checksum;
    Ok(is_whole.then(|| bytes.into()))
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
