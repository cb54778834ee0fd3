//! Checkpoints: what a start begins with, so that it need not apply the whole write-ahead log.
//!
//! A checkpoint is one file, written under a temporary name, synced, renamed, and the folder
//! synced. The newest two are kept, and the log from the older one on: a damaged checkpoint costs
//! time and nothing else.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::fs::{Dir, File};
use crate::layout::{checkpoint, parse_checkpoint, temporary};
use crate::limits::{CHECKPOINT_BYTES_MAX, CHECKPOINT_PARTITIONS_MAX, SNAPSHOT_BYTES_MAX};
use crate::partition::{
    Fields, ManifestError, PartitionManifest, create_anew, size, size_u32, size_u64,
};
use crate::{FolderId, Sequence};

const MAGIC: [u8; 8] = *b"VARVECKP";
const VERSION: u16 = 1;
/// Bytes of the checksum at the end.
const CHECKSUM_BYTES: usize = 4;
/// Bytes that are read or written at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// How many checkpoints are kept.
const KEPT: usize = 2;

/// All that is durable, at one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Every command up to and including it is in `partitions` and `state`, and none behind it.
    pub sequence: Sequence,
    /// Every partition that there is.
    pub partitions: Vec<PartitionManifest>,
    /// The rest of the durable state, in an encoding that this crate does not know.
    pub state: Bytes,
}

/// Why checkpoints could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// There are checkpoints, and none of them is whole.
    #[error("no checkpoint is whole; the newest, {}: {reason}", checkpoint(*.newest))]
    AllDamaged {
        /// Sequence of the newest, which is its file's name.
        newest: Sequence,
        /// What is wrong with it.
        reason: Damage,
    },
    /// Made by a later version of this program.
    #[error("checkpoint {} has version {version}, which is not known here", checkpoint(*.sequence))]
    Unsupported {
        /// Its sequence, which is its file's name.
        sequence: Sequence,
        /// The version it states.
        version: u16,
    },
    /// Of another data folder.
    #[error("checkpoint {} belongs to another data folder", checkpoint(*.sequence))]
    Foreign {
        /// Its sequence, which is its file's name.
        sequence: Sequence,
    },
    /// More than a checkpoint may hold.
    #[error("the checkpoint would hold {value} {what}, {max} at most")]
    TooLarge {
        /// What is counted.
        what: &'static str,
        /// How many.
        value: u64,
        /// How many there may be.
        max: u64,
    },
    /// The disk failed.
    #[error("checkpoint: {0}")]
    Io(#[from] io::Error),
}

/// What is wrong with a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Its bytes are not those that were written.
    #[error("its checksum does not fit its content")]
    Checksum,
    /// It has no header.
    #[error("it does not begin as a checkpoint does")]
    Header,
    /// Its parts do not add up.
    #[error("its parts do not add up to its size")]
    Shape,
    /// Its sequence is not the one in its name.
    #[error("it states another sequence than its name")]
    Name,
    /// A manifest in it contradicts itself.
    #[error(transparent)]
    Manifest(ManifestError),
}

/// A checkpoint that was passed over. Its file stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamagedCheckpoint {
    /// Its sequence, which is its file's name.
    pub sequence: Sequence,
    /// What is wrong with it.
    pub damage: Damage,
}

/// The folder of the checkpoints. One owner.
#[derive(Debug)]
pub struct CheckpointStore {
    dir: Arc<dyn Dir>,
    folder: FolderId,
    /// Sequences of the kept ones, rising.
    kept: Vec<Sequence>,
    damaged: Vec<DamagedCheckpoint>,
}

impl CheckpointStore {
    /// Opens the folder of checkpoints and reads the newest that is whole; none on a first start.
    /// Newer ones that are damaged are passed over, see [`CheckpointStore::damaged`].
    pub fn open(
        dir: Arc<dyn Dir>,
        folder: FolderId,
    ) -> Result<(Self, Option<Checkpoint>), CheckpointError> {
        let names = dir.list()?;
        let mut sequences: Vec<_> = names
            .iter()
            .filter_map(|name| parse_checkpoint(name))
            .collect();
        sequences.sort_unstable();
        let mut store = Self {
            dir,
            folder,
            kept: Vec::new(),
            damaged: Vec::new(),
        };
        while let Some(sequence) = sequences.pop() {
            match store.load(sequence)? {
                Ok(found) => {
                    sequences.push(sequence);
                    store.kept = sequences;
                    return Ok((store, Some(found)));
                }
                Err(damage) => store.damaged.push(DamagedCheckpoint { sequence, damage }),
            }
        }
        match store.damaged.first() {
            Some(&DamagedCheckpoint {
                sequence: newest,
                damage: reason,
            }) => Err(CheckpointError::AllDamaged { newest, reason }),
            None => Ok((store, None)),
        }
    }

