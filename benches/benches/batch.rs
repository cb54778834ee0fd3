//! What a record batch costs: made, read, judged, and its checksum alone. 1,000 records each.

use std::hint::black_box;
use std::iter;

use bytes::Bytes;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use varvelog_store::batch::{
    BatchBuilder, BatchRules, Codec, Headers, Records, validate, verify_crc,
};

const RECORDS: u32 = 1_000;
const TIMESTAMP_MS: i64 = 1_700_000_000_000;
const RULES: BatchRules = BatchRules {
    record_bytes_max: 1 << 20,
    key_bytes_max: 1 << 16,
    headers_max: 64,
    records_max: 10_000,
    decompressed_bytes_max: 16 << 20,
    timestamp_ms_max: i64::MAX,
    reserved_header_prefix: "varvelog-",
};
const HEADERS: [(&[u8], Option<&[u8]>); 3] = [
    (b"content-type", Some(b"application/json")),
    (
        b"trace",
        Some(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ),
    (b"tenant", Some(b"blue")),
];

/// Text of `bytes` bytes, different for each record, that compresses about as JSON does.
fn value(record: u32, bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 64);
    let mut number = record.wrapping_mul(2_654_435_761);
    while text.len() < bytes {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        text.extend_from_slice(format!("{{\"id\":{record},\"amount\":{number}}},").as_bytes());
    }
    text.truncate(bytes);
    text
}

fn values(bytes: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..RECORDS)
        .map(|record| (format!("key-{record}").into(), value(record, bytes)))
        .collect()
}

fn encode(
    codec: Codec,
    values: &[(Vec<u8>, Vec<u8>)],
    headers: &[(&[u8], Option<&[u8]>)],
) -> Bytes {
    let bytes: usize = values
        .iter()
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let mut batch = BatchBuilder::new(codec, bytes + bytes / 8 + 64 + 128 * headers.len() * 1_000);
    for (key, value) in values {
        let headers = headers.iter().copied();
        batch
            .push(Some(TIMESTAMP_MS), Some(key), Some(value), headers)
            .expect("a small record");
    }
    batch.finish().expect("a batch with records")
}

/// Touches what a reader would: every key, value and header.
fn read(body: &Bytes) -> usize {
    let records = Records::open(body, 16 << 20).expect("a batch");
    let bytes_of = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    let headers = |headers: Headers<'_>| -> usize {
        headers
            .iter()
            .map(|(name, value)| name.len() + bytes_of(value))
            .sum()
    };
    let record_bytes = records.iter().map(|record| {
        let record = record.expect("a record");
        bytes_of(record.key) + bytes_of(record.value) + headers(record.headers)
    });
    record_bytes.sum()
}

fn one_shape(criterion: &mut Criterion, name: &str, bytes: usize, headers: usize) {
    let values = values(bytes);
    let headers = HEADERS.get(..headers).unwrap_or(&HEADERS);
    let body = encode(Codec::None, &values, headers);
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Bytes(
        u64::try_from(body.len()).expect("a size"),
    ));
    group.bench_function("encode", |bench| {
        bench.iter(|| encode(Codec::None, black_box(&values), headers));
    });
    group.bench_function("decode", |bench| bench.iter(|| read(black_box(&body))));
    group.bench_function("crc", |bench| bench.iter(|| verify_crc(black_box(&body))));
    group.bench_function("validate", |bench| {
        bench.iter(|| validate(black_box(&body), &RULES));
    });
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        compressed(&mut group, codec, &values, headers);
    }
    group.finish();
}

fn compressed<M: criterion::measurement::Measurement>(
    group: &mut BenchmarkGroup<'_, M>,
    codec: Codec,
    values: &[(Vec<u8>, Vec<u8>)],
    headers: &[(&[u8], Option<&[u8]>)],
) {
    let body = encode(codec, values, headers);
    group.bench_function(format!("encode {codec}"), |bench| {
        bench.iter(|| encode(codec, black_box(values), headers));
    });
    group.bench_function(format!("validate {codec}"), |bench| {
        bench.iter(|| validate(black_box(&body), &RULES));
    });
}

/// One record: what a batch costs beside its records.
fn smallest(criterion: &mut Criterion) {
    let value = value(1, 100);
    let single = |codec| {
        let mut batch = BatchBuilder::new(codec, 128);
        batch
            .push(Some(TIMESTAMP_MS), None, Some(&value), iter::empty())
            .expect("a small record");
        batch.finish().expect("a batch with a record")
    };
    let mut group = criterion.benchmark_group("1 x 100 B");
    for codec in Codec::ALL {
        let body = single(codec);
        group.bench_function(format!("encode {codec}"), |bench| {
            bench.iter(|| single(codec));
        });
        group.bench_function(format!("validate {codec}"), |bench| {
            bench.iter(|| validate(black_box(&body), &RULES));
        });
    }
    group.finish();
}

fn shapes(criterion: &mut Criterion) {
    one_shape(criterion, "1000 x 100 B", 100, 0);
    one_shape(criterion, "1000 x 1 KiB", 1024, 0);
    one_shape(criterion, "1000 x 100 B, 3 headers", 100, 3);
}

criterion_group!(benches, shapes, smallest);
criterion_main!(benches);
