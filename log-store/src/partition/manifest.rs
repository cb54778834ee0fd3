//! What a checkpoint keeps of a partition: the evidence that a start goes by, so that no segment
//! need be opened to know what is there.

use crate::limits::{BATCH_BYTES_MAX, EPOCHS_MAX, SEGMENT_BYTES_MAX, SEGMENTS_MAX};
use crate::partition::entry::ENTRY_HEADER_BYTES;
use crate::partition::fields::{Fields, size_u32};
use crate::{Epoch, Offset, PartitionId, TopicId, WallMs};

/// A partition as far as it is flushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionManifest {
    /// Which partition.
    pub id: PartitionId,
    /// Its first offset that may be read.
    pub start: Offset,
    /// One past its last flushed record.
    pub end: Offset,
    /// The latest append time so far, of a record that may be gone by now.
    pub append_time_last: WallMs,
    /// Each epoch that wrote something, with its first offset, rising in both. Those that ended
    /// before `start` are left out.
    pub epochs: Vec<(Epoch, Offset)>,
    /// The segments by offset, each beginning where the one before it ends.
    pub segments: Vec<SegmentManifest>,
}

/// A segment as far as it is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentManifest {
    /// Its first offset, which is its name.
    pub base: Offset,
    /// One past its last record. Only in a manifest that was cut it may lie beyond the partition's
    /// end; then the sizes and the checksum are those of the whole segment.
    pub end: Offset,
    /// Its size, header included.
    pub bytes: u32,
    /// Append time of its first batch.
    pub append_time_min: WallMs,
    /// Append time of its last batch; append times never fall.
    pub append_time_max: WallMs,
    /// Where the header of its last entry begins.
    pub last_position: u32,
    /// Checksum of that header, which chains over all before it.
    pub checksum: u32,
    /// Nothing is added to it any more.
    pub sealed: bool,
}

/// Bytes that do not decode as a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("partition manifest: {reason}")]
pub struct ManifestError {
    /// What is wrong.
    pub reason: &'static str,
}

/// Largest file of a segment: the batch that fills it may begin just below its limit.
const SEGMENT_FILE_BYTES_MAX: u32 = SEGMENT_BYTES_MAX + BATCH_BYTES_MAX + ENTRY_HEADER_BYTES;
/// Bytes of a segment in an encoded manifest.
const SEGMENT_ENCODED_BYTES: u64 = 45;
/// Bytes of an epoch in an encoded manifest.
const EPOCH_ENCODED_BYTES: u64 = 12;

impl PartitionManifest {
    /// A partition that never held a record.
    pub fn empty(id: PartitionId) -> Self {
        Self {
            id,
            start: Offset::ZERO,
            end: Offset::ZERO,
            append_time_last: WallMs(i64::MIN),
            epochs: Vec::new(),
            segments: Vec::new(),
        }
    }

    /// Takes back what lies at and behind `end`, which must be the end of a batch: the state that a
    /// checkpoint holds may know less than was flushed when the manifest was made.
    pub fn cut_to(&mut self, end: Offset) {
        if end < self.end {
            self.end = end;
            self.start = self.start.min(end);
            self.epochs.retain(|(_, first)| *first < end);
            self.segments.retain(|segment| segment.base < end);
            let last = self.segments.last().map(|last| last.append_time_max);
            self.append_time_last = last.unwrap_or(WallMs(i64::MIN));
        }
    }

    /// Appends its encoding to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.topic.0);
        out.extend_from_slice(&self.id.partition.to_le_bytes());
        out.extend_from_slice(&self.start.get().to_le_bytes());
        out.extend_from_slice(&self.end.get().to_le_bytes());
        out.extend_from_slice(&self.append_time_last.0.to_le_bytes());
        out.extend_from_slice(&size_u32(self.epochs.len()).to_le_bytes());
        out.extend_from_slice(&size_u32(self.segments.len()).to_le_bytes());
        for (epoch, first) in &self.epochs {
            out.extend_from_slice(&epoch.0.to_le_bytes());
            out.extend_from_slice(&first.get().to_le_bytes());
        }
        for segment in &self.segments {
            segment.encode(out);
        }
    }

    /// Reads what [`PartitionManifest::encode`] wrote; `bytes` must be exactly that.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest = Self::parse(bytes)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let cut = || refused("its bytes end within a field");
        let mut fields = Fields::new(bytes);
        let topic = TopicId(fields.array().ok_or_else(cut)?);
        let id = PartitionId {
            topic,
            partition: fields.u32().ok_or_else(cut)?,
        };
        let start = fields.offset().ok_or_else(cut)?;
        let end = fields.offset().ok_or_else(cut)?;
        let append_time_last = fields.wall_ms().ok_or_else(cut)?;
        let epoch_count = fields.u32().ok_or_else(cut)?;
        let segment_count = fields.u32().ok_or_else(cut)?;
        if epoch_count > EPOCHS_MAX || segment_count > SEGMENTS_MAX {
            return Err(refused("it counts more epochs or segments than can be"));
        }
        let bytes_due = u64::from(epoch_count) * EPOCH_ENCODED_BYTES
            + u64::from(segment_count) * SEGMENT_ENCODED_BYTES;
        if u64::try_from(fields.remaining()) != Ok(bytes_due) {
            return Err(refused("its size is not what its counts give"));
        }
        let epochs = (0..epoch_count)
            .map(|_| Some((Epoch(fields.u32()?), fields.offset()?)))
            .collect::<Option<_>>()
            .ok_or_else(cut)?;
        let segments = (0..segment_count)
            .map(|_| SegmentManifest::parse(&mut fields))
            .collect::<Option<_>>()
            .ok_or_else(cut)?;
        Ok(Self {
            id,
            start,
            end,
            append_time_last,
            epochs,
            segments,
        })
    }

    /// Whether its parts fit together.
    pub fn check(&self) -> Result<(), ManifestError> {
        if self.start > self.end {
            return Err(refused("its start is behind its end"));
        }
        if !self.epochs.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1) {
            return Err(refused("its epochs do not rise"));
        }
        if !self.segments.is_sorted_by(|a, b| {
            a.end == b.base && a.append_time_max <= b.append_time_min && b.base < self.end
        }) {
            return Err(refused("its segments are not a chain"));
        }
        if self.segments.iter().any(|segment| !segment.is_plausible()) {
            return Err(refused("a segment in it cannot be"));
        }
        match (self.segments.first(), self.segments.last()) {
            (Some(first), Some(last)) if first.base > self.start || last.end < self.end => Err(
                refused("its segments do not hold what lies between start and end"),
            ),
            (None, None) if self.start < self.end => Err(refused("it has records but no segment")),
            _ => Ok(()),
        }
    }
}

impl SegmentManifest {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.base.get().to_le_bytes());
        out.extend_from_slice(&self.end.get().to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.append_time_min.0.to_le_bytes());
        out.extend_from_slice(&self.append_time_max.0.to_le_bytes());
        out.extend_from_slice(&self.last_position.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.push(u8::from(self.sealed));
    }

    fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            base: fields.offset()?,
            end: fields.offset()?,
            bytes: fields.u32()?,
            append_time_min: fields.wall_ms()?,
            append_time_max: fields.wall_ms()?,
            last_position: fields.u32()?,
            checksum: fields.u32()?,
            sealed: match fields.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
        })
    }

    fn is_plausible(&self) -> bool {
        self.base < self.end
            && self.append_time_min <= self.append_time_max
            && self.last_position < self.bytes
            && self.bytes <= SEGMENT_FILE_BYTES_MAX
    }
}

fn refused(reason: &'static str) -> ManifestError {
    ManifestError { reason }
}
