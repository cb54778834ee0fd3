use std::collections::HashMap;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchBuilder, Codec, Records, verify_crc};
use varvelog_store::partition::StoredBatch;
use varvelog_store::{Epoch, Offset, PartitionId, TopicId, WallMs};

use super::{
    RECORD_REPLY_BYTES_MAX, RecordSource, RecordStyle, ReplyLimit, ReplyRecords, Taken,
    leased_range, stored_batch,
};
use crate::service::wire::Payload;

const APPENDED: i64 = 1_790_000_000_123;

fn source(base: u64) -> RecordSource {
    RecordSource {
        partition: PartitionId {
            topic: TopicId([0xab; 16]),
            partition: 3,
        },
        base_offset: Offset::ZERO.plus(base),
        append_time: WallMs(APPENDED),
    }
}

type Given = (
    Option<i64>,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(String, Option<Vec<u8>>)>,
);

fn batch(records: &[Given]) -> Records {
    let mut builder = BatchBuilder::new(Codec::None, 1000);
    for (timestamp, key, value, headers) in records {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_deref()));
        builder
            .push(*timestamp, key.as_deref(), value.as_deref(), headers)
            .unwrap();
    }
    Records::open(&builder.finish().unwrap(), 1 << 30).unwrap()
}

fn values(sizes: &[usize]) -> Records {
    let records: Vec<Given> = sizes
        .iter()
        .map(|size| (None, None, Some(vec![7; *size]), vec![]))
        .collect();
    batch(&records)
}

fn reply(limit: ReplyLimit) -> ReplyRecords {
    ReplyRecords::new(
        1,
        limit,
        RecordStyle::default(),
        (Offset::ZERO, Offset::MAX),
    )
}

fn decoded(reply: ReplyRecords) -> Vec<v1::Record> {
    v1::FetchResponse::decode(reply.finish()).unwrap().records
}

fn unlimited() -> ReplyLimit {
    ReplyLimit::new(u32::MAX, 1 << 30)
}

fn given() -> impl Strategy<Value = Given> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let headers = proptest::collection::vec(("[a-z]{0,3}", proptest::option::of(bytes())), 0..4);
    let time = proptest::option::of(0..APPENDED);
    (
        time,
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        headers,
    )
}

fn expected(base: u64, records: &[Given]) -> Vec<v1::Record> {
    let id = uuid::Uuid::from_bytes([0xab; 16]);
    let shown = |(index, (timestamp, key, value, headers)): (usize, &Given)| {
        let offset = base + index as u64;
        let headers: HashMap<String, Bytes> = headers
            .iter()
            .map(|(name, value)| (name.clone(), value.clone().unwrap_or_default().into()))
            .collect();
        v1::Record {
            offset: i64::try_from(offset).unwrap(),
            key: key.clone().map(Bytes::from),
            value: value.clone().map(Bytes::from),
            headers,
            timestamp_ms: timestamp.unwrap_or(APPENDED),
            append_time_ms: APPENDED,
            message_id: format!("{id}/3/{offset}"),
            ..Default::default()
        }
    };
    records.iter().enumerate().map(shown).collect()
}

proptest! {
    #[test]
    fn prost_reads_the_records_of_the_batch_with_the_last_of_each_header(
        records in proptest::collection::vec(given(), 1..30),
        base in prop_oneof![Just(0), Just(9), Just(99), 0..u64::from(u32::MAX)],
    ) {
        let mut reply = reply(unlimited());
        prop_assert_eq!(reply.take(&source(base), &batch(&records)).unwrap(), Taken::All);
        prop_assert_eq!(reply.next(), Offset::ZERO.plus(base + records.len() as u64));
        prop_assert_eq!(decoded(reply), expected(base, &records));
    }

    #[test]
    fn a_reply_of_several_records_keeps_its_limit_and_goes_on_without_a_gap(
        sizes in proptest::collection::vec(0_usize..3000, 1..40),
        bytes_aim in 100_usize..5000,
        records_max in 1_u32..10,
    ) {
        let records = values(&sizes);
        let mut next = Offset::ZERO;
        let mut seen = Vec::new();
        while next.get() < sizes.len() as u64 {
            let limit = ReplyLimit::new(records_max, bytes_aim);
            let range = (next, Offset::MAX);
            let mut reply = ReplyRecords::new(1, limit, RecordStyle::default(), range);
            reply.take(&source(0), &records).unwrap();
            prop_assert!(reply.count() >= 1 && reply.count() <= u64::from(records_max));
            next = reply.next();
            let count = reply.count();
            let encoded = reply.finish();
            prop_assert!(count == 1 || encoded.len() <= bytes_aim);
            seen.extend(v1::FetchResponse::decode(encoded).unwrap().records);
        }
        let offsets: Vec<i64> = seen.iter().map(|record| record.offset).collect();
        prop_assert_eq!(offsets, (0..).take(sizes.len()).collect::<Vec<i64>>());
        for (record, size) in seen.iter().zip(&sizes) {
            prop_assert_eq!(record.value.as_ref().unwrap().len(), *size);
        }
    }
}

#[test]
fn only_what_is_wanted_of_a_batch_is_taken() {
    let records = values(&[1; 10]);
    let range = (Offset::ZERO.plus(103), Offset::ZERO.plus(106));
    let mut reply = ReplyRecords::new(1, unlimited(), RecordStyle::default(), range);
    assert_eq!(reply.take(&source(100), &records).unwrap(), Taken::Full);
    assert_eq!(reply.next(), range.1);
    let offsets: Vec<i64> = decoded(reply).iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [103, 104, 105]);
}

