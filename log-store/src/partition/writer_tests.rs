use std::io;
use std::sync::Arc;

use super::log::is_near;
use super::samples::{ALL, FOLDER, PARTITION, SMALL, Scratch, batch, fill, offset};
use super::*;
use crate::fs::{Dir, File, Space, VolumeSync};
use crate::layout::{PartitionFile, partition_folder};
use crate::{Epoch, Offset};

/// A folder that must not be asked.
#[derive(Debug)]
struct Untouchable;

impl Dir for Untouchable {
    fn list(&self) -> io::Result<Vec<String>> {
        panic!("the disk is asked")
    }
    fn open_dir(&self, _: &str) -> io::Result<Arc<dyn Dir>> {
        panic!("the disk is asked")
    }
    fn create_dir(&self, _: &str) -> io::Result<Arc<dyn Dir>> {
        panic!("the disk is asked")
    }
    fn open(&self, _: &str) -> io::Result<Arc<dyn File>> {
        panic!("the disk is asked")
    }
    fn create(&self, _: &str) -> io::Result<Arc<dyn File>> {
        panic!("the disk is asked")
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        panic!("the disk is asked")
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        panic!("the disk is asked")
    }
    fn remove_dir(&self, _: &str) -> io::Result<()> {
        panic!("the disk is asked")
    }
    fn sync(&self) -> io::Result<()> {
        panic!("the disk is asked")
    }
    fn sync_volume(&self) -> io::Result<VolumeSync> {
        panic!("the disk is asked")
    }
    fn space(&self) -> io::Result<Space> {
        panic!("the disk is asked")
    }
}

#[test]
fn opening_and_reading_the_tail_ask_nothing_of_the_disk() {
    let mut parts = Scratch::new().create(SMALL);
    fill(&mut parts, 100, 10);
    let manifest = parts.writer.manifest();
    assert!(manifest.segments.len() > 10);
    let volume = Volume::new(Arc::new(Untouchable), FOLDER, 4);
    let mut parts = open(&volume, &manifest, SMALL).unwrap();
    let next = batch(manifest.end, 3, 10, 5000);
    parts.tail.push(next.clone());
    assert_eq!(
        parts.reader.read(manifest.end, ALL).unwrap(),
        [StoredBatch::from(&next)]
    );
    assert_eq!(parts.reader.segments().len(), manifest.segments.len());
    assert_eq!(parts.writer.manifest(), manifest);
}

#[test]
fn what_is_in_the_tail_is_read_without_a_copy() {
    let mut parts = Scratch::new().create(SMALL);
    let pushed = batch(Offset::ZERO, 1, 100, 1);
    parts.tail.push(pushed.clone());
    let read = parts.reader.read(Offset::ZERO, ALL).unwrap();
    assert_eq!(read[0].body.as_ptr(), pushed.body.as_ptr());
}

#[test]
fn a_partition_without_records_has_no_file_and_no_folder() {
    let mut scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    parts.writer.flush().unwrap();
    parts.writer.sync().unwrap();
    assert!(!parts.writer.roll());
    assert_eq!(scratch.volume.root.list().unwrap(), [""; 0]);
    fill(&mut parts, 20, 10);
    assert_eq!(
        scratch.volume.root.list().unwrap(),
        [partition_folder(PARTITION)]
    );
    let end = parts.tail.end();
    let retired = parts.writer.set_start(end);
    parts.writer.remove_retired(retired).unwrap();
    assert_eq!(scratch.volume.root.list().unwrap(), [""; 0]);
    assert_eq!(parts.reader.read(end, ALL).unwrap(), []);
    let stored = fill(&mut parts, 2, 10);
    let mut parts = scratch.reopen(&parts.writer.manifest(), SMALL);
    assert_eq!(parts.reader.read(end, ALL).unwrap(), stored);
    parts.writer.repair().unwrap();
    parts.writer.remove_all().unwrap();
    assert_eq!(scratch.volume.root.list().unwrap(), [""; 0]);
    assert_eq!(parts.reader.start(), parts.reader.end());
}

#[test]
fn files_of_others_stay_and_keep_the_folder() {
    let scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    fill(&mut parts, 20, 10);
    scratch.files().create("notes.txt").unwrap();
    let retired = parts.writer.set_start(parts.reader.end());
    parts.writer.remove_retired(retired).unwrap();
    assert_eq!(scratch.files().list().unwrap(), ["notes.txt"]);
    fill(&mut parts, 20, 10);
    parts.writer.remove_all().unwrap();
    assert_eq!(scratch.files().list().unwrap(), ["notes.txt"]);
}

#[test]
#[should_panic(expected = "a batch begins where the partition ends")]
fn a_gap_is_not_taken() {
    let mut parts = Scratch::new().create(SMALL);
    parts.tail.push(batch(offset(1), 1, 1, 1));
}

