use bytes::Bytes;

use crate::batch::samples::{PLAIN_MAX, RULES, Sample, encode, raw, reseal, small};
use crate::batch::{BatchError, BatchRules, Codec, RecordFault, read_header, validate};

const NOW_MS: i64 = 1_700_000_000_000;

fn one(sample: Sample) -> Bytes {
    encode(Codec::None, None, &[sample]).unwrap()
}

/// The small batch with `bytes` at `position`, sealed again.
fn with(position: usize, bytes: &[u8]) -> Bytes {
    let mut body = encode(Codec::None, None, &small()).unwrap().to_vec();
    body[position..position + bytes.len()].copy_from_slice(bytes);
    reseal(&mut body);
    body.into()
}

fn limit(record: Option<u32>, what: &'static str, value: u64, max: u64) -> BatchError {
    BatchError::Limit {
        record,
        what,
        value,
        max,
    }
}

fn sample(key: usize, value: usize, headers: &[(&str, usize)]) -> Sample {
    let header = |(name, bytes): &(&str, usize)| ((*name).to_owned(), Some(vec![0; *bytes]));
    Sample {
        key: Some(vec![0; key]),
        headers: headers.iter().map(header).collect(),
        ..Sample::of_value(&vec![0; value])
    }
}

#[test]
fn a_batch_of_every_codec_is_taken_and_its_header_told() {
    for codec in Codec::ALL {
        let body = encode(codec, None, &small()).unwrap();
        assert_eq!(validate(&body, &RULES), read_header(&body));
    }
}

#[test]
fn attribute_bits_beside_the_codec_are_refused_each_with_its_reason() {
    for bit in 3..16_u16 {
        let attributes = 1_u16 << bit;
        let rule = match bit {
            3 => "the log-append-time bit is not a producer's",
            4 => "transactional batches are not taken",
            5 => "control batches are not a producer's",
            6 => "the delete-horizon bit is not a producer's",
            _ => "unused bits must be 0",
        };
        let (field, value) = ("attributes", attributes.into());
        let expected = BatchError::Header { field, value, rule };
        assert_eq!(
            validate(&with(21, &attributes.to_be_bytes()), &RULES),
            Err(expected)
        );
    }
}

#[test]
fn more_records_than_the_rule_allows_are_refused() {
    let body = encode(Codec::None, None, &small()).unwrap();
    assert!(
        validate(
            &body,
            &BatchRules {
                records_max: 3,
                ..RULES
            }
        )
        .is_ok()
    );
    let refused = validate(
        &body,
        &BatchRules {
            records_max: 2,
            ..RULES
        },
    );
    assert_eq!(refused, Err(limit(None, "record count", 3, 2)));
}

#[test]
fn a_last_offset_delta_that_leaves_a_gap_is_refused() {
    let rule = "must be the record count less one";
    let expected = BatchError::Header {
        field: "last offset delta",
        value: 3,
        rule,
    };
    assert_eq!(
        validate(&with(23, &3_u32.to_be_bytes()), &RULES),
        Err(expected)
    );
}

#[test]
fn offset_deltas_that_do_not_count_from_zero_are_refused() {
    let (first, second) = ([12, 0, 0, 0, 1, 1, 0], [12, 0, 0, 2, 1, 1, 0]);
    assert!(validate(&raw(2, &[first, second].concat()), &RULES).is_ok());
    let cases = [
        ([second, first], 0, 1),
        ([first, first], 1, 0),
        ([second, second], 0, 1),
    ];
    for (records, record, value) in cases {
        let rule = "must be its place in the batch";
        let fault = RecordFault::Field {
            field: "offset delta",
            value,
            rule,
        };
        let refused = validate(&raw(2, &records.concat()), &RULES);
        assert_eq!(refused, Err(BatchError::Record { record, fault }));
    }
}

#[test]
fn timestamps_up_to_the_bound_are_taken_and_later_ones_refused() {
    let rules = BatchRules {
        timestamp_ms_max: NOW_MS,
        ..RULES
    };
    let timed = |timestamp_ms| Sample {
        timestamp_ms,
        ..Sample::default()
    };
    for taken in [None, Some(0), Some(NOW_MS)] {
        assert!(validate(&one(timed(taken)), &rules).is_ok());
    }
    let rule = "lies too far ahead of now";
    let late = validate(&one(timed(Some(NOW_MS + 1))), &rules);
    let (field, value) = ("base timestamp", NOW_MS + 1);
    assert_eq!(late, Err(BatchError::Header { field, value, rule }));

    let body = encode(
        Codec::None,
        None,
        &[timed(Some(1)), timed(Some(NOW_MS + 1))],
    )
    .unwrap();
    let field = "max timestamp";
    assert_eq!(
        validate(&body, &rules),
        Err(BatchError::Header { field, value, rule })
    );

    let mut body = body.to_vec();
    body[35..43].copy_from_slice(&NOW_MS.to_be_bytes());
    reseal(&mut body);
    let fault = RecordFault::Field {
        field: "timestamp",
        value,
        rule,
    };
    let refused = validate(&body.into(), &rules);
    assert_eq!(refused, Err(BatchError::Record { record: 1, fault }));
}

#[test]
fn header_timestamps_below_none_are_refused() {
    for (position, field) in [(27, "base timestamp"), (35, "max timestamp")] {
        let rule = "must be -1 (none) or more";
        let expected = BatchError::Header {
            field,
            value: -2,
            rule,
        };
        assert_eq!(
            validate(&with(position, &(-2_i64).to_be_bytes()), &RULES),
            Err(expected)
        );
    }
}

