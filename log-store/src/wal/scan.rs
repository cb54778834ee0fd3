//! Looks through what lies behind the last good frame of a file. Linear in its length.

use super::error::WalError;
use super::file::LogFile;
use super::frame::{FRAME_ALIGN, FRAME_HEADER_BYTES, FRAME_MAGIC, FrameHeader};
use crate::Sequence;
use crate::field::{array_at, u64_at};
use crate::fs::read_exact_at;

/// Bytes looked through at once.
const BLOCK_BYTES: u64 = 1 << 20;
/// A frame begins at a multiple of this.
const WORD_BYTES: usize = 8;
const _: () = assert!(WORD_BYTES as u64 == FRAME_ALIGN);

/// What lies in a stretch of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scan {
    /// The first header of this use of the file, and where it is.
    pub(super) first: Option<(u64, FrameHeader)>,
    /// How many headers there are.
    pub(super) frames: u64,
    /// The furthest durable end that they state.
    pub(super) durable: Sequence,
    /// Where the last byte of this use of the file may be; 0 if there is none.
    pub(super) end: u64,
}

/// Looks through `log` from `from`, a multiple of 8, to its end.
pub(super) fn scan(log: &LogFile, from: u64) -> Result<Scan, WalError> {
    let mut scan = Scan::default();
    let mut start = from;
    while start < log.bytes {
        let bytes = (log.bytes - start).min(BLOCK_BYTES + FRAME_HEADER_BYTES as u64);
        let mut block = vec![0; usize::try_from(bytes).unwrap_or_default()];
        read_exact_at(log.file.as_ref(), &mut block, start).map_err(log.io("read"))?;
        scan.look_through(log, start, &block);
        start += BLOCK_BYTES;
    }
    Ok(scan)
}

impl Scan {
    /// `block` begins at `start` and reaches one header further than what is looked for in it.
    fn look_through(&mut self, log: &LogFile, start: u64, block: &[u8]) {
        let words = (0..block.len()).step_by(WORD_BYTES);
        for (at, position) in words.zip((start..start + BLOCK_BYTES).step_by(WORD_BYTES)) {
            let rest = block.get(at..).unwrap_or_default();
            if u64_at(rest, 0) == Some(0) {
                continue;
            }
            if !log.header.recycled && rest.iter().any(|byte| *byte != 0) {
                self.end = self.end.max(position + WORD_BYTES as u64).min(log.bytes);
            }
            if array_at(rest, 0) == Some(FRAME_MAGIC) {
                self.note(log, position, rest);
            }
        }
    }

    fn note(&mut self, log: &LogFile, position: u64, bytes: &[u8]) {
        let Some(header) = FrameHeader::found(bytes, &log.chain, position) else {
            return;
        };
        self.first.get_or_insert((position, header));
        self.frames += 1;
        self.durable = self.durable.max(header.durable);
        self.end = self.end.max(position + header.frame_bytes()).min(log.bytes);
    }
}
