//! What a partition costs: finding a record, reading from memory and from files, flushing, and
//! opening many partitions after a start. The files are in the page cache.

use std::hint::black_box;
use std::iter;
use std::sync::Arc;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tempfile::TempDir;
use varvelog_store::batch::{BatchBuilder, Codec};
use varvelog_store::fs::OsDir;
use varvelog_store::partition::{
    self, CommittedBatch, PartitionConfig, PartitionManifest, PartitionParts, ReadLimit, Volume,
};
use varvelog_store::{Epoch, FolderId, Offset, PartitionId, TopicId, WallMs};

const FOLDER: FolderId = FolderId([7; 16]);
const RECORDS: u32 = 100;
const MIB: u64 = 1 << 20;
const ONE_MIB: ReadLimit = ReadLimit {
    bytes_max: 1 << 20,
    batches_max: 10_000,
    until: Offset::MAX,
};

fn id(partition: u32) -> PartitionId {
    PartitionId {
        topic: TopicId([9; 16]),
        partition,
    }
}

/// A batch of 100 records of 100 bytes.
fn body() -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, 16 * 1024);
    for record in 0..RECORDS {
        let value = [u8::try_from(record % 251).unwrap_or(0); 100];
        let none = iter::empty::<(&[u8], Option<&[u8]>)>();
        builder
            .push(Some(1_700_000_000_000), None, Some(&value), none)
            .expect("a record within all limits");
    }
    builder.finish().expect("a batch within all limits")
}

fn volume() -> (TempDir, Volume) {
    let folder = tempfile::tempdir().expect("a folder for the files");
    let root = OsDir::open(folder.path()).expect("the folder that was just made");
    (folder, Volume::new(root, FOLDER, 64))
}

fn push(parts: &mut PartitionParts, body: &Bytes, batches: u64) {
    for _ in 0..batches {
        let base_offset = parts.tail.end();
        parts.tail.push(CommittedBatch {
            base_offset,
            record_count: RECORDS,
            epoch: Epoch(1),
            append_time: WallMs(base_offset.as_i64()),
            body: body.clone(),
        });
    }
}

/// Offsets all over a partition, in no order.
fn scattered(end: Offset) -> impl Iterator<Item = Offset> {
    let next = move |at: &u64| {
        Some(
            at.wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407),
        )
    };
    let place = move |at: u64| Offset::new((at >> 16) % end.get().max(1)).unwrap_or_default();
    iter::successors(Some(1), next).map(place)
}

fn reading(criterion: &mut Criterion) {
    let (_folder, volume) = volume();
    let body = body();
    let batches = 128 * MIB / body.len() as u64;
    let mut parts = partition::create(&volume, id(0), PartitionConfig::default(), Offset::ZERO);
    push(&mut parts, &body, batches);
    parts.writer.flush().expect("room for 128 MiB");
    parts.writer.roll();
    let flushed = parts.tail.end();
    push(&mut parts, &body, 200);
    let reader = parts.reader.clone();

    let mut group = criterion.benchmark_group("partition/find");
    let mut offsets = scattered(flushed);
    group.bench_function("offset", |bencher| {
        bencher.iter(|| black_box(reader.append_time_at(offsets.next().unwrap_or_default())));
    });
    let mut offsets = scattered(flushed);
    group.bench_function("time", |bencher| {
        bencher.iter(|| {
            let time = WallMs(offsets.next().unwrap_or_default().as_i64());
            black_box(reader.first_at_or_after(time))
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("partition/read 1 MiB");
    group.throughput(Throughput::Bytes(MIB));
    group.bench_function("tail", |bencher| {
        bencher.iter(|| black_box(reader.read(flushed, ONE_MIB)));
    });
    let mut offsets = scattered(flushed);
    group.bench_function("file, scattered", |bencher| {
        bencher.iter(|| black_box(reader.read(offsets.next().unwrap_or_default(), ONE_MIB)));
    });
    let mut next = Offset::ZERO;
    group.bench_function("file, in order", |bencher| {
        bencher.iter(|| {
            let read = reader.read(next, ONE_MIB).unwrap_or_default();
            let end = read
                .last()
                .map_or(Offset::ZERO, |last| last.base_offset.plus(1));
            next = if end < flushed.minus(20_000) {
                end
            } else {
                Offset::ZERO
            };
            black_box(read)
        });
    });
    group.finish();
}

fn flushing(criterion: &mut Criterion) {
    let (_folder, volume) = volume();
    let body = body();
    let batches = MIB / body.len() as u64;
    let mut parts = partition::create(&volume, id(0), PartitionConfig::default(), Offset::ZERO);
    let mut group = criterion.benchmark_group("partition/flush");
    group.throughput(Throughput::Bytes(batches * body.len() as u64));
    group.bench_function("1 MiB", |bencher| {
        bencher.iter(|| {
            push(&mut parts, &body, batches);
            let flushed = parts.writer.flush().expect("room for the log");
            let before = parts.tail.end().minus(1_000_000);
            let retired = parts.writer.set_start(before);
            parts
                .writer
                .remove_retired(retired)
                .expect("files that are there");
            flushed
        });
    });
    group.finish();
}

/// What a start does with the manifests of 1,000 partitions of ten segments.
fn opening(criterion: &mut Criterion) {
    let (_folder, volume) = volume();
    let body = body();
    let config = PartitionConfig {
        segment_bytes: 1 << 20,
        ..PartitionConfig::default()
    };
    let mut parts = partition::create(&volume, id(0), config, Offset::ZERO);
    push(&mut parts, &body, 10 * MIB / body.len() as u64);
    parts.writer.flush().expect("room for 10 MiB");
    let manifest = parts.writer.manifest();
    let encoded: Vec<Vec<u8>> = (0..1000)
        .map(|partition| {
            let mut bytes = Vec::new();
            PartitionManifest {
                id: id(partition),
                ..manifest.clone()
            }
            .encode(&mut bytes);
            bytes
        })
        .collect();
    let open = |volume: &Volume| -> Vec<PartitionParts> {
        let open = |bytes: &Vec<u8>| {
            let manifest = PartitionManifest::decode(bytes).expect("what was encoded");
            partition::open(volume, &manifest, config).expect("what was flushed")
        };
        encoded.iter().map(open).collect()
    };
    let mut group = criterion.benchmark_group("partition/open");
    group.bench_function("1,000 partitions of 10 segments", |bencher| {
        bencher.iter_with_large_drop(|| open(&volume));
    });
    group.bench_function("first read from a file", |bencher| {
        let fresh = || {
            let volume = Volume::new(Arc::clone(&volume.root), FOLDER, 64);
            partition::open(&volume, &manifest, config).expect("what was flushed")
        };
        let read = |parts: PartitionParts| {
            let limit = ReadLimit {
                batches_max: 1,
                ..ONE_MIB
            };
            (parts.reader.read(manifest.end.minus(1), limit), parts)
        };
        bencher.iter_batched(fresh, read, BatchSize::SmallInput);
    });
    group.finish();
}

criterion_group!(partition, reading, flushing, opening);
criterion_main!(partition);
