//! Snappy: blocks in the framing of snappy-java ("xerial"), which Kafka's Java clients write, or
//! one raw block, which others write.

use std::io;

use super::bounded::{Refusal, broken, check_declared, count};

/// Name, version 1, readable from version 1 on.
const FRAMING: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
/// The first eight of it say that a framing follows, of whatever version.
const NAME: [u8; 8] = *b"\x82SNAPPY\0";
/// Plain bytes of a block as Kafka's Java clients write it.
const BLOCK_BYTES: usize = 32 * 1024;
/// What a byte of a block can give at most: 64 from a copy of three.
const RATIO_MAX: u64 = 22;

pub(super) fn compress(plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = snap::raw::Encoder::new();
    let mut packed = vec![0; snap::raw::max_compress_len(plain.len().min(BLOCK_BYTES))];
    into.extend_from_slice(&FRAMING);
    for block in plain.chunks(BLOCK_BYTES) {
        let length = encoder.compress(block, &mut packed)?;
        let stated = u32::try_from(length).map_err(io::Error::other)?;
        into.extend_from_slice(&stated.to_be_bytes());
        into.extend_from_slice(packed.get(..length).unwrap_or_default());
    }
    Ok(())
}

pub(super) fn decompress(packed: &[u8], bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let mut plain = Vec::new();
    if !packed.starts_with(&NAME) {
        block(packed, bytes_max, &mut plain)?;
        return Ok(plain);
    }
    let mut rest = packed
        .strip_prefix(&FRAMING)
        .ok_or_else(|| broken("its framing is not version 1"))?;
    while !rest.is_empty() {
        let cut = || broken("it ends within a block");
        let (length, behind) = rest.split_first_chunk().ok_or_else(cut)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(io::Error::other)?;
        let (packed, behind) = behind.split_at_checked(length).ok_or_else(cut)?;
        block(packed, bytes_max, &mut plain)?;
        rest = behind;
    }
    Ok(plain)
}

/// Appends what one block gives; all blocks together may give `bytes_max`.
fn block(packed: &[u8], bytes_max: u64, plain: &mut Vec<u8>) -> Result<(), Refusal> {
    let declared = snap::raw::decompress_len(packed).map_err(io::Error::from)?;
    let total = count(plain.len()).saturating_add(count(declared));
    if total > bytes_max {
        return Err(Refusal::TooMuch(total));
    }
    check_declared(count(declared), packed, RATIO_MAX, bytes_max)?;
    let start = plain.len();
    plain.resize(start + declared, 0);
    let room = plain.get_mut(start..).unwrap_or_default();
    snap::raw::Decoder::new()
        .decompress(packed, room)
        .map_err(io::Error::from)?;
    Ok(())
}