#[test]
fn a_record_is_taken_up_to_its_limit_which_counts_key_value_and_headers() {
    let rules = BatchRules {
        record_bytes_max: 20,
        ..RULES
    };
    assert!(validate(&one(sample(5, 5, &[("name", 3), ("n", 2)])), &rules).is_ok());
    for large in [
        sample(6, 5, &[("name", 3), ("n", 2)]),
        sample(5, 6, &[("name", 3), ("n", 2)]),
        sample(5, 5, &[("names", 3), ("n", 2)]),
        sample(5, 5, &[("name", 3), ("n", 3)]),
    ] {
        let expected = limit(Some(0), "record size in bytes", 21, 20);
        assert_eq!(validate(&one(large), &rules), Err(expected));
    }
}

#[test]
fn a_key_beyond_its_limit_is_refused() {
    let rules = BatchRules {
        key_bytes_max: 4,
        ..RULES
    };
    assert!(validate(&one(sample(4, 100, &[])), &rules).is_ok());
    let refused = validate(&one(sample(5, 0, &[])), &rules).unwrap_err();
    assert_eq!(refused, limit(Some(0), "key size in bytes", 5, 4));
    assert_eq!(
        refused.to_string(),
        "record 0: key size in bytes 5 above the limit of 4"
    );
}

#[test]
fn more_headers_than_the_rule_allows_are_refused() {
    let rules = BatchRules {
        headers_max: 2,
        ..RULES
    };
    assert!(validate(&one(sample(0, 0, &[("a", 0), ("a", 0)])), &rules).is_ok());
    let refused = validate(&one(sample(0, 0, &[("a", 0), ("a", 0), ("b", 0)])), &rules);
    assert_eq!(refused, Err(limit(Some(0), "header count", 3, 2)));
}

#[test]
fn a_reserved_header_is_refused_by_its_name() {
    assert!(
        validate(
            &one(sample(0, 0, &[("varvelog", 1), ("Varvelog-x", 1)])),
            &RULES
        )
        .is_ok()
    );
    let refused = validate(&one(sample(0, 0, &[("ok", 1), ("varvelog-id", 1)])), &RULES);
    let text = refused.unwrap_err().to_string();
    assert_eq!(text, r#"record 0: header name "varvelog-id" is reserved"#);
}

#[test]
fn a_reserved_name_is_cut_and_escaped_in_the_refusal() {
    let name = format!("varvelog-\n{}", "n".repeat(10_000));
    let text = validate(&one(sample(0, 0, &[(&name, 1)])), &RULES)
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with(r#"record 0: header name "varvelog-\nnnn"#),
        "{text}"
    );
    assert!(text.len() < 120, "{text}");
}

#[test]
fn no_name_is_reserved_without_a_prefix() {
    let rules = BatchRules {
        reserved_header_prefix: "",
        ..RULES
    };
    assert!(validate(&one(sample(0, 0, &[("varvelog-id", 1)])), &rules).is_ok());
}

#[test]
fn a_header_name_that_is_not_utf8_is_refused() {
    let mut batch = crate::batch::BatchBuilder::new(Codec::None, 0);
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"fine", None), (b"\xff", None)];
    batch.push(None, None, None, headers.into_iter()).unwrap();
    let fault = RecordFault::HeaderName { header: 1 };
    let refused = validate(&batch.finish().unwrap(), &RULES);
    assert_eq!(refused, Err(BatchError::Record { record: 0, fault }));
}

#[test]
fn a_batch_that_expands_beyond_the_limit_is_refused_in_every_codec() {
    let value = vec![0; usize::try_from(PLAIN_MAX).unwrap()];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let body = encode(codec, None, &[Sample::of_value(&value)]).unwrap();
        match validate(&body, &RULES) {
            Err(BatchError::Limit {
                record: None,
                what,
                value,
                max: PLAIN_MAX,
            }) => {
                assert_eq!(what, "decompressed size in bytes");
                assert!(value > PLAIN_MAX);
            }
            other => panic!("{codec}: {other:?}"),
        }
        let rules = BatchRules {
            decompressed_bytes_max: 2 * PLAIN_MAX,
            ..RULES
        };
        let rules = BatchRules {
            record_bytes_max: 1 << 20,
            ..rules
        };
        assert!(validate(&body, &rules).is_ok());
    }
}

#[test]
fn the_checksum_is_judged_before_what_it_covers() {
    let mut body = encode(Codec::None, None, &small()).unwrap().to_vec();
    body[22] ^= 1 << 4;
    let refused = validate(&body.into(), &RULES);
    assert!(
        matches!(refused, Err(BatchError::Checksum { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_count_over_the_limit_is_refused_before_anything_is_decompressed() {
    let declared = |count: u32| {
        let mut body = encode(Codec::Gzip, None, &small()).unwrap().to_vec();
        body[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        body[57..61].copy_from_slice(&count.to_be_bytes());
        // What no decompressor takes.
        body[61..].fill(0xff);
        reseal(&mut body);
        validate(&body.into(), &RULES).unwrap_err()
    };
    let is_of_count = |error: BatchError| error.to_string().contains("record count");
    assert!(!is_of_count(declared(RULES.records_max)));
    for count in [RULES.records_max + 1, 1_000_000, (1 << 31) - 1] {
        assert!(is_of_count(declared(count)), "{count}");
    }
}
