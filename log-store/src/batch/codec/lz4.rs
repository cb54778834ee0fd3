//! One LZ4 frame.

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::bounded::{Refusal, broken, check_declared, drain};

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Flag of the descriptor's first byte: eight bytes of content size follow the second.
const CONTENT_SIZE: u8 = 1 << 3;
/// What a byte of a block can give at most.
const RATIO_MAX: u64 = 255;

pub(super) fn compress(plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    // Independent blocks, since Kafka's Java clients read no others, and small ones, since a reader
    // needs room for one and it should stay in its cache.
    let frame = FrameInfo::new().block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(frame, into);
    encoder.write_all(plain)?;
    encoder.finish()?;
    Ok(())
}

pub(super) fn decompress(packed: &[u8], bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let descriptor = packed
        .strip_prefix(&MAGIC)
        .ok_or_else(|| broken("not an LZ4 frame"))?;
    let declared = match descriptor {
        [flags, _, rest @ ..] if flags & CONTENT_SIZE != 0 => rest
            .first_chunk()
            .map_or(0, |size| u64::from_le_bytes(*size)),
        _ => 0,
    };
    check_declared(declared, packed, RATIO_MAX, bytes_max)?;
    let mut decoder = FrameDecoder::new(Whole {
        packed,
        missed: false,
    });
    let likely = packed.len().saturating_mul(2);
    let plain = drain(&mut decoder, likely, bytes_max)?;
    let source = decoder.into_inner();
    if source.missed {
        Err(broken("its end is missing"))
    } else if source.packed.is_empty() {
        Ok(plain)
    } else {
        Err(broken("bytes follow its only frame"))
    }
}

/// The frame, and an end mark behind it should the decoder want more. By itself it takes the end of
/// its source between two blocks for the end of the frame.
struct Whole<'a> {
    packed: &'a [u8],
    /// Whether the decoder wanted more than there is.
    missed: bool,
}

impl Read for Whole<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let taken = self.packed.read(into)?;
        if taken == 0 && !into.is_empty() {
            self.missed = true;
            into.fill(0);
            return Ok(into.len());
        }
        Ok(taken)
    }
}
