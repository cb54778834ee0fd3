use std::sync::Arc;

use super::file_header::Identity;
use super::index::{Index, IndexEntry};
use super::index_file::{GrowingIndex, map_sealed, read_growing, write_sealed};
use super::samples::{ALL, FOLDER, PARTITION, Scratch, fill, is_segment, offset};
use super::walk::{Extent, Spot};
use super::*;
use crate::fs::{Dir, OsDir, read_whole};
use crate::layout::PartitionFile;
use crate::{Offset, WallMs};

const IDENTITY: Identity = Identity {
    folder: FOLDER,
    partition: PARTITION,
    base: Offset::ZERO,
};
const EXTENT: Extent = Extent {
    end: Offset::MAX,
    bytes: u32::MAX,
};

fn entry(at: u32) -> IndexEntry {
    let spot = Spot {
        position: 64 + at * 100,
        offset: offset(u64::from(at) * 3),
    };
    IndexEntry {
        spot,
        time: WallMs(i64::from(at / 2) - 5),
    }
}

fn entries(count: u32) -> Vec<IndexEntry> {
    (0..count).map(entry).collect()
}

fn folder() -> (tempfile::TempDir, Arc<dyn Dir>) {
    let folder = tempfile::tempdir().unwrap();
    let dir = OsDir::open(folder.path()).unwrap();
    (folder, dir)
}

#[test]
fn look_ups_find_the_last_entry_in_front() {
    let index = Index::in_memory(Offset::ZERO, 50).unwrap();
    assert_eq!(
        (index.up_to_offset(offset(9)), index.before_time(WallMs(9))),
        (0, 0)
    );
    for at in 0..50 {
        assert!(index.push(&entry(at)));
    }
    assert_eq!(index.room(), 0);
    assert!(!index.push(&entry(50)), "it is full");
    for sought in 0..160 {
        let count = entries(50)
            .iter()
            .filter(|e| e.spot.offset <= offset(sought))
            .count();
        assert_eq!(index.up_to_offset(offset(sought)) as usize, count);
        let time = WallMs(i64::try_from(sought).unwrap() - 10);
        let count = entries(50).iter().filter(|e| e.time < time).count();
        assert_eq!(index.before_time(time) as usize, count);
    }
}

#[test]
fn an_offset_too_far_from_the_base_is_refused_and_the_farthest_is_kept() {
    let base = offset(5);
    let index = Index::in_memory(base, 4).unwrap();
    let at = |relative: u64| IndexEntry {
        spot: Spot {
            position: 64,
            offset: base.plus(relative),
        },
        time: WallMs(i64::MIN),
    };
    assert!(index.push(&at(u64::from(u32::MAX))));
    assert_eq!(index.get(0), Some(at(u64::from(u32::MAX))));
    assert!(!index.push(&at(u64::from(u32::MAX) + 1)));
    assert_eq!(index.count(), 1);
}

#[test]
fn a_growing_index_grows_in_doubling_steps_and_readers_keep_what_they_have() {
    let (_keep, folder) = folder();
    let mut index = GrowingIndex::create(folder.as_ref(), &IDENTITY, &[]).unwrap();
    let first = index.index().clone();
    let length = || {
        folder
            .open(&PartitionFile::Index(Offset::ZERO).name())
            .unwrap()
            .len()
            .unwrap()
    };
    assert_eq!(length(), 16 * 1024);
    for at in 0..5000 {
        index.reserve(1).unwrap();
        index.push(&entry(at));
    }
    assert_eq!(length(), 64 * 1024);
    assert_eq!(first.entries().collect::<Vec<_>>(), entries(2040));
    assert_eq!(index.index().entries().collect::<Vec<_>>(), entries(5000));
    let read = read_growing(folder.as_ref(), &IDENTITY, EXTENT).unwrap();
    assert_eq!(read.entries().collect::<Vec<_>>(), entries(5000));
    write_sealed(folder.as_ref(), &IDENTITY, index.index()).unwrap();
    let sealed = map_sealed(folder.as_ref(), &IDENTITY, EXTENT).unwrap();
    assert_eq!(sealed.entries().collect::<Vec<_>>(), entries(5000));
    assert_eq!(length(), 64 + 5001 * 8);
    assert_eq!(
        index.index().entries().count(),
        5000,
        "the old files are still mapped"
    );
    assert_eq!(folder.list().unwrap().len(), 2, "nothing temporary is left");
}

