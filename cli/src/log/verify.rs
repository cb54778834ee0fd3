//! `varvelog log verify`.

use clap::Args;
use varvelog_store::Offset;
use varvelog_store::batch::{Records, verify_crc};
use varvelog_store::layout::{PartitionFile, partition_folder};
use varvelog_store::partition::{
    OffsetRange, PartitionManifest, PartitionReader, ReadError, ReadLimit, StoredBatch,
    damaged_headers,
};
use varvelog_store::wal::WalError;

use super::command::FolderArgs;
use super::folder::{DECOMPRESSED_BYTES_MAX, Folder, WalTail};
use super::views::{Damage, Verified, verify_view};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Progress;

const READ_BYTES: u32 = 4 << 20;
const BATCHES_MAX: u32 = 10_000;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Only this partition, as TOPIC/NUMBER
    #[arg(short, long, value_name = "TOPIC/NUMBER")]
    partition: Option<String>,
    /// Decompress batches and look at each record too
    #[arg(long)]
    records: bool,
}

pub(crate) fn run(args: &VerifyArgs, context: &mut Context) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder.folder)?;
    let manifests = folder.manifests(args.partition.as_deref())?;
    let total = manifests
        .iter()
        .map(|manifest| manifest.end.since(manifest.start))
        .sum();
    let progress = Progress::new("verifying", Some(total), context.output.quiet);
    let report = check(&folder, &manifests, args.records, &progress)?;
    progress.finish();
    context.output.show(&verify_view(&folder, &report))?;
    if report.is_sound(&folder) {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Damage))
    }
}

/// What was found in a folder.
pub(super) struct Report {
    pub(super) partitions: Vec<Verified>,
    pub(super) wal: Result<WalTail, WalError>,
}

impl Report {
    pub(super) fn is_sound(&self, folder: &Folder) -> bool {
        self.wal.is_ok()
            && folder.damaged_checkpoints.is_empty()
            && self
                .partitions
                .iter()
                .all(|partition| partition.damaged.is_empty())
    }
}

/// Looks at these partitions, and at the write-ahead log.
pub(super) fn check(
    folder: &Folder,
    manifests: &[&PartitionManifest],
    records: bool,
    progress: &Progress,
) -> Result<Report, Failure> {
    let mut partitions = Vec::new();
    for manifest in manifests {
        partitions.push(check_partition(folder, manifest, records, progress)?);
    }
    Ok(Report {
        partitions,
        wal: folder.wal_tail(),
    })
}

fn check_partition(
    folder: &Folder,
    manifest: &PartitionManifest,
    records: bool,
    progress: &Progress,
) -> Result<Verified, Failure> {
    let topic = folder.topic(manifest.id);
    let mut verified = Verified::new(topic, manifest);
    let headers = damaged_headers(&folder.volume(), manifest)
        .map_err(|error| Failure::io("reading a segment", &error))?;
    for segment in headers {
        let range = OffsetRange {
            first: segment.base,
            last: segment.end.min(manifest.end).minus(1),
        };
        verified
            .damaged
            .push(found(manifest, range, "the file's header is damaged"));
    }
    let reader = match folder.reader(manifest) {
        Ok(reader) => reader,
        Err(failure) if failure.exit == Exit::Damage => {
            let range = OffsetRange {
                first: manifest.start,
                last: manifest.end.minus(1),
            };
            verified
                .damaged
                .push(found(manifest, range, failure.message));
            return Ok(verified);
        }
        Err(failure) => return Err(failure),
    };
    let mut next = manifest.start;
    while next < manifest.end {
        let from = next;
        match read(&reader, from, manifest.end)? {
            Ok(batches) => {
                let Some(last) = batches.last() else { break };
                next = last.end();
                for batch in &batches {
                    count(manifest, batch, records, &mut verified);
                }
            }
            Err(damaged) => {
                next = damaged.last.plus(1);
                let what = "a checksum or the shape is wrong, or bytes are gone";
                verified.damaged.push(found(manifest, damaged, what));
            }
        }
        progress.add(next.since(from));
    }
    Ok(verified)
}

/// Damage with the file that it is in.
fn found(manifest: &PartitionManifest, range: OffsetRange, what: impl Into<String>) -> Damage {
    let mut segments = manifest.segments.iter();
    let segment = segments.rfind(|segment| segment.base <= range.first);
    let name = segment.map(|segment| PartitionFile::Segment(segment.base).name());
    Damage {
        file: format!(
            "{}/{}",
            partition_folder(manifest.id),
            name.unwrap_or_default()
        ),
        range,
        what: what.into(),
    }
}

/// The next batches, or a range of offsets whose bytes are not those that were written.
fn read(
    reader: &PartitionReader,
    from: Offset,
    until: Offset,
) -> Result<Result<Vec<StoredBatch>, OffsetRange>, Failure> {
    let limit = ReadLimit {
        bytes_max: READ_BYTES,
        batches_max: BATCHES_MAX,
        until,
    };
    match reader.read(from, limit) {
        Ok(batches) => Ok(Ok(batches)),
        Err(ReadError::Corrupt { first, last }) => Ok(Err(OffsetRange {
            first: first.max(from),
            last: last.max(from),
        })),
        Err(error @ (ReadError::OutOfRange { .. } | ReadError::Io(_))) => {
            Err(Failure::new(Exit::Failed, error.to_string()))
        }
    }
}

/// The frame around the batch was sound; this looks at what the producer sent.
fn count(
    manifest: &PartitionManifest,
    batch: &StoredBatch,
    records: bool,
    verified: &mut Verified,
) {
    let sound = if records {
        Records::open(&batch.body, DECOMPRESSED_BYTES_MAX)
            .and_then(|records| records.iter().try_for_each(|record| record.map(drop)))
    } else {
        verify_crc(&batch.body).map(drop)
    };
    if let Err(error) = sound {
        let range = OffsetRange {
            first: batch.base_offset,
            last: batch.end().minus(1),
        };
        verified
            .damaged
            .push(found(manifest, range, error.to_string()));
    }
    verified.batches += 1;
    verified.records += u64::from(batch.record_count);
}
