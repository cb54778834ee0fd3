//! What every codec needs to stop in time.

use std::io::{self, Read};

/// Why a stream is not decompressed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is no stream of its codec.
    Broken(io::Error),
    /// It gives so many bytes or more, and that is above the bound.
    TooMuch(u64),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

pub(super) fn broken(reason: &'static str) -> Refusal {
    Refusal::Broken(io::Error::new(io::ErrorKind::InvalidData, reason))
}

pub(super) fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// Judges a size that the stream itself declares, before room is made for it: `ratio_max` is what
/// a byte of the codec can give at most.
pub(super) fn check_declared(
    declared: u64,
    packed: &[u8],
    ratio_max: u64,
    bytes_max: u64,
) -> Result<(), Refusal> {
    if declared > bytes_max {
        Err(Refusal::TooMuch(declared))
    } else if declared > count(packed.len()).saturating_mul(ratio_max) {
        Err(broken("it declares a size that so few bytes cannot give"))
    } else {
        Ok(())
    }
}

/// Reads `stream` to its end, with room for `bytes_likely` at first.
pub(super) fn drain(
    stream: &mut impl Read,
    bytes_likely: usize,
    bytes_max: u64,
) -> Result<Vec<u8>, Refusal> {
    let mut plain = Vec::with_capacity(bytes_likely);
    stream
        .take(bytes_max.saturating_add(1))
        .read_to_end(&mut plain)?;
    let bytes = count(plain.len());
    if bytes > bytes_max {
        Err(Refusal::TooMuch(bytes))
    } else {
        Ok(plain)
    }
}
