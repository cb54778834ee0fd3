use bytes::Bytes;

use crate::batch::samples::{PLAIN_MAX, Sample, decode, encode, raw, small};
use crate::batch::{BatchError, Codec, HEADER_BYTES, RecordFault, Records};

/// What reading says of one record with these bytes.
fn fault_of(record: &[u8]) -> RecordFault {
    match decode(&raw(1, record)) {
        Err(BatchError::Record { record: 0, fault }) => fault,
        other => panic!("{other:?}"),
    }
}

fn field(field: &'static str, value: i64, rule: &'static str) -> RecordFault {
    RecordFault::Field { field, value, rule }
}

#[test]
fn an_uncompressed_batch_is_read_where_it_lies() {
    let body = encode(Codec::None, None, &small()).unwrap();
    let within = body.as_ptr_range();
    let records = Records::open(&body, 0).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    assert!(within.contains(&record.key.unwrap().as_ptr()));
    assert!(within.contains(&record.value.unwrap().as_ptr()));
    assert_eq!(records.plain_bytes(), body.len() - HEADER_BYTES);
}

#[test]
fn a_slice_of_a_part_shares_its_bytes_in_every_codec() {
    for codec in Codec::ALL {
        let records = Records::open(&encode(codec, None, &small()).unwrap(), PLAIN_MAX).unwrap();
        for record in &records {
            let record = record.unwrap();
            let headers = record.headers.iter().filter_map(|(_, value)| value);
            for part in [record.key, record.value]
                .into_iter()
                .flatten()
                .chain(headers)
            {
                let slice = records.slice_of(part);
                assert_eq!(slice, part);
                assert!(part.is_empty() || slice.as_ptr() == part.as_ptr());
            }
        }
    }
}

#[test]
fn a_slice_of_a_part_from_elsewhere_is_a_copy() {
    let records = Records::open(&encode(Codec::None, None, &small()).unwrap(), 0).unwrap();
    let elsewhere = vec![b'x'; 1000];
    assert_eq!(records.slice_of(&elsewhere), elsewhere);
    assert_eq!(records.slice_of(&[]), Bytes::new());
}

#[test]
fn headers_are_given_as_often_as_they_are_asked_for_in_order_and_with_their_number() {
    let body = encode(Codec::None, None, &small()).unwrap();
    let records = Records::open(&body, 0).unwrap();
    let headers = records.iter().next().unwrap().unwrap().headers;
    let expected: [(&[u8], Option<&[u8]>); 3] =
        [(b"trace", Some(b"1")), (b"", None), (b"trace", Some(b""))];
    for _ in 0..2 {
        assert_eq!(headers.iter().len(), 3);
        assert_eq!(headers.into_iter().collect::<Vec<_>>(), expected);
    }
    assert_eq!((headers.len(), headers.is_empty()), (3, false));
}

#[test]
fn the_content_of_a_record_is_key_value_and_headers() {
    let body = encode(Codec::None, None, &small()).unwrap();
    let records = Records::open(&body, 0).unwrap();
    let bytes: Vec<u64> = records
        .iter()
        .map(|record| record.unwrap().content_bytes())
        .collect();
    assert_eq!(bytes, [3 + 5 + 6 + 5, 0, 100]);
}

#[test]
fn a_negative_record_length_is_refused() {
    assert_eq!(fault_of(&[1]), field("length", -1, "must not be negative"));
    assert_eq!(
        fault_of(&[3]),
        field("length", -2, "its length must be -1 (none) or more")
    );
}

#[test]
fn a_record_longer_than_the_batch_is_refused() {
    assert_eq!(
        fault_of(&[14, 0, 0, 0, 1, 1, 0]),
        RecordFault::Cut { field: "length" }
    );
}

