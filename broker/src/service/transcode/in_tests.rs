use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use tonic::Code;
use varvelog_proto::v1;
use varvelog_store::batch::{Records, partition_for_key};

use super::{ProduceHead, RecordTarget, RecordsIn, SessionIn, StreamProduceIn};
use crate::service::status::{CallFailure, Explanation, Reason};

pub(super) const NOW: i64 = 1_790_000_000_000;
pub(super) const HOUR: i64 = 3_600_000;

fn target(partitions: u32) -> RecordTarget<'static> {
    RecordTarget {
        topic: "orders",
        partitions,
        sticky: 7,
        record_bytes_max: 1 << 20,
        now_ms: NOW,
        timestamp_ms_max: NOW + HOUR,
        is_hashed: true,
        has_id_window: true,
        path: "",
    }
}

fn read(request: &v1::ProduceRequest, partitions: u32) -> Result<RecordsIn, CallFailure> {
    read_with(request, partitions, true)
}

pub(super) fn read_with(
    request: &v1::ProduceRequest,
    partitions: u32,
    has_id_window: bool,
) -> Result<RecordsIn, CallFailure> {
    let wire = request.encode_to_vec();
    let head = ProduceHead::read(&wire)?;
    let target = RecordTarget {
        has_id_window,
        ..target(partitions)
    };
    RecordsIn::read(&wire, head.records, &target)
}

pub(super) fn request(records: Vec<v1::NewRecord>) -> v1::ProduceRequest {
    v1::ProduceRequest {
        topic: "orders".into(),
        records,
        ..Default::default()
    }
}

pub(super) fn refusal(result: Result<impl std::fmt::Debug, CallFailure>) -> Explanation {
    Explanation::from(&result.unwrap_err())
}

/// A record as it went in or came out: partition, timestamp, key, value, headers.
type Seen = (
    u32,
    i64,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    BTreeMap<String, Vec<u8>>,
);

fn sent(record: &v1::NewRecord, partitions: u32, default_ms: i64) -> Seen {
    let partition = match (record.partition, &record.key) {
        (Some(partition), _) => u32::try_from(partition).unwrap(),
        (None, Some(key)) => partition_for_key(key, partitions),
        (None, None) => 7 % partitions,
    };
    (
        partition,
        record.timestamp_ms.unwrap_or(default_ms),
        record.key.as_ref().map(|key| key.to_vec()),
        record.value.as_ref().map(|value| value.to_vec()),
        record
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.to_vec()))
            .collect(),
    )
}

fn stored(made: &RecordsIn) -> Vec<Seen> {
    let opened: Vec<(u32, Records)> = made
        .parts
        .iter()
        .map(|part| (part.partition, Records::open(&part.body, 1 << 30).unwrap()))
        .collect();
    let mut seen = Vec::new();
    for (part, place) in &made.places {
        let (partition, records) = &opened[*part as usize];
        let record = records.iter().nth(*place as usize).unwrap().unwrap();
        let headers = record.headers.iter().map(|(name, value)| {
            (
                String::from_utf8(name.to_vec()).unwrap(),
                value.unwrap().to_vec(),
            )
        });
        let (key, value) = (
            record.key.map(<[u8]>::to_vec),
            record.value.map(<[u8]>::to_vec),
        );
        seen.push((
            *partition,
            record.timestamp_ms,
            key,
            value,
            headers.collect(),
        ));
    }
    seen
}

fn bytes(longest: usize) -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..longest).prop_map(Bytes::from)
}

prop_compose! {
    fn new_record()(
        key in proptest::option::of(bytes(20)),
        value in proptest::option::of(bytes(200)),
        headers in proptest::collection::hash_map("[a-z]{0,5}", bytes(20), 0..4),
        partition in proptest::option::of(0..5_i32),
        timestamp_ms in proptest::option::of(0..NOW),
    ) -> v1::NewRecord {
        v1::NewRecord { key, value, headers, partition, timestamp_ms, ..Default::default() }
    }
}

