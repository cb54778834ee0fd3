use std::sync::Arc;

use super::*;
use crate::partition::samples::{ALL, FOLDER, PARTITION, SMALL, batch, fill, stamped};
use crate::partition::{PartitionManifest, PartitionParts, ReadError, StoredBatch, create, open};
use crate::sim_fs::{Call, Failure, SimDisk};
use crate::{Offset, PartitionId};

const PARTITIONS: u32 = 4;

fn volume(disk: &SimDisk, sync_each_max: usize) -> Volume {
    Volume {
        sync_each_max,
        ..Volume::new(disk.root(), FOLDER, 4)
    }
}

fn partition(number: u32) -> PartitionId {
    PartitionId {
        partition: number,
        ..PARTITION
    }
}

/// Partitions with records that are flushed over two segments or more, and not synced.
fn flushed(volume: &Volume) -> Vec<PartitionParts> {
    (0..PARTITIONS)
        .map(|number| {
            let mut parts = create(volume, partition(number), SMALL, Offset::ZERO);
            fill(&mut parts, 6, 40);
            assert!(parts.writer.manifest().segments.len() > 1);
            parts
        })
        .collect()
}

fn sync(volume: &Volume, all: &mut [PartitionParts]) -> Result<(), SyncError> {
    let mut writers: Vec<_> = all.iter_mut().map(|parts| &mut parts.writer).collect();
    sync_all(volume, &mut writers)
}

/// What each partition holds if the disk is as its manifest says.
fn read(
    disk: &SimDisk,
    manifests: &[PartitionManifest],
) -> Vec<Result<Vec<StoredBatch>, ReadError>> {
    let volume = volume(disk, 0);
    let reopened = manifests
        .iter()
        .map(|manifest| open(&volume, manifest, SMALL).unwrap());
    reopened
        .map(|parts| parts.reader.read(Offset::ZERO, ALL))
        .collect()
}

/// Whether every power loss leaves all that is in the manifests.
fn is_safe(disk: &SimDisk, all: &[PartitionParts]) -> bool {
    let wanted: Vec<_> = all
        .iter()
        .map(|parts| stamped(parts.reader.read(Offset::ZERO, ALL).unwrap()))
        .collect();
    let manifests: Vec<_> = all.iter().map(|parts| parts.writer.manifest()).collect();
    disk.crash_states(1, 200).all(|state| {
        let found = read(&state, &manifests);
        found
            .into_iter()
            .zip(&wanted)
            .all(|(found, wanted)| found.is_ok_and(|found| found == *wanted))
    })
}

#[test]
fn more_files_than_the_limit_cost_one_sync_and_survive_a_power_loss() {
    let disk = SimDisk::new();
    let volume = volume(&disk, 3);
    let mut all = flushed(&volume);
    assert!(
        !is_safe(&disk, &all),
        "without a sync something may be gone"
    );
    let before = disk.operations();
    sync(&volume, &mut all).unwrap();
    assert_eq!(disk.operations(), before + 1);
    assert!(is_safe(&disk, &all));
    assert!(all.iter().all(|parts| !parts.writer.is_dirty()));
}

#[test]
fn a_power_loss_within_the_sync_leaves_what_one_before_it_may_leave() {
    let disk = SimDisk::new();
    let volume = volume(&disk, 0);
    let mut all = flushed(&volume);
    disk.stop_at(disk.operations() + 1);
    assert!(matches!(sync(&volume, &mut all), Err(SyncError::Volume(_))));
    assert!(!is_safe(&disk, &all), "no checkpoint may name these");
}

#[test]
fn up_to_the_limit_each_file_is_synced_and_the_volume_is_not() {
    let disk = SimDisk::new();
    let volume = volume(&disk, 100);
    let mut all = flushed(&volume);
    disk.fail(Call::SyncVolume, 1, Failure::Broken);
    sync(&volume, &mut all).unwrap();
    assert!(is_safe(&disk, &all));
}

#[test]
fn where_the_volume_cannot_be_synced_each_file_is() {
    let disk = SimDisk::new();
    disk.forbid_sync_volume();
    let volume = volume(&disk, 0);
    let mut all = flushed(&volume);
    sync(&volume, &mut all).unwrap();
    assert!(is_safe(&disk, &all));
}

#[test]
fn a_failed_sync_of_the_volume_is_final_for_every_writer_and_reading_goes_on() {
    for failure in [Failure::Broken, Failure::NoSpace, Failure::Interrupted] {
        let disk = SimDisk::new();
        let volume = volume(&disk, 0);
        let mut all = flushed(&volume);
        disk.fail(Call::SyncVolume, 1, failure);
        assert!(matches!(sync(&volume, &mut all), Err(SyncError::Volume(_))));
        assert!(matches!(
            sync(&volume, &mut all),
            Err(SyncError::Partition(WriteError::Fenced { .. }))
        ));
        for parts in &mut all {
            let end = parts.tail.end();
            parts.tail.push(batch(end, 1, 1, 1000));
            let flushed = parts.writer.flush();
            assert!(matches!(flushed, Err(WriteError::Fenced { .. })));
            assert!(parts.reader.read(Offset::ZERO, ALL).is_ok());
        }
    }
}

#[test]
fn a_writer_without_anything_to_sync_closes_its_files() {
    let disk = SimDisk::new();
    let volume = volume(&disk, 0);
    let mut all = flushed(&volume);
    sync(&volume, &mut all).unwrap();
    fill(&mut all[0], 1, 1);
    sync(&volume, &mut all).unwrap();
    let open: Vec<bool> = all
        .iter()
        .map(|parts| parts.writer.has_open_files())
        .collect();
    assert_eq!(open, [true, false, false, false]);
}

#[test]
fn a_folder_that_cannot_be_opened_is_no_failed_sync() {
    let disk = SimDisk::new();
    let volume = volume(&disk, 100);
    let mut all = flushed(&volume);
    disk.fail(Call::Open, 1, Failure::NoDescriptor);
    let refused = sync(&volume, &mut all);
    assert!(matches!(
        refused,
        Err(SyncError::Partition(WriteError::Io { .. }))
    ));
    sync(&volume, &mut all).unwrap();
    assert!(is_safe(&disk, &all));
}

#[test]
fn the_disk_of_the_system_settles_or_says_that_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let root = crate::fs::OsDir::open(folder.path()).unwrap();
    let volume = Volume {
        sync_each_max: 0,
        ..Volume::new(Arc::clone(&root), FOLDER, 4)
    };
    let mut all = flushed(&volume);
    sync(&volume, &mut all).unwrap();
    assert!(all.iter().all(|parts| !parts.writer.is_dirty()));
}
