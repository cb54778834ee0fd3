//! Producers that are refused, as they see it on the wire.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;
use varvelog_proto::v1;
use varvelog_proto::v1::position::At;
use varvelog_proto::v1::produce_stream_response::Outcome;

use super::groups::{delivery, join, member};
use super::{TestBroker, reason, record, soon};

fn limit(max_depth: i64) -> v1::Admission {
    v1::Admission {
        max_depth,
        ..Default::default()
    }
}

async fn watch(broker: &TestBroker, group: &str, topic: &str, admission: v1::Admission) {
    let config = v1::GroupConfig {
        admission: Some(admission),
        ..Default::default()
    };
    let request = v1::CreateGroupRequest {
        name: group.into(),
        topics: vec![topic.into()],
        config: Some(config),
        ..Default::default()
    };
    broker.group_admin().create_group(request).await.unwrap();
}

fn request(topic: &str, records: usize) -> v1::ProduceRequest {
    v1::ProduceRequest {
        topic: topic.into(),
        records: vec![record("value"); records],
        ..Default::default()
    }
}

async fn produce(broker: &TestBroker, topic: &str, records: usize) -> Result<(), Status> {
    let made = broker.log().produce(request(topic, records)).await;
    made.map(drop)
}

async fn described(broker: &TestBroker, group: &str) -> v1::Group {
    let name = group.into();
    let mut admin = broker.group_admin();
    let found = admin.get_group(v1::GetGroupRequest { name }).await;
    found.unwrap().into_inner().group.unwrap()
}

#[tokio::test]
async fn a_refusal_says_what_is_over_its_limit_and_when_to_come_back() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.topic("bills", 1).await;
    watch(&broker, "email", "orders", limit(10)).await;
    produce(&broker, "orders", 12).await.unwrap();
    let status = produce(&broker, "orders", 1).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!(info.reason, "BACKPRESSURE_DEPTH");
    let said = |key: &str| info.metadata[key].as_str();
    assert_eq!(
        (said("limit"), said("current"), said("resume_at")),
        ("10", "12", "8")
    );
    assert_eq!((said("group"), said("topic")), ("email", "orders"));
    let quota = &details.quota_failure().unwrap().violations[0];
    assert_eq!(quota.subject, "topic/orders/group/email");
    assert!(!quota.description.is_empty());
    let delay = details.retry_info().unwrap().retry_delay.unwrap();
    let bounds = Duration::from_millis(100)..=Duration::from_secs(30);
    assert!(bounds.contains(&delay), "{delay:?}");
    let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert_eq!(pushback.to_str().unwrap(), delay.as_millis().to_string());
    produce(&broker, "bills", 100).await.unwrap();
    let group = described(&broker, "email").await;
    let state = group.admission.unwrap();
    assert_eq!(
        (state.closed, state.reason.as_str(), state.refused),
        (true, "BACKPRESSURE_DEPTH", 1)
    );
    assert!(state.retry_after.is_some());
    assert_eq!(group.config.unwrap().admission.unwrap().max_depth, 10);
}

#[tokio::test]
async fn a_group_reads_on_while_producers_are_refused_and_lets_them_in_when_it_is_done() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    watch(&broker, "email", "orders", limit(10)).await;
    produce(&broker, "orders", 10).await.unwrap();
    produce(&broker, "orders", 1).await.unwrap_err();
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let delivered = delivery(&mut stream).await;
    assert_eq!(delivered.records.len(), 10);
    let ack = v1::AckRequest {
        ack_token: delivered.ack_token,
        ..Default::default()
    };
    broker.groups().ack(ack).await.unwrap();
    produce(&broker, "orders", 1).await.unwrap();
    let state = described(&broker, "email").await.admission.unwrap();
    assert_eq!(
        (state.closed, state.reason.as_str(), state.refused),
        (false, "", 1)
    );
}

#[tokio::test]
async fn a_refused_request_of_a_stream_is_answered_in_its_place_and_the_stream_goes_on() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.topic("bills", 1).await;
    watch(&broker, "email", "orders", limit(2)).await;
    let topics = ["orders", "orders", "orders", "bills", "orders", "bills"];
    let requests = (1..).zip(topics).map(|(sequence, topic)| {
        let request = Some(request(topic, 1));
        v1::ProduceStreamRequest { sequence, request }
    });
    let requests: Vec<_> = requests.collect();
    let mut log = broker.log();
    let answers = log.produce_stream(tokio_stream::iter(requests)).await;
    let mut answers = answers.unwrap().into_inner();
    let mut told = Vec::new();
    for sequence in 1..=6 {
        let answer = soon(answers.message()).await.unwrap().unwrap();
        assert_eq!(answer.sequence, sequence);
        told.push(match answer.outcome.unwrap() {
            Outcome::Response(_) => String::new(),
            Outcome::Error(error) => {
                assert_eq!(error.code, i32::from(Code::ResourceExhausted));
                assert!(error.retry_after.is_some());
                assert_eq!(error.metadata["group"], "email");
                error.reason
            }
        });
    }
    let refused = "BACKPRESSURE_DEPTH";
    assert_eq!(told, ["", "", refused, "", refused, ""]);
}

#[tokio::test]
async fn what_was_appended_before_is_answered_though_the_gate_is_closed() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    watch(&broker, "email", "orders", limit(1)).await;
    let named = |id: &str| v1::ProduceRequest {
        request_id: id.into(),
        ..request("orders", 1)
    };
    let first = broker.log().produce(named("r-1")).await.unwrap();
    let again = broker.log().produce(named("r-1")).await.unwrap();
    assert!(again.get_ref().duplicate);
    assert_eq!(
        again.get_ref().results[0].offset,
        first.get_ref().results[0].offset
    );
    let refused = broker.log().produce(named("r-2")).await;
    assert_eq!(reason(refused), "BACKPRESSURE_DEPTH");
    let skip = v1::ResetOffsetsRequest {
        group: "email".into(),
        to: Some(v1::Position {
            at: Some(At::Latest(true)),
        }),
        ..Default::default()
    };
    broker.group_admin().reset_offsets(skip).await.unwrap();
    let late = broker.log().produce(named("r-2")).await.unwrap();
    assert!(!late.get_ref().duplicate, "the refusal used up no id");
}

#[tokio::test]
async fn an_observed_limit_is_reported_and_refuses_nothing() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let observed = v1::Admission {
        observe: true,
        ..limit(1)
    };
    watch(&broker, "email", "orders", observed).await;
    for _ in 0..3 {
        produce(&broker, "orders", 1).await.unwrap();
    }
    let state = described(&broker, "email").await.admission.unwrap();
    assert_eq!((state.closed, state.refused), (true, 2));
}
