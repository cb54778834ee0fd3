use bytes::Bytes;
use varvelog_store::batch::{BatchBuilder, Codec, Records};

use super::*;

/// A batch of one record with these headers.
fn with(headers: &[(&str, Option<&[u8]>)]) -> Records {
    let mut batch = BatchBuilder::new(Codec::None, 0);
    let headers = headers
        .iter()
        .map(|(name, value)| (name.as_bytes(), *value));
    batch.push(None, None, None, headers).unwrap();
    let body: Bytes = batch.finish().unwrap();
    Records::open(&body, 1 << 20).unwrap()
}

fn headers(records: &Records) -> Headers<'_> {
    records.iter().next().unwrap().unwrap().headers
}

const COPY: [(&str, Option<&[u8]>); 8] = [
    ("varvelog-message-id", Some(b"id")),
    ("varvelog-origin-topic", Some(b"orders")),
    ("varvelog-origin-partition", Some(b"3")),
    ("varvelog-origin-offset", Some(b"17")),
    ("varvelog-origin-timestamp-ms", Some(b"1700000000000")),
    ("varvelog-queue", Some(b"orders.email")),
    ("varvelog-attempt", Some(b"2")),
    ("mine", Some(b"1")),
];

#[test]
fn names_are_reserved_by_their_beginning_and_each_is_found_by_its_own() {
    for header in ReservedHeader::ALL {
        let name = header.name().as_bytes();
        assert!(is_reserved(name));
        assert_eq!(ReservedHeader::of_name(name), Some(header));
        assert_eq!(ReservedHeader::ALL[header as usize], header);
    }
    assert!(is_reserved(b"varvelog-unheard-of"));
    assert_eq!(ReservedHeader::of_name(b"varvelog-unheard-of"), None);
    assert!(!is_reserved(b"varvelog") && !is_reserved(b"Varvelog-attempt") && !is_reserved(b""));
}

#[test]
fn a_copy_tells_where_it_comes_from() {
    let records = with(&COPY);
    let expected = Origin {
        topic: "orders",
        partition: 3,
        offset: Offset::new(17).unwrap(),
        append_time: WallMs(1_700_000_000_000),
        queue: "orders.email",
        message_id: "id",
        attempt: 2,
    };
    assert_eq!(origin_of(headers(&records)), Some(expected));
}

#[test]
fn a_record_without_all_of_it_or_with_other_values_is_no_copy() {
    for left_out in 0..7 {
        let mut some = COPY.to_vec();
        some.remove(left_out);
        assert_eq!(origin_of(headers(&with(&some))), None, "{left_out}");
    }
    for (at, value) in [
        (2, &b"-1"[..]),
        (3, b"9223372036854775808"),
        (4, b"soon"),
        (1, b"\xff"),
    ] {
        let mut other = COPY;
        other[at].1 = Some(value);
        assert_eq!(origin_of(headers(&with(&other))), None, "{value:?}");
    }
}

#[test]
fn the_first_of_a_name_counts() {
    let twice = with(&[
        ("varvelog-attempt", None),
        ("varvelog-attempt", Some(b"1")),
        ("varvelog-attempt", Some(b"2")),
    ]);
    let reserved = ReservedHeaders::of(headers(&twice));
    assert_eq!(reserved.count(ReservedHeader::Attempt), Some(1));
    assert_eq!(reserved.text(ReservedHeader::Due), None);
}
