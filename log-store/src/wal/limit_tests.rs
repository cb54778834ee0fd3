//! The bounds of the log, and its jobs on other threads.

use std::sync::Arc;

use bytes::Bytes;

use super::samples::count;
use super::*;
use crate::fs::{Dir, OsDir};
use crate::limits::{WAL_FRAME_BYTES_MAX, WAL_SPARE_FILES_MAX};
use crate::sim_fs::{Call, Failure, SimDisk};
use crate::{FolderId, Sequence};

const CONFIG: WalConfig = WalConfig { file_bytes: 8192 };

fn frame(bytes: usize) -> Frame {
    let bulk = vec![Bulk::Inline(Bytes::from(vec![b'x'; bytes]))];
    Frame {
        kind: FrameKind::Command,
        head: Bytes::new(),
        bulk,
    }
}

fn start_with(dir: &Arc<dyn Dir>, config: WalConfig) -> Wal {
    let reader = WalReader::open(Arc::clone(dir), FolderId([7; 16]), Sequence::ZERO);
    reader.unwrap().into_writer(config).unwrap().0
}

fn start(dir: &Arc<dyn Dir>) -> Wal {
    start_with(dir, CONFIG)
}

#[test]
fn a_frame_over_the_limit_is_refused_and_nothing_is_written() {
    let disk = SimDisk::new();
    let mut wal = start(&disk.root());
    let operations = disk.operations();
    let too_large = frame(WAL_FRAME_BYTES_MAX as usize);
    let error = wal.append(&[frame(1), too_large]).unwrap_err();
    assert!(matches!(
        error,
        WalError::TooLarge {
            bytes_max: WAL_FRAME_BYTES_MAX,
            ..
        }
    ));
    assert!(!error.is_final());
    assert_eq!(
        (wal.next_sequence().get(), disk.operations()),
        (1, operations)
    );
    wal.append(&[frame(1)]).unwrap();
}

#[test]
fn a_full_volume_refuses_a_file_and_is_no_end() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let mut wal = start(&dir);
    disk.limit_space(12_000);
    wal.append(&[frame(3000)]).unwrap();
    for _ in 0..3 {
        let error = wal
            .append(&[frame(10), frame(3000), frame(3000)])
            .unwrap_err();
        assert!(
            matches!(error, WalError::NoSpace { bytes: 8192 }),
            "{error:?}"
        );
        let error = wal.prepare_job().unwrap().run().unwrap_err();
        assert!(
            matches!(error, WalError::NoSpace { bytes: 8192 }),
            "{error:?}"
        );
        assert_eq!(dir.list().unwrap().len(), 1, "nothing is left behind");
    }
    assert_eq!(
        wal.append(&[frame(10)]).unwrap().get(),
        2,
        "what fits is still taken"
    );
    disk.limit_space(100_000);
    assert_eq!(wal.append(&[frame(3000), frame(3000)]).unwrap().get(), 4);
    wal.sync_job().run().unwrap();
}

#[test]
fn a_file_that_was_taken_for_a_refused_append_serves_the_next() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let mut wal = start(&dir);
    disk.limit_space(2 * 8192);
    let frames = [frame(3000), frame(3000), frame(3000)];
    assert!(matches!(wal.append(&frames), Err(WalError::NoSpace { .. })));
    assert_eq!(count(&dir, ".wal"), 2);
    assert!(wal.prepare_job().is_none(), "one waits");
    wal.append(&frames[..2]).unwrap();
    assert_eq!(count(&dir, ".wal"), 2);
}

#[test]
fn spare_files_are_bounded() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let mut wal = start(&dir);
    for _ in 0..40 {
        wal.append(&[frame(3000)]).unwrap();
    }
    wal.release_before(wal.next_sequence()).unwrap();
    let spare = usize::try_from(WAL_SPARE_FILES_MAX).unwrap();
    assert_eq!((count(&dir, ".spare"), count(&dir, ".wal")), (spare, 1));
    drop(wal);
    let other_size = WalConfig { file_bytes: 12_000 };
    let reader = WalReader::open(Arc::clone(&dir), FolderId([7; 16]), Sequence::new(41));
    let (mut wal, _) = reader.unwrap().into_writer(other_size).unwrap();
    assert_eq!(
        count(&dir, ".spare"),
        0,
        "files of another size are of no use"
    );
    wal.append(&[frame(3000), frame(3000)]).unwrap();
    let file = dir.open(&dir.list().unwrap().pop().unwrap()).unwrap();
    assert_eq!(file.len().unwrap(), 12_288);
}

#[test]
fn a_large_frame_gets_a_file_of_its_own_that_is_not_kept() {
    let disk = SimDisk::new();
    let dir = disk.root();
    let mut wal = start(&dir);
    wal.prepare_job().unwrap().run().unwrap();
    wal.append(&[frame(10), frame(50_000), frame(5000), frame(10)])
        .unwrap();
    let lengths = |dir: &Arc<dyn Dir>| -> Vec<u64> {
        let names = dir.list().unwrap();
        names
            .iter()
            .map(|name| dir.open(name).unwrap().len().unwrap())
            .collect()
    };
    assert_eq!(lengths(&dir), [8192, 8192, 57_344, 12_288]);
    assert_eq!(
        count(&dir, ".spare"),
        1,
        "the file that was ready was too small"
    );
    wal.append(&[frame(8000), frame(10)]).unwrap();
    wal.release_before(wal.next_sequence()).unwrap();
    assert!(lengths(&dir).iter().all(|bytes| *bytes <= 12_288));
}

