//! What the tools for data folders print.

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use varvelog_store::layout;
use varvelog_store::partition::{OffsetRange, PartitionManifest};
use varvelog_store::wal::WalError;

use super::folder::{Folder, WalTail};
use super::verify::Report;
use crate::output::{Block, View, show_bytes, show_count, show_time_ms};

/// Ranges of damage that are listed for one partition; of others only the number is shown.
const DAMAGE_SHOWN_MAX: usize = 20;

/// Offsets that are damaged.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    /// Below the folder of the partitions.
    pub(super) file: String,
    pub(super) range: OffsetRange,
    pub(super) what: String,
}

/// What was found in a partition.
#[derive(Clone, Debug)]
pub(super) struct Verified {
    pub(super) topic: String,
    pub(super) partition: u32,
    pub(super) segments: usize,
    pub(super) bytes: u64,
    pub(super) batches: u64,
    pub(super) records: u64,
    pub(super) damaged: Vec<Damage>,
}

impl Verified {
    pub(super) fn new(topic: String, manifest: &PartitionManifest) -> Self {
        Self {
            topic,
            partition: manifest.id.partition,
            segments: manifest.segments.len(),
            bytes: manifest
                .segments
                .iter()
                .map(|segment| u64::from(segment.bytes))
                .sum(),
            batches: 0,
            records: 0,
            damaged: Vec::new(),
        }
    }

    fn to_row(&self) -> Vec<String> {
        vec![
            format!("{}/{}", self.topic, self.partition),
            self.segments.to_string(),
            count(self.batches),
            count(self.records),
            show_bytes(i64::try_from(self.bytes).unwrap_or(i64::MAX)),
            if self.damaged.is_empty() {
                String::from("sound")
            } else {
                self.damaged_text()
            },
        ]
    }

    fn damaged_text(&self) -> String {
        let shown: Vec<String> = self
            .damaged
            .iter()
            .take(DAMAGE_SHOWN_MAX)
            .map(|damage| {
                let OffsetRange { first, last } = damage.range;
                format!("{first}-{last} in {} ({})", damage.file, damage.what)
            })
            .collect();
        match self.damaged.len().saturating_sub(DAMAGE_SHOWN_MAX) {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }

    fn to_json(&self) -> Value {
        let damage = |damage: &Damage| {
            json!({
                "file": damage.file,
                "firstOffset": damage.range.first.to_string(),
                "lastOffset": damage.range.last.to_string(),
                "what": damage.what,
            })
        };
        json!({
            "topic": self.topic,
            "partition": self.partition,
            "segments": self.segments,
            "batches": self.batches.to_string(),
            "records": self.records.to_string(),
            "bytes": self.bytes.to_string(),
            "damaged": self.damaged.iter().map(damage).collect::<Vec<_>>(),
        })
    }
}

/// The whole folder.
pub(super) fn verify_view(folder: &Folder, report: &Report) -> View {
    let is_sound = report.is_sound(folder);
    let verified = report.partitions.as_slice();
    let checkpoint = folder
        .checkpoint
        .as_ref()
        .map(|found| found.sequence.to_string());
    let damaged: Vec<String> = folder
        .damaged_checkpoints
        .iter()
        .map(|found| format!("{}: {}", layout::checkpoint(found.sequence), found.damage))
        .collect();
    let (wal_text, wal_json) = describe_wal(&report.wal);
    let pairs = vec![
        (
            "checkpoint",
            checkpoint
                .clone()
                .unwrap_or_else(|| String::from("none yet")),
        ),
        ("damaged", damaged.join(", ")),
        ("write-ahead log", wal_text),
        (
            "verdict",
            String::from(if is_sound { "sound" } else { "damaged" }),
        ),
    ];
    let items: Vec<Value> = verified.iter().map(Verified::to_json).collect();
    let json = json!({
        "sound": is_sound,
        "checkpoint": checkpoint,
        "damagedCheckpoints": damaged,
        "wal": wal_json,
        "partitions": items,
    });
    let names = verified
        .iter()
        .map(|found| format!("{}/{}", found.topic, found.partition));
    View {
        blocks: vec![verified_table(verified), Block::Pairs(pairs)],
        json,
        items,
        names: names.collect(),
    }
}

/// What the write-ahead log is like, for people and for programs.
fn describe_wal(wal: &Result<WalTail, WalError>) -> (String, Value) {
    match wal {
        Ok(tail) => (
            format!(
                "{} commands behind the checkpoint, sound",
                count(tail.frames)
            ),
            json!({ "frames": tail.frames.to_string(), "lastSequence": tail.last.to_string() }),
        ),
        Err(error) => (error.to_string(), json!({ "error": error.to_string() })),
    }
}

fn verified_table(verified: &[Verified]) -> Block {
    Block::Table {
        title: String::new(),
        header: vec![
            "PARTITION",
            ">SEGMENTS",
            ">BATCHES",
            ">RECORDS",
            ">SIZE",
            "STATE",
        ],
        rows: verified.iter().map(Verified::to_row).collect(),
    }
}

/// A segment and what is beside it.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) topic: String,
    pub(super) partition: u32,
    pub(super) base: u64,
    pub(super) end: u64,
    pub(super) bytes: u32,
    pub(super) append_time_min_ms: i64,
    pub(super) append_time_max_ms: i64,
    pub(super) is_sealed: bool,
    /// Size of the file; none: it is not there, and is made again when it is needed.
    pub(super) index_bytes: Option<u64>,
    /// As `index_bytes`.
    pub(super) time_index_bytes: Option<u64>,
}