#[test]
fn a_record_beyond_limit_and_cap_goes_alone_without_its_value() {
    let size = 4 << 20;
    let mut first = reply(ReplyLimit::new(500, 1 << 20));
    assert_eq!(
        first.take(&source(0), &values(&[size, 1])).unwrap(),
        Taken::All
    );
    assert_eq!(first.omitted(), 1);
    let shown = decoded(first);
    assert!(shown[0].value_omitted && shown[0].value.is_none());
    assert_eq!(shown[0].value_bytes, 4 << 20);
    assert!(!shown[1].value_omitted);

    let mut raised = reply(ReplyLimit::new(500, 5 << 20));
    raised.take(&source(0), &values(&[size])).unwrap();
    assert_eq!(decoded(raised)[0].value.as_ref().unwrap().len(), size);
}

#[test]
fn a_record_between_limit_and_cap_goes_whole_and_alone() {
    let size = 3 << 20;
    let mut first = reply(ReplyLimit::new(500, 1 << 20));
    assert_eq!(
        first.take(&source(0), &values(&[size, 1])).unwrap(),
        Taken::Full
    );
    assert_eq!(first.next(), Offset::ZERO.plus(1));
    let encoded = first.finish();
    assert!(encoded.len() < 7 << 19);
    let shown = v1::FetchResponse::decode(encoded).unwrap().records;
    assert_eq!(shown[0].value.as_ref().unwrap().len(), size);
}

#[test]
fn headers_alone_never_pass_the_cap() {
    let header = (String::from("h"), Some(vec![1; RECORD_REPLY_BYTES_MAX]));
    let record: Given = (None, Some(vec![b'k']), Some(vec![b'v']), vec![header]);
    let mut reply = reply(ReplyLimit::new(500, 1 << 20));
    reply.take(&source(0), &batch(&[record])).unwrap();
    let encoded = reply.finish();
    assert!(encoded.len() < 1000);
    let shown = v1::FetchResponse::decode(encoded).unwrap().records;
    assert!(shown[0].value_omitted && shown[0].headers.is_empty());
    assert_eq!(shown[0].key.as_deref(), Some(&b"k"[..]));
}

#[test]
fn a_group_sees_records_as_produced_and_readers_as_stored() {
    let header = |name: &str| (String::from(name), Some(vec![1]));
    let record: Given = (
        None,
        None,
        None,
        vec![header("varvelog-attempt"), header("mine")],
    );
    let names = |as_produced| {
        let style = RecordStyle {
            attempt: 2,
            as_produced,
            ..Default::default()
        };
        let range = (Offset::ZERO, Offset::MAX);
        let mut reply = ReplyRecords::new(1, unlimited(), style, range);
        reply
            .take(&source(0), &batch(std::slice::from_ref(&record)))
            .unwrap();
        let shown = decoded(reply);
        assert_eq!(shown[0].attempt, 2);
        let mut names: Vec<String> = shown[0].headers.keys().cloned().collect();
        names.sort();
        names
    };
    assert_eq!(names(true), ["mine"]);
    assert_eq!(names(false), ["mine", "varvelog-attempt"]);
}

#[test]
fn a_wanted_key_passes_over_the_others_and_still_moves_on() {
    let record = |key: &str| -> Given { (None, Some(key.into()), Some(vec![1]), vec![]) };
    let style = RecordStyle {
        key_equals: Some("b".into()),
        ..Default::default()
    };
    let mut reply = ReplyRecords::new(1, unlimited(), style, (Offset::ZERO, Offset::MAX));
    let records = batch(&[
        record("a"),
        record("b"),
        record("ab"),
        (None, None, None, vec![]),
    ]);
    assert_eq!(reply.take(&source(0), &records).unwrap(), Taken::All);
    assert_eq!((reply.count(), reply.next()), (1, Offset::ZERO.plus(4)));
    assert_eq!(decoded(reply)[0].offset, 1);
}

#[test]
fn a_stored_batch_goes_out_stamped_and_its_checksum_still_holds() {
    let mut builder = BatchBuilder::new(Codec::Zstd, 100);
    builder
        .push(None, None, Some(b"value"), std::iter::empty())
        .unwrap();
    let stored = StoredBatch {
        base_offset: Offset::ZERO.plus(4711),
        record_count: 1,
        epoch: Epoch(6),
        append_time: WallMs(APPENDED),
        body: builder.finish().unwrap(),
    };
    let mut payload = Payload::default();
    stored_batch(&mut payload, 6, &stored);
    let shown = v1::FetchResponse::decode(payload.to_bytes()).unwrap();
    let shown = &shown.batches[0];
    assert_eq!((shown.base_offset, shown.record_count), (4711, 1));
    assert_eq!(shown.append_time_ms, APPENDED);
    let header = verify_crc(&shown.batch).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (4711, 6));
}

#[test]
fn a_leased_range_is_read_back_also_from_offset_zero() {
    let bytes = leased_range(10, Offset::ZERO, Offset::ZERO.plus(5));
    let shown = v1::ConsumeResponse::decode(bytes).unwrap();
    assert_eq!(shown.leased, [v1::OffsetRange { first: 0, last: 5 }]);
}
