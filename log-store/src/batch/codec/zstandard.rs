//! One Zstandard frame (RFC 8878).

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{find_frame_compressed_size, get_error_name, get_frame_content_size};

use super::bounded::{Refusal, broken, check_declared, drain};

/// What Kafka's clients use unless told otherwise.
const LEVEL: i32 = 3;
/// Largest window of a frame that does not state its size: 16 MiB. Levels up to 19 need half.
const WINDOW_LOG_MAX: u32 = 24;
/// What a byte can give at most: a repeated block of 128 KiB takes four.
const RATIO_MAX: u64 = 32 * 1024;

thread_local! {
    /// Contexts are kept, one each a thread: making one costs more than a small batch does.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub(super) fn compress(plain: &[u8], into: &mut Vec<u8>) -> io::Result<()> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(Compressor::new(LEVEL)?),
        };
        into.extend_from_slice(&compressor.compress(plain)?);
        Ok(())
    })
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
        return Ok(decompress_whole(packed, capacity)?);
    }
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    drain(&mut decoder, packed.len().saturating_mul(4), bytes_max)
}

fn decompress_whole(packed: &[u8], capacity: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new()?),
        };
        decompressor.decompress(packed, capacity)
    })
}
