use bytes::Bytes;
use tonic::Code;
use varvelog_proto::v1;
use varvelog_proto::v1::produce_stream_response::Outcome;
use varvelog_store::batch::{BatchBuilder, Codec, ProducerStamp, Records};

use super::{TestBroker, record, refused, soon, values};

pub(super) fn fetch(topic: &str, offset: i64) -> v1::FetchRequest {
    v1::FetchRequest {
        topic: topic.into(),
        offset,
        ..Default::default()
    }
}

#[tokio::test]
async fn what_was_produced_is_fetched_with_all_that_was_sent() {
    let broker = TestBroker::start().await;
    let topic = broker.topic("orders", 1).await;
    let sent = v1::NewRecord {
        key: Some("k".into()),
        value: Some("v".into()),
        headers: [("h".to_owned(), Bytes::from("x"))].into(),
        timestamp_ms: Some(123),
        ..Default::default()
    };
    let request = v1::ProduceRequest {
        topic: "orders".into(),
        records: vec![sent, v1::NewRecord::default()],
        ..Default::default()
    };
    let made = broker.log().produce(request).await.unwrap().into_inner();
    let offsets: Vec<i64> = made.results.iter().map(|result| result.offset).collect();
    assert_eq!(offsets, [0, 1]);
    assert_eq!(made.durability(), v1::Durability::Written);

    let read = broker
        .log()
        .fetch(fetch("orders", 0))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (read.next_offset, read.earliest_offset, read.latest_offset),
        (2, 0, 2)
    );
    let first = &read.records[0];
    assert_eq!(first.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(first.headers["h"], "x");
    assert_eq!(first.timestamp_ms, 123);
    assert_eq!(first.message_id, format!("{}/0/0", topic.id));
    let second = &read.records[1];
    assert_eq!((second.key.clone(), second.value.clone()), (None, None));
    assert!(second.append_time_ms >= first.append_time_ms && second.append_time_ms > 0);
}

#[tokio::test]
async fn keys_choose_the_partition_and_results_come_in_request_order() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 5).await;
    let keyed = |key: String| v1::NewRecord {
        key: Some(key.into()),
        ..Default::default()
    };
    let keys: Vec<String> = (0..50).map(|number| format!("key-{number}")).collect();
    let records = keys.iter().cloned().map(keyed).collect();
    let request = v1::ProduceRequest {
        topic: "orders".into(),
        records,
        ..Default::default()
    };
    let made = broker.log().produce(request).await.unwrap().into_inner();
    for (key, result) in keys.iter().zip(&made.results) {
        let partition = varvelog_store::batch::partition_for_key(key.as_bytes(), 5);
        assert_eq!(result.partition, i32::try_from(partition).unwrap());
        let request = v1::FetchRequest {
            partition: result.partition,
            ..fetch("orders", result.offset)
        };
        let read = broker.log().fetch(request).await.unwrap().into_inner();
        assert_eq!(read.records[0].key.as_deref(), Some(key.as_bytes()));
    }
}

#[tokio::test]
async fn a_request_id_makes_a_repetition_answer_with_the_first_results() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 3).await;
    let request = |value: &str| v1::ProduceRequest {
        topic: "orders".into(),
        records: vec![
            v1::NewRecord {
                value: Some(value.to_owned().into()),
                ..Default::default()
            },
            v1::NewRecord {
                key: Some("k".into()),
                ..Default::default()
            },
        ],
        request_id: "one".into(),
        ..Default::default()
    };
    let first = broker
        .log()
        .produce(request("a"))
        .await
        .unwrap()
        .into_inner();
    assert!(!first.duplicate);
    let again = broker
        .log()
        .produce(request("a"))
        .await
        .unwrap()
        .into_inner();
    assert!(again.duplicate);
    let places = |response: &v1::ProduceResponse| -> Vec<(i32, i64)> {
        response
            .results
            .iter()
            .map(|result| (result.partition, result.offset))
            .collect()
    };
    assert_eq!(places(&again), places(&first));
    let (code, reason, metadata) = refused(broker.log().produce(request("b")).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::InvalidArgument, "REQUEST_ID_REUSED")
    );
    assert_eq!(metadata["request_id"], "one");
}

#[tokio::test]
async fn refused_requests_name_what_is_wrong() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let produce = async |topic: &str, record: v1::NewRecord| {
        let request = v1::ProduceRequest {
            topic: topic.into(),
            records: vec![record],
            ..Default::default()
        };
        refused(broker.log().produce(request).await)
    };
    let status = broker
        .log()
        .fetch(fetch("order", 0))
        .await
        .expect_err("there is no such topic");
    assert_eq!(status.code(), Code::NotFound);
    assert!(
        status.message().contains("nearest name is orders"),
        "{}",
        status.message()
    );
    let other = v1::NewRecord {
        partition: Some(1),
        ..Default::default()
    };
    let (code, reason, metadata) = produce("orders", other).await;
    assert_eq!(
        (code, reason.as_str()),
        (Code::NotFound, "PARTITION_NOT_FOUND")
    );
    assert_eq!(metadata["partitions"], "1");
    let large = v1::NewRecord {
        value: Some(vec![0; (1 << 20) + 1].into()),
        ..Default::default()
    };
    assert_eq!(produce("orders", large).await.1, "RECORD_TOO_LARGE");
    assert_eq!(
        produce("", v1::NewRecord::default()).await.1,
        "INVALID_FIELD"
    );
    assert_eq!(
        produce("no/slash", v1::NewRecord::default()).await.1,
        "INVALID_FIELD"
    );
}