#[test]
fn entries_behind_the_extent_are_left_out() {
    let (_keep, folder) = folder();
    let index = GrowingIndex::create(folder.as_ref(), &IDENTITY, &entries(10)).unwrap();
    let by_offset = Extent {
        end: offset(12),
        bytes: u32::MAX,
    };
    let by_bytes = Extent {
        end: Offset::MAX,
        bytes: 64 + 401,
    };
    for (extent, count) in [(by_offset, 4), (by_bytes, 5)] {
        let read = read_growing(folder.as_ref(), &IDENTITY, extent).unwrap();
        assert_eq!(read.count(), count);
    }
    write_sealed(folder.as_ref(), &IDENTITY, index.index()).unwrap();
    assert_eq!(
        map_sealed(folder.as_ref(), &IDENTITY, by_offset)
            .unwrap()
            .count(),
        4
    );
}

#[test]
fn every_flipped_bit_of_a_sealed_index_is_seen() {
    let (_keep, folder) = folder();
    let index = Index::in_memory(Offset::ZERO, 5).unwrap();
    for at in 0..5 {
        index.push(&entry(at));
    }
    write_sealed(folder.as_ref(), &IDENTITY, &index).unwrap();
    for name in folder.list().unwrap() {
        let file = folder.open(&name).unwrap();
        let content = read_whole(file.as_ref(), 1 << 20).unwrap();
        for bit in 0..content.len() * 8 {
            let at = bit / 8;
            file.write_at(&[content[at] ^ (1 << (bit % 8))], at as u64)
                .unwrap();
            let found = map_sealed(folder.as_ref(), &IDENTITY, EXTENT);
            assert!(found.is_none(), "bit {bit} of {name}");
            file.write_at(&content[at..=at], at as u64).unwrap();
        }
        assert!(map_sealed(folder.as_ref(), &IDENTITY, EXTENT).is_some());
    }
}

/// A partition of a sealed and an unsealed segment, with index files as a stop leaves them.
struct Pair {
    scratch: Scratch,
    manifest: PartitionManifest,
    whole: Vec<StoredBatch>,
}

const CONFIG: PartitionConfig = PartitionConfig {
    segment_bytes: 1 << 20,
    index_interval_bytes: 150,
};

impl Pair {
    fn new() -> Self {
        let scratch = Scratch::new();
        let mut parts = scratch.create(CONFIG);
        let mut whole = fill(&mut parts, 20, 10);
        assert!(parts.writer.roll());
        whole.extend(fill(&mut parts, 20, 10));
        parts.writer.sync().unwrap();
        let manifest = parts.writer.manifest();
        assert_eq!(manifest.segments.len(), 2);
        Self {
            scratch,
            manifest,
            whole,
        }
    }

    /// Everything that can be asked is answered as if the indexes were whole.
    fn check(&mut self) {
        let parts = self.scratch.reopen(&self.manifest, CONFIG);
        for batch in self.whole.iter().rev() {
            let one = ReadLimit {
                batches_max: 1,
                ..ALL
            };
            let read = parts.reader.read(batch.base_offset.plus(1), one).unwrap();
            assert_eq!(read, std::slice::from_ref(batch));
            let time = WallMs(batch.append_time.0 - 5);
            let found = parts.reader.first_at_or_after(time).unwrap();
            assert_eq!(found, Some((batch.base_offset, batch.append_time)));
        }
        assert_eq!(parts.reader.read(Offset::ZERO, ALL).unwrap(), self.whole);
    }

    /// As [`Pair::check`], and something can be added.
    fn check_and_add(mut self) {
        self.check();
        let mut parts = self.scratch.reopen(&self.manifest, CONFIG);
        self.whole.extend(fill(&mut parts, 5, 10));
        self.manifest = parts.writer.manifest();
        assert_eq!(self.manifest.segments.len(), 2, "the last segment goes on");
        self.check();
    }

    fn index_files(&self) -> Vec<String> {
        let mut names = self.scratch.files().list().unwrap();
        names.retain(|name| !is_segment(name));
        assert_eq!(names.len(), 4);
        names
    }

    fn overwrite(&self, name: &str, content: &[u8]) {
        let folder = self.scratch.files();
        folder.remove(name).unwrap();
        folder.create(name).unwrap().write_at(content, 0).unwrap();
    }

    fn content(&self, name: &str) -> Vec<u8> {
        read_whole(self.scratch.files().open(name).unwrap().as_ref(), 1 << 20).unwrap()
    }
}

#[test]
fn index_files_of_every_length_are_harmless() {
    let mut pair = Pair::new();
    for name in pair.index_files() {
        let content = pair.content(&name);
        for bytes in 0..256 {
            let mut short = content.clone();
            short.resize(bytes, 0xa5);
            pair.overwrite(&name, &short);
            pair.check();
        }
        pair.overwrite(&name, &content);
    }
    pair.check_and_add();
}

