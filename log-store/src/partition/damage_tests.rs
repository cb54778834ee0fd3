use std::collections::BTreeSet;
use std::sync::Arc;

use super::samples::{ALL, PARTITION, SMALL, Scratch, as_stored, batch, fill, is_segment, offset};
use super::*;
use crate::fs::{File, read_whole};
use crate::layout::{PartitionFile, partition_folder};
use crate::{Offset, WallMs};

/// A flushed partition whose files a test may change.
struct Patient {
    scratch: Scratch,
    manifest: PartitionManifest,
    config: PartitionConfig,
    whole: Vec<StoredBatch>,
}

/// What a reader makes of a partition, whatever is wrong with it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    batches: Vec<StoredBatch>,
    damaged: BTreeSet<Offset>,
}

impl Patient {
    fn new(config: PartitionConfig, batches: u32, filler: usize) -> Self {
        let scratch = Scratch::new();
        let mut parts = scratch.create(config);
        let whole = fill(&mut parts, batches, filler);
        parts.writer.sync().unwrap();
        let manifest = parts.writer.manifest();
        Self {
            scratch,
            manifest,
            config,
            whole,
        }
    }

    /// One segment of five batches.
    fn small() -> Self {
        let config = PartitionConfig {
            index_interval_bytes: 100,
            ..PartitionConfig::default()
        };
        Self::new(config, 5, 3)
    }

    fn file(&self, base: Offset) -> Arc<dyn File> {
        self.scratch
            .files()
            .open(&PartitionFile::Segment(base).name())
            .unwrap()
    }

    fn content(&self, base: Offset) -> Vec<u8> {
        read_whole(self.file(base).as_ref(), 1 << 20).unwrap()
    }

    fn restore(&self, base: Offset, content: &[u8]) {
        let file = self.file(base);
        file.set_len(content.len() as u64).unwrap();
        file.write_at(content, 0).unwrap();
    }

    fn drop_indexes(&self) {
        let folder = self.scratch.files();
        for name in folder.list().unwrap() {
            if !is_segment(&name) {
                folder.remove(&name).unwrap();
            }
        }
    }

