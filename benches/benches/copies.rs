//! What it costs to copy failed records into a batch for their retry or dead-letter topic: 1, 100
//! and 1,000 records of 1 KiB, all of one batch.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use varvelog_broker::core::copier::{OpenBatch, build};
use varvelog_broker::core::copies::{Copy, CopyJob, CopyTo, Failed, ReadId};
use varvelog_broker::core::failure::{DeadReason, ErrorClass, FailureText};
use varvelog_broker::core::retries::RetryEntry;
use varvelog_broker::names::{GroupName, TopicName};
use varvelog_store::batch::{BatchBuilder, Codec, Records};
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

const APPENDED: WallMs = WallMs(1_700_000_000_000);
const VALUE_BYTES: usize = 1_024;

/// Text that compresses about as JSON does, different for each record.
fn value(record: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(VALUE_BYTES + 64);
    let mut number = record.wrapping_mul(2_654_435_761);
    while text.len() < VALUE_BYTES {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text.extend_from_slice(format!("{{\"id\":{record},\"amount\":{number}}},").as_bytes());
    }
    text.truncate(VALUE_BYTES);
    text
}

fn batch(records: u64) -> Bytes {
    let mut batch = BatchBuilder::new(Codec::None, 1 << 20);
    let headers: [(&[u8], Option<&[u8]>); 1] = [(b"content-type", Some(b"application/json"))];
    for record in 0..records {
        let key = format!("key-{record}");
        batch
            .push(
                Some(APPENDED.0),
                Some(key.as_bytes()),
                Some(&value(record)),
                headers.into_iter(),
            )
            .expect("a small record");
    }
    batch.finish().expect("a batch with records")
}

fn partition(topic: u8) -> PartitionId {
    PartitionId {
        topic: TopicId([topic; 16]),
        partition: 0,
    }
}

fn offset(record: u64) -> Offset {
    Offset::new(record).expect("a small number")
}

/// All records failed for the first time; for good, or not.
fn job(records: u64, is_dead: bool) -> CopyJob {
    let stack = "    at com.acme.orders.Loader.load(Loader.java:41)\n".repeat(20);
    let text = FailureText::cut("E_TIMEOUT", "no answer from 10.0.0.7 in 3000 ms", &stack);
    let copy = |record| Copy {
        offset: offset(record),
        to: if is_dead {
            CopyTo::DeadLetter(DeadReason::Permanent)
        } else {
            CopyTo::Retry(RetryEntry {
                due: WallMs(APPENDED.0 + 1_000),
                origin: offset(record),
                failures: 1,
                suspect: false,
            })
        },
        failed: Some(Failed {
            failures: 1,
            class: ErrorClass::Transient,
            text: text.clone(),
            at: APPENDED,
            consumer: "worker-7".into(),
            before: None,
        }),
    };
    CopyJob {
        id: ReadId(1),
        group: GroupName::parse("email").expect("a name"),
        topic: TopicName::parse("orders").expect("a name"),
        from: partition(1),
        retry: partition(2),
        dead_letter: partition(3),
        at: APPENDED,
        copies: (0..records).map(copy).collect(),
        dead_before: None,
        omit_error_message: false,
        omit_error_stack: false,
        tells_keys: false,
        halts: false,
    }
}

fn copies(criterion: &mut Criterion) {
    for (name, is_dead) in [("retry", false), ("dead letter", true)] {
        let mut group = criterion.benchmark_group(format!("copies/{name}"));
        for records in [1, 100, 1_000] {
            let body = batch(records);
            let job = job(records, is_dead);
            group.throughput(Throughput::Elements(records));
            group.bench_function(BenchmarkId::from_parameter(records), |bencher| {
                bencher.iter(|| {
                    let records = Records::open(black_box(&body), 16 << 20).expect("a batch");
                    let batch = OpenBatch {
                        base_offset: Offset::ZERO,
                        append_time: APPENDED,
                        records,
                    };
                    build(&job, [&batch]).expect("copies")
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, copies);
criterion_main!(benches);
