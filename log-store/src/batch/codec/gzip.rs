//! One gzip member (RFC 1952).

use std::io::{self, Write};

use flate2::Compression;

use super::bounded::{Refusal, broken, check_declared, drain};

/// What a byte of deflate can give at most.
const RATIO_MAX: u64 = 1032;

pub(super) fn compress(plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = flate2::write::GzEncoder::new(into, Compression::default());
    encoder.write_all(plain)?;
    encoder.finish()?;
    Ok(())
}

pub(super) fn decompress(packed: &[u8], bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    // The last field of the only member: its plain size modulo 2^32.
    let declared = packed
        .last_chunk()
        .map_or(0, |size| u32::from_le_bytes(*size));
    check_declared(declared.into(), packed, RATIO_MAX, bytes_max)?;
    let mut decoder = flate2::bufread::GzDecoder::new(packed);
    let plain = drain(
        &mut decoder,
        usize::try_from(declared).unwrap_or(0),
        bytes_max,
    )?;
    if decoder.into_inner().is_empty() {
        Ok(plain)
    } else {
        Err(broken("bytes follow its only member"))
    }
}
