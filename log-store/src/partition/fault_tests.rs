use super::samples::{ALL, SMALL, Scratch, as_stored, batch, fill, stamped};
use super::*;
use crate::Offset;
use crate::sim_fs::{Call, Failure, SimDisk};

#[test]
fn a_failed_sync_is_final_and_reading_goes_on() {
    for call in [Call::Sync, Call::SyncDir] {
        let disk = SimDisk::new();
        let mut parts = Scratch::on(&disk).create(SMALL);
        let mut stored = fill(&mut parts, 3, 10);
        disk.fail(call, 1, Failure::Broken);
        assert!(matches!(parts.writer.sync(), Err(WriteError::Io { .. })));
        assert!(matches!(
            parts.writer.sync(),
            Err(WriteError::Fenced { .. })
        ));
        let next = batch(parts.tail.end(), 1, 1, 1000);
        parts.tail.push(next.clone());
        assert!(matches!(
            parts.writer.flush(),
            Err(WriteError::Fenced { .. })
        ));
        stored.push(StoredBatch::from(&next));
        assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap(), stored);
    }
}

#[test]
fn a_flush_that_fails_at_any_call_loses_nothing_and_may_be_tried_again() {
    let calls = [
        Call::Write,
        Call::Create,
        Call::Allocate,
        Call::Rename,
        Call::SetLen,
    ];
    for call in calls {
        for failure in [Failure::NoSpace, Failure::Broken] {
            let failed = (1..40)
                .filter(|nth| flush_failing_at(call, failure, *nth))
                .count();
            assert!(failed > 0, "{call:?} is never called");
        }
    }
}

#[test]
fn a_short_or_interrupted_write_is_carried_on() {
    for failure in [Failure::Short, Failure::Interrupted] {
        for nth in 1..12 {
            assert!(
                !flush_failing_at(Call::Write, failure, nth),
                "{failure:?} {nth}"
            );
        }
    }
}

/// Flushes over several segments while the `nth` call of a kind fails; false if the flush did not,
/// as it does not when all that fails is the sealing of an index.
fn flush_failing_at(call: Call, failure: Failure, nth: u64) -> bool {
    let disk = SimDisk::new();
    let mut scratch = Scratch::on(&disk);
    let mut parts = scratch.create(SMALL);
    let mut stored = fill(&mut parts, 3, 10);
    let mut parts = scratch.reopen(&parts.writer.manifest(), SMALL);
    for _ in 0..12 {
        let next = batch(parts.tail.end(), 2, 60, 1000);
        stored.push(as_stored(&next));
        parts.tail.push(next);
    }
    disk.fail(call, nth, failure);
    let failed = parts.writer.flush().is_err();
    let read = parts.reader.read(Offset::ZERO, ALL).unwrap();
    assert_eq!(stamped(read), stored, "{call:?} {nth}");
    parts.writer.manifest().check().unwrap();
    let at_failure = parts.writer.manifest();
    parts.writer.flush().unwrap();
    parts.writer.sync().unwrap();
    let done = parts.writer.manifest();
    assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap(), stored);
    for (manifest, count) in [(&done, stored.len()), (&at_failure, 3)] {
        let parts = scratch.reopen(manifest, SMALL);
        let read = parts.reader.read(Offset::ZERO, ALL).unwrap();
        assert!(read.len() >= count);
        assert_eq!(read[..], stored[..read.len()]);
        assert_eq!(parts.reader.end(), manifest.end);
    }
    failed
}

#[test]
fn a_full_disk_keeps_what_is_there_and_takes_more_when_there_is_room() {
    let disk = SimDisk::new();
    let scratch = Scratch::on(&disk);
    let mut parts = scratch.create(SMALL);
    let mut stored = fill(&mut parts, 10, 100);
    disk.limit_space(64 * 1024);
    let mut refused = 0;
    for _ in 0..200 {
        let next = batch(parts.tail.end(), 2, 100, 1000);
        stored.push(as_stored(&next));
        parts.tail.push(next);
        refused += u32::from(parts.writer.flush().is_err());
    }
    assert!(refused > 100);
    let read = parts.reader.read(Offset::ZERO, ALL).unwrap();
    assert_eq!(stamped(read), stored);
    disk.limit_space(1 << 30);
    parts.writer.flush().unwrap();
    assert_eq!(parts.reader.unflushed_bytes(), 0);
    assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap(), stored);
}
