//! `varvelog log dump`.

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use varvelog_proto::v1;
use varvelog_store::Offset;
use varvelog_store::batch::{RecordRef, Records, read_header};
use varvelog_store::partition::{PartitionManifest, ReadLimit, StoredBatch};

use super::command::FolderArgs;
use super::folder::{DECOMPRESSED_BYTES_MAX, Folder};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Printed, RecordPrinter, Template};

const READ_BYTES: u32 = 4 << 20;
const BATCHES_MAX: u32 = 1000;

/// Arguments.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Shows what the newest checkpoint vouches for. After an unclean stop the write-\
                  ahead log holds more; a start of the broker brings it in."
)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// Which, as TOPIC/NUMBER
    #[arg(value_name = "TOPIC/NUMBER")]
    partition: String,
    /// Begin with this offset
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
    /// End after so many records, or batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Batches instead of records, one JSON object a line
    #[arg(long, conflicts_with = "format")]
    batches: bool,
    /// Template, as of tail
    #[arg(short, long, value_parser = Template::parse, value_name = "TEMPLATE")]
    format: Option<Template>,
}

pub(crate) fn run(args: &DumpArgs, context: &mut Context) -> Result<(), Failure> {
    let folder = Folder::open(&args.folder.folder)?;
    let printer = RecordPrinter::new(args.format.clone(), &context.output);
    for manifest in folder.manifests(Some(&args.partition))? {
        let topic = folder.topic(manifest.id);
        let mut dump = Dump {
            args,
            topic,
            manifest,
            printer: &printer,
            printed: 0,
        };
        dump.run(&folder, context)?;
    }
    Ok(context.output.flush()?)
}

struct Dump<'a> {
    args: &'a DumpArgs,
    topic: String,
    manifest: &'a PartitionManifest,
    printer: &'a RecordPrinter,
    printed: u64,
}

impl Dump<'_> {
    fn run(&mut self, folder: &Folder, context: &mut Context) -> Result<(), Failure> {
        let reader = folder.reader(self.manifest)?;
        let (start, end) = (self.manifest.start, self.manifest.end);
        let wanted = self.args.from.map_or(Some(start), Offset::new);
        let mut next = wanted.unwrap_or(end).max(start);
        while next < end && !self.is_full() {
            let limit = ReadLimit {
                bytes_max: READ_BYTES,
                batches_max: BATCHES_MAX,
                until: end,
            };
            let batches = reader.read(next, limit).map_err(|error| {
                Failure::new(Exit::Damage, error.to_string())
                    .hint("varvelog log verify FOLDER shows all damage")
            })?;
            let Some(last) = batches.last() else { break };
            let from = std::mem::replace(&mut next, last.end());
            for batch in &batches {
                if self.args.batches {
                    self.print_batch(batch, context)?;
                } else {
                    self.print_records(batch, from, context)?;
                }
            }
        }
        Ok(())
    }

    fn print_batch(&mut self, batch: &StoredBatch, context: &mut Context) -> Result<(), Failure> {
        if self.is_full() {
            return Ok(());
        }
        self.printed += 1;
        let line = if context.output.format == Format::Name {
            format!(
                "{}/{}@{}",
                self.topic, self.manifest.id.partition, batch.base_offset
            )
        } else {
            batch_json(&self.topic, self.manifest.id.partition, batch)?.to_string()
        };
        context.output.raw(line.as_bytes())?;
        Ok(context.output.raw(b"\n")?)
    }

    fn print_records(
        &mut self,
        batch: &StoredBatch,
        from: Offset,
        context: &mut Context,
    ) -> Result<(), Failure> {
        let damaged = |error: varvelog_store::batch::BatchError| {
            Failure::new(
                Exit::Damage,
                format!("offset {}: {error}", batch.base_offset),
            )
        };
        let partition = i32::try_from(self.manifest.id.partition).unwrap_or(i32::MAX);
        let records = Records::open(&batch.body, DECOMPRESSED_BYTES_MAX).map_err(damaged)?;
        for record in &records {
            let record = to_message(&records, &record.map_err(damaged)?, batch);
            if self.is_full() || record.offset < from.as_i64() {
                continue;
            }
            self.printed += 1;
            let printed = Printed {
                topic: &self.topic,
                partition,
                record: &record,
            };
            self.printer.print(printed, &mut context.output)?;
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.args.limit.is_some_and(|limit| self.printed >= limit)
    }
}

fn batch_json(topic: &str, partition: u32, batch: &StoredBatch) -> Result<Value, Failure> {
    let header = read_header(&batch.body).map_err(|error| {
        Failure::new(
            Exit::Damage,
            format!("offset {}: {error}", batch.base_offset),
        )
    })?;
    let producer = header.producer.map(|producer| {
        json!({
            "id": producer.id.to_string(),
            "epoch": producer.epoch,
            "baseSequence": producer.base_sequence,
        })
    });
    Ok(json!({
        "topic": topic,
        "partition": partition,
        "baseOffset": batch.base_offset.to_string(),
        "recordCount": batch.record_count,
        "epoch": batch.epoch.0,
        "appendTimeMs": batch.append_time.0.to_string(),
        "bytes": batch.body.len(),
        "codec": format!("{:?}", header.codec).to_lowercase(),
        "maxTimestampMs": header.max_timestamp_ms.to_string(),
        "producer": producer,
    }))
}

/// As `Fetch` shows it: of a header seen twice the last, and null as empty.
fn to_message(records: &Records, record: &RecordRef<'_>, batch: &StoredBatch) -> v1::Record {
    let bytes = |part: Option<&[u8]>| part.map(|part| records.slice_of(part));
    let header = |(name, value): (&[u8], Option<&[u8]>)| {
        let value = bytes(value).unwrap_or_else(Bytes::new);
        (String::from_utf8_lossy(name).into_owned(), value)
    };
    let append_time_ms = batch.append_time.0;
    let given = Some(record.timestamp_ms).filter(|time_ms| *time_ms >= 0);
    v1::Record {
        offset: batch.base_offset.plus(record.offset_delta.into()).as_i64(),
        key: bytes(record.key),
        value: bytes(record.value),
        headers: record.headers.iter().map(header).collect(),
        timestamp_ms: given.unwrap_or(append_time_ms),
        append_time_ms,
        ..v1::Record::default()
    }
}
