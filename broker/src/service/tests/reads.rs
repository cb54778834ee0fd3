use bytes::Bytes;
use tonic::Code;
use varvelog_proto::v1;
use varvelog_proto::v1::position::At;

use super::log::fetch;
use super::{TestBroker, millis, reason, record, refused, soon, values};

fn at(at: At) -> v1::Position {
    v1::Position { at: Some(at) }
}

#[tokio::test]
async fn a_fetch_at_the_end_waits_for_a_record_and_beyond_it_is_refused() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let quick = v1::FetchRequest {
        max_wait: Some(millis(1)),
        ..fetch("orders", 0)
    };
    let read = broker.log().fetch(quick).await.unwrap().into_inner();
    assert_eq!(
        (read.records.len(), read.next_offset, read.latest_offset),
        (0, 0, 0)
    );

    let wait = v1::FetchRequest {
        max_wait: Some(super::seconds(30)),
        ..fetch("orders", 0)
    };
    let mut log = broker.log();
    let waiting = tokio::spawn(async move { log.fetch(wait).await });
    broker.produce("orders", &["x"]).await;
    let read = soon(waiting).await.unwrap().unwrap().into_inner();
    assert_eq!(values(&read.records), ["x"]);

    let (code, reason, metadata) = refused(broker.log().fetch(fetch("orders", 2)).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::OutOfRange, "OFFSET_OUT_OF_RANGE")
    );
    assert_eq!(
        (metadata["earliest"].as_str(), metadata["latest"].as_str()),
        ("0", "1")
    );
}

#[tokio::test]
async fn fields_of_a_fetch_are_held_to_their_bounds() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let field = async |request: v1::FetchRequest| {
        let (_, reason, metadata) = refused(broker.log().fetch(request).await);
        assert_eq!(reason, "INVALID_FIELD");
        metadata["field"].clone()
    };
    assert_eq!(field(fetch("orders", -1)).await, "offset");
    assert_eq!(
        field(v1::FetchRequest {
            partition: -1,
            ..fetch("orders", 0)
        })
        .await,
        "partition"
    );
    let records = v1::FetchRequest {
        max_records: 10_001,
        ..fetch("orders", 0)
    };
    assert_eq!(field(records).await, "max_records");
    let bytes = v1::FetchRequest {
        max_bytes: (16 << 20) + 1,
        ..fetch("orders", 0)
    };
    assert_eq!(field(bytes).await, "max_bytes");
    let wait = v1::FetchRequest {
        max_wait: Some(super::seconds(31)),
        ..fetch("orders", 0)
    };
    assert_eq!(field(wait).await, "max_wait");
}

#[tokio::test]
async fn a_fetch_waiting_on_a_topic_that_is_deleted_says_so() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let wait = v1::FetchRequest {
        max_wait: Some(super::seconds(30)),
        ..fetch("orders", 0)
    };
    let mut log = broker.log();
    let waiting = tokio::spawn(async move { log.fetch(wait).await });
    // The fetch must be waiting: it is sent before this one on the same connection.
    let quick = v1::FetchRequest {
        max_wait: Some(millis(1)),
        ..fetch("orders", 0)
    };
    broker.log().fetch(quick).await.unwrap();
    let delete = v1::DeleteTopicRequest {
        name: "orders".into(),
        ..Default::default()
    };
    broker.topics().delete_topic(delete).await.unwrap();
    assert_eq!(reason(soon(waiting).await.unwrap()), "TOPIC_NOT_FOUND");
}

#[tokio::test]
async fn offsets_are_found_by_position_and_by_append_time() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    broker.produce("orders", &["a", "b", "c"]).await;
    let find = async |at: Option<v1::Position>| {
        let request = v1::ListOffsetsRequest {
            topic: "orders".into(),
            partitions: vec![0],
            at,
        };
        let found = broker
            .log()
            .list_offsets(request)
            .await
            .unwrap()
            .into_inner();
        (found.offsets[0].offset, found.offsets[0].append_time_ms > 0)
    };
    assert_eq!(find(None).await, (3, false));
    assert_eq!(find(Some(at(At::Earliest(true)))).await, (0, true));
    assert_eq!(find(Some(at(At::LastN(2)))).await, (1, true));
    assert_eq!(find(Some(at(At::LastN(9)))).await, (0, true));
    assert_eq!(find(Some(at(At::Offset(99)))).await, (3, false));
    assert_eq!(find(Some(at(At::TimestampMs(0)))).await, (0, true));
    assert_eq!(find(Some(at(At::TimestampMs(i64::MAX)))).await, (3, false));
    let all = v1::ListOffsetsRequest {
        topic: "orders".into(),
        ..Default::default()
    };
    assert_eq!(
        broker
            .log()
            .list_offsets(all)
            .await
            .unwrap()
            .into_inner()
            .offsets
            .len(),
        2
    );
}