proptest! {
    #[test]
    fn the_walk_makes_the_records_that_prost_would_see(
        records in proptest::collection::vec(new_record(), 1..40),
    ) {
        let request = request(records);
        let made = read(&request, 5).unwrap();
        let is_mixed = request.records.iter().any(|record| record.timestamp_ms.is_some());
        let default_ms = if is_mixed { NOW } else { -1 };
        let sent: Vec<Seen> =
            request.records.iter().map(|record| sent(record, 5, default_ms)).collect();
        prop_assert_eq!(stored(&made), sent);
    }

    #[test]
    fn fields_in_another_order_make_the_same_batches(
        records in proptest::collection::vec(new_record(), 1..10),
    ) {
        let request = request(records);
        let mut backwards = Vec::new();
        for record in &request.records {
            // Topic between records, an unknown field in front of each.
            backwards.extend_from_slice(&[0xf8, 0x07, 0x01]);
            prost::encoding::message::encode(2, record, &mut backwards);
            prost::encoding::string::encode(1, &request.topic, &mut backwards);
        }
        let head = ProduceHead::read(&backwards).unwrap();
        prop_assert_eq!(head.topic, "orders");
        let made = RecordsIn::read(&backwards, head.records, &target(5)).unwrap();
        let straight = read(&request, 5).unwrap();
        prop_assert_eq!(stored(&made), stored(&straight));
        prop_assert_eq!(made.content_hash, straight.content_hash);
    }

    #[test]
    fn no_bytes_make_the_walk_panic_or_take_what_prost_refuses(
        wire in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        // Batches are walked by the other door.
        let head = ProduceHead::read(&wire).ok().filter(|head| head.batches == 0);
        let ours = head.map(|head| RecordsIn::read(&wire, head.records, &target(5)));
        if ours.is_some_and(|records| records.is_ok()) {
            prop_assert!(v1::ProduceRequest::decode(&wire[..]).is_ok());
        }
        drop(SessionIn::read(&Bytes::from(wire.clone())));
        drop(StreamProduceIn::read(&Bytes::from(wire.clone())));
        drop(super::AckIn::read(&wire));
    }

    #[test]
    fn a_request_cut_or_flipped_anywhere_is_refused_or_valid_but_never_a_panic(
        records in proptest::collection::vec(new_record(), 1..4),
        cut in 0_usize..400,
        flip in 0_usize..3200,
    ) {
        let mut wire = request(records).encode_to_vec();
        let bits = wire.len() * 8;
        wire[(flip % bits) / 8] ^= 1 << (flip % 8);
        wire.truncate(wire.len().saturating_sub(cut % 50));
        if let Ok(head) = ProduceHead::read(&wire) {
            drop(RecordsIn::read(&wire, head.records, &target(5)));
        }
    }
}

#[test]
fn two_million_empty_records_are_refused_at_the_first_too_many() {
    let mut wire = vec![0x0a, 1, b't'];
    wire.extend([0x12, 0x00].repeat(10_000));
    assert_eq!(ProduceHead::read(&wire).unwrap().records, 10_000);
    wire.extend([0x12, 0x00].repeat(1_990_000));
    let refused = refusal(ProduceHead::read(&wire));
    assert_eq!(refused.reason, Reason::InvalidField);
    let told = |key| {
        refused
            .metadata
            .iter()
            .find(|entry| entry.0 == key)
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(
        [told("field"), told("limit"), told("value")],
        ["records", "10000", "10001"]
    );
}

#[test]
fn ten_thousand_empty_records_fit_a_request() {
    let made = read(&request(vec![v1::NewRecord::default(); 10_000]), 1).unwrap();
    assert_eq!(made.parts.len(), 1);
    assert_eq!(made.parts[0].record_count, 10_000);
    assert_eq!(made.places[9_999], (0, 9_999));
}

#[test]
fn a_partition_that_gets_much_gets_several_batches_in_order() {
    let value = Some(Bytes::from(vec![1; 400_000]));
    let record = v1::NewRecord {
        value,
        ..Default::default()
    };
    let made = read(&request(vec![record; 5]), 1).unwrap();
    let counts: Vec<u32> = made.parts.iter().map(|part| part.record_count).collect();
    assert_eq!(counts, [2, 2, 1]);
    assert_eq!(made.places, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]);
}