#[test]
fn a_body_that_is_no_batch_is_refused_by_the_flush_and_what_is_in_front_of_it_is_kept() {
    let scratch = Scratch::new();
    let wrong = [
        CommittedBatch {
            body: "short".into(),
            ..batch(offset(2), 1, 1, 1)
        },
        CommittedBatch {
            record_count: 3,
            ..batch(offset(2), 2, 1, 1)
        },
    ];
    for wrong in wrong {
        let mut parts = scratch.create(SMALL);
        fill(&mut parts, 1, 1);
        parts.tail.push(wrong);
        let refusal = parts.writer.flush().unwrap_err();
        assert!(matches!(refusal, WriteError::NotABatch { offset: at, .. } if at == offset(2)));
        assert_eq!(parts.writer.manifest().end, offset(2));
        assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap().len(), 2);
        parts.writer.remove_all().unwrap();
    }
}

#[test]
fn unflushed_bytes_are_counted_over_the_volume_and_given_back() {
    let scratch = Scratch::new();
    let mut one = scratch.create(SMALL);
    let other = PartitionParts {
        ..scratch.create(SMALL)
    };
    let mut other = other;
    let pushed = batch(Offset::ZERO, 1, 100, 1);
    let bytes = pushed.body.len() as u64;
    one.tail.push(pushed.clone());
    other.tail.push(pushed);
    assert_eq!(scratch.volume.unflushed_bytes(), 2 * bytes);
    assert_eq!(one.tail.unflushed_bytes(), bytes);
    let flushed = one.writer.flush().unwrap();
    assert_eq!(
        flushed,
        Flushed {
            bytes,
            batches: 1,
            rolled: 0
        }
    );
    assert_eq!(scratch.volume.unflushed_bytes(), bytes);
    drop(other);
    assert_eq!(scratch.volume.unflushed_bytes(), 0);
}

#[test]
fn a_segment_takes_the_batch_that_fills_it_and_no_other() {
    let mut parts = Scratch::new().create(SMALL);
    let flushed = {
        fill(&mut parts, 3, 100);
        for _ in 0..40 {
            parts.tail.push(batch(parts.tail.end(), 1, 100, 9999));
        }
        parts.writer.flush().unwrap()
    };
    let segments = parts.reader.segments();
    assert_eq!(segments.len(), usize::try_from(flushed.rolled).unwrap() + 1);
    let (last, sealed) = segments.split_last().unwrap();
    assert!(last.bytes <= SMALL.segment_bytes + 250);
    for segment in sealed {
        assert!(
            segment.bytes >= SMALL.segment_bytes,
            "sealed before it was full"
        );
        assert!(segment.bytes < SMALL.segment_bytes + 450);
    }
}

#[test]
fn a_batch_larger_than_a_segment_has_one_to_itself() {
    let mut parts = Scratch::new().create(SMALL);
    fill(&mut parts, 1, 5000);
    fill(&mut parts, 1, 5000);
    let segments = parts.reader.segments();
    assert_eq!(
        segments.iter().map(|s| s.base.get()).collect::<Vec<_>>(),
        [0, 2]
    );
    let limit = ReadLimit {
        bytes_max: 1,
        ..ALL
    };
    let read = parts.reader.read(offset(3), limit).unwrap();
    assert_eq!((read.len(), read[0].base_offset), (1, offset(2)));
}

#[test]
fn a_segment_ends_before_its_relative_offsets_overflow() {
    let base = offset(1 << 40);
    let far = |relative: u64| CommittedBatch {
        base_offset: base.plus(relative),
        ..batch(Offset::ZERO, 2, 1, 1)
    };
    let most = u64::from(u32::MAX);
    assert!(is_near(base, &far(0)));
    assert!(is_near(base, &far(most - 2)));
    assert!(!is_near(base, &far(most - 1)));
    assert!(!is_near(base, &far(most)));
    assert!(!is_near(base, &far(1 << 33)));
}

#[test]
fn a_quiet_partition_closes_its_files_at_the_second_sync_and_goes_on_when_written_to() {
    let mut parts = Scratch::new().create(SMALL);
    let mut stored = fill(&mut parts, 2, 10);
    let is_open = |parts: &PartitionParts| format!("{:?}", parts.writer).contains("GrowingIndex");
    parts.writer.sync().unwrap();
    assert!(is_open(&parts));
    parts.writer.sync().unwrap();
    assert!(!is_open(&parts));
    assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap(), stored);
    stored.extend(fill(&mut parts, 1, 10));
    assert_eq!(parts.reader.segments().len(), 1);
    assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap(), stored);
}

