use std::cell::Cell;
use std::iter;

use crate::batch::samples::{Sample, decode, encode, small};
use crate::batch::{BatchBuilder, BatchError, Codec, HEADER_BYTES, RecordFault, read_header};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};

const NO_HEADERS: iter::Empty<(&[u8], Option<&[u8]>)> = iter::empty();

fn push(batch: &mut BatchBuilder, timestamp_ms: Option<i64>, value: &[u8]) {
    batch
        .push(timestamp_ms, None, Some(value), NO_HEADERS)
        .unwrap();
}

#[test]
fn a_record_has_the_bytes_of_the_specification() {
    let mut batch = BatchBuilder::new(Codec::None, 0);
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"h", Some(b"12")), (b"", None)];
    batch
        .push(Some(5), Some(b"key"), None, headers.into_iter())
        .unwrap();
    push(&mut batch, Some(3), b"v");
    let records = [
        // Length 16, attributes, timestamp delta 0, offset delta 0, key, no value, two headers.
        &[
            32, 0, 0, 0, 6, b'k', b'e', b'y', 1, 4, 2, b'h', 4, b'1', b'2', 0, 1,
        ][..],
        // Length 7, attributes, timestamp delta -2, offset delta 1, no key, value, no header.
        &[14, 0, 3, 2, 1, 2, b'v', 0],
    ];
    assert_eq!(batch.finish().unwrap()[HEADER_BYTES..], records.concat());
}

#[test]
fn room_is_made_once() {
    for codec in [Codec::None, Codec::Zstd] {
        let mut batch = BatchBuilder::new(codec, 4096);
        for _ in 0..4 {
            push(&mut batch, None, &[7; 1000]);
        }
        assert_eq!(batch.bytes(), HEADER_BYTES + 4 * 1009);
        let capacity = batch.finish().unwrap().try_into_mut().unwrap().capacity();
        assert!(capacity <= HEADER_BYTES + 4096, "{capacity}");
    }
}

#[test]
fn a_batch_much_smaller_than_its_room_gives_the_rest_back() {
    let mut batch = BatchBuilder::new(Codec::None, 1 << 20);
    push(&mut batch, None, b"small");
    let body = batch.finish().unwrap();
    assert_eq!(body.len(), HEADER_BYTES + 12);
    assert_eq!(body.try_into_mut().unwrap().capacity(), HEADER_BYTES + 12);
}

#[test]
fn a_batch_without_records_is_refused() {
    for codec in Codec::ALL {
        let error = BatchBuilder::new(codec, 100).finish().unwrap_err();
        assert_eq!(
            error.to_string(),
            "batch record count is 0: must be at least 1"
        );
    }
}

#[test]
fn without_timestamps_base_and_maximum_say_none() {
    let body = encode(Codec::None, None, &[Sample::default(), Sample::default()]).unwrap();
    let header = read_header(&body).unwrap();
    assert_eq!(
        (header.base_timestamp_ms, header.max_timestamp_ms),
        (-1, -1)
    );
}

#[test]
fn records_with_and_without_timestamp_may_be_mixed() {
    let timed = Sample {
        timestamp_ms: Some(1_700_000_000_000),
        ..Sample::default()
    };
    let free = Sample::default();
    for samples in [[timed.clone(), free.clone()], [free, timed]] {
        let body = encode(Codec::None, None, &samples).unwrap();
        assert_eq!(
            read_header(&body).unwrap().max_timestamp_ms,
            1_700_000_000_000
        );
        assert_eq!(decode(&body).unwrap(), samples);
    }
}

#[test]
fn a_timestamp_below_none_is_refused_and_leaves_the_batch_as_it_was() {
    let mut batch = BatchBuilder::new(Codec::None, 100);
    push(&mut batch, Some(10), b"first");
    let bytes = batch.bytes();
    let error = batch
        .push(Some(-2), None, Some(b"second"), NO_HEADERS)
        .unwrap_err();
    let rule = "must be -1 (none) or more, and near those of the batch";
    let fault = RecordFault::Field {
        field: "timestamp",
        value: -2,
        rule,
    };
    assert_eq!(error, BatchError::Record { record: 1, fault });
    assert_eq!((batch.bytes(), batch.record_count()), (bytes, 1));
    assert_eq!(decode(&batch.finish().unwrap()).unwrap().len(), 1);
}

#[test]
fn timestamps_too_far_apart_are_refused() {
    let mut batch = BatchBuilder::new(Codec::None, 100);
    push(&mut batch, None, b"first");
    let error = batch
        .push(Some(i64::MAX), None, None, NO_HEADERS)
        .unwrap_err();
    assert!(
        matches!(error, BatchError::Record { record: 1, .. }),
        "{error}"
    );
}

#[test]
fn the_record_beyond_the_largest_count_is_refused() {
    let mut batch = BatchBuilder::new(Codec::None, 8 * 10_000);
    for _ in 0..BATCH_RECORDS_MAX {
        push(&mut batch, None, b"");
    }
    let error = batch.push(None, None, None, NO_HEADERS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "record count 10001 above the limit of 10000"
    );
    assert_eq!(batch.record_count(), BATCH_RECORDS_MAX);
    assert_eq!(decode(&batch.finish().unwrap()).unwrap().len(), 10_000);
}

#[test]
fn the_record_that_would_make_the_batch_too_large_is_refused() {
    let max = usize::try_from(BATCH_BYTES_MAX).unwrap();
    // Length, attributes, two deltas, no key, the value's length, no header: 13 bytes.
    let value = vec![0; max - HEADER_BYTES - 13 - 7];
    let mut batch = BatchBuilder::new(Codec::None, max);
    push(&mut batch, None, &value);
    let error = batch.push(None, None, Some(b"1"), NO_HEADERS).unwrap_err();
    let what = "batch size in bytes before compression";
    let (value, max) = (u64::from(BATCH_BYTES_MAX) + 1, BATCH_BYTES_MAX.into());
    assert_eq!(
        error,
        BatchError::Limit {
            record: Some(1),
            what,
            value,
            max
        }
    );
    push(&mut batch, None, b"");
    assert_eq!(
        batch.finish().unwrap().len(),
        usize::try_from(BATCH_BYTES_MAX).unwrap()
    );
}

#[test]
fn headers_without_end_are_refused() {
    let mut batch = BatchBuilder::new(Codec::None, 100);
    let endless = iter::repeat((&[b'n'; 1000][..], None));
    let error = batch.push(None, None, None, endless).unwrap_err();
    assert!(
        matches!(
            error,
            BatchError::Limit {
                record: Some(0),
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(batch.bytes(), HEADER_BYTES);
}

#[test]
#[should_panic(expected = "headers must be the same when they are read again")]
fn headers_that_change_between_two_readings_are_a_bug_of_the_caller() {
    let reads = Cell::new(0);
    let name: &[u8] = b"name";
    let changing = [name].into_iter().map(|name| {
        reads.set(reads.get() + 1);
        (name, (reads.get() == 1).then_some(&b"value"[..]))
    });
    drop(BatchBuilder::new(Codec::None, 0).push(None, None, None, changing));
}

#[test]
fn the_size_so_far_counts_the_header_and_is_the_size_at_the_end() {
    let mut batch = BatchBuilder::new(Codec::None, 0);
    assert_eq!(batch.bytes(), HEADER_BYTES);
    for sample in small() {
        sample.push(&mut batch).unwrap();
    }
    let bytes = batch.bytes();
    assert_eq!(batch.finish().unwrap().len(), bytes);
}