#[tokio::test]
async fn a_tail_gives_what_is_there_and_what_comes_and_ends_where_it_should() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    broker.produce("orders", &["a", "b"]).await;
    let tail = |limit, stop_at_end| v1::TailRequest {
        topics: vec!["orders".into()],
        start: Some(at(At::Earliest(true))),
        limit,
        stop_at_end,
        ..Default::default()
    };
    let mut stream = broker.log().tail(tail(0, true)).await.unwrap().into_inner();
    let message = soon(stream.message()).await.unwrap().unwrap();
    assert_eq!((message.topic.as_str(), message.partition), ("orders", 0));
    assert_eq!(values(&message.records), ["a", "b"]);
    assert!(soon(stream.message()).await.unwrap().is_none());

    let mut stream = broker
        .log()
        .tail(tail(3, false))
        .await
        .unwrap()
        .into_inner();
    let mut seen = values(&soon(stream.message()).await.unwrap().unwrap().records);
    broker.produce("orders", &["c", "d"]).await;
    seen.extend(values(
        &soon(stream.message()).await.unwrap().unwrap().records,
    ));
    assert_eq!(seen, ["a", "b", "c"], "no more than the limit");
    assert!(soon(stream.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_tail_follows_new_partitions_and_ends_when_its_last_topic_goes() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let request = v1::TailRequest {
        topics: vec!["orders".into()],
        ..Default::default()
    };
    let mut stream = broker.log().tail(request).await.unwrap().into_inner();
    let grow = v1::AddPartitionsRequest {
        name: "orders".into(),
        total: 2,
        ..Default::default()
    };
    broker.topics().add_partitions(grow).await.unwrap();
    let new = v1::NewRecord {
        partition: Some(1),
        ..record("new")
    };
    let request = v1::ProduceRequest {
        topic: "orders".into(),
        records: vec![new],
        ..Default::default()
    };
    broker.log().produce(request).await.unwrap();
    let message = soon(stream.message()).await.unwrap().unwrap();
    assert_eq!(
        (message.partition, values(&message.records)),
        (1, vec!["new".into()])
    );
    let delete = v1::DeleteTopicRequest {
        name: "orders".into(),
        ..Default::default()
    };
    broker.topics().delete_topic(delete).await.unwrap();
    assert_eq!(reason(soon(stream.message()).await), "TOPIC_NOT_FOUND");
}

#[tokio::test]
async fn replies_stay_below_what_generated_clients_take() {
    let broker = TestBroker::start().await;
    let config = Some(v1::TopicConfig {
        max_record_bytes: 8 << 20,
        ..Default::default()
    });
    let topic = Some(v1::Topic {
        name: "large".into(),
        config,
        ..Default::default()
    });
    let request = v1::CreateTopicRequest {
        topic,
        ..Default::default()
    };
    broker.topics().create_topic(request).await.unwrap();
    let sizes = [3 << 20, 6 << 20, 700_000, 700_000];
    for size in sizes {
        let value = Some(Bytes::from(vec![7; size]));
        let record = v1::NewRecord {
            value,
            ..Default::default()
        };
        let request = v1::ProduceRequest {
            topic: "large".into(),
            records: vec![record],
            ..Default::default()
        };
        broker.log().produce(request).await.unwrap();
    }
    // A stock client refuses 4 MiB.
    let mut stock = v1::log_service_client::LogServiceClient::new(broker.channel.clone());
    let first = stock.fetch(fetch("large", 0)).await.unwrap().into_inner();
    assert_eq!((first.records.len(), first.next_offset), (1, 1));
    let second = stock.fetch(fetch("large", 1)).await.unwrap().into_inner();
    assert!(second.records[0].value_omitted && second.records[0].value.is_none());
    assert_eq!(second.records[0].value_bytes, 6 << 20);
    assert_eq!(
        second.records.len(),
        2,
        "with the large value left out there is room for one more"
    );
    let raised = v1::FetchRequest {
        max_bytes: 8 << 20,
        ..fetch("large", 1)
    };
    let raised = broker.log().fetch(raised).await.unwrap().into_inner();
    assert_eq!(raised.records[0].value.as_ref().unwrap().len(), 6 << 20);
}
