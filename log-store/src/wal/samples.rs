//! Logs for the tests, and what is done to them.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::fs::{Dir, read_whole};
use crate::layout::WalFile;
use crate::sim_fs::SimDisk;
use crate::{FolderId, Offset, PartitionId, Sequence};

pub(super) const FOLDER: FolderId = FolderId([7; 16]);
pub(super) const CONFIG: WalConfig = WalConfig { file_bytes: 8192 };
pub(super) const FIRST_FRAME: u64 = 4096;

pub(super) fn frame(number: u64) -> Frame {
    Frame {
        kind: FrameKind::Command,
        head: Bytes::from(format!("command {number}")),
        bulk: vec![Bulk::Inline(Bytes::from(vec![b'x'; 700]))],
    }
}

pub(super) fn placed(number: u64) -> Frame {
    let place = Place {
        partition: PartitionId::default(),
        segment: Offset::ZERO,
        position: 1,
        bytes: 2,
        checksum: 3,
    };
    Frame {
        bulk: vec![Bulk::Placed(place)],
        ..frame(number)
    }
}

pub(super) fn read_all(reader: &mut WalReader) -> Result<Vec<ReadFrame>, WalError> {
    std::iter::from_fn(|| reader.next_frame().transpose()).collect()
}

pub(super) fn reader(dir: &Arc<dyn Dir>, from: u64) -> Result<WalReader, WalError> {
    WalReader::open(Arc::clone(dir), FOLDER, Sequence::new(from))
}

pub(super) fn start(dir: &Arc<dyn Dir>, from: u64) -> Result<(Wal, TailReport), WalError> {
    reader(dir, from)?.into_writer(CONFIG)
}

/// Appends frames one by one, each synced before the next.
pub(super) fn append_synced(wal: &mut Wal, count: u64) {
    for _ in 0..count {
        let number = wal.next_sequence().get();
        wal.append(&[frame(number)]).unwrap();
        let through = wal.sync_job().run().unwrap();
        wal.note_durable(through);
    }
}

/// A log of `count` frames, five to a file.
pub(super) fn log_of(count: u64) -> (SimDisk, Arc<dyn Dir>) {
    let disk = SimDisk::new();
    let dir = disk.root();
    append_synced(&mut start(&dir, 1).unwrap().0, count);
    (disk, dir)
}

/// The numbers of the frames from `from` on.
pub(super) fn numbers(dir: &Arc<dyn Dir>, from: u64) -> Result<Vec<u64>, WalError> {
    let frames = read_all(&mut reader(dir, from)?)?;
    Ok(frames.iter().map(|frame| frame.sequence.get()).collect())
}

pub(super) fn flip(dir: &Arc<dyn Dir>, name: &str, at: u64, bit: u8) {
    let file = dir.open(name).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, at).unwrap();
    file.write_at(&[byte[0] ^ 1 << bit], at).unwrap();
}

pub(super) fn name(number: u64) -> String {
    WalFile::Log(number).name()
}

pub(super) fn image(dir: &Arc<dyn Dir>) -> Vec<(String, Vec<u8>)> {
    let read = |name: &String| read_whole(dir.open(name).unwrap().as_ref(), 1 << 20).unwrap();
    dir.list()
        .unwrap()
        .into_iter()
        .map(|name| (name.clone(), read(&name)))
        .collect()
}

/// Bytes of a frame like ours.
pub(super) const FRAME_BYTES: u64 = 768;

/// How many names in `dir` end with `suffix`.
pub(super) fn count(dir: &Arc<dyn Dir>, suffix: &str) -> usize {
    dir.list()
        .unwrap()
        .iter()
        .filter(|name| name.ends_with(suffix))
        .count()
}
