//! Making and opening partitions.

use std::io;
use std::sync::Arc;

use crate::layout::{self, PartitionFile};
use crate::partition::chain::Chain;
use crate::partition::entry::Seed;
use crate::partition::error::OpenError;
use crate::partition::file_header::Identity;
use crate::partition::index_file::{map_sealed, read_growing};
use crate::partition::log::PartitionWriter;
use crate::partition::manifest::{ManifestError, PartitionManifest, SegmentManifest};
use crate::partition::reader::PartitionReader;
use crate::partition::segment::{OpenSegment, SegmentError};
use crate::partition::shared::Shared;
use crate::partition::stored::{PartitionConfig, Volume};
use crate::partition::tail::{Tail, TailAppender};
use crate::{Offset, PartitionId, WallMs};

/// The three sides of a partition, each for the thread that has that part.
#[derive(Debug)]
pub struct PartitionParts {
    /// For whoever flushes.
    pub writer: PartitionWriter,
    /// For whoever applies commands.
    pub tail: TailAppender,
    /// For whoever reads.
    pub reader: PartitionReader,
}

/// Makes a partition without records, whose first is to have the offset `start`. It has no file
/// and no folder until the first flush.
pub fn create(
    volume: &Volume,
    id: PartitionId,
    config: PartitionConfig,
    start: Offset,
) -> PartitionParts {
    let manifest = PartitionManifest {
        id,
        start,
        end: start,
        append_time_last: WallMs(i64::MIN),
        epochs: Vec::new(),
        segments: Vec::new(),
    };
    parts(volume, manifest, config)
}

/// Opens a partition that is what `manifest` says. What is on disk behind its end is never read,
/// and goes before the first write. No file is looked at until it is read or written to, except
/// when the manifest was cut: then the place of its end is looked up.
pub fn open(
    volume: &Volume,
    manifest: &PartitionManifest,
    config: PartitionConfig,
) -> Result<PartitionParts, OpenError> {
    let partition = manifest.id;
    manifest
        .check()
        .map_err(|source| OpenError::Manifest { partition, source })?;
    let mut manifest = manifest.clone();
    if let Some(last) = manifest.segments.last_mut()
        && last.end > manifest.end
    {
        *last = cut(volume, partition, last, manifest.end)?;
        manifest.append_time_last = last.append_time_max;
    }
    Ok(parts(volume, manifest, config))
}

fn parts(volume: &Volume, manifest: PartitionManifest, config: PartitionConfig) -> PartitionParts {
    let PartitionManifest {
        id,
        start,
        end,
        append_time_last,
        epochs,
        segments,
    } = manifest;
    let tail = Tail::new(end, append_time_last);
    let shared = Arc::new(Shared::new(volume.clone(), id, start, tail));
    let chain = Chain::new(segments, end);
    let tail = TailAppender::new(Arc::clone(&shared));
    let reader = PartitionReader::new(Arc::clone(&shared));
    let writer = PartitionWriter::new(shared, config, chain, epochs);
    PartitionParts {
        writer,
        tail,
        reader,
    }
}

/// What `segment` is when it ends at `end`. If that cannot be found out, nothing is added to it.
fn cut(
    volume: &Volume,
    partition: PartitionId,
    segment: &SegmentManifest,
    end: Offset,
) -> Result<SegmentManifest, OpenError> {
    let identity = Identity {
        folder: volume.folder,
        partition,
        base: segment.base,
    };
    match entry_before(volume, &identity, segment, end) {
        Ok(last) if last.header.end() == end => Ok(SegmentManifest {
            end,
            bytes: last.next_position(),
            append_time_max: last.header.append_time,
            last_position: last.position,
            checksum: last.checksum,
            sealed: false,
            ..*segment
        }),
        Ok(_) => {
            let source = ManifestError {
                reason: "it is cut within a batch",
            };
            Err(OpenError::Manifest { partition, source })
        }
        Err(SegmentError::Io(source)) if source.kind() != io::ErrorKind::NotFound => {
            Err(OpenError::Io { partition, source })
        }
        Err(SegmentError::Damaged(_) | SegmentError::Io(_)) => {
            let append_time_max = segment.append_time_min;
            Ok(SegmentManifest {
                end,
                append_time_max,
                sealed: true,
                ..*segment
            })
        }
    }
}

fn entry_before(
    volume: &Volume,
    identity: &Identity,
    segment: &SegmentManifest,
    end: Offset,
) -> Result<crate::partition::walk::Placed, SegmentError> {
    let folder = volume
        .root
        .open_dir(&layout::partition_folder(identity.partition))?;
    let file = folder.open(&PartitionFile::Segment(identity.base).name())?;
    let index = match map_sealed(folder.as_ref(), identity, segment.extent()) {
        Some(index) => index,
        None => read_growing(folder.as_ref(), identity, segment.extent())?,
    };
    OpenSegment::new(identity.base, Seed::new(identity), file, index)
        .last_before(segment.extent(), end)
}
