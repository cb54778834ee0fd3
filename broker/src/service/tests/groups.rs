use tonic::Streaming;
use varvelog_proto::v1;
use varvelog_proto::v1::position::At;
use varvelog_store::batch::Records;

use super::{TestBroker, connect, reason, refused, seconds, soon, values};

pub(super) fn member(group: &str, topics: &[&str]) -> v1::ConsumeRequest {
    v1::ConsumeRequest {
        group: group.into(),
        topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        ..Default::default()
    }
}

/// Joins and reads the first message, which must be an event.
pub(super) async fn join(
    broker: &TestBroker,
    request: v1::ConsumeRequest,
) -> (Streaming<v1::ConsumeResponse>, v1::GroupEvent) {
    let mut stream = broker.groups().consume(request).await.unwrap().into_inner();
    let first = next(&mut stream).await;
    (stream, first.event.expect("the first message is an event"))
}

async fn next(stream: &mut Streaming<v1::ConsumeResponse>) -> v1::ConsumeResponse {
    soon(stream.message())
        .await
        .unwrap()
        .expect("the stream goes on")
}

/// The next message that brings records.
pub(super) async fn delivery(stream: &mut Streaming<v1::ConsumeResponse>) -> v1::ConsumeResponse {
    loop {
        let message = next(stream).await;
        if message.event.is_none() {
            return message;
        }
    }
}

async fn ack(broker: &TestBroker, response: &v1::ConsumeResponse) -> v1::AckResponse {
    let request = v1::AckRequest {
        ack_token: response.ack_token.clone(),
        ..Default::default()
    };
    broker.groups().ack(request).await.unwrap().into_inner()
}

pub(super) async fn committed(broker: &TestBroker, group: &str) -> Vec<i64> {
    let request = v1::GetOffsetsRequest {
        group: group.into(),
        ..Default::default()
    };
    let found = broker
        .groups()
        .get_offsets(request)
        .await
        .unwrap()
        .into_inner();
    found.offsets.iter().map(|commit| commit.offset).collect()
}

#[tokio::test]
async fn a_member_is_told_what_it_has_gets_records_and_settles_them() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    broker.produce("orders", &["a", "b"]).await;
    let (mut stream, event) = join(&broker, member("email", &["orders"])).await;
    assert!(!event.member_id.is_empty() && event.generation >= 1);
    assert_eq!(event.assigned.len(), 2);
    let first = delivery(&mut stream).await;
    assert_eq!((first.topic.as_str(), first.partition), ("orders", 0));
    assert_eq!(values(&first.records), ["a", "b"]);
    assert!(first.records.iter().all(|record| record.attempt == 1));
    assert!(first.ack_deadline_ms > 0 && first.fence > 0);
    assert_eq!(first.lag_records, 2);
    let done = ack(&broker, &first).await;
    assert_eq!(
        (done.done, done.already_settled, done.conflicts.len()),
        (2, 0, 0)
    );
    assert_eq!(ack(&broker, &first).await.already_settled, 2);
    assert_eq!(committed(&broker, "email").await, [2, 0]);
    broker.produce("orders", &["c"]).await;
    assert_eq!(values(&delivery(&mut stream).await.records), ["c"]);
}

#[tokio::test]
async fn responses_out_unsettled_are_bounded_by_the_window() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b", "c"]).await;
    let request = v1::ConsumeRequest {
        max_records: 1,
        max_unacked_responses: 2,
        ..member("email", &["orders"])
    };
    let (mut stream, _) = join(&broker, request).await;
    let first = delivery(&mut stream).await;
    let second = delivery(&mut stream).await;
    assert_eq!(
        [values(&first.records), values(&second.records)],
        [["a"], ["b"]]
    );
    let more = tokio::time::timeout(std::time::Duration::from_millis(100), stream.message());
    assert!(more.await.is_err(), "nothing comes before one is settled");
    ack(&broker, &first).await;
    assert_eq!(values(&delivery(&mut stream).await.records), ["c"]);
}