#[test]
fn a_record_cut_within_a_field_is_refused_by_the_fields_name() {
    let whole = [0, 0, 0, 2, b'k', 2, b'v', 2, 2, b'n', 2, b'w'];
    let fields = [
        "attributes",
        "timestamp delta",
        "offset delta",
        "key",
        "key",
        "value",
        "value",
        "header count",
        "header count",
        "header count",
        "header value",
        "header value",
    ];
    for (bytes, field) in fields.into_iter().enumerate() {
        let length = u8::try_from(2 * bytes).unwrap();
        let fault = fault_of(&[&[length], &whole[..bytes]].concat());
        if field == "header count" && bytes > 7 {
            let rule = "must not be negative, nor more than the record has room for";
            assert_eq!(fault, self::field(field, 1, rule));
        } else {
            assert_eq!(fault, RecordFault::Cut { field }, "{bytes}");
        }
    }
    assert_eq!(
        decode(&raw(1, &[&[24], &whole[..]].concat()))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn bytes_behind_the_last_header_of_a_record_are_refused() {
    assert_eq!(
        fault_of(&[16, 0, 0, 0, 1, 1, 0, 0, 0]),
        RecordFault::Trailing { bytes: 2 }
    );
}

#[test]
fn record_attributes_are_refused() {
    let rule = "must be 0, since no bit has a meaning";
    assert_eq!(
        fault_of(&[12, 0x80, 0, 0, 1, 1, 0]),
        field("attributes", 0x80, rule)
    );
}

#[test]
fn a_timestamp_below_none_is_refused() {
    let rule = "must lead to a timestamp of -1 (none) or more";
    assert_eq!(
        fault_of(&[12, 0, 1, 0, 1, 1, 0]),
        field("timestamp delta", -1, rule)
    );
}

#[test]
fn an_offset_delta_outside_the_batch_is_refused() {
    let negative = field("offset delta", -1, "must not be negative");
    assert_eq!(fault_of(&[12, 0, 0, 1, 1, 1, 0]), negative);
    let beyond = field("offset delta", 1, "must not be beyond the batch's last");
    assert_eq!(fault_of(&[12, 0, 0, 2, 1, 1, 0]), beyond);
}

#[test]
fn a_length_below_none_is_refused_in_every_field() {
    let rule = "its length must be -1 (none) or more";
    assert_eq!(fault_of(&[12, 0, 0, 0, 3, 1, 0]), field("key", -2, rule));
    assert_eq!(fault_of(&[12, 0, 0, 0, 1, 3, 0]), field("value", -2, rule));
    let negative = fault_of(&[16, 0, 0, 0, 1, 1, 2, 0, 3]);
    assert_eq!(negative, field("header value", -2, rule));
}

#[test]
fn a_header_without_a_name_is_refused() {
    let rule = "its length must not be negative";
    assert_eq!(
        fault_of(&[16, 0, 0, 0, 1, 1, 2, 1, 1]),
        field("header name", -1, rule)
    );
}

#[test]
fn a_header_count_that_the_record_has_no_room_for_is_refused_at_once() {
    let rule = "must not be negative, nor more than the record has room for";
    let negative = fault_of(&[12, 0, 0, 0, 1, 1, 1]);
    assert_eq!(negative, field("header count", -1, rule));
    let huge = fault_of(&[20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(huge, field("header count", i32::MAX.into(), rule));
}

#[test]
fn a_varint_that_is_not_canonical_is_refused() {
    let long = fault_of(&[0x8c, 0x00, 0, 0, 0, 1, 1, 0]);
    assert_eq!(long, RecordFault::Varint { field: "length" });
    let key = fault_of(&[20, 0, 0, 0, 0x81, 0x80, 0x80, 0x80, 0x10, 1, 0]);
    assert_eq!(key, RecordFault::Varint { field: "key" });
}

#[test]
fn fewer_records_than_the_count_says_are_refused_after_those_that_are_there() {
    let body = raw(10_000, &[12, 0, 0, 0, 1, 1, 0]);
    let records = Records::open(&body, 0).unwrap();
    let mut iter = records.iter();
    assert_eq!(
        Sample::from(iter.next().unwrap().unwrap()),
        Sample::default()
    );
    let fault = RecordFault::Cut { field: "length" };
    assert_eq!(
        iter.next(),
        Some(Err(BatchError::Record { record: 1, fault }))
    );
    assert_eq!(iter.next(), None);
    assert_eq!(iter.next(), None);
}

#[test]
fn more_records_than_the_count_says_are_refused_after_those_that_it_counts() {
    let body = raw(1, &[12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 2, 1, 1, 0]);
    let records = Records::open(&body, 0).unwrap();
    let mut iter = records.iter();
    assert!(iter.next().unwrap().is_ok());
    let rule = "bytes follow the last of so many records";
    let expected = BatchError::Header {
        field: "record count",
        value: 1,
        rule,
    };
    assert_eq!(iter.next(), Some(Err(expected)));
    assert_eq!(iter.next(), None);
}