#[test]
fn missing_index_files_are_built_again_and_change_nothing() {
    for missing in 0..16_u32 {
        let mut pair = Pair::new();
        let names = pair.index_files();
        let sealed: Vec<_> = names[..2].iter().map(|name| pair.content(name)).collect();
        for (at, name) in names.iter().enumerate() {
            if missing & (1 << at) != 0 {
                pair.scratch.files().remove(name).unwrap();
            }
        }
        pair.check();
        let again: Vec<_> = names[..2].iter().map(|name| pair.content(name)).collect();
        assert!(again.iter().zip(&sealed).all(|(a, b)| a.len() <= b.len()));
        pair.check_and_add();
    }
}

#[test]
fn garbage_in_index_files_is_harmless() {
    for seed in 1..9_u64 {
        let pair = Pair::new();
        for (at, name) in pair.index_files().into_iter().enumerate() {
            let mut state = seed * 1_000_003 + at as u64;
            let mut content = pair.content(&name);
            let from = if seed % 2 == 0 { 64 } else { 0 };
            for byte in &mut content[from..] {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                *byte = state.to_le_bytes()[6];
            }
            pair.overwrite(&name, &content);
        }
        pair.check_and_add();
    }
}

#[test]
fn an_index_that_looks_right_and_is_wrong_is_not_trusted() {
    let mut pair = Pair::new();
    let right = map_sealed(
        pair.scratch.files().as_ref(),
        &IDENTITY,
        Extent {
            end: pair.manifest.segments[0].end,
            bytes: pair.manifest.segments[0].bytes,
        },
    )
    .unwrap();
    let changes: [fn(&mut IndexEntry); 3] = [
        |entry| entry.spot.position += u32::from(entry.spot.position > 64),
        |entry| entry.spot.offset = entry.spot.offset.plus(1),
        |entry| entry.time = WallMs(entry.time.0 / 2),
    ];
    for change in changes {
        for keep_last in [true, false] {
            let wrong = Index::in_memory(Offset::ZERO, right.count()).unwrap();
            for (at, mut entry) in right.entries().enumerate() {
                if !keep_last || at + 1 < right.count() as usize {
                    change(&mut entry);
                }
                wrong.push(&entry);
            }
            let folder = pair.scratch.files();
            write_sealed(folder.as_ref(), &IDENTITY, &wrong).unwrap();
            pair.check();
        }
    }
}

#[test]
fn a_segment_that_is_gone_on_with_keeps_its_index_files_without_what_lay_behind() {
    let (_folder, dir) = folder();
    let before = GrowingIndex::create(dir.as_ref(), &IDENTITY, &entries(900)).unwrap();
    let still_read = before.index().clone();
    let after = GrowingIndex::reopen(dir.as_ref(), &IDENTITY, &entries(300)).unwrap();
    after.push(&entry(300));
    let found = read_growing(dir.as_ref(), &IDENTITY, EXTENT).unwrap();
    let found: Vec<_> = found.entries().collect();
    assert_eq!(found, entries(301));
    // The words are shared: the same file, not one in its place.
    assert_eq!(still_read.get(300), Some(entry(300)));
    assert_eq!(still_read.get(299), Some(entry(299)));
}

#[test]
fn index_files_that_cannot_be_gone_on_with_are_made_anew() {
    let (_folder, dir) = folder();
    let make = |count| GrowingIndex::reopen(dir.as_ref(), &IDENTITY, &entries(count)).unwrap();
    let size = |file: PartitionFile| dir.open(&file.name()).unwrap().len().unwrap();
    let check = |count: u32, why: &str| {
        drop(make(count));
        let found = read_growing(dir.as_ref(), &IDENTITY, EXTENT).unwrap();
        assert_eq!(found.count(), count, "{why}");
        let index = size(PartitionFile::Index(Offset::ZERO));
        assert_eq!(index, size(PartitionFile::TimeIndex(Offset::ZERO)), "{why}");
        assert!(index.is_power_of_two(), "{why}");
    };
    check(10, "there are none");
    check(5000, "there is no room");
    let time = PartitionFile::TimeIndex(Offset::ZERO).name();
    dir.remove(&time).unwrap();
    check(20, "one is gone");
    let file = dir.open(&time).unwrap();
    file.write_at(&[0xff; 64], 0).unwrap();
    check(20, "one is not ours");
    dir.open(&time).unwrap().set_len(1000).unwrap();
    check(20, "one is short");
    let sealed = make(30);
    write_sealed(dir.as_ref(), &IDENTITY, sealed.index()).unwrap();
    check(20, "they are those of a sealed segment");
}
