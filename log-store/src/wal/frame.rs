//! One frame: a command with the record batches that it brings. Pure: bytes in, bytes out.

use bytes::Bytes;
use crc32fast::Hasher;

use crate::field::{array_at, u32_at, u64_at};
use crate::limits::{WAL_FRAME_BULKS_MAX, WAL_FRAME_BYTES_MAX};
use crate::{FolderId, Offset, PartitionId, Sequence, TopicId};

/// Bytes of a frame's header.
pub(super) const FRAME_HEADER_BYTES: usize = 48;
/// Frames begin at multiples of this.
pub(super) const FRAME_ALIGN: u64 = 8;

/// The first bytes of a frame.
pub(super) const FRAME_MAGIC: [u8; 4] = *b"VWF1";
const HEADER_CHECKED_BYTES: usize = FRAME_HEADER_BYTES - 4;
const INLINE_ENTRY_BYTES: usize = 8;
const PLACED_ENTRY_BYTES: usize = 48;
const FORM_INLINE: u8 = 1;
const FORM_PLACED: u8 = 2;

/// How much a frame matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// A command: its reply waits until the frame is as durable as the sync policy says.
    Command = 1,
    /// May be lost; no reply waits for it.
    Lazy = 2,
}

impl FrameKind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Command),
            2 => Some(Self::Lazy),
            _ => None,
        }
    }
}

/// Where a record batch was written that is not in the frame itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The partition.
    pub partition: PartitionId,
    /// First offset of the segment, which names its file.
    pub segment: Offset,
    /// Where in the segment it begins, bytes.
    pub position: u32,
    /// How long it is, bytes.
    pub bytes: u32,
    /// CRC-32 of the bytes there.
    pub checksum: u32,
}

/// A record batch of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bulk {
    /// In the frame.
    Inline(Bytes),
    /// In a segment.
    Placed(Place),
}

/// A frame to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// How much it matters.
    pub kind: FrameKind,
    /// The command.
    pub head: Bytes,
    /// Its record batches.
    pub bulk: Vec<Bulk>,
}

/// A frame as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFrame {
    /// The command's number.
    pub sequence: Sequence,
    /// How much it matters.
    pub kind: FrameKind,
    /// The command.
    pub head: Bytes,
    /// Its record batches.
    pub bulk: Vec<Bulk>,
}

impl ReadFrame {
    /// Whether a batch of it is not in the frame itself.
    pub(super) fn has_placed(&self) -> bool {
        self.bulk.iter().any(|bulk| matches!(bulk, Bulk::Placed(_)))
    }
}

/// What the checksums of a file's frames begin with.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    seed: Hasher,
    generation: u32,
}

impl Chain {
    pub(super) fn new(folder: FolderId, number: u64, generation: u32) -> Self {
        let mut seed = Hasher::new();
        seed.update(&folder.0);
        seed.update(&number.to_le_bytes());
        seed.update(&generation.to_le_bytes());
        Self { seed, generation }
    }

    fn checksum(&self, position: u64, header: &[u8]) -> u32 {
        let mut hasher = self.seed.clone();
        hasher.update(&position.to_le_bytes());
        hasher.update(header);
        hasher.finalize()
    }
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) sequence: Sequence,
    /// All up to here was known to be on disk when the frame was written.
    pub(super) durable: Sequence,
    pub(super) payload_bytes: u32,
    /// Position of the frame before it in the file; 0 if it is the first.
    pub(super) previous: u32,
    pub(super) kind: FrameKind,
    bulk_count: u32,
    payload_checksum: u32,
}

/// What 48 bytes at the place of a header are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderAt {
    /// A header written at this place in this use of the file.
    Valid(FrameHeader),
    /// No header, but one was being written here, or is damaged.
    Broken,
    /// Zeros, or what an earlier use of the file left.
    Other,
}

