use super::*;
use crate::partition::{PartitionConfig, Volume, create};
use crate::partition::{SegmentManifest, samples};
use crate::sim_fs::SimDisk;
use crate::{PartitionId, WallMs};

fn offset(value: u64) -> Offset {
    Offset::new(value).unwrap()
}

/// Segments at 20 and 30, the last one open, ending at 40.
fn manifest() -> PartitionManifest {
    let segment = |base: u64, sealed| SegmentManifest {
        base: offset(base),
        end: offset(base + 10),
        bytes: 5000,
        append_time_min: WallMs(0),
        append_time_max: WallMs(0),
        last_position: 4000,
        checksum: 1,
        sealed,
    };
    PartitionManifest {
        id: PartitionId::default(),
        start: offset(25),
        end: offset(40),
        append_time_last: WallMs(0),
        epochs: Vec::new(),
        segments: vec![segment(20, true), segment(30, false)],
    }
}

fn log(base: u64) -> String {
    PartitionFile::Segment(offset(base)).name()
}

fn index(base: u64) -> String {
    PartitionFile::Index(offset(base)).name()
}

fn time_index(base: u64) -> String {
    PartitionFile::TimeIndex(offset(base)).name()
}

fn range(first: u64, last: u64) -> OffsetRange {
    OffsetRange {
        first: offset(first),
        last: offset(last),
    }
}

#[test]
fn what_belongs_there_stays_and_the_open_segment_is_cut_to_its_size() {
    let names = [log(20), index(20), time_index(20), log(30), index(30)];
    let plan = plan_partition(&manifest(), &names);
    assert_eq!(
        plan,
        PartitionPlan {
            cut: Some((offset(30), 5000)),
            ..PartitionPlan::default()
        }
    );
}

#[test]
fn what_is_wholly_in_front_or_behind_goes() {
    let names = [
        log(0),
        index(10),
        time_index(19),
        log(20),
        log(30),
        log(40),
        index(41),
        log(99),
    ];
    let plan = plan_partition(&manifest(), &names);
    let gone = [
        log(0),
        index(10),
        time_index(19),
        log(40),
        index(41),
        log(99),
    ];
    assert_eq!(plan.remove, gone);
    assert_eq!((plan.missing, plan.unknown), (vec![], vec![]));
}

#[test]
fn a_segment_that_the_manifest_should_know_is_left_alone_and_its_indexes_are_not() {
    let names = [log(20), index(25), log(25), log(30), log(39)];
    let plan = plan_partition(&manifest(), &names);
    assert_eq!(plan.unknown, [log(25), log(39)]);
    assert_eq!(plan.remove, [index(25)]);
}

#[test]
fn what_others_made_is_left_alone_and_unfinished_files_go() {
    let unfinished = layout::temporary(&index(30));
    let foreign = [
        "notes.txt".to_owned(),
        "7.log".to_owned(),
        layout::temporary("notes.txt"),
    ];
    let mut names = vec![log(20), log(30), unfinished.clone()];
    names.extend(foreign.clone());
    let plan = plan_partition(&manifest(), &names);
    assert_eq!(plan.remove, [unfinished]);
    assert_eq!(plan.unknown, foreign);
}

#[test]
fn a_missing_segment_is_reported_with_its_records() {
    let plan = |names: &[String]| plan_partition(&manifest(), names);
    assert_eq!(plan(&[log(30), index(20)]).missing, [range(20, 29)]);
    let without_last = plan(&[log(20), index(30)]);
    assert_eq!(
        (without_last.missing, without_last.cut),
        (vec![range(30, 39)], None)
    );
    assert_eq!(plan(&[]).missing, [range(20, 29), range(30, 39)]);
    let mut cut = manifest();
    cut.cut_to(offset(35));
    assert_eq!(plan_partition(&cut, &[log(20)]).missing, [range(30, 34)]);
}

#[test]
fn a_partition_without_records_has_nothing_but_leftovers() {
    let mut empty = manifest();
    empty.cut_to(offset(20));
    assert_eq!(empty.segments, []);
    let plan = plan_partition(&empty, &[log(0), log(20), log(30), index(30)]);
    assert_eq!(plan.remove.len(), 4);
    assert_eq!(plan.cut, None);
}

/// A partition with one batch in its first segment, and the place of that batch.
fn placed() -> (Arc<dyn Dir>, Place, Bytes) {
    let root = SimDisk::new().root();
    let volume = Volume::new(Arc::clone(&root), samples::FOLDER, 1);
    let config = PartitionConfig::default();
    let mut parts = create(&volume, samples::PARTITION, config, Offset::ZERO);
    let stored = samples::fill(&mut parts, 1, 10);
    let body = stored[0].body.clone();
    let place = Place {
        partition: samples::PARTITION,
        segment: Offset::ZERO,
        position: 64 + 44,
        bytes: u32::try_from(body.len()).unwrap(),
        checksum: crc32fast::hash(&body),
    };
    (root, place, body)
}

#[test]
fn a_placed_batch_is_found_where_it_was_written() {
    let (root, place, body) = placed();
    assert_eq!(
        read_placed(&root, samples::FOLDER, &place).unwrap(),
        Some(body)
    );
}

#[test]
fn a_placed_batch_that_is_not_as_it_was_written_is_not_found() {
    let (root, place, _) = placed();
    let other = PartitionId {
        partition: 2,
        ..place.partition
    };
    for wrong in [
        Place {
            partition: other,
            ..place
        },
        Place {
            segment: offset(1),
            ..place
        },
        Place {
            position: place.position + 1,
            ..place
        },
        Place {
            position: u32::MAX,
            ..place
        },
        Place {
            bytes: place.bytes - 1,
            ..place
        },
        Place {
            bytes: place.bytes + 1,
            ..place
        },
        Place {
            bytes: u32::MAX,
            ..place
        },
        Place {
            checksum: !place.checksum,
            ..place
        },
    ] {
        let found = read_placed(&root, samples::FOLDER, &wrong).unwrap();
        assert_eq!(found, None, "{wrong:?}");
    }
    let elsewhere = read_placed(&root, FolderId([9; 16]), &place).unwrap();
    assert_eq!(elsewhere, None, "the segment is another folder's");
}