    /// The checkpoints that were passed over when the folder was opened, newest first.
    pub fn damaged(&self) -> &[DamagedCheckpoint] {
        &self.damaged
    }

    /// Reads the kept checkpoints behind the newest whole one too, which a start does not; tells
    /// which are damaged, newest first.
    pub fn check_older(&self) -> Result<Vec<DamagedCheckpoint>, CheckpointError> {
        let older = self.kept.split_last().map_or(&[][..], |(_, older)| older);
        let mut damaged = Vec::new();
        for sequence in older.iter().rev().copied() {
            if let Err(damage) = self.load(sequence)? {
                damaged.push(DamagedCheckpoint { sequence, damage });
            }
        }
        Ok(damaged)
    }

    /// Writes a checkpoint durably. Only then those beyond the newest two go. On an error what was
    /// there is still there.
    ///
    /// Panics if it is older than the newest.
    pub fn write(&mut self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let sequence = checkpoint.sequence;
        assert!(
            self.kept.last().is_none_or(|last| *last <= sequence),
            "checkpoints never go back"
        );
        let name = crate::layout::checkpoint(sequence);
        let file = create_anew(self.dir.as_ref(), &temporary(&name))?;
        write_to(file.as_ref(), self.folder, checkpoint)?;
        file.sync_data()?;
        self.dir.rename(&temporary(&name), &name)?;
        self.dir.sync()?;
        self.kept.retain(|kept| *kept != sequence);
        self.kept.push(sequence);
        self.damaged.retain(|damaged| damaged.sequence != sequence);
        while self.kept.len() > KEPT
            && let Some(oldest) = self.kept.first().copied()
        {
            self.dir.remove(&crate::layout::checkpoint(oldest))?;
            self.kept.remove(0);
        }
        Ok(())
    }

    /// The first command that a start may need from the write-ahead log, should the newest
    /// checkpoint turn out damaged.
    pub fn wal_needed_from(&self) -> Sequence {
        match self.kept.as_slice() {
            [.., older, _] => older.next(),
            _ => Sequence::ZERO.next(),
        }
    }

    fn load(&self, sequence: Sequence) -> Result<Result<Checkpoint, Damage>, CheckpointError> {
        let file = self.dir.open(&checkpoint(sequence))?;
        match read_checked(file.as_ref())? {
            Some(content) => self.parse(sequence, &content),
            None => Ok(Err(Damage::Checksum)),
        }
    }

    /// Reads content whose checksum is right.
    fn parse(
        &self,
        sequence: Sequence,
        content: &Bytes,
    ) -> Result<Result<Checkpoint, Damage>, CheckpointError> {
        let mut fields = Fields::new(content);
        if fields.array() != Some(MAGIC) {
            return Ok(Err(Damage::Header));
        }
        match fields.u16() {
            Some(VERSION) => {}
            Some(version) => return Err(CheckpointError::Unsupported { sequence, version }),
            None => return Ok(Err(Damage::Header)),
        }
        let Some(header) = Header::parse(&mut fields) else {
            return Ok(Err(Damage::Header));
        };
        if header.folder != self.folder {
            return Err(CheckpointError::Foreign { sequence });
        }
        if header.sequence != sequence {
            return Ok(Err(Damage::Name));
        }
        Ok(header.parse_rest(fields, content))
    }
}

/// What is in front of the manifests, behind magic and version.
struct Header {
    partitions: u32,
    folder: FolderId,
    sequence: Sequence,
    state_bytes: u64,
}

