use bytes::Bytes;
use prost::Message;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchBuilder, BatchRules, Codec};

use super::in_tests::{HOUR, NOW, refusal, request};
use super::{BatchLimits, SessionIn, SessionMessage, StreamProduceIn, batches_in};
use crate::service::status::Reason;

fn limits() -> BatchLimits<'static> {
    let rules = BatchRules {
        record_bytes_max: 1 << 20,
        key_bytes_max: 65_536,
        headers_max: 64,
        records_max: 10_000,
        decompressed_bytes_max: 16 << 20,
        timestamp_ms_max: NOW + HOUR,
        reserved_header_prefix: "varvelog-",
    };
    BatchLimits {
        topic: "orders",
        partitions: 3,
        rules,
        expanded_bytes_max: 100,
        is_hashed: true,
    }
}

fn batch(values: u8) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::None, 100);
    for value in 0..values {
        builder
            .push(None, None, Some(&[value]), std::iter::empty())
            .unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn the_fast_door_takes_batches_as_they_came_and_names_the_bad_one() {
    let of = |partition, batch: Bytes| v1::PartitionBatch { partition, batch };
    let request = |batches| v1::ProduceRequest {
        batches,
        ..request(vec![])
    };
    let wire = |request: v1::ProduceRequest| Bytes::from(request.encode_to_vec());

    let good = wire(request(vec![of(2, batch(3)), of(0, batch(1))]));
    let (batches, hash) = batches_in(&good, &limits()).unwrap();
    let seen: Vec<(u32, u32)> = batches
        .iter()
        .map(|batch| (batch.partition, batch.record_count))
        .collect();
    assert_eq!(seen, [(2, 3), (0, 1)]);
    assert_eq!(batches[0].body, batch(3));
    let moved = wire(request(vec![of(1, batch(3)), of(0, batch(1))]));
    assert_ne!(batches_in(&moved, &limits()).unwrap().1, hash);

    let mut flipped = batch(3).to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let refused = refusal(batches_in(
        &wire(request(vec![of(0, batch(1)), of(0, flipped.into())])),
        &limits(),
    ));
    assert_eq!(refused.reason, Reason::BatchInvalid);
    assert_eq!(refused.field.unwrap().0, "batches[1].batch");

    let refused = refusal(batches_in(&wire(request(vec![of(3, batch(1))])), &limits()));
    assert_eq!(refused.reason, Reason::PartitionNotFound);
    let refused = refusal(batches_in(
        &wire(request(vec![of(-1, batch(1))])),
        &limits(),
    ));
    assert_eq!(refused.field.unwrap().0, "batches[0].partition");
    let two = [&batch(1)[..], &batch(1)[..]].concat();
    let refused = refusal(batches_in(
        &wire(request(vec![of(0, two.into())])),
        &limits(),
    ));
    assert_eq!(refused.reason, Reason::BatchInvalid, "two batches in one");
}

#[test]
fn batches_of_one_request_expand_to_so_much_in_all() {
    let mut builder = BatchBuilder::new(Codec::Gzip, 100);
    builder
        .push(None, None, Some(&[7; 60]), std::iter::empty())
        .unwrap();
    let batch = builder.finish().unwrap();
    let of = |count| {
        let one = v1::PartitionBatch {
            partition: 0,
            batch: batch.clone(),
        };
        let request = v1::ProduceRequest {
            batches: vec![one; count],
            ..request(vec![])
        };
        batches_in(&Bytes::from(request.encode_to_vec()), &limits())
    };
    assert_eq!(of(1).unwrap().0.len(), 1);
    let refused = refusal(of(2));
    assert_eq!(refused.reason, Reason::BatchInvalid);
    assert_eq!(refused.field.unwrap().0, "batches[1].batch");
}

#[test]
fn what_the_wire_format_would_merge_is_refused() {
    let twice = Bytes::from_static(&[0x12, 0x00, 0x12, 0x00]);
    assert!(StreamProduceIn::read(&twice).is_err());
    let two = Bytes::from_static(&[0x20, 0x01, 0x20, 0x02]);
    assert_eq!(
        refusal(SessionIn::read(&two)).reason,
        Reason::MalformedRequest
    );
    assert_eq!(
        refusal(SessionIn::read(&Bytes::new())).reason,
        Reason::InvalidField
    );
}

#[test]
fn each_message_of_a_session_is_told_apart() {
    use v1::consume_session_request::Message as Said;
    let read = |said| {
        let request = v1::ConsumeSessionRequest {
            message: Some(said),
            sequence: 9,
        };
        let read = SessionIn::read(&Bytes::from(request.encode_to_vec())).unwrap();
        assert_eq!(read.sequence, 9);
        read.message
    };
    let start = v1::ConsumeRequest {
        group: "g".into(),
        ..Default::default()
    };
    assert!(matches!(read(Said::Start(start)), SessionMessage::Start(start) if start.group == "g"));
    let ack = v1::AckRequest {
        ack_token: "t".into(),
        ..Default::default()
    };
    let wire = ack.encode_to_vec();
    assert!(matches!(read(Said::Ack(ack)), SessionMessage::Ack(ack) if ack.0 == wire));
    let extend = v1::ExtendAckRequest {
        ack_token: "t".into(),
        ack_timeout: None,
    };
    assert!(matches!(
        read(Said::Extend(extend)),
        SessionMessage::Extend(_)
    ));
    assert!(matches!(read(Said::Credit(-3)), SessionMessage::Credit(-3)));
}
