use bytes::Bytes;

use crate::batch::samples::{decode, encode, reseal, small};
use crate::batch::{
    BatchError, BatchHeader, Codec, HEADER_BYTES, ProducerStamp, STAMP_BYTES, read_header, stamp,
    stamped_head, verify_crc,
};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};
use crate::{Epoch, Offset};

const PRODUCER: ProducerStamp = ProducerStamp {
    id: 9,
    epoch: 2,
    base_sequence: 30,
};

fn body() -> Vec<u8> {
    encode(Codec::None, Some(PRODUCER), &small())
        .unwrap()
        .to_vec()
}

/// What `read_header` says once `bytes` stand at `position`.
fn with(position: usize, bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let mut body = body();
    body[position..position + bytes.len()].copy_from_slice(bytes);
    read_header(&body)
}

fn refused(field: &'static str, value: i64, rule: &'static str) -> Result<BatchHeader, BatchError> {
    Err(BatchError::Header { field, value, rule })
}

#[test]
fn every_field_is_read_from_its_place() {
    let mut body = body();
    body[0..8].copy_from_slice(&77_i64.to_be_bytes());
    body[12..16].copy_from_slice(&5_i32.to_be_bytes());
    body[21..23].copy_from_slice(&0b1_0011_u16.to_be_bytes());
    let header = read_header(&body).unwrap();
    let expected = BatchHeader {
        base_offset: 77,
        batch_bytes: u32::try_from(body.len()).unwrap(),
        leader_epoch: 5,
        crc: u32::from_be_bytes(*body[17..].first_chunk().unwrap()),
        attributes: 0b1_0011,
        codec: Codec::Lz4,
        last_offset_delta: 2,
        base_timestamp_ms: 1_700_000_000_000,
        max_timestamp_ms: 1_700_000_000_000,
        producer: Some(PRODUCER),
        record_count: 3,
    };
    assert_eq!(header, expected);
}

#[test]
fn fewer_bytes_than_a_header_are_refused() {
    let body = body();
    let rule = "must be at least the 61 bytes of a batch header";
    for bytes in 0..HEADER_BYTES {
        let value = i64::try_from(bytes).unwrap();
        assert_eq!(read_header(&body[..bytes]), refused("size", value, rule));
    }
}

#[test]
fn a_body_larger_than_the_largest_batch_is_refused() {
    let mut body = body();
    body.resize(usize::try_from(BATCH_BYTES_MAX).unwrap(), 0);
    reseal(&mut body);
    assert_eq!(read_header(&body).unwrap().batch_bytes, BATCH_BYTES_MAX);
    body.push(0);
    reseal(&mut body);
    let error = read_header(&body).unwrap_err();
    assert_eq!(
        error.to_string(),
        "batch size in bytes 17825793 above the limit of 17825792"
    );
}

#[test]
fn another_magic_is_refused() {
    for magic in [0, 1, 3, -1_i8] {
        assert_eq!(
            with(16, &magic.to_be_bytes()),
            refused("magic", magic.into(), "must be 2")
        );
    }
}

#[test]
fn a_length_beyond_what_is_there_is_refused() {
    let there = i32::try_from(body().len()).unwrap() - 12;
    for length in [there + 1, i32::MAX, -1, i32::MIN] {
        let expected = refused("length", length.into(), "must be what is there");
        assert_eq!(with(8, &length.to_be_bytes()), expected);
    }
}

#[test]
fn a_second_batch_behind_the_first_is_refused() {
    let one = body();
    let length = i64::try_from(one.len()).unwrap() - 12;
    let rule = "bytes follow it, and one batch is expected";
    assert_eq!(
        read_header(&[&one[..], &one].concat()),
        refused("length", length, rule)
    );
    assert_eq!(
        read_header(&[&one[..], &[0]].concat()),
        refused("length", length, rule)
    );
}

#[test]
fn a_codec_without_a_name_is_refused() {
    for codec in 5..8_u16 {
        let expected = refused("codec", codec.into(), "must be 0 to 4");
        assert_eq!(with(21, &codec.to_be_bytes()), expected);
    }
}