#[test]
fn an_append_of_nothing_is_nothing() {
    let disk = SimDisk::new();
    let mut wal = start(&disk.root());
    assert_eq!(wal.append(&[]).unwrap(), Sequence::ZERO);
    let operations = disk.operations();
    assert_eq!(wal.sync_job().run().unwrap(), Sequence::ZERO);
    assert_eq!(disk.operations(), operations, "there is nothing to sync");
}

#[test]
fn bytes_are_counted() {
    let disk = SimDisk::new();
    let mut wal = start(&disk.root());
    wal.append(&[frame(1000), frame(1000)]).unwrap();
    let two = wal.written_bytes();
    assert_eq!(two, 2 * (48 + 8 + 1000));
    wal.release_before(Sequence::ZERO).unwrap();
    assert_eq!(wal.bytes_since_checkpoint(), 0);
    wal.append(&[frame(1000)]).unwrap();
    assert_eq!(
        (wal.written_bytes(), wal.bytes_since_checkpoint()),
        (two / 2 * 3, two / 2)
    );
    drop(wal);
    let wal = start(&disk.root());
    assert_eq!(
        (wal.written_bytes(), wal.bytes_since_checkpoint()),
        (0, two / 2 * 3)
    );
}

#[test]
fn a_sync_that_was_dropped_is_done_by_the_next() {
    let disk = SimDisk::new();
    let mut wal = start(&disk.root());
    wal.append(&[frame(3000)]).unwrap();
    drop(wal.sync_job());
    wal.append(&[frame(3000)]).unwrap();
    let job = wal.sync_job();
    assert_eq!((job.through().get(), job.run().unwrap().get()), (2, 2));
    for state in disk.crash_states(1, 100) {
        assert_eq!(start(&state.root()).next_sequence().get(), 3);
    }
}

#[test]
fn a_failed_sync_is_final_for_the_writer_and_every_job() {
    let disk = SimDisk::new();
    let mut wal = start(&disk.root());
    wal.append(&[frame(10)]).unwrap();
    let (first, second) = (wal.sync_job(), wal.sync_job());
    let prepare = wal.prepare_job().unwrap();
    disk.fail(Call::Sync, 1, Failure::NoSpace);
    let error = first.run().unwrap_err();
    assert!(matches!(error, WalError::Io { action: "sync", .. }) && error.is_final());
    let operations = disk.operations();
    assert!(matches!(
        second.run(),
        Err(WalError::Io { action: "sync", .. })
    ));
    assert!(matches!(
        wal.append(&[frame(1)]),
        Err(WalError::Io { action: "sync", .. })
    ));
    assert_eq!(disk.operations(), operations, "nothing more is tried");
    drop(prepare);
}

#[test]
fn a_prepare_job_that_is_dropped_holds_nobody_up() {
    let disk = SimDisk::new();
    let mut wal = start(&disk.root());
    let job = wal.prepare_job().unwrap();
    assert!(wal.prepare_job().is_none(), "one is on its way");
    drop(job);
    wal.append(&[frame(3000), frame(3000)]).unwrap();
    wal.prepare_job().unwrap().run().unwrap();
    assert!(wal.prepare_job().is_none(), "one is ready");
}

#[test]
fn jobs_run_on_other_threads_while_frames_are_appended() {
    let temp = tempfile::tempdir().unwrap();
    let dir = OsDir::open(temp.path()).unwrap();
    let mut wal = start(&dir);
    for round in 0..50_u64 {
        wal.append(&[frame(1000)]).unwrap();
        let (sync, prepare) = (wal.sync_job(), wal.prepare_job());
        let durable = std::thread::scope(|scope| {
            let prepare = scope.spawn(|| prepare.map_or(Ok(()), PrepareJob::run));
            let sync = scope.spawn(|| sync.run());
            wal.append(&[frame(2000), frame(2000)]).unwrap();
            prepare.join().unwrap().unwrap();
            sync.join().unwrap().unwrap()
        });
        assert_eq!(durable.get(), round * 3 + 1);
        wal.note_durable(durable);
        if round % 10 == 9 {
            wal.release_before(durable).unwrap();
        }
    }
    drop(wal);
    let mut reader = WalReader::open_at_oldest(dir, FolderId([7; 16])).unwrap();
    let mut last = None;
    while let Some(frame) = reader.next_frame().unwrap() {
        last = Some(frame.sequence.get());
    }
    assert_eq!(last, Some(150));
}

#[test]
fn too_many_open_files_refuse_a_file_and_are_no_end() {
    for call in [Call::Create, Call::Open] {
        let disk = SimDisk::new();
        let dir = disk.root();
        let mut wal = start(&dir);
        if call == Call::Open {
            // Files to be used again are opened.
            wal.append(&[frame(3000), frame(3000), frame(3000), frame(3000)])
                .unwrap();
            wal.release_before(wal.next_sequence()).unwrap();
            assert!(count(&dir, ".spare") > 0);
        }
        wal.append(&[frame(3000)]).unwrap();
        let next = wal.next_sequence();
        disk.fail(call, 1, Failure::NoDescriptor);
        let error = wal.append(&[frame(3000), frame(3000)]).unwrap_err();
        assert!(matches!(error, WalError::NoDescriptor { .. }), "{error:?}");
        assert!(!error.is_final());
        assert_eq!(wal.next_sequence(), next);
        wal.append(&[frame(3000), frame(3000)]).unwrap();
        wal.sync_job().run().unwrap();
    }
}
