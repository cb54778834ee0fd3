//! Message ids over the wire.

use varvelog_proto::v1;

use super::failures::{quick, stored, with_policy};
use super::groups::{delivery, join, member};
use super::{TestBroker, reason, record, refused, values};

fn named(id: &str, partition: Option<i32>) -> v1::NewRecord {
    v1::NewRecord {
        message_id: id.into(),
        partition,
        ..record(id)
    }
}

fn produce(records: Vec<v1::NewRecord>) -> v1::ProduceRequest {
    v1::ProduceRequest {
        topic: "orders".into(),
        records,
        ..Default::default()
    }
}

/// Partition, offset and whether it was there before, of each record.
fn places(results: &[v1::AppendResult]) -> Vec<(i32, i64, bool)> {
    let place = |it: &v1::AppendResult| (it.partition, it.offset, it.duplicate);
    results.iter().map(place).collect()
}

#[tokio::test]
async fn a_record_sent_twice_is_appended_once_and_keeps_its_id() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    let sent = async |records| {
        let made = broker.log().produce(produce(records)).await.unwrap();
        let made = made.into_inner();
        (places(&made.results), made.duplicate)
    };
    let (a, b) = (|| named("a", Some(0)), || named("b", Some(0)));
    let first = sent(vec![a(), b()]).await;
    assert_eq!(first, (vec![(0, 0, false), (0, 1, false)], false));
    // In part, with one of its own twice, on another partition, and one without an id.
    let mixed = vec![
        named("b", Some(1)),
        named("c", Some(1)),
        named("", Some(1)),
        named("c", Some(0)),
    ];
    let wanted = vec![(0, 1, true), (1, 0, false), (1, 1, false), (1, 0, true)];
    assert_eq!(sent(mixed).await, (wanted, false));
    let again = sent(vec![b(), a()]).await;
    assert_eq!(again, (vec![(0, 1, true), (0, 0, true)], true));
    let read = broker.log().fetch(super::log::fetch("orders", 0)).await;
    let read = read.unwrap().into_inner().records;
    let ids: Vec<&str> = read.iter().map(|it| it.message_id.as_str()).collect();
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(read[0].headers["varvelog-message-id"], "a");
}

#[tokio::test]
async fn a_request_id_and_message_ids_work_together() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let asked = |records| v1::ProduceRequest {
        request_id: "r".into(),
        ..produce(records)
    };
    broker
        .log()
        .produce(produce(vec![named("a", None)]))
        .await
        .unwrap();
    let request = asked(vec![named("a", None), named("b", None)]);
    let first = broker
        .log()
        .produce(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(places(&first.results), [(0, 0, true), (0, 1, false)]);
    let again = broker.log().produce(request).await.unwrap().into_inner();
    assert_eq!(places(&again.results), [(0, 0, true), (0, 1, true)]);
    assert!(again.duplicate);
    let other = asked(vec![named("c", None), named("b", None)]);
    assert_eq!(
        reason(broker.log().produce(other).await),
        "REQUEST_ID_REUSED"
    );
}

#[tokio::test]
async fn a_batch_of_the_fast_door_cannot_bring_a_message_id() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let mut batch = varvelog_store::batch::BatchBuilder::new(varvelog_store::batch::Codec::None, 9);
    let id: (&[u8], Option<&[u8]>) = (b"varvelog-message-id", Some(b"a"));
    batch
        .push(None, None, Some(b"v"), std::iter::once(id))
        .unwrap();
    let request = v1::ProduceRequest {
        topic: "orders".into(),
        batches: vec![v1::PartitionBatch {
            partition: 0,
            batch: batch.finish().unwrap(),
        }],
        ..Default::default()
    };
    let (code, reason, _) = refused(broker.log().produce(request).await);
    assert_eq!(
        (code, &*reason),
        (tonic::Code::InvalidArgument, "BATCH_INVALID")
    );
}

#[tokio::test]
async fn outputs_that_were_appended_before_are_not_appended_again() {
    let broker = with_policy(quick(), &["x", "y"]).await;
    broker.topic("mails", 1).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let sent = v1::ProduceRequest {
        topic: "mails".into(),
        ..produce(vec![named("mail-1", None)])
    };
    broker.log().produce(sent).await.unwrap();
    let request = v1::AckRequest {
        ack_token: first.ack_token.clone(),
        outputs: vec![v1::Output {
            topic: "mails".into(),
            records: vec![named("mail-1", None), named("mail-2", None)],
        }],
        ..Default::default()
    };
    let done = broker
        .groups()
        .ack(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(done.done, 2);
    assert_eq!(places(&done.outputs), [(0, 0, true), (0, 1, false)]);
    let again = broker.groups().ack(request).await.unwrap().into_inner();
    let (again, first) = (places(&again.outputs), places(&done.outputs));
    assert_eq!(again, first, "the first results come again");
    assert_eq!(
        values(&stored(&broker, "mails").await),
        ["mail-1", "mail-2"]
    );
}