#[tokio::test]
async fn at_most_once_is_settled_by_itself_and_has_no_token() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a"]).await;
    let request = v1::ConsumeRequest {
        auto_ack: true,
        ..member("email", &["orders"])
    };
    let (mut stream, _) = join(&broker, request).await;
    assert!(delivery(&mut stream).await.ack_token.is_empty());
    soon(async {
        while committed(&broker, "email").await != [1] {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn batches_come_whole_with_the_offsets_that_are_given_out() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b", "c"]).await;
    let request = v1::ConsumeRequest {
        as_batches: true,
        start: Some(v1::Position {
            at: Some(At::Offset(1)),
        }),
        ..member("email", &["orders"])
    };
    let (mut stream, _) = join(&broker, request).await;
    let first = delivery(&mut stream).await;
    assert_eq!(first.leased, [v1::OffsetRange { first: 1, last: 2 }]);
    let batch = &first.batches[0];
    assert_eq!((batch.base_offset, batch.record_count), (0, 3));
    assert_eq!(
        Records::open(&batch.batch, 1 << 20).unwrap().iter().count(),
        3
    );
    assert_eq!(ack(&broker, &first).await.done, 2);
}

#[tokio::test]
async fn what_a_join_must_not_ask_for_is_refused() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let join = async |request| reason(broker.groups().consume(request).await);
    assert_eq!(join(member("email", &[])).await, "INVALID_FIELD");
    assert_eq!(join(member("a.b", &["orders"])).await, "INVALID_FIELD");
    assert_eq!(join(member("email", &["nowhere"])).await, "TOPIC_NOT_FOUND");
    let short = v1::ConsumeRequest {
        ack_timeout: Some(prost_types::Duration {
            seconds: 0,
            nanos: 999_999_999,
        }),
        ..member("email", &["orders"])
    };
    assert_eq!(join(short).await, "INVALID_FIELD");
    let window = v1::ConsumeRequest {
        max_unacked_responses: 1001,
        ..member("email", &["orders"])
    };
    assert_eq!(join(window).await, "INVALID_FIELD");
    let (_stream, _) = self::join(&broker, member("email", &["orders"])).await;
    assert_eq!(
        join(member("email", &["orders.email.retry"])).await,
        "DERIVED_TOPIC"
    );
}

#[tokio::test]
async fn who_leaves_ends_well_and_its_records_go_to_another_uncounted() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a"]).await;
    let (mut stream, event) = join(&broker, member("email", &["orders"])).await;
    delivery(&mut stream).await;
    let leave = v1::LeaveRequest {
        group: "email".into(),
        member_id: event.member_id,
    };
    broker.groups().leave(leave).await.unwrap();
    assert!(
        soon(stream.message()).await.unwrap().is_none(),
        "the stream ends OK"
    );
    let (mut other, _) = join(&broker, member("email", &[])).await;
    assert_eq!(delivery(&mut other).await.records[0].attempt, 1);
    let unknown = v1::LeaveRequest {
        group: "emial".into(),
        member_id: "x".into(),
    };
    let status = broker.groups().leave(unknown).await.unwrap_err();
    assert!(
        status.message().contains("nearest name is email"),
        "{}",
        status.message()
    );
}

#[tokio::test]
async fn a_stream_that_ends_on_a_living_connection_is_a_clean_end() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a"]).await;
    let (mut stream, _) = join(&broker, member("email", &["orders"])).await;
    delivery(&mut stream).await;
    drop(stream);
    // The session timeout is 45 s and the visibility timeout 30 s: only a clean end is this quick.
    let (mut other, _) = join(&broker, member("email", &[])).await;
    assert_eq!(delivery(&mut other).await.records[0].attempt, 1);
}

