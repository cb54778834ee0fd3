use super::*;
use crate::layout::partition_folder;
use crate::partition::samples::{PARTITION, SMALL, Scratch, fill};

#[test]
fn a_sweep_says_which_records_are_missing_with_neighbours_in_one_range() {
    let scratch = Scratch::new();
    let mut parts = scratch.create(SMALL);
    fill(&mut parts, 40, 40);
    let manifest = parts.writer.manifest();
    let volume = &scratch.volume;
    assert_eq!(remove_below(volume, &manifest).unwrap(), []);
    let segments = &manifest.segments;
    assert!(segments.len() > 6);
    let folder = scratch.files();
    for at in [1, 2, 4] {
        let name = PartitionFile::Segment(segments[at].base).name();
        folder.remove(&name).unwrap();
    }
    let range = |first: usize, last: usize| OffsetRange {
        first: segments[first].base,
        last: segments[last].end.minus(1),
    };
    let missing = remove_below(volume, &manifest).unwrap();
    assert_eq!(missing, [range(1, 2), range(4, 4)]);
    for name in folder.list().unwrap() {
        folder.remove(&name).unwrap();
    }
    let name = partition_folder(PARTITION);
    volume.root.remove_dir(&name).unwrap();
    let missing = remove_below(volume, &manifest).unwrap();
    assert_eq!(missing, [range(0, segments.len() - 1)]);
}
