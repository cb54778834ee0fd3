use prost::Message;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchBuilder, Codec, Records};
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::{Origins, RecordSource, RecordStyle, ReplyLimit, ReplyRecords};

const COPIED: i64 = 1_790_000_000_123;

fn at(offset: u64) -> Offset {
    Offset::ZERO.plus(offset)
}

fn partition(topic: u8) -> PartitionId {
    PartitionId {
        topic: TopicId([topic; 16]),
        partition: 3,
    }
}

type Headers<'a> = &'a [(&'a str, &'a str)];

/// The records of a batch at offset 10 as they are shown, `origins` being those from 10 on.
fn shown(records: &[(Option<i64>, Headers<'_>)], origins: Option<&[u64]>) -> Vec<v1::Record> {
    let mut builder = BatchBuilder::new(Codec::None, 1000);
    for (timestamp, headers) in records {
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
        builder.push(*timestamp, None, Some(b"v"), headers).unwrap();
    }
    let batch = Records::open(&builder.finish().unwrap(), 1 << 20).unwrap();
    let origins = origins.map(|offsets| Origins {
        partition: partition(1),
        first: at(10),
        offsets: offsets.iter().copied().map(at).collect(),
    });
    let style = RecordStyle {
        attempt: 2,
        as_produced: true,
        key_equals: None,
        origins,
    };
    let limit = ReplyLimit::new(100, 1 << 20);
    let mut reply = ReplyRecords::new(3, limit, style, (at(10), at(100)));
    let source = RecordSource {
        partition: partition(2),
        base_offset: at(10),
        append_time: WallMs(COPIED),
    };
    reply.take(&source, &batch).unwrap();
    v1::ConsumeResponse::decode(reply.finish()).unwrap().records
}

#[test]
fn a_retry_is_named_by_its_first_append() {
    let shown = shown(&[(None, &[]), (None, &[])], Some(&[7, 4_000_000_000]));
    let offsets: Vec<i64> = shown.iter().map(|record| record.offset).collect();
    assert_eq!(offsets, [7, 4_000_000_000]);
    let topic = TopicId([1; 16]);
    assert_eq!(shown[0].message_id, format!("{topic}/3/7"));
    assert_eq!(shown[1].message_id, format!("{topic}/3/4000000000"));
    assert!(shown.iter().all(|record| record.attempt == 2));
}

#[test]
fn a_message_id_goes_with_the_record_wherever_it_lies() {
    let headers: Headers<'_> = &[("varvelog-message-id", "order-7"), ("mine", "x")];
    for origins in [None, Some(&[7][..])] {
        let shown = shown(&[(None, headers)], origins);
        assert_eq!(shown[0].message_id, "order-7");
        let names: Vec<&String> = shown[0].headers.keys().collect();
        assert_eq!(names, ["mine"], "as produced");
    }
}

#[test]
fn the_time_of_the_first_append_is_shown_where_the_copy_tells_it() {
    let told: Headers<'_> = &[("varvelog-origin-timestamp-ms", "1700000000000")];
    let broken: Headers<'_> = &[("varvelog-origin-timestamp-ms", "soon")];
    let records = [(None, told), (Some(5), told), (None, broken)];
    let times = |records: &[_], origins| {
        let shown = shown(records, origins);
        let times = shown.iter();
        let times = times.map(|record| (record.timestamp_ms, record.append_time_ms));
        times.collect::<Vec<_>>()
    };
    // A batch has times of its own or none, so each goes by itself.
    assert_eq!(
        times(&records[..1], Some(&[7])),
        [(1_700_000_000_000, 1_700_000_000_000)]
    );
    assert_eq!(times(&records[1..2], Some(&[7])), [(5, 1_700_000_000_000)]);
    assert_eq!(times(&records[2..], Some(&[7])), [(COPIED, COPIED)]);
    assert_eq!(times(&records[..1], None), [(COPIED, COPIED)], "a reader");
}

#[test]
fn nothing_beyond_the_run_is_shown() {
    assert_eq!(shown(&[(None, &[]), (None, &[])], Some(&[7])).len(), 1);
}
