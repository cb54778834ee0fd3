//! Looks at what reading a partition does not need: the headers of its segment files.

use std::io;

use crate::layout::{PartitionFile, partition_folder};
use crate::partition::file_header::is_segment_of;
use crate::partition::manifest::{PartitionManifest, SegmentManifest};
use crate::partition::stored::Volume;

/// The segments of a partition whose file is there and does not begin with the header of a segment
/// of this place. Their records may be whole, but nothing is added to such a file any more.
pub fn damaged_headers(
    volume: &Volume,
    manifest: &PartitionManifest,
) -> io::Result<Vec<SegmentManifest>> {
    let folder = match volume.root.open_dir(&partition_folder(manifest.id)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut damaged = Vec::new();
    for segment in &manifest.segments {
        let name = PartitionFile::Segment(segment.base).name();
        let file = match folder.open(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        if !is_segment_of(file.as_ref(), volume.folder, manifest.id, segment.base)? {
            damaged.push(*segment);
        }
    }
    Ok(damaged)
}
