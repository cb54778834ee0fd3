//! A file of the log: its first 4 KiB, and how its bytes are read.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::error::WalError;
use super::frame::Chain;
use crate::field::{array_at, u32_at, u64_at};
use crate::fs::{File, read_exact_at};
use crate::layout::WalFile;
use crate::{FolderId, Sequence};

/// Bytes before the first frame.
pub(super) const FILE_HEADER_BYTES: u64 = 4096;

const MAGIC: [u8; 8] = *b"VARVEWAL";
const VERSION: u32 = 1;
const FLAG_RECYCLED: u32 = 1;
const CHECKED_BYTES: usize = 64;
/// Bytes fetched at once. A frame that reaches beyond is fetched again from its beginning, so this
/// is several times what frames usually have.
const WINDOW_BYTES: u64 = 2 << 20;

/// What the first bytes of a file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) folder: FolderId,
    /// As in its name.
    pub(super) number: u64,
    /// Differs from that of every earlier use of the file.
    pub(super) generation: u32,
    /// Whether the file was used before: then other bytes than zeros lie behind its last frame.
    pub(super) recycled: bool,
    /// Its length.
    pub(super) file_bytes: u64,
    /// The command that was next when the file was made ready.
    pub(super) next_when_made: Sequence,
}

impl FileHeader {
    /// The header as it is written; zeros follow up to the first frame.
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags = if self.recycled { FLAG_RECYCLED } else { 0 };
        let mut bytes = Vec::with_capacity(CHECKED_BYTES + 4);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&self.folder.0);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&self.file_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.next_when_made.get().to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        let checksum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header; what is wrong with it else.
    fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        Self::fields(bytes).unwrap_or(Err(HeaderFault::Damaged))
    }

    fn fields(bytes: &[u8]) -> Option<Result<Self, HeaderFault>> {
        let checksum = crc32fast::hash(bytes.get(..CHECKED_BYTES)?);
        if array_at(bytes, 0)? != MAGIC || u32_at(bytes, CHECKED_BYTES)? != checksum {
            return None;
        }
        let version = u32_at(bytes, 8)?;
        if version != VERSION {
            return Some(Err(HeaderFault::Version(version)));
        }
        let flags = u32_at(bytes, 12)?;
        let known = flags & !FLAG_RECYCLED == 0 && u32_at(bytes, 60)? == 0;
        known.then_some(Ok(Self {
            folder: FolderId(array_at(bytes, 16)?),
            number: u64_at(bytes, 32)?,
            generation: u32_at(bytes, 56)?,
            recycled: flags & FLAG_RECYCLED != 0,
            file_bytes: u64_at(bytes, 40)?,
            next_when_made: Sequence::new(u64_at(bytes, 48)?),
        }))
    }

    /// What the checksums of the file's frames begin with.
    pub(super) fn chain(&self) -> Chain {
        Chain::new(self.folder, self.number, self.generation)
    }
}

/// Why a header cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeaderFault {
    Damaged,
    Version(u32),
}

/// Reads the header of any file of the log, whatever it is named; nothing when it has none.
pub(super) fn read_header(file: &dyn File) -> io::Result<Option<FileHeader>> {
    let mut bytes = [0; CHECKED_BYTES + 4];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(FileHeader::decode(bytes.get(..read).unwrap_or_default()).ok())
}

/// An open file with its header.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    pub(super) name: String,
    pub(super) file: Arc<dyn File>,
    pub(super) header: FileHeader,
    pub(super) chain: Chain,
    /// How long it really is, bytes.
    pub(super) bytes: u64,
}

impl LogFile {
    /// A file that was just made.
    pub(super) fn made(file: Arc<dyn File>, header: FileHeader) -> Self {
        Self {
            name: WalFile::Log(header.number).name(),
            file,
            chain: header.chain(),
            bytes: header.file_bytes,
            header,
        }
    }

    /// Reads the header of the file with this number and checks that it is where it belongs.
    pub(super) fn open(
        file: Arc<dyn File>,
        number: u64,
        folder: FolderId,
    ) -> Result<Self, WalError> {
        let name = WalFile::Log(number).name();
        // What an earlier process failed to sync may be in the cache and not on the device.
        file.drop_cache()
            .map_err(WalError::io("drop the cache of", &name))?;
        let mut bytes = [0; CHECKED_BYTES + 4];
        let read = file
            .read_at(&mut bytes, 0)
            .map_err(WalError::io("read", &name))?;
        let length = file.len().map_err(WalError::io("read", &name))?;
        let header = match FileHeader::decode(bytes.get(..read).unwrap_or_default()) {
            Ok(header) => header,
            Err(HeaderFault::Version(version)) => {
                let what = format!("it has version {version}, this release reads {VERSION}");
                return Err(WalError::Foreign { file: name, what });
            }
            Err(HeaderFault::Damaged) => return Err(damaged(name, "its header is damaged")),
        };
        if header.folder != folder {
            let what = "it belongs to another data folder".to_owned();
            return Err(WalError::Foreign { file: name, what });
        }
        if header.number != number {
            return Err(damaged(name, "its header has another number than its name"));
        }
        Ok(Self {
            name,
            file,
            chain: header.chain(),
            bytes: length,
            header,
        })
    }

    /// Whether bytes are gone from its end since it was made.
    pub(super) fn is_shortened(&self) -> bool {
        self.bytes < self.header.file_bytes
    }

    /// Whether it reaches as far as `bytes` behind `position`.
    fn holds(&self, position: u64, bytes: u64) -> bool {
        position
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes)
    }

    /// The `bytes` at `position` and no more; nothing when the file ends before they do.
    pub(super) fn peek(&self, position: u64, bytes: u64) -> Result<Option<Bytes>, WalError> {
        let found = self.holds(position, bytes);
        found.then(|| self.read(position, bytes)).transpose()
    }

    fn read(&self, position: u64, bytes: u64) -> Result<Bytes, WalError> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other);
        let mut buffer = vec![0; bytes.map_err(self.io("read"))?];
        read_exact_at(self.file.as_ref(), &mut buffer, position).map_err(self.io("read"))?;
        Ok(buffer.into())
    }

    pub(super) fn io(&self, action: &'static str) -> impl Fn(io::Error) -> WalError {
        WalError::io(action, &self.name)
    }
}

fn damaged(file: String, what: &'static str) -> WalError {
    WalError::Corrupt {
        file,
        position: 0,
        sequence: Sequence::ZERO,
        what,
    }
}

/// A stretch of a file that was fetched at once. What it hands out is shared, not copied.
#[derive(Debug, Default)]
pub(super) struct Window {
    start: u64,
    bytes: Bytes,
}

impl Window {
    /// The `bytes` at `position`; nothing when the file ends before they do.
    pub(super) fn get(
        &mut self,
        log: &LogFile,
        position: u64,
        bytes: u64,
    ) -> Result<Option<Bytes>, WalError> {
        if !log.holds(position, bytes) {
            return Ok(None);
        }
        if let Some(found) = self.slice(position, bytes) {
            return Ok(Some(found));
        }
        let fetch = bytes.max(WINDOW_BYTES).min(log.bytes - position);
        *self = Self {
            start: position,
            bytes: log.read(position, fetch)?,
        };
        Ok(self.slice(position, bytes))
    }

    fn slice(&self, position: u64, bytes: u64) -> Option<Bytes> {
        let from = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(usize::try_from(bytes).ok()?)?;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}
