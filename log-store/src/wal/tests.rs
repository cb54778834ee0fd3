use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::fs::{Dir, OsDir};
use crate::{FolderId, Sequence};

const FOLDER: FolderId = FolderId([7; 16]);
const CONFIG: WalConfig = WalConfig {
    file_bytes: 16 * 1024,
};

fn folder() -> (tempfile::TempDir, Arc<dyn Dir>) {
    let temp = tempfile::tempdir().unwrap();
    let dir = OsDir::open(temp.path()).unwrap();
    (temp, dir)
}

fn frame(text: &str) -> Frame {
    Frame {
        kind: FrameKind::Command,
        head: Bytes::copy_from_slice(text.as_bytes()),
        bulk: vec![Bulk::Inline(Bytes::from(vec![b'x'; 1000]))],
    }
}

fn read_all(reader: &mut WalReader) -> Vec<ReadFrame> {
    std::iter::from_fn(|| reader.next_frame().unwrap()).collect()
}

fn open(dir: &Arc<dyn Dir>, from: u64) -> WalReader {
    WalReader::open(Arc::clone(dir), FOLDER, Sequence::new(from)).unwrap()
}

#[test]
fn what_was_appended_is_read_again_across_files_and_starts() {
    let (_temp, dir) = folder();
    let mut written = Vec::new();
    for start in 0..5 {
        let mut reader = open(&dir, 1);
        let heads = read_all(&mut reader);
        let heads: Vec<_> = heads.iter().map(|frame| frame.head.clone()).collect();
        assert_eq!(heads, written);
        let (mut wal, report) = reader.into_writer(CONFIG).unwrap();
        assert_eq!(report.cut, None);
        assert_eq!(wal.next_sequence(), Sequence::new(written.len() as u64 + 1));
        for round in 0..7 {
            let frames: Vec<_> = (0..3)
                .map(|n| frame(&format!("{start} {round} {n}")))
                .collect();
            wal.append(&frames).unwrap();
            written.extend(frames.into_iter().map(|frame| frame.head));
        }
        let through = wal.sync_job().run().unwrap();
        assert_eq!(through, Sequence::new(written.len() as u64));
    }
}
