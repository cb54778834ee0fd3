//! `varvelog log verify`.

use clap::Args;
use varvelog_store::Offset;
use varvelog_store::batch::{Records, verify_crc};
use varvelog_store::partition::{
    OffsetRange, PartitionManifest, PartitionReader, ReadError, ReadLimit, StoredBatch,
};

use super::command::FolderArgs;
use super::folder::{DECOMPRESSED_BYTES_MAX, Folder};
use super::views::{Verified, verify_view};
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
    let mut verified = Vec::new();
    for manifest in manifests {
        verified.push(verify(&folder, manifest, args.records, &progress)?);
    }
    progress.finish();
    let wal = folder.wal_tail();
    let is_sound = wal.is_ok()
        && folder.damaged_checkpoints.is_empty()
        && verified
            .iter()
            .all(|partition| partition.damaged.is_empty());
    context
        .output
        .show(&verify_view(&folder, &verified, &wal, is_sound))?;
    if is_sound {
        Ok(())
    } else {
        Err(Failure::silent(Exit::Damage))
    }
}

fn verify(
    folder: &Folder,
    manifest: &PartitionManifest,
    records: bool,
    progress: &Progress,
) -> Result<Verified, Failure> {
    let topic = folder.topic(manifest.id);
    let mut verified = Verified::new(topic, manifest);
    let reader = folder.reader(manifest)?;
    let mut next = manifest.start;
    while next < manifest.end {
        let from = next;
        match read(&reader, from, manifest.end)? {
            Ok(batches) => {
                let Some(last) = batches.last() else { break };
                next = last.end();
                for batch in &batches {
                    count(batch, records, &mut verified);
                }
            }
            Err(damaged) => {
                next = damaged.last.plus(1);
                verified
                    .damaged
                    .push((damaged, String::from("a checksum or the shape is wrong")));
            }
        }
        progress.add(next.since(from));
    }
    Ok(verified)
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
fn count(batch: &StoredBatch, records: bool, verified: &mut Verified) {
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
        verified.damaged.push((range, error.to_string()));
    }
    verified.batches += 1;
    verified.records += u64::from(batch.record_count);
}