fn batch(values: &[&str], producer: Option<ProducerStamp>) -> Bytes {
    let mut builder = BatchBuilder::new(Codec::Zstd, 100);
    for value in values {
        builder
            .push(None, None, Some(value.as_bytes()), std::iter::empty())
            .unwrap();
    }
    if let Some(producer) = producer {
        builder.set_producer(producer);
    }
    builder.finish().unwrap()
}

fn batches(topic: &str, batch: Bytes) -> v1::ProduceRequest {
    let batches = vec![v1::PartitionBatch {
        partition: 0,
        batch,
    }];
    v1::ProduceRequest {
        topic: topic.into(),
        batches,
        ..Default::default()
    }
}

#[tokio::test]
async fn batches_go_in_and_out_as_they_are_and_read_as_records_too() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["before"]).await;
    let body = batch(&["a", "b", "c"], None);
    let made = broker
        .log()
        .produce(batches("orders", body))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((made.results.len(), made.results[0].offset), (1, 1));

    let request = v1::FetchRequest {
        as_batches: true,
        ..fetch("orders", 2)
    };
    let read = broker.log().fetch(request).await.unwrap().into_inner();
    assert_eq!((read.batches.len(), read.next_offset), (1, 4));
    let stored = &read.batches[0];
    assert_eq!((stored.base_offset, stored.record_count), (1, 3));
    let records = Records::open(&stored.batch, 1 << 20).unwrap();
    assert_eq!(records.header().base_offset, 1);
    assert_eq!(records.header().codec, Codec::Zstd);

    let read = broker
        .log()
        .fetch(fetch("orders", 2))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(values(&read.records), ["b", "c"]);
    let few = v1::FetchRequest {
        max_records: 2,
        ..fetch("orders", 0)
    };
    let read = broker.log().fetch(few).await.unwrap().into_inner();
    assert_eq!(
        (values(&read.records), read.next_offset),
        (vec!["before".into(), "a".into()], 2)
    );
}

#[tokio::test]
async fn an_idempotent_producer_is_held_to_its_sequence() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let init = |name: &str| v1::InitProducerRequest {
        producer_name: name.into(),
    };
    let made = broker
        .log()
        .init_producer(init("p"))
        .await
        .unwrap()
        .into_inner();
    let stamp = |base_sequence| ProducerStamp {
        id: made.producer_id,
        epoch: i16::try_from(made.producer_epoch).unwrap(),
        base_sequence,
    };
    let send = async |sequence| {
        let body = batch(&["x", "y"], Some(stamp(sequence)));
        broker.log().produce(batches("orders", body)).await
    };
    assert_eq!(send(0).await.unwrap().into_inner().results[0].offset, 0);
    let again = send(0).await.unwrap().into_inner();
    assert!(again.duplicate && again.results[0].duplicate);
    assert_eq!(again.results[0].offset, 0);
    let (_, reason, metadata) = refused(send(5).await);
    assert_eq!(
        (reason.as_str(), metadata["expected"].as_str()),
        ("SEQUENCE_GAP", "2")
    );
    let next = broker
        .log()
        .init_producer(init("p"))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(next.producer_epoch, made.producer_epoch + 1);
}

#[tokio::test]
async fn a_stream_answers_in_request_order_with_refusals_in_place() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let requests = (0..300_i64).map(|sequence| {
        let topic = if sequence % 3 == 1 {
            "nowhere"
        } else {
            "orders"
        };
        let request = v1::ProduceRequest {
            topic: topic.into(),
            records: vec![record(&sequence.to_string())],
            ..Default::default()
        };
        v1::ProduceStreamRequest {
            sequence,
            request: Some(request),
        }
    });
    let missing = v1::ProduceStreamRequest {
        sequence: 300,
        request: None,
    };
    let requests: Vec<_> = requests.chain([missing]).collect();
    let mut answers = broker
        .log()
        .produce_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    let mut offset = 0;
    for sequence in 0..=300_i64 {
        let answer = soon(answers.message()).await.unwrap().unwrap();
        assert_eq!(answer.sequence, sequence);
        match answer.outcome.unwrap() {
            Outcome::Response(response) => {
                assert_eq!(response.results[0].offset, offset);
                offset += 1;
            }
            Outcome::Error(error) if sequence == 300 => {
                assert_eq!(error.reason, "INVALID_FIELD");
            }
            Outcome::Error(error) => {
                assert_eq!(sequence % 3, 1);
                assert_eq!((error.code, error.reason.as_str()), (5, "TOPIC_NOT_FOUND"));
            }
        }
    }
    assert!(soon(answers.message()).await.unwrap().is_none());
    assert_eq!(offset, 200);
}

#[tokio::test]
async fn an_append_that_nobody_waits_for_gets_there_all_the_same() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let request = v1::ProduceRequest {
        topic: "orders".into(),
        records: vec![record("x")],
        acks: v1::Acks::None.into(),
        ..Default::default()
    };
    let made = broker.log().produce(request).await.unwrap().into_inner();
    assert_eq!(
        (made.results.len(), made.durability()),
        (0, v1::Durability::Received)
    );
    let wait = v1::FetchRequest {
        max_wait: Some(super::seconds(10)),
        ..fetch("orders", 0)
    };
    let read = soon(broker.log().fetch(wait)).await.unwrap().into_inner();
    assert_eq!(values(&read.records), ["x"]);
}