#[tokio::test]
async fn a_connection_that_ends_is_waited_for_and_then_counts_as_a_crash() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a"]).await;
    let create = v1::CreateGroupRequest {
        name: "email".into(),
        topics: vec!["orders".into()],
        config: Some(v1::GroupConfig {
            session_timeout: Some(seconds(1)),
            ..Default::default()
        }),
        ..Default::default()
    };
    broker.group_admin().create_group(create).await.unwrap();
    let channel = connect(&broker.handle).await;
    let mut client = v1::group_service_client::GroupServiceClient::new(channel);
    let mut stream = client
        .consume(member("email", &[]))
        .await
        .unwrap()
        .into_inner();
    delivery(&mut stream).await;
    drop((stream, client));
    let (mut other, _) = join(&broker, member("email", &[])).await;
    assert_eq!(delivery(&mut other).await.records[0].attempt, 2);
}

#[tokio::test]
async fn a_second_stream_of_a_member_wins() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let (mut first, event) = join(&broker, member("email", &["orders"])).await;
    let again = v1::ConsumeRequest {
        member_id: event.member_id.clone(),
        ..member("email", &[])
    };
    let (_second, same) = join(&broker, again).await;
    assert_eq!(same.member_id, event.member_id);
    loop {
        match soon(first.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the older stream must end with a status"),
            Err(status) => {
                let (code, reason, _) = refused::<()>(Err(status));
                assert_eq!(
                    (code, reason.as_str()),
                    (tonic::Code::Aborted, "MEMBER_FENCED")
                );
                return;
            }
        }
    }
}

#[tokio::test]
async fn acks_that_cannot_be_are_refused_and_late_ones_are_conflicts() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b"]).await;
    let (mut stream, _) = join(&broker, member("email", &["orders"])).await;
    let first = delivery(&mut stream).await;
    let token = first.ack_token.clone();
    let ack_of = async |request| reason(broker.groups().ack(request).await);
    let with = |token: &[u8]| v1::AckRequest {
        ack_token: token.to_vec().into(),
        ..Default::default()
    };
    assert_eq!(ack_of(with(b"nonsense")).await, "ACK_TOKEN_INVALID");
    assert_eq!(ack_of(with(&token[1..])).await, "ACK_TOKEN_INVALID");
    let twice = vec![v1::Failure::default(); 2];
    assert_eq!(
        ack_of(v1::AckRequest {
            failures: twice,
            ..with(&token)
        })
        .await,
        "INVALID_FIELD"
    );
    let beyond = v1::AckRequest {
        up_to_offset: Some(2),
        ..with(&token)
    };
    assert_eq!(ack_of(beyond).await, "INVALID_FIELD");
}

#[tokio::test]
async fn a_lease_is_settled_in_part_held_for_longer_and_void_after_a_reset() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b"]).await;
    let (mut stream, _) = join(&broker, member("email", &["orders"])).await;
    let first = delivery(&mut stream).await;
    let token = first.ack_token.clone();
    let with = |token: &bytes::Bytes| v1::AckRequest {
        ack_token: token.clone(),
        ..Default::default()
    };
    let half = v1::AckRequest {
        up_to_offset: Some(0),
        ..with(&token)
    };
    assert_eq!(
        broker.groups().ack(half).await.unwrap().into_inner().done,
        1
    );
    let hold = v1::ExtendAckRequest {
        ack_token: token.clone(),
        ack_timeout: Some(seconds(60)),
    };
    let extended = broker.groups().extend_ack(hold).await.unwrap().into_inner();
    assert!(extended.ack_deadline_ms > first.ack_deadline_ms && !extended.capped);

    let reset = v1::ResetOffsetsRequest {
        group: "email".into(),
        to: Some(v1::Position {
            at: Some(At::Earliest(true)),
        }),
        force: true,
        ..Default::default()
    };
    broker.group_admin().reset_offsets(reset).await.unwrap();
    let late = broker
        .groups()
        .ack(with(&token))
        .await
        .unwrap()
        .into_inner();
    let why: Vec<v1::ConflictReason> = late
        .conflicts
        .iter()
        .map(v1::SettlementConflict::reason)
        .collect();
    assert_eq!(why, [v1::ConflictReason::Unknown; 2]);
}
