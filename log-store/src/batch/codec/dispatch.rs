//! The codecs by name and number, and which code each one runs.

use std::fmt;

use super::bounded::{Refusal, drain};
use super::{gzip, lz4, snappy, zstandard};
use crate::batch::BatchError;

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Not at all.
    #[default]
    None,
    /// One gzip member.
    Gzip,
    /// Snappy, in the framing of Kafka's Java clients when written; raw blocks are read too.
    Snappy,
    /// One LZ4 frame.
    Lz4,
    /// One Zstandard frame.
    Zstd,
}

impl Codec {
    /// Every codec.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];
    /// The attribute bits that name the codec.
    pub(in crate::batch) const ATTRIBUTES: u16 = 0b111;

    /// Its usual name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec of this name, in lower case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    pub(in crate::batch) const fn attributes(self) -> u16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    pub(in crate::batch) fn from_attributes(attributes: u16) -> Option<Self> {
        let bits = attributes & Self::ATTRIBUTES;
        Self::ALL
            .into_iter()
            .find(|codec| codec.attributes() == bits)
    }

    /// Appends `plain`, compressed, to `into`.
    pub(in crate::batch) fn compress(
        self,
        plain: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), BatchError> {
        let done = match self {
            Self::None => {
                into.extend_from_slice(plain);
                Ok(())
            }
            Self::Gzip => gzip::compress(plain, into),
            Self::Snappy => snappy::compress(plain, into),
            Self::Lz4 => lz4::compress(plain, into),
            Self::Zstd => zstandard::compress(plain, into),
        };
        done.map_err(|error| BatchError::Compression {
            codec: self,
            reason: error.to_string(),
        })
    }

    /// What `packed` was before: all of it, exactly one stream, at most `bytes_max`.
    pub(in crate::batch) fn decompress(
        self,
        packed: &[u8],
        bytes_max: u64,
    ) -> Result<Vec<u8>, BatchError> {
        let plain = match self {
            Self::None => drain(&mut { packed }, packed.len(), bytes_max),
            Self::Gzip => gzip::decompress(packed, bytes_max),
            Self::Snappy => snappy::decompress(packed, bytes_max),
            Self::Lz4 => lz4::decompress(packed, bytes_max),
            Self::Zstd => zstandard::decompress(packed, bytes_max),
        };
        plain.map_err(|refusal| match refusal {
            Refusal::Broken(error) => BatchError::Compression {
                codec: self,
                reason: error.to_string(),
            },
            Refusal::TooMuch(value) => BatchError::Limit {
                record: None,
                what: "decompressed size in bytes",
                value,
                max: bytes_max,
            },
        })
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
