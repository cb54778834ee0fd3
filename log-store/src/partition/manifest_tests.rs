use proptest::prelude::*;

use super::samples::{PARTITION, offset};
use super::*;
use crate::{Epoch, Offset, WallMs};

/// Segments of the given record counts from `base` on, the last one unsealed.
fn manifest(base: u64, counts: &[u64], skip: u64) -> PartitionManifest {
    let mut next = offset(base);
    let mut segments: Vec<SegmentManifest> = Vec::new();
    for (at, count) in counts.iter().enumerate() {
        let time = i64::try_from(at).unwrap() * 10;
        segments.push(SegmentManifest {
            base: next,
            end: next.plus(*count),
            bytes: 5000,
            append_time_min: WallMs(time),
            append_time_max: WallMs(time + 9),
            last_position: 4000,
            checksum: 77,
            sealed: at + 1 < counts.len(),
        });
        next = next.plus(*count);
    }
    PartitionManifest {
        id: PARTITION,
        start: offset(base).plus(skip).min(next),
        end: next,
        append_time_last: segments
            .last()
            .map_or(WallMs(i64::MIN), |last| last.append_time_max),
        epochs: (0..)
            .zip(&segments)
            .map(|(at, segment)| (Epoch(at), segment.base))
            .collect(),
        segments,
    }
}

fn encoded(manifest: &PartitionManifest) -> Vec<u8> {
    let mut bytes = Vec::new();
    manifest.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn a_manifest_reads_back_and_so_does_every_cut_of_it(
        base in 0..u64::from(u32::MAX),
        counts in prop::collection::vec(1..1000_u64, 0..20),
        skip in 0..1000_u64,
        cut in 0..20_000_u64,
    ) {
        let skip = counts.first().map_or(0, |first| skip % first);
        let mut manifest = manifest(base, &counts, skip);
        prop_assert_eq!(manifest.check(), Ok(()));
        prop_assert_eq!(PartitionManifest::decode(&encoded(&manifest)), Ok(manifest.clone()));
        let whole = manifest.clone();
        manifest.cut_to(offset(base + cut));
        prop_assert_eq!(manifest.check(), Ok(()));
        prop_assert_eq!(manifest.end, whole.end.min(offset(base + cut)));
        prop_assert!(manifest.start <= whole.start);
        prop_assert!(manifest.append_time_last <= whole.append_time_last);
        prop_assert_eq!(PartitionManifest::decode(&encoded(&manifest)), Ok(manifest.clone()));
        prop_assert_eq!(manifest == whole, offset(base + cut) >= whole.end);
    }

    #[test]
    fn bytes_that_nobody_encoded_are_taken_apart_or_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        counts in prop::option::of((0..4_u32, 0..5_u32)),
    ) {
        if let (Some((epochs, segments)), 56..) = (counts, bytes.len()) {
            bytes[44..48].copy_from_slice(&epochs.to_le_bytes());
            bytes[48..52].copy_from_slice(&segments.to_le_bytes());
            let due = 52 + 12 * epochs as usize + 45 * segments as usize;
            bytes.resize(due, 0);
        }
        if let Ok(manifest) = PartitionManifest::decode(&bytes) {
            prop_assert_eq!(encoded(&manifest), bytes);
        }
    }
}

#[test]
fn every_cut_of_the_bytes_and_every_byte_more_is_refused() {
    let bytes = encoded(&manifest(7, &[3, 4], 1));
    for cut in 0..bytes.len() {
        assert!(PartitionManifest::decode(&bytes[..cut]).is_err(), "{cut}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(PartitionManifest::decode(&longer).is_err());
}

#[test]
fn counts_beyond_the_limits_are_refused_before_anything_is_allocated() {
    let bytes = encoded(&manifest(0, &[], 0));
    for at in [44, 48] {
        for count in [1, 4097, (1 << 20) + 1, u32::MAX] {
            let mut lying = bytes.clone();
            lying[at..at + 4].copy_from_slice(&count.to_le_bytes());
            assert!(
                PartitionManifest::decode(&lying).is_err(),
                "{count} at {at}"
            );
        }
    }
}

#[test]
fn a_manifest_that_contradicts_itself_is_refused() {
    let changes: [fn(&mut PartitionManifest); 11] = [
        |it| it.start = it.end.plus(1),
        |it| it.start = it.segments[0].base.minus(1),
        |it| it.end = it.end.plus(1),
        |it| it.segments[1].base = it.segments[1].base.plus(1),
        |it| {
            it.segments
                .retain(|segment| segment.base != it.end.minus(13));
        },
        |it| it.segments[1].append_time_min = WallMs(3),
        |it| it.segments[2].bytes = it.segments[2].last_position,
        |it| it.segments[2].bytes = u32::MAX,
        |it| it.segments[2].append_time_max = WallMs(0),
        |it| it.epochs.swap(0, 1),
        |it| it.segments.clear(),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut wrong = manifest(100, &[5, 6, 7], 2);
        change(&mut wrong);
        assert!(wrong.check().is_err(), "change {at}");
        assert!(
            PartitionManifest::decode(&encoded(&wrong)).is_err(),
            "change {at}"
        );
    }
}

#[test]
fn a_cut_takes_back_epochs_and_segments_and_the_start() {
    let mut cut = manifest(100, &[5, 5, 5], 3);
    cut.cut_to(offset(110));
    assert_eq!(cut.segments.len(), 2);
    assert_eq!(cut.epochs.len(), 2);
    assert_eq!((cut.start, cut.end), (offset(103), offset(110)));
    cut.cut_to(offset(102));
    assert_eq!(cut.segments.len(), 1);
    assert_eq!(
        cut.segments[0].end,
        offset(105),
        "where it ends now is looked up when it is opened"
    );
    assert_eq!((cut.start, cut.end), (offset(102), offset(102)));
    cut.cut_to(Offset::ZERO);
    assert_eq!((cut.segments, cut.epochs), (vec![], vec![]));
}