#[test]
fn a_record_count_below_one_or_above_the_limit_is_refused() {
    for count in [0, -1, i32::MIN] {
        let expected = refused("record count", count.into(), "must be at least 1");
        assert_eq!(with(57, &count.to_be_bytes()), expected);
    }
    let count = BATCH_RECORDS_MAX + 1;
    let (value, max) = (count.into(), BATCH_RECORDS_MAX.into());
    let expected = Err(BatchError::Limit {
        record: None,
        what: "record count",
        value,
        max,
    });
    assert_eq!(with(57, &count.to_be_bytes()), expected);
}

#[test]
fn a_last_offset_delta_that_has_no_room_for_the_records_is_refused() {
    for delta in [1, 0, -1, i32::MIN] {
        let rule = "must be at least the record count less one";
        let expected = refused("last offset delta", delta.into(), rule);
        assert_eq!(with(23, &delta.to_be_bytes()), expected);
    }
    assert_eq!(with(23, &9_i32.to_be_bytes()).unwrap().last_offset_delta, 9);
}

#[test]
fn a_producer_id_of_minus_one_is_no_producer_whatever_stands_behind_it() {
    let stamp = [
        &(-1_i64).to_be_bytes()[..],
        &[0xff; 2],
        &30_i32.to_be_bytes(),
    ]
    .concat();
    assert_eq!(with(43, &stamp).unwrap().producer, None);
}

#[test]
fn a_producer_id_below_minus_one_is_refused() {
    let expected = refused("producer id", -2, "must be -1 (none) or more");
    assert_eq!(with(43, &(-2_i64).to_be_bytes()), expected);
}

#[test]
fn a_producer_without_epoch_or_sequence_is_refused() {
    let rule = "must not be negative where a producer id is given";
    let epoch = with(51, &(-1_i16).to_be_bytes());
    assert_eq!(epoch, refused("producer epoch", -1, rule));
    let sequence = with(53, &(-1_i32).to_be_bytes());
    assert_eq!(sequence, refused("base sequence", -1, rule));
}

#[test]
fn a_wrong_checksum_is_told_with_both_values() {
    let mut body = body();
    let stated = read_header(&body).unwrap().crc;
    *body.last_mut().unwrap() ^= 1;
    let computed = crc32c::crc32c(&body[21..]);
    let error = BatchError::Checksum { stated, computed };
    assert_eq!(verify_crc(&body), Err(error.clone()));
    let text =
        format!("batch checksum is {stated:#010x}, but its bytes give {computed:#010x} (CRC-32C)");
    assert_eq!(error.to_string(), text);
}

#[test]
fn stamping_changes_the_two_fields_outside_the_checksum_and_nothing_else() {
    let unstamped = body();
    let mut stamped = unstamped.clone();
    stamp(&mut stamped, Offset::new(1 << 40).unwrap(), Epoch(8));
    let header = verify_crc(&stamped).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (1 << 40, 8));
    assert_eq!(stamped[8..12], unstamped[8..12]);
    assert_eq!(stamped[16..], unstamped[16..]);
    assert_eq!(decode(&Bytes::from(stamped)).unwrap(), small());
}

#[test]
fn a_head_stamped_apart_is_the_one_stamped_in_place() {
    let mut body = body();
    let (offset, epoch) = (Offset::new(123_456).unwrap(), Epoch(3));
    let head = stamped_head(&body, offset, epoch).unwrap();
    stamp(&mut body, offset, epoch);
    assert_eq!(head, body[..STAMP_BYTES]);
}

#[test]
fn what_is_shorter_than_a_header_is_not_stamped() {
    let mut short = [0_u8; HEADER_BYTES - 1];
    stamp(&mut short, Offset::MAX, Epoch(1));
    assert_eq!(short, [0; HEADER_BYTES - 1]);
    assert_eq!(stamped_head(&short, Offset::MAX, Epoch(1)), None);
}