fn with(change: impl FnOnce(&mut v1::NewRecord)) -> Result<RecordsIn, CallFailure> {
    let mut bad = v1::NewRecord {
        value: Some("v".into()),
        ..Default::default()
    };
    change(&mut bad);
    read(&request(vec![v1::NewRecord::default(), bad]), 5)
}

#[test]
fn each_bound_of_a_record_is_refused_by_its_field_and_passed_at_the_bound() {
    let field = |explanation: &Explanation| explanation.field.clone().unwrap().0;
    let headers = |count: usize| -> HashMap<String, Bytes> {
        (0..count)
            .map(|index| (format!("h{index}"), Bytes::new()))
            .collect()
    };
    assert!(with(|record| record.key = Some(vec![0; 65_536].into())).is_ok());
    let refused = refusal(with(|record| record.key = Some(vec![0; 65_537].into())));
    assert_eq!(
        (refused.reason, &*field(&refused)),
        (Reason::InvalidField, "records[1].key")
    );

    assert!(with(|record| record.headers = headers(64)).is_ok());
    let refused = refusal(with(|record| record.headers = headers(65)));
    assert_eq!(field(&refused), "records[1].headers");

    assert!(with(|record| record.value = Some(vec![0; 1 << 20].into())).is_ok());
    let refused = refusal(with(|record| {
        record.value = Some(vec![0; (1 << 20) + 1].into());
    }));
    assert_eq!(
        (refused.reason, &*field(&refused)),
        (Reason::RecordTooLarge, "records[1]")
    );

    for good in [0, NOW + HOUR] {
        assert!(with(|record| record.timestamp_ms = Some(good)).is_ok());
    }
    for bad in [-1, NOW + HOUR + 1] {
        let refused = refusal(with(|record| record.timestamp_ms = Some(bad)));
        assert_eq!(field(&refused), "records[1].timestamp_ms");
    }

    let refused = refusal(with(|record| record.partition = Some(-1)));
    assert_eq!(field(&refused), "records[1].partition");
    let refused = refusal(with(|record| record.partition = Some(5)));
    assert_eq!(
        (refused.reason, refused.reason.code()),
        (Reason::PartitionNotFound, Code::NotFound)
    );

    let name = String::from("varvelog-attempt");
    let refused = refusal(with(|record| {
        record.headers = [(name, Bytes::new())].into();
    }));
    assert_eq!(refused.reason, Reason::ReservedHeader);
    assert!(
        refused
            .message
            .contains("read from a retry or dead-letter topic")
    );
}

fn time(seconds: i64, nanos: i32) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos }
}

#[test]
fn delays_are_told_by_part_and_place_and_none_is_none() {
    let record = |partition, delay| v1::NewRecord {
        partition: Some(partition),
        delay,
        ..Default::default()
    };
    let records = vec![
        record(0, None),
        record(1, Some(time(30 * 86_400, 0))),
        record(0, Some(time(0, 1_000_000))),
        record(0, Some(time(0, 0))),
        record(0, Some(time(2, 0))),
    ];
    let made = read(&request(records), 2).unwrap();
    let delays: Vec<_> = made.parts.iter().map(|part| &part.delays_ms[..]).collect();
    assert_eq!(delays, [&[(1, 1), (3, 2_000)][..], &[(0, 2_592_000_000)]]);
}

#[test]
fn a_delay_out_of_its_bounds_is_refused_by_its_field() {
    for (seconds, nanos) in [(30 * 86_400, 1), (-1, 0), (i64::MAX, 0)] {
        let refused = refusal(with(|record| record.delay = Some(time(seconds, nanos))));
        assert_eq!(refused.field.unwrap().0, "records[1].delay");
    }
}

