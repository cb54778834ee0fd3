//! What a command costs on its way to the disk: append to the write-ahead log and sync, in a
//! folder of the volume for temporary files (`TMPDIR`). A file in memory says nothing here.

use std::sync::Arc;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use varvelog_store::fs::{Dir, OsDir};
use varvelog_store::wal::{Bulk, Frame, FrameKind, Wal, WalConfig, WalReader};
use varvelog_store::{FolderId, Sequence};

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
const CONFIG: WalConfig = WalConfig {
    file_bytes: 64 << 20,
};
/// As often as a checkpoint would let files go.
const RELEASE_BYTES: u64 = 256 << 20;

fn open(dir: &Arc<dyn Dir>) -> Wal {
    let reader = WalReader::open(Arc::clone(dir), FolderId([7; 16]), Sequence::ZERO);
    let (mut wal, _) = reader
        .expect("a new log")
        .into_writer(CONFIG)
        .expect("room on the volume");
    // From here on files are used again, as in a broker that has run for a while.
    let filler = frame(1 << 20);
    while wal.written_bytes() < RELEASE_BYTES {
        wal.append(std::slice::from_ref(&filler))
            .expect("room on the volume");
    }
    sync(&mut wal);
    wal.release_before(wal.next_sequence())
        .expect("a log that works");
    wal
}

fn frame(bytes: usize) -> Frame {
    let batch = Bytes::from(vec![0x5a; bytes]);
    Frame {
        kind: FrameKind::Command,
        head: Bytes::from_static(b"append"),
        bulk: vec![Bulk::Inline(batch)],
    }
}

fn sync(wal: &mut Wal) {
    let durable = wal.sync_job().run().expect("a volume that works");
    wal.note_durable(durable);
}

fn append(wal: &mut Wal, frame: &Frame, synced: bool) {
    wal.append(std::slice::from_ref(frame))
        .expect("room on the volume");
    if synced {
        sync(wal);
    }
    if wal.bytes_since_checkpoint() > RELEASE_BYTES {
        sync(wal);
        wal.release_before(wal.next_sequence())
            .expect("a log that works");
    }
}

fn wal(criterion: &mut Criterion) {
    let temp = tempfile::tempdir().expect("a folder for temporary files");
    let dir = OsDir::open(temp.path()).expect("a folder for temporary files");
    let mut wal = open(&dir);
    for (name, synced) in [("append", false), ("append and sync", true)] {
        let mut group = criterion.benchmark_group(format!("wal {name}"));
        for bytes in SIZES {
            let frame = frame(bytes);
            group.throughput(Throughput::Bytes(bytes as u64));
            group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
                bencher.iter(|| append(&mut wal, &frame, synced));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, wal);
criterion_main!(benches);