/// The segments of all partitions.
pub(super) fn segments_view(segments: &[Segment], zone: &TimeZone) -> View {
    let size = |bytes: Option<u64>| match bytes {
        Some(bytes) => show_bytes(i64::try_from(bytes).unwrap_or(i64::MAX)),
        None => String::from("-"),
    };
    let row = |segment: &Segment| {
        vec![
            format!("{}/{}", segment.topic, segment.partition),
            segment.base.to_string(),
            segment.end.to_string(),
            show_bytes(segment.bytes.into()),
            size(segment.index_bytes),
            size(segment.time_index_bytes),
            show_time_ms(segment.append_time_min_ms, zone),
            show_time_ms(segment.append_time_max_ms, zone),
            String::from(if segment.is_sealed {
                "sealed"
            } else {
                "active"
            }),
        ]
    };
    let item = |segment: &Segment| {
        json!({
            "topic": segment.topic,
            "partition": segment.partition,
            "baseOffset": segment.base.to_string(),
            "endOffset": segment.end.to_string(),
            "bytes": segment.bytes,
            "indexBytes": segment.index_bytes.map(|bytes| bytes.to_string()),
            "timeIndexBytes": segment.time_index_bytes.map(|bytes| bytes.to_string()),
            "minAppendTimeMs": segment.append_time_min_ms.to_string(),
            "maxAppendTimeMs": segment.append_time_max_ms.to_string(),
            "sealed": segment.is_sealed,
        })
    };
    let header = vec![
        "PARTITION",
        ">BASE",
        ">END",
        ">SIZE",
        ">INDEX",
        ">TIME INDEX",
        "OLDEST",
        "NEWEST",
        "STATE",
    ];
    let items: Vec<Value> = segments.iter().map(item).collect();
    let mut names: Vec<String> = segments
        .iter()
        .map(|segment| format!("{}/{}", segment.topic, segment.partition))
        .collect();
    names.dedup();
    let rows = segments.iter().map(row).collect();
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows,
        }],
        json: json!({ "segments": items }),
        items,
        names,
    }
}

fn count(count: u64) -> String {
    show_count(i64::try_from(count).unwrap_or(i64::MAX))
}