    /// Reads everything after a restart, over whatever is damaged.
    fn look(&mut self) -> Seen {
        let parts = self.scratch.reopen(&self.manifest, self.config);
        let mut seen = Seen {
            batches: Vec::new(),
            damaged: BTreeSet::new(),
        };
        let mut from = parts.reader.start();
        while from < parts.reader.end() {
            match parts.reader.read(from, ALL) {
                Ok(batches) => {
                    from = batches
                        .last()
                        .expect("something is there, or damaged")
                        .end();
                    seen.batches.extend(batches);
                }
                Err(ReadError::Corrupt { first, last }) => {
                    assert!(
                        first <= from && from <= last,
                        "{first}..={last} holds {from}"
                    );
                    seen.damaged.extend((first.get()..=last.get()).map(offset));
                    from = last.plus(1);
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.check_times(&parts.reader, &seen.damaged);
        seen
    }

    /// Looking up a time gives the truth, or says that the truth is damaged.
    fn check_times(&self, reader: &PartitionReader, damaged: &BTreeSet<Offset>) {
        for batch in &self.whole {
            let base = batch.base_offset;
            match reader.append_time_at(base) {
                Ok(time) => assert_eq!(time, Some(batch.append_time)),
                Err(ReadError::Corrupt { first, last }) => {
                    assert!(first <= base && base <= last);
                    assert!(damaged.contains(&base));
                }
                Err(error) => panic!("{error}"),
            }
            match reader.first_at_or_after(WallMs(batch.append_time.0 - 5)) {
                Ok(found) => assert_eq!(found, Some((base, batch.append_time))),
                Err(ReadError::Corrupt { first, .. }) => assert!(damaged.contains(&first)),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What is seen when the batches with these indexes are damaged, and no other.
    fn without(&self, damaged: &[usize]) -> Seen {
        let mut seen = Seen {
            batches: Vec::new(),
            damaged: BTreeSet::new(),
        };
        for (at, batch) in self.whole.iter().enumerate() {
            if damaged.contains(&at) {
                seen.damaged
                    .extend((batch.base_offset.get()..batch.end().get()).map(offset));
            } else {
                seen.batches.push(batch.clone());
            }
        }
        seen
    }

    /// For the only segment: where each entry begins, and where the last ends.
    fn bounds(&self) -> Vec<usize> {
        let mut at = 64;
        let mut bounds = vec![at];
        for batch in &self.whole {
            at += 44 + batch.body.len();
            bounds.push(at);
        }
        bounds
    }

    /// The batch whose entry holds the byte.
    fn batch_at(&self, position: usize) -> Option<usize> {
        self.bounds()
            .partition_point(|bound| *bound <= position)
            .checked_sub(1)
    }
}

#[test]
fn every_flipped_bit_of_a_segment_costs_its_own_batch_and_nothing_else() {
    for keep_indexes in [true, false] {
        let mut patient = Patient::small();
        let content = patient.content(Offset::ZERO);
        assert_eq!(content.len(), *patient.bounds().last().unwrap());
        let file = patient.file(Offset::ZERO);
        for bit in (0..content.len() * 8).step_by(if keep_indexes { 1 } else { 7 }) {
            if !keep_indexes {
                patient.drop_indexes();
            }
            let position = bit / 8;
            let flipped = content[position] ^ (1 << (bit % 8));
            file.write_at(&[flipped], position as u64).unwrap();
            let damaged: Vec<usize> = patient.batch_at(position).into_iter().collect();
            assert_eq!(patient.look(), patient.without(&damaged), "bit {bit}");
            file.write_at(&content[position..=position], position as u64)
                .unwrap();
        }
        assert_eq!(patient.look(), patient.without(&[]));
    }
}

#[test]
fn every_cut_of_a_segment_costs_what_lies_behind_it_and_nothing_else() {
    let mut patient = Patient::small();
    let content = patient.content(Offset::ZERO);
    for bytes in (0..content.len()).rev() {
        patient.restore(Offset::ZERO, &content[..bytes]);
        let first = patient.batch_at(bytes).unwrap_or(0);
        let damaged: Vec<usize> = (first..patient.whole.len()).collect();
        assert_eq!(patient.look(), patient.without(&damaged), "{bytes} bytes");
    }
}

#[test]
fn zeros_anywhere_cost_the_batches_that_they_touch() {
    let mut patient = Patient::small();
    let content = patient.content(Offset::ZERO);
    for from in (0..content.len()).step_by(13) {
        for bytes in [1, 44, 150, 4096] {
            let until = content.len().min(from + bytes);
            let mut damaged = content.clone();
            damaged[from..until].fill(0);
            patient.restore(Offset::ZERO, &damaged);
            let bounds = patient.bounds();
            let touched = |batch: &usize| {
                let entry = bounds[*batch]..bounds[*batch + 1];
                content[entry.clone()] != damaged[entry]
            };
            let touched: Vec<usize> = (0..patient.whole.len()).filter(touched).collect();
            assert_eq!(patient.look(), patient.without(&touched), "{from}..{until}");
        }
    }
}

#[test]
fn an_entry_in_the_place_of_another_is_seen() {
    let mut patient = Patient::small();
    let content = patient.content(Offset::ZERO);
    let bounds = patient.bounds();
    let entry = |at: usize| content[bounds[at]..bounds[at + 1]].to_vec();
    for (from, to) in [(0, 1), (3, 1), (1, 3), (4, 0)] {
        assert_eq!(entry(from).len(), entry(to).len());
        let mut damaged = content.clone();
        damaged[bounds[to]..bounds[to + 1]].copy_from_slice(&entry(from));
        patient.restore(Offset::ZERO, &damaged);
        let seen = patient.look();
        let gone = patient.without(&[to]);
        assert!(
            gone.damaged.is_subset(&seen.damaged),
            "{from} in the place of {to}"
        );
        assert!(
            seen.batches
                .iter()
                .all(|batch| patient.whole.contains(batch))
        );
    }
}

#[test]
fn a_segment_under_the_name_of_another_is_all_damaged() {
    let mut patient = Patient::new(SMALL, 20, 10);
    let bases: Vec<_> = patient
        .manifest
        .segments
        .iter()
        .map(|segment| segment.base)
        .collect();
    let other = patient.content(bases[2]);
    patient.restore(bases[1], &other);
    patient.drop_indexes();
    let seen = patient.look();
    let lost: BTreeSet<_> = (bases[1].get()..bases[2].get()).map(offset).collect();
    assert_eq!(seen.damaged, lost);
    let whole = patient
        .whole
        .iter()
        .filter(|batch| !lost.contains(&batch.base_offset));
    assert_eq!(seen.batches, whole.cloned().collect::<Vec<_>>());
}

#[test]
fn a_segment_that_is_gone_is_reported_and_the_others_are_served() {
    for at in 0..3 {
        let mut patient = Patient::new(SMALL, 20, 10);
        let gone = patient.manifest.segments[at];
        let folder = patient.scratch.files();
        folder
            .remove(&PartitionFile::Segment(gone.base).name())
            .unwrap();
        let seen = patient.look();
        let lost: BTreeSet<_> = (gone.base.get()..gone.end.get()).map(offset).collect();
        assert_eq!(seen.damaged, lost);
        let mut parts = patient.scratch.reopen(&patient.manifest, SMALL);
        let report = parts.writer.repair().unwrap();
        let missing = OffsetRange {
            first: gone.base,
            last: gone.end.minus(1),
        };
        assert_eq!(report.missing, [missing]);
        assert!(report.unknown.is_empty());
    }
}

#[test]
fn a_lost_folder_is_reported_and_writing_goes_on() {
    let mut patient = Patient::new(SMALL, 20, 10);
    let folder = patient.scratch.files();
    for name in folder.list().unwrap() {
        folder.remove(&name).unwrap();
    }
    patient
        .scratch
        .volume
        .root
        .remove_dir(&partition_folder(PARTITION))
        .unwrap();
    let mut parts = patient.scratch.reopen(&patient.manifest, SMALL);
    let end = parts.tail.end();
    let stored = fill(&mut parts, 3, 10);
    assert_eq!(parts.reader.read(end, ALL).unwrap(), stored);
    let first = patient.manifest.segments[0];
    let refusal = parts.reader.read(Offset::ZERO, ALL).unwrap_err();
    let ReadError::Corrupt { first: from, last } = refusal else {
        panic!("{refusal}")
    };
    assert_eq!((from, last), (first.base, first.end.minus(1)));
}

#[test]
fn nothing_is_added_to_a_last_segment_that_is_not_what_it_should_be() {
    let changes: [fn(&mut Vec<u8>); 4] = [
        |content| content.truncate(content.len() - 1),
        |content| content[3] ^= 1,
        |content| {
            let at = content.len() - 200;
            content[at..].fill(0);
        },
        |content| content.clear(),
    ];
    for change in changes {
        let mut patient = Patient::small();
        let mut content = patient.content(Offset::ZERO);
        change(&mut content);
        patient.restore(Offset::ZERO, &content);
        let seen = patient.look();
        let mut parts = patient.scratch.reopen(&patient.manifest, patient.config);
        let end = parts.tail.end();
        patient.whole.extend(fill(&mut parts, 2, 3));
        assert_eq!(
            patient.content(Offset::ZERO),
            content,
            "what can be read of it stays"
        );
        parts.writer.sync().unwrap();
        patient.manifest = parts.writer.manifest();
        assert_eq!(patient.manifest.segments[1].base, end);
        let again = patient.look();
        assert_eq!(again.damaged, seen.damaged);
        assert_eq!(again.batches.len(), seen.batches.len() + 2);
    }
}

#[test]
fn damage_behind_the_end_of_a_cut_manifest_does_not_matter() {
    let mut patient = Patient::small();
    let content = patient.content(Offset::ZERO);
    let bounds = patient.bounds();
    let known = patient.whole[2].end();
    patient.manifest.cut_to(known);
    for junk in [0, 0xff] {
        let mut damaged = content.clone();
        damaged[bounds[3]..].fill(junk);
        patient.restore(Offset::ZERO, &damaged);
        let mut parts = patient.scratch.reopen(&patient.manifest, patient.config);
        assert_eq!(
            parts.reader.read(Offset::ZERO, ALL).unwrap(),
            patient.whole[..3]
        );
        let again = batch(known, 9, 1, 1_000_000);
        parts.tail.push(again.clone());
        parts.writer.flush().unwrap();
        assert_eq!(parts.reader.read(known, ALL).unwrap(), [as_stored(&again)]);
        assert_eq!(
            patient.content(Offset::ZERO)[..bounds[3]],
            content[..bounds[3]]
        );
    }
}

#[test]
fn damage_in_front_of_the_end_of_a_cut_manifest_is_said_and_nothing_is_added_there() {
    let mut patient = Patient::small();
    let bounds = patient.bounds();
    patient.manifest.cut_to(patient.whole[2].end());
    patient
        .file(Offset::ZERO)
        .write_at(&[1], bounds[2] as u64 + 20)
        .unwrap();
    let mut parts = patient.scratch.reopen(&patient.manifest, patient.config);
    let end = parts.tail.end();
    let stored = fill(&mut parts, 1, 3);
    assert_eq!(
        parts.reader.read(Offset::ZERO, ALL).unwrap(),
        patient.whole[..2]
    );
    let refusal = parts
        .reader
        .read(patient.whole[2].base_offset, ALL)
        .unwrap_err();
    assert!(matches!(refusal, ReadError::Corrupt { .. }));
    assert_eq!(parts.reader.read(end, ALL).unwrap(), stored);
}

#[test]
fn a_manifest_that_is_cut_within_a_batch_is_refused() {
    let mut patient = Patient::small();
    patient.manifest.cut_to(patient.whole[2].end().minus(1));
    let refusal = open(&patient.scratch.volume, &patient.manifest, patient.config).unwrap_err();
    assert!(matches!(refusal, OpenError::Manifest { .. }), "{refusal}");
}

#[test]
fn a_segment_of_a_later_version_is_refused_and_not_guessed_at() {
    let mut patient = Patient::small();
    let mut header = patient.content(Offset::ZERO)[..60].to_vec();
    header[8] = 2;
    let checksum = crc32fast::hash(&header);
    header.extend_from_slice(&checksum.to_le_bytes());
    patient.file(Offset::ZERO).write_at(&header, 0).unwrap();
    let parts = patient.scratch.reopen(&patient.manifest, patient.config);
    let refusal = parts.reader.read(Offset::ZERO, ALL).unwrap_err();
    let ReadError::Io(error) = refusal else {
        panic!("{refusal}")
    };
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported);
}
