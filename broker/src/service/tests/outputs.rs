//! Outputs: records that are appended with a settlement.

use varvelog_proto::v1;
use varvelog_store::batch::partition_for_key;

use super::failures::{failure, quick, stored, with_policy};
use super::groups::{committed, delivery, join, member};
use super::{TestBroker, reason, record, refused, values};

fn output(topic: &str, values: &[&str]) -> v1::Output {
    v1::Output {
        topic: topic.into(),
        records: values.iter().map(|value| record(value)).collect(),
    }
}

fn with(response: &v1::ConsumeResponse, outputs: Vec<v1::Output>) -> v1::AckRequest {
    v1::AckRequest {
        ack_token: response.ack_token.clone(),
        outputs,
        ..Default::default()
    }
}

async fn with_topics() -> TestBroker {
    let broker = with_policy(quick(), &["a", "b"]).await;
    broker.topic("mails", 1).await;
    broker.topic("counts", 3).await;
    broker
}

#[tokio::test]
async fn outputs_of_several_topics_are_appended_with_the_settlement_and_once() {
    let broker = with_topics().await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let keyed = v1::NewRecord {
        key: Some("k".into()),
        value: Some("7".into()),
        ..Default::default()
    };
    let counts = v1::Output {
        topic: "counts".into(),
        records: vec![keyed],
    };
    let request = with(&first, vec![output("mails", &["x", "y"]), counts]);
    let done = broker.groups().ack(request.clone()).await.unwrap();
    let done = done.into_inner();
    assert_eq!((done.done, done.conflicts.len()), (2, 0));
    let places: Vec<(i32, i64)> = done
        .outputs
        .iter()
        .map(|result| (result.partition, result.offset))
        .collect();
    let keyed = i32::try_from(partition_for_key(b"k", 3)).unwrap();
    assert_eq!(places, [(0, 0), (0, 1), (keyed, 0)]);
    assert_eq!(values(&stored(&broker, "mails").await), ["x", "y"]);
    let again = broker.groups().ack(request).await.unwrap().into_inner();
    assert_eq!((again.done, again.already_settled), (0, 2));
    let same: Vec<(i32, i64)> = again
        .outputs
        .iter()
        .map(|result| (result.partition, result.offset))
        .collect();
    assert_eq!(same, places, "the first results come again");
    assert_eq!(stored(&broker, "mails").await.len(), 2);
}

#[tokio::test]
async fn outputs_that_cannot_be_appended_settle_nothing() {
    let broker = with_topics().await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let ack = async |outputs| broker.groups().ack(with(&first, outputs)).await;
    let derived = refused(ack(vec![output("orders.email.retry", &["x"])]).await);
    assert_eq!(
        (derived.1.as_str(), derived.2["field"].as_str()),
        ("INVALID_FIELD", "outputs[0].topic")
    );
    let none = ack(vec![output("mails", &["x"]), output("nowhere", &["x"])]).await;
    assert_eq!(reason(none), "TOPIC_NOT_FOUND");
    let empty = refused(ack(vec![output("mails", &[])]).await);
    assert_eq!(empty.2["field"], "outputs[0].records");
    let reserved = v1::NewRecord {
        headers: [("varvelog-x".to_owned(), "1".into())].into(),
        ..record("x")
    };
    let reserved = v1::Output {
        topic: "mails".into(),
        records: vec![reserved],
    };
    assert_eq!(reason(ack(vec![reserved]).await), "RESERVED_HEADER");
    assert_eq!(committed(&broker, "email").await, [0]);
    assert!(stored(&broker, "mails").await.is_empty());
}

#[tokio::test]
async fn with_outputs_any_conflict_is_all_of_it() {
    let broker = with_topics().await;
    let (mut stream, event) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let leave = v1::LeaveRequest {
        group: "email".into(),
        member_id: event.member_id,
    };
    broker.groups().leave(leave).await.unwrap();
    let (mut other, _) = join(&broker, member("email", &[])).await;
    let second = delivery(&mut other).await;
    let late = with(&first, vec![output("mails", &["late"])]);
    let (code, reason, _) = refused(broker.groups().ack(late).await);
    assert_eq!(
        (code, reason.as_str()),
        (tonic::Code::Aborted, "LEASE_LOST")
    );
    assert!(stored(&broker, "mails").await.is_empty());
    let mut request = with(&second, vec![output("mails", &["good"])]);
    request.failures = vec![failure(1, v1::FailureAction::Retry)];
    let done = broker.groups().ack(request).await.unwrap().into_inner();
    assert_eq!((done.done, done.retried, done.outputs.len()), (1, 1, 1));
    assert_eq!(values(&stored(&broker, "mails").await), ["good"]);
}