impl FrameHeader {
    /// Bytes of the whole frame, which are a multiple of 8.
    pub(super) fn frame_bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes)
    }

    fn encode(&self, chain: &Chain, position: u64, into: &mut Vec<u8>) {
        let begin = into.len();
        into.extend_from_slice(&FRAME_MAGIC);
        into.extend_from_slice(&chain.generation.to_le_bytes());
        into.extend_from_slice(&self.sequence.get().to_le_bytes());
        into.extend_from_slice(&self.durable.get().to_le_bytes());
        into.extend_from_slice(&self.payload_bytes.to_le_bytes());
        into.extend_from_slice(&self.previous.to_le_bytes());
        into.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        into.extend_from_slice(&self.bulk_count.to_le_bytes());
        into.extend_from_slice(&self.payload_checksum.to_le_bytes());
        let checksum = chain.checksum(position, into.get(begin..).unwrap_or_default());
        into.extend_from_slice(&checksum.to_le_bytes());
    }

    fn decode(bytes: &[u8], chain: &Chain, position: u64) -> Option<Self> {
        let checked = bytes.get(..HEADER_CHECKED_BYTES)?;
        if array_at(bytes, 0)? != FRAME_MAGIC
            || u32_at(bytes, 4)? != chain.generation
            || u32_at(bytes, HEADER_CHECKED_BYTES)? != chain.checksum(position, checked)
        {
            return None;
        }
        let [kind, zeros @ ..]: [u8; 4] = array_at(bytes, 32)?;
        let header = Self {
            sequence: Sequence::new(u64_at(bytes, 8)?),
            durable: Sequence::new(u64_at(bytes, 16)?),
            payload_bytes: u32_at(bytes, 24)?,
            previous: u32_at(bytes, 28)?,
            kind: FrameKind::of(kind)?,
            bulk_count: u32_at(bytes, 36)?,
            payload_checksum: u32_at(bytes, 40)?,
        };
        let sound = zeros == [0; 3]
            && header.payload_bytes <= WAL_FRAME_BYTES_MAX
            && header.bulk_count <= WAL_FRAME_BULKS_MAX
            && u64::from(header.previous) < position
            && header.durable < header.sequence;
        sound.then_some(header)
    }

    /// Judges the bytes at `position`, where the header of `expected` would be. A header whose
    /// bytes were damaged in one place still shows in another what it was.
    pub(super) fn at(bytes: &[u8], chain: &Chain, position: u64, expected: Sequence) -> HeaderAt {
        if let Some(header) = Self::decode(bytes, chain, position) {
            return HeaderAt::Valid(header);
        }
        let tagged =
            array_at(bytes, 0) == Some(FRAME_MAGIC) && u32_at(bytes, 4) == Some(chain.generation);
        if tagged || u64_at(bytes, 8) == Some(expected.get()) {
            HeaderAt::Broken
        } else {
            HeaderAt::Other
        }
    }

    /// The header at `position`, found without knowing what to expect.
    pub(super) fn found(bytes: &[u8], chain: &Chain, position: u64) -> Option<Self> {
        Self::decode(bytes, chain, position)
    }

    /// Takes a frame's payload apart; nothing when its bytes are not those that were written.
    pub(super) fn open(&self, payload: &Bytes) -> Option<ReadFrame> {
        let whole = u32::try_from(payload.len()) == Ok(self.payload_bytes);
        if !whole || crc32fast::hash(payload) != self.payload_checksum {
            return None;
        }
        let (head, bulk) = open_payload(payload, self.bulk_count)?;
        Some(ReadFrame {
            sequence: self.sequence,
            kind: self.kind,
            head,
            bulk,
        })
    }
}

/// Bytes of a frame with such a payload.
pub(super) fn frame_bytes(payload_bytes: u32) -> u64 {
    let bytes = FRAME_HEADER_BYTES as u64 + u64::from(payload_bytes);
    bytes.next_multiple_of(FRAME_ALIGN)
}

/// Bytes of a frame's payload; nothing when the frame is larger than may be.
pub(super) fn payload_bytes(frame: &Frame) -> Option<u32> {
    let mut bytes = u64::try_from(frame.head.len()).ok()?;
    for bulk in &frame.bulk {
        let more = match bulk {
            Bulk::Inline(batch) => INLINE_ENTRY_BYTES + batch.len(),
            Bulk::Placed(_) => PLACED_ENTRY_BYTES,
        };
        bytes = bytes.checked_add(u64::try_from(more).ok()?)?;
    }
    let count = u32::try_from(frame.bulk.len()).ok()?;
    let bytes = u32::try_from(bytes).ok()?;
    (bytes <= WAL_FRAME_BYTES_MAX && count <= WAL_FRAME_BULKS_MAX).then_some(bytes)
}

/// Where a frame goes, and what its header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct FramePlace {
    pub(super) position: u64,
    pub(super) previous: u32,
    pub(super) sequence: Sequence,
    pub(super) durable: Sequence,
    /// As [`payload_bytes`] gave it.
    pub(super) payload_bytes: u32,
}

