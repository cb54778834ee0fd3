//! `varvelog log index`.

use clap::Args;
use varvelog_store::fs::Dir;
use varvelog_store::layout::{PartitionFile, partition_folder};
use varvelog_store::partition::{PartitionManifest, SegmentManifest};

use super::command::FolderArgs;
use super::folder::Folder;
use super::views::{Segment, segments_view};
use crate::context::Context;
use crate::failure::Failure;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct IndexArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Only this partition, as TOPIC/NUMBER
    #[arg(short, long, value_name = "TOPIC/NUMBER")]
    partition: Option<String>,
}

pub(crate) fn run(args: &IndexArgs, context: &mut Context) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder.folder)?;
    let mut segments = Vec::new();
    for manifest in folder.manifests(args.partition.as_deref())? {
        let files = folder
            .partitions
            .open_dir(&partition_folder(manifest.id))
            .ok();
        let list = manifest.segments.iter();
        segments.extend(list.map(|found| segment(&folder, manifest, found, files.as_deref())));
    }
    context
        .output
        .show(&segments_view(&segments, &context.output.zone.clone()))?;
    Ok(())
}

fn segment(
    folder: &Folder,
    manifest: &PartitionManifest,
    segment: &SegmentManifest,
    files: Option<&dyn Dir>,
) -> Segment {
    let size = |file: PartitionFile| files?.open(&file.name()).ok()?.len().ok();
    Segment {
        topic: folder.topic(manifest.id),
        partition: manifest.id.partition,
        base: segment.base.get(),
        end: segment.end.get(),
        bytes: segment.bytes,
        append_time_min_ms: segment.append_time_min.0,
        append_time_max_ms: segment.append_time_max.0,
        is_sealed: segment.sealed,
        index_bytes: size(PartitionFile::Index(segment.base)),
        time_index_bytes: size(PartitionFile::TimeIndex(segment.base)),
    }
}