#[test]
fn the_path_of_an_output_stands_before_its_records() {
    let records = vec![v1::NewRecord {
        partition: Some(-1),
        ..Default::default()
    }];
    let output = v1::Output {
        topic: "orders".into(),
        records,
    };
    let target = RecordTarget {
        path: "outputs[3].",
        ..target(1)
    };
    let refused = refusal(RecordsIn::read(&output.encode_to_vec(), 1, &target));
    assert_eq!(refused.field.unwrap().0, "outputs[3].records[0].partition");
}

#[test]
fn records_and_batches_exclude_each_other_and_one_is_needed() {
    assert_eq!(refusal(ProduceHead::read(&[])).reason, Reason::InvalidField);
    let mut both = request(vec![v1::NewRecord::default()]);
    both.batches.push(v1::PartitionBatch::default());
    let refused = refusal(ProduceHead::read(&both.encode_to_vec()));
    assert_eq!(refused.field.unwrap().0, "batches");
    let long = v1::ProduceRequest {
        request_id: "r".repeat(129),
        ..request(vec![])
    };
    let long = v1::ProduceRequest {
        records: vec![v1::NewRecord::default()],
        ..long
    };
    let refused = refusal(ProduceHead::read(&long.encode_to_vec()));
    assert_eq!(refused.field.unwrap().0, "request_id");
}

#[test]
fn a_record_with_too_many_headers_is_not_read_beyond_the_first_too_many() {
    let record = |headers: usize, behind: &[u8]| {
        let mut record = [0x1a, 0x00].repeat(headers);
        record.extend_from_slice(behind);
        let mut wire = vec![0x12];
        prost::encoding::encode_varint(record.len() as u64, &mut wire);
        wire.extend(record);
        refusal(RecordsIn::read(&wire, 1, &target(1)))
    };
    // What is behind is not even looked at.
    let cut = [0x1a, 0x7f];
    assert_eq!(record(64, &cut).reason, Reason::MalformedRequest);
    for headers in [65, 2_000_000] {
        let refused = record(headers, &cut);
        assert_eq!(refused.reason, Reason::InvalidField);
        assert_eq!(refused.field.unwrap().0, "records[0].headers");
    }
}

#[test]
fn the_hash_tells_content_apart_and_not_the_order_of_headers() {
    let record = |key: &'static str, value: &'static str| v1::NewRecord {
        key: Some(key.into()),
        value: Some(value.into()),
        ..Default::default()
    };
    let hash = |records| read(&request(records), 5).unwrap().content_hash;
    let base = hash(vec![record("ab", "c")]);
    let others = [
        hash(vec![record("a", "bc")]),
        hash(vec![record("ab", "c"), record("ab", "c")]),
        hash(vec![v1::NewRecord {
            key: None,
            ..record("", "abc")
        }]),
        hash(vec![v1::NewRecord {
            partition: Some(0),
            ..record("ab", "c")
        }]),
        hash(vec![v1::NewRecord {
            timestamp_ms: Some(0),
            ..record("ab", "c")
        }]),
        hash(vec![v1::NewRecord {
            headers: [("a".into(), "b".into())].into(),
            ..record("ab", "c")
        }]),
    ];
    for other in others {
        assert_ne!(base, other);
    }
    let entry = |name: &str| -> Vec<u8> {
        [&[0x1a, 6, 0x0a, 1], name.as_bytes(), &[0x12, 1, b'v']].concat()
    };
    let wire = |headers: [&str; 2]| -> Vec<u8> {
        let record = [entry(headers[0]), entry(headers[1])].concat();
        let mut wire = vec![0x12, u8::try_from(record.len()).unwrap()];
        wire.extend(record);
        wire
    };
    let hash = |wire: Vec<u8>| RecordsIn::read(&wire, 1, &target(5)).unwrap().content_hash;
    assert_eq!(hash(wire(["a", "b"])), hash(wire(["b", "a"])));
    assert_ne!(hash(wire(["a", "b"])), hash(wire(["a", "c"])));
}