/// Appends to `into` the header of `frame` and the list of its batches; the command and the
/// inline batches follow it in the file.
pub(super) fn encode(frame: &Frame, place: FramePlace, chain: &Chain, into: &mut Vec<u8>) {
    let begin = into.len();
    into.resize(begin + FRAME_HEADER_BYTES, 0);
    let table = into.len();
    let mut count = 0;
    for bulk in &frame.bulk {
        encode_entry(bulk, into);
        count += 1;
    }
    let mut payload = Hasher::new();
    payload.update(into.get(table..).unwrap_or_default());
    payload.update(&frame.head);
    for batch in inline(frame) {
        payload.update(batch);
    }
    let header = FrameHeader {
        sequence: place.sequence,
        durable: place.durable,
        payload_bytes: place.payload_bytes,
        previous: place.previous,
        kind: frame.kind,
        bulk_count: count,
        payload_checksum: payload.finalize(),
    };
    let mut encoded = Vec::with_capacity(FRAME_HEADER_BYTES);
    header.encode(chain, place.position, &mut encoded);
    if let Some(room) = into.get_mut(begin..table) {
        room.copy_from_slice(&encoded);
    }
}

/// The inline batches of a frame, in order.
pub(super) fn inline(frame: &Frame) -> impl Iterator<Item = &Bytes> {
    frame.bulk.iter().filter_map(|bulk| match bulk {
        Bulk::Inline(batch) => Some(batch),
        Bulk::Placed(_) => None,
    })
}

fn encode_entry(bulk: &Bulk, into: &mut Vec<u8>) {
    match bulk {
        Bulk::Inline(batch) => {
            // Fits: `payload_bytes` has bounded the whole frame.
            let bytes = u32::try_from(batch.len()).unwrap_or(u32::MAX);
            into.extend_from_slice(&[FORM_INLINE, 0, 0, 0]);
            into.extend_from_slice(&bytes.to_le_bytes());
        }
        Bulk::Placed(place) => {
            into.extend_from_slice(&[FORM_PLACED, 0, 0, 0]);
            into.extend_from_slice(&place.bytes.to_le_bytes());
            into.extend_from_slice(&place.partition.topic.0);
            into.extend_from_slice(&place.partition.partition.to_le_bytes());
            into.extend_from_slice(&place.position.to_le_bytes());
            into.extend_from_slice(&place.segment.get().to_le_bytes());
            into.extend_from_slice(&place.checksum.to_le_bytes());
            into.extend_from_slice(&[0; 4]);
        }
    }
}

/// A list entry: the batch itself, or how many bytes of it follow.
enum Entry {
    Inline(usize),
    Placed(Place),
}

fn open_payload(payload: &Bytes, count: u32) -> Option<(Bytes, Vec<Bulk>)> {
    let mut entries = Vec::new();
    let mut table = 0;
    let mut inline_bytes: usize = 0;
    for _ in 0..count {
        let (entry, bytes) = open_entry(payload.get(table..)?)?;
        if let Entry::Inline(batch_bytes) = entry {
            inline_bytes = inline_bytes.checked_add(batch_bytes)?;
        }
        table += bytes;
        entries.push(entry);
    }
    let mut at = payload
        .len()
        .checked_sub(inline_bytes)
        .filter(|at| *at >= table)?;
    let head = payload.slice(table..at);
    let mut bulk = Vec::with_capacity(entries.len());
    for entry in entries {
        bulk.push(match entry {
            Entry::Placed(place) => Bulk::Placed(place),
            Entry::Inline(bytes) => {
                let end = at + bytes;
                let batch = payload.slice(at..end);
                at = end;
                Bulk::Inline(batch)
            }
        });
    }
    Some((head, bulk))
}

fn open_entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    let form: [u8; 4] = array_at(bytes, 0)?;
    let batch_bytes = u32_at(bytes, 4)?;
    match form {
        [FORM_INLINE, 0, 0, 0] => Some((
            Entry::Inline(usize::try_from(batch_bytes).ok()?),
            INLINE_ENTRY_BYTES,
        )),
        [FORM_PLACED, 0, 0, 0] => {
            let topic = TopicId(array_at(bytes, 8)?);
            let place = Place {
                partition: PartitionId {
                    topic,
                    partition: u32_at(bytes, 24)?,
                },
                segment: Offset::new(u64_at(bytes, 32)?)?,
                position: u32_at(bytes, 28)?,
                bytes: batch_bytes,
                checksum: u32_at(bytes, 40)?,
            };
            (u32_at(bytes, 44)? == 0).then_some((Entry::Placed(place), PLACED_ENTRY_BYTES))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
