//! Message ids on the easy door.

use varvelog_proto::v1;
use varvelog_store::batch::Records;

use super::in_tests::{read_with, refusal, request};
use super::records_in::RecordsIn;
use crate::core::message_ids::IdHash;

fn named(id: &str, partition: Option<i32>) -> v1::NewRecord {
    v1::NewRecord {
        value: Some(format!("value of {id}").into()),
        partition,
        message_id: id.into(),
        ..Default::default()
    }
}

/// Message ids of the stored records of a part; empty where there is none.
fn stored(made: &RecordsIn, part: usize) -> Vec<String> {
    let records = Records::open(&made.parts[part].body, 1 << 20).unwrap();
    let id = |it: varvelog_store::batch::RecordRef<'_>| {
        let named = it.headers.iter().find(|it| it.0 == b"varvelog-message-id");
        named.map_or_else(String::new, |it| {
            String::from_utf8(it.1.unwrap().to_vec()).unwrap()
        })
    };
    records.iter().map(|it| id(it.unwrap())).collect()
}

#[test]
fn a_message_id_is_stored_as_a_header_and_told_by_part_and_place() {
    let records = vec![
        named("a", Some(0)),
        named("", Some(1)),
        named("b", Some(1)),
        named("c", Some(0)),
    ];
    let made = read_with(&request(records), 3, true).unwrap();
    assert_eq!(stored(&made, 0), ["a", "c"]);
    assert_eq!(stored(&made, 1), ["", "b"]);
    let hash = IdHash::of;
    assert_eq!(made.parts[0].ids, [(0, hash("a")), (1, hash("c"))]);
    assert_eq!(made.parts[1].ids, [(1, hash("b"))]);
    assert_eq!(made.repeated, Vec::<u32>::new());
}

#[test]
fn of_one_id_in_a_request_only_the_first_record_is_taken() {
    let records = vec![
        named("x", Some(2)),
        named("a", Some(0)),
        named("a", Some(1)),
        named("", Some(0)),
        named("", Some(0)),
        named("x", Some(0)),
    ];
    let made = read_with(&request(records), 3, true).unwrap();
    assert_eq!(
        made.places,
        [(0, 0), (1, 0), (1, 0), (1, 1), (1, 2), (0, 0)]
    );
    assert_eq!(made.repeated, [2, 5]);
    assert_eq!(made.parts.iter().map(|it| it.record_count).sum::<u32>(), 4);
}

#[test]
fn without_a_window_ids_are_stored_and_count_for_nothing() {
    let records = vec![named("a", Some(0)), named("a", Some(0))];
    let made = read_with(&request(records), 3, false).unwrap();
    assert_eq!(stored(&made, 0), ["a", "a"]);
    assert_eq!((made.parts[0].ids.len(), made.repeated.len()), (0, 0));
}

#[test]
fn a_message_id_is_at_most_128_bytes() {
    let long = "e".repeat(128);
    assert!(read_with(&request(vec![named(&long, None)]), 3, true).is_ok());
    let longer = read_with(&request(vec![named(&(long + "e"), None)]), 3, true);
    assert_eq!(refusal(longer).field.unwrap().0, "records[0].message_id");
}

#[test]
fn another_message_id_is_another_content() {
    let hash = |id| {
        read_with(
            &request(vec![v1::NewRecord {
                message_id: String::from(id),
                ..Default::default()
            }]),
            3,
            true,
        )
        .unwrap()
        .content_hash
    };
    assert_eq!(hash("a"), hash("a"));
    assert_ne!(hash("a"), hash("b"));
    assert_ne!(hash("a"), hash(""));
}
