//! One Zstandard frame (RFC 8878).

use std::io;

use zstd::zstd_safe::{find_frame_compressed_size, get_error_name, get_frame_content_size};

use super::bounded::{Refusal, broken, check_declared, drain};

/// What Kafka's clients use unless told otherwise.
const LEVEL: i32 = 3;
/// Largest window of a frame that does not state its size: 16 MiB. Levels up to 19 need half.
const WINDOW_LOG_MAX: u32 = 24;
/// What a byte can give at most: a repeated block of 128 KiB takes four.
const RATIO_MAX: u64 = 32 * 1024;

pub(super) fn compress(plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    into.extend_from_slice(&zstd::bulk::compress(plain, LEVEL)?);
    Ok(())
}

pub(super) fn decompress(packed: &[u8], bytes_max: u64) -> Result<Vec<u8>, Refusal> {
    let frame_bytes = find_frame_compressed_size(packed)
        .map_err(|code| io::Error::new(io::ErrorKind::InvalidData, get_error_name(code)))?;
    if frame_bytes != packed.len() {
        return Err(broken("bytes follow its only frame"));
    }
    let Ok(declared) = get_frame_content_size(packed) else {
        return Err(broken("not a Zstandard frame"));
    };
    if let Some(declared) = declared {
        check_declared(declared, packed, RATIO_MAX, bytes_max)?;
        let capacity = usize::try_from(declared).map_err(io::Error::other)?;
        return Ok(zstd::bulk::decompress(packed, capacity)?);
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    drain(&mut decoder, packed.len().saturating_mul(4), bytes_max)
}