impl Header {
    fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let flags = fields.u16()?;
        let partitions = fields
            .u32()
            .filter(|count| *count <= CHECKPOINT_PARTITIONS_MAX)?;
        let folder = FolderId(fields.array()?);
        let sequence = Sequence::new(fields.u64()?);
        let state_bytes = fields.u64()?;
        (flags == 0).then_some(Self {
            partitions,
            folder,
            sequence,
            state_bytes,
        })
    }

    fn parse_rest(&self, mut fields: Fields<'_>, content: &Bytes) -> Result<Checkpoint, Damage> {
        let mut partitions = Vec::new();
        for _ in 0..self.partitions {
            let bytes = fields.u32().and_then(|bytes| fields.bytes(size(bytes)));
            let manifest = PartitionManifest::decode(bytes.ok_or(Damage::Shape)?);
            partitions.push(manifest.map_err(Damage::Manifest)?);
        }
        let state = content.slice(content.len() - fields.remaining()..);
        if size_u64(state.len()) != self.state_bytes {
            return Err(Damage::Shape);
        }
        Ok(Checkpoint {
            sequence: self.sequence,
            partitions,
            state,
        })
    }
}

/// The content of a file in front of its checksum; `None` if that is wrong.
fn read_checked(file: &dyn File) -> io::Result<Option<Bytes>> {
    let mut content = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let position = size_u64(content.len());
        let read = file.read_at(&mut chunk, position)?;
        content.extend_from_slice(chunk.get(..read).unwrap_or_default());
        if read < chunk.len() {
            break;
        }
        if position > CHECKPOINT_BYTES_MAX {
            return Ok(None);
        }
    }
    let Some((checked, stated)) = content.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Ok(None);
    };
    if crc32fast::hash(checked) != u32::from_le_bytes(*stated) {
        return Ok(None);
    }
    content.truncate(content.len() - CHECKSUM_BYTES);
    Ok(Some(content.into()))
}

fn write_to(
    file: &dyn File,
    folder: FolderId,
    checkpoint: &Checkpoint,
) -> Result<(), CheckpointError> {
    let state_bytes = size_u64(checkpoint.state.len());
    let partitions = size_u64(checkpoint.partitions.len());
    at_most("bytes of state", state_bytes, SNAPSHOT_BYTES_MAX)?;
    at_most("partitions", partitions, CHECKPOINT_PARTITIONS_MAX.into())?;
    let mut out = Sink::new(file);
    out.put(&MAGIC)?;
    out.put(&VERSION.to_le_bytes())?;
    out.put(&0_u16.to_le_bytes())?;
    out.put(&size_u32(checkpoint.partitions.len()).to_le_bytes())?;
    out.put(&folder.0)?;
    out.put(&checkpoint.sequence.get().to_le_bytes())?;
    out.put(&state_bytes.to_le_bytes())?;
    let mut encoded = Vec::new();
    for manifest in &checkpoint.partitions {
        encoded.clear();
        manifest.encode(&mut encoded);
        out.put(&size_u32(encoded.len()).to_le_bytes())?;
        out.put(&encoded)?;
    }
    out.put(&checkpoint.state)?;
    let bytes = out.finish()?;
    at_most("bytes", bytes, CHECKPOINT_BYTES_MAX)
}

fn at_most(what: &'static str, value: u64, max: u64) -> Result<(), CheckpointError> {
    if value <= max {
        Ok(())
    } else {
        Err(CheckpointError::TooLarge { what, value, max })
    }
}

/// Writes a file from front to back in large pieces, and sums it up.
struct Sink<'a> {
    file: &'a dyn File,
    position: u64,
    buffer: Vec<u8>,
    crc: crc32fast::Hasher,
}

impl<'a> Sink<'a> {
    fn new(file: &'a dyn File) -> Self {
        let buffer = Vec::with_capacity(CHUNK_BYTES);
        Self {
            file,
            position: 0,
            buffer,
            crc: crc32fast::Hasher::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        if self.buffer.len() + bytes.len() > CHUNK_BYTES {
            self.write_out()?;
        }
        if bytes.len() > CHUNK_BYTES {
            self.file.write_at(bytes, self.position)?;
            self.position += size_u64(bytes.len());
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Adds the checksum; returns the size.
    fn finish(mut self) -> io::Result<u64> {
        let checksum = self.crc.clone().finalize();
        self.put(&checksum.to_le_bytes())?;
        self.write_out()?;
        Ok(self.position)
    }

    fn write_out(&mut self) -> io::Result<()> {
        self.file.write_at(&self.buffer, self.position)?;
        self.position += size_u64(self.buffer.len());
        self.buffer.clear();
        Ok(())
    }
}

#[cfg(test)]
#[path = "checkpoint_tests.rs"]
mod tests;