#[test]
fn epochs_are_kept_with_their_first_offsets_until_the_start_passes_them() {
    let mut parts = Scratch::new().create(SMALL);
    for epoch in [0, 0, 3, 3, 4] {
        let next = batch(parts.tail.end(), 2, 10, 1);
        parts.tail.push(CommittedBatch {
            epoch: Epoch(epoch),
            ..next
        });
    }
    parts.writer.flush().unwrap();
    let epochs = |parts: &PartitionParts| parts.writer.manifest().epochs;
    let all = [
        (Epoch(0), offset(0)),
        (Epoch(3), offset(4)),
        (Epoch(4), offset(8)),
    ];
    assert_eq!(epochs(&parts), all);
    parts.writer.set_start(offset(3));
    assert_eq!(epochs(&parts), all);
    parts.writer.set_start(offset(4));
    assert_eq!(epochs(&parts), all[1..]);
    parts.writer.set_start(offset(10));
    assert_eq!(epochs(&parts), all[2..]);
}

#[test]
fn the_start_moves_for_readers_before_files_go_and_never_back() {
    let scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    fill(&mut parts, 30, 10);
    let before = parts.reader.segments();
    parts.tail.set_start(offset(20));
    parts.tail.set_start(offset(10));
    assert_eq!(parts.reader.start(), offset(20));
    assert!(matches!(
        parts.reader.read(offset(19), ALL),
        Err(ReadError::OutOfRange { .. })
    ));
    assert_eq!(parts.reader.segments(), before);
    let names = scratch.files().list().unwrap();
    let retired = parts.writer.set_start(offset(0));
    assert_eq!(scratch.files().list().unwrap(), names);
    assert!(!retired.is_empty() && retired.iter().all(|segment| segment.end <= offset(20)));
    assert_eq!(parts.reader.segments(), before[retired.len()..]);
    assert_eq!(
        parts.reader.read(offset(20), ALL).unwrap()[0].base_offset,
        offset(20)
    );
    parts.writer.remove_retired(retired.clone()).unwrap();
    parts.writer.remove_retired(retired).unwrap();
    assert!(scratch.files().list().unwrap().len() < names.len());
}

#[test]
fn a_start_beyond_the_flushed_end_drops_what_need_not_be_written() {
    let scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    fill(&mut parts, 5, 10);
    for _ in 0..5 {
        parts.tail.push(batch(parts.tail.end(), 2, 10, 1000));
    }
    let retired = parts.writer.set_start(offset(15));
    parts.writer.remove_retired(retired).unwrap();
    assert_eq!(
        parts.reader.read(offset(15), ALL).unwrap()[0].base_offset,
        offset(14)
    );
    let flushed = parts.writer.flush().unwrap();
    assert_eq!(flushed.batches, 3);
    assert_eq!(parts.reader.segments()[0].base, offset(14));
    assert_eq!(parts.reader.read(offset(15), ALL).unwrap().len(), 3);
    let beyond = parts.writer.set_start(Offset::MAX);
    assert_eq!(beyond.len(), 1);
    assert_eq!(
        (parts.reader.start(), parts.reader.end()),
        (offset(20), offset(20))
    );
}

#[test]
fn segments_open_for_readers_are_bounded_over_the_volume() {
    let mut scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    let stored = fill(&mut parts, 60, 10);
    let parts = scratch.reopen(&parts.writer.manifest(), SMALL);
    for _ in 0..2 {
        for one in &stored {
            let limit = ReadLimit {
                batches_max: 1,
                ..ALL
            };
            let read = parts.reader.read(one.base_offset, limit).unwrap();
            assert_eq!(read, std::slice::from_ref(one));
            assert!((1..=4).contains(&scratch.volume.files.count()));
        }
    }
}

#[test]
fn leftovers_in_front_and_behind_go_at_the_first_write_and_strangers_stay() {
    let mut scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    fill(&mut parts, 30, 10);
    let old = parts.writer.set_start(offset(20));
    let manifest = parts.writer.manifest();
    assert!(!old.is_empty());
    fill(&mut parts, 30, 10);
    let folder = scratch.files();
    let inside = PartitionFile::Segment(manifest.segments[1].base.plus(1)).name();
    let index = PartitionFile::Index(manifest.segments[1].base.plus(1)).name();
    let temporary = crate::layout::temporary(&PartitionFile::Index(offset(0)).name());
    for name in ["notes.txt", "x.log", &inside, &index, &temporary] {
        folder.create(name).unwrap();
    }
    let mut parts = scratch.reopen(&manifest, SMALL);
    let stored = fill(&mut parts, 1, 10);
    let report = parts.writer.repair().unwrap().clone();
    assert_eq!(report.missing, []);
    assert_eq!(report.unknown, [inside.as_str(), "notes.txt", "x.log"]);
    assert!(report.removed.contains(&index) && report.removed.contains(&temporary));
    let bases: Vec<_> = parts
        .reader
        .segments()
        .iter()
        .map(|segment| segment.base)
        .collect();
    let ours =
        |name: &String| PartitionFile::parse(name).is_some_and(|f| bases.contains(&f.base()));
    let names = folder.list().unwrap();
    assert!(
        names
            .iter()
            .all(|name| ours(name) || report.unknown.contains(name)),
        "{names:?}"
    );
    assert_eq!(parts.reader.read(manifest.end, ALL).unwrap(), stored);
}
