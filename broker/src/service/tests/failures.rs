//! Failures: retries, dead letters, releases, as a caller sees them.

use varvelog_proto::v1;
use varvelog_proto::v1::position::At;

use super::groups::{committed, delivery, join, member};
use super::{TestBroker, millis, seconds, soon, values};

/// A group that tries again after 10 ms, so that nothing has to be waited for.
pub(super) fn quick() -> v1::RetryPolicy {
    v1::RetryPolicy {
        max_deliveries: 3,
        delays: vec![millis(10)],
        jitter_ratio: Some(0.0),
        ..Default::default()
    }
}

pub(super) async fn with_group(config: v1::GroupConfig, values: &[&str]) -> TestBroker {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    if !values.is_empty() {
        broker.produce("orders", values).await;
    }
    let create = v1::CreateGroupRequest {
        name: "email".into(),
        topics: vec!["orders".into()],
        config: Some(config),
        ..Default::default()
    };
    broker.group_admin().create_group(create).await.unwrap();
    broker
}

pub(super) async fn with_policy(retry: v1::RetryPolicy, values: &[&str]) -> TestBroker {
    let config = v1::GroupConfig {
        retry: Some(retry),
        ..Default::default()
    };
    with_group(config, values).await
}

pub(super) fn failure(offset: i64, action: v1::FailureAction) -> v1::Failure {
    v1::Failure {
        offset,
        action: action.into(),
        error_code: "E7".into(),
        error_message: "it is down".into(),
        error_stack: "at main".into(),
        retry_after: None,
    }
}

pub(super) async fn settle(
    broker: &TestBroker,
    response: &v1::ConsumeResponse,
    failures: Vec<v1::Failure>,
) -> v1::AckResponse {
    let request = v1::AckRequest {
        ack_token: response.ack_token.clone(),
        failures,
        ..Default::default()
    };
    broker.groups().ack(request).await.unwrap().into_inner()
}

/// Records of a topic as they are stored.
pub(super) async fn stored(broker: &TestBroker, topic: &str) -> Vec<v1::Record> {
    let request = v1::FetchRequest {
        topic: topic.into(),
        ..Default::default()
    };
    broker
        .log()
        .fetch(request)
        .await
        .unwrap()
        .into_inner()
        .records
}

fn header(record: &v1::Record, name: &str) -> String {
    String::from_utf8(record.headers[name].to_vec()).unwrap()
}

#[tokio::test]
async fn a_failed_record_comes_back_named_by_its_first_append_and_the_others_are_done() {
    let broker = with_policy(quick(), &["a", "b", "c"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let failed = settle(&broker, &first, vec![failure(1, v1::FailureAction::Retry)]).await;
    assert_eq!((failed.done, failed.retried), (2, 1));
    assert!(failed.conflicts.is_empty());
    assert_eq!(committed(&broker, "email").await, [3]);
    let again = delivery(&mut stream).await;
    assert_eq!((again.topic.as_str(), again.partition), ("orders", 0));
    let record = &again.records[0];
    assert_eq!((record.offset, record.attempt), (1, 2));
    assert_eq!(values(&again.records), ["b"]);
    assert!(record.headers.is_empty(), "as produced");
    assert_eq!(record.message_id, first.records[1].message_id);
    assert_eq!(record.append_time_ms, first.records[1].append_time_ms);
    assert_eq!(record.timestamp_ms, first.records[1].timestamp_ms);
    assert_eq!(settle(&broker, &again, Vec::new()).await.done, 1);
    assert_eq!(settle(&broker, &again, Vec::new()).await.already_settled, 1);
}

#[tokio::test]
async fn a_record_that_always_fails_is_dead_after_its_last_delivery() {
    let broker = with_policy(quick(), &["a"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    for attempt in 1..=3 {
        let response = delivery(&mut stream).await;
        assert_eq!(response.records[0].attempt, attempt);
        let failures = vec![failure(0, v1::FailureAction::Unspecified)];
        let settled = settle(&broker, &response, failures).await;
        let dead = i32::from(attempt == 3);
        assert_eq!((settled.retried, settled.dead_lettered), (1 - dead, dead));
    }
    let dead = stored(&broker, "orders.email.dlq").await;
    assert_eq!(values(&dead), ["a"]);
    assert_eq!(header(&dead[0], "varvelog-dead-reason"), "max_deliveries");
    assert_eq!(header(&dead[0], "varvelog-attempt"), "3");
    assert_eq!(header(&dead[0], "varvelog-error-code"), "E7");
    assert_eq!(header(&dead[0], "varvelog-error-stack"), "at main");
    let more = tokio::time::timeout(std::time::Duration::from_millis(100), stream.message());
    assert!(more.await.is_err(), "it is given out no more");
}

#[tokio::test]
async fn a_permanent_failure_is_dead_at_once_and_a_release_counts_nothing() {
    let broker = with_policy(quick(), &["a", "b"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let failures = vec![
        failure(0, v1::FailureAction::DeadLetter),
        failure(1, v1::FailureAction::Release),
    ];
    let settled = settle(&broker, &first, failures).await;
    assert_eq!((settled.dead_lettered, settled.released), (1, 1));
    let dead = stored(&broker, "orders.email.dlq").await;
    assert_eq!(header(&dead[0], "varvelog-dead-reason"), "permanent");
    assert!(stored(&broker, "orders.email.retry").await.is_empty());
    let again = delivery(&mut stream).await;
    assert_eq!((again.records[0].offset, again.records[0].attempt), (1, 1));
}

#[tokio::test]
async fn a_repeated_settlement_is_told_from_another_one() {
    let broker = with_policy(quick(), &["a"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    assert_eq!(settle(&broker, &first, Vec::new()).await.done, 1);
    let failures = vec![failure(0, v1::FailureAction::DeadLetter)];
    let other = settle(&broker, &first, failures).await;
    assert_eq!(
        other.conflicts[0].reason(),
        v1::ConflictReason::SettledOtherwise
    );
    assert!(stored(&broker, "orders.email.dlq").await.is_empty());
}

#[tokio::test]
async fn a_failure_of_a_record_outside_the_response_is_a_conflict_and_the_others_are_settled() {
    let broker = with_policy(quick(), &["a", "b"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let failures = vec![failure(7, v1::FailureAction::Retry)];
    let settled = settle(&broker, &first, failures).await;
    assert_eq!(settled.done, 2);
    let conflict = &settled.conflicts[0];
    assert_eq!(
        (conflict.offset, conflict.reason()),
        (7, v1::ConflictReason::Unknown)
    );
}

#[tokio::test]
async fn a_delay_of_its_own_takes_the_place_of_the_policys() {
    let slow = v1::RetryPolicy {
        delays: vec![seconds(3600)],
        ..quick()
    };
    let broker = with_policy(slow, &["a"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let soon = v1::Failure {
        retry_after: Some(seconds(0)),
        ..failure(0, v1::FailureAction::Retry)
    };
    assert_eq!(settle(&broker, &first, vec![soon]).await.retried, 1);
    assert_eq!(delivery(&mut stream).await.records[0].attempt, 2);
}

#[tokio::test]
async fn retries_come_as_records_to_a_member_that_takes_batches() {
    let broker = with_policy(quick(), &["a", "b"]).await;
    let request = v1::ConsumeRequest {
        as_batches: true,
        ..member("email", &[])
    };
    let (mut stream, _) = join(&broker, request).await;
    let first = delivery(&mut stream).await;
    assert_eq!((first.batches.len(), first.records.len()), (1, 0));
    settle(&broker, &first, vec![failure(0, v1::FailureAction::Retry)]).await;
    let again = delivery(&mut stream).await;
    assert_eq!(
        (again.batches.len(), values(&again.records)),
        (0, vec!["a".into()])
    );
}

#[tokio::test]
async fn any_worker_of_a_queue_gets_records_of_any_partition_and_none_is_assigned() {
    let config = v1::GroupConfig {
        mode: v1::GroupMode::Queue.into(),
        retry: Some(quick()),
        ..Default::default()
    };
    let broker = with_group(config, &["a", "b", "c", "d"]).await;
    let request = v1::ConsumeRequest {
        max_records: 1,
        max_unacked_responses: 1,
        ..member("email", &[])
    };
    let mut seen = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..3 {
        let (mut stream, event) = join(&broker, request.clone()).await;
        assert!(event.assigned.is_empty(), "a queue assigns nothing");
        let response = delivery(&mut stream).await;
        seen.push(response.records[0].offset);
        streams.push((stream, response));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
    let commit = v1::CommitOffsetsRequest {
        group: "email".into(),
        offsets: vec![v1::OffsetCommit {
            topic: "orders".into(),
            offset: 1,
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(
        super::reason(broker.groups().commit_offsets(commit).await),
        "GROUP_MODE"
    );
}

#[tokio::test]
async fn a_held_partition_waits_for_its_failed_record_in_place() {
    let config = v1::GroupConfig {
        on_failure: v1::OnFailure::Hold.into(),
        retry: Some(quick()),
        ..Default::default()
    };
    let broker = with_group(config, &["a", "b", "c"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let failures = vec![failure(1, v1::FailureAction::Retry)];
    let settled = settle(&broker, &first, failures).await;
    assert_eq!(
        (settled.done, settled.retried, settled.released),
        (1, 1, 1),
        "what is behind it is given back"
    );
    assert!(stored(&broker, "orders.email.retry").await.is_empty());
    let mut order = Vec::new();
    while order.len() < 2 {
        let again = delivery(&mut stream).await;
        for record in &again.records {
            order.push((record.offset, record.attempt));
        }
        settle(&broker, &again, Vec::new()).await;
    }
    assert_eq!(order, [(1, 2), (2, 1)]);
}

#[tokio::test]
async fn a_record_too_large_for_its_member_is_a_dead_letter_and_the_next_one_comes() {
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
    let large = || v1::NewRecord {
        value: Some(vec![7; 6 << 20].into()),
        ..Default::default()
    };
    for record in [large(), super::record("small")] {
        let request = v1::ProduceRequest {
            topic: "large".into(),
            records: vec![record],
            ..Default::default()
        };
        broker.log().produce(request).await.unwrap();
    }
    for as_batches in [false, true] {
        let group = if as_batches { "fast" } else { "email" };
        let request = v1::ConsumeRequest {
            as_batches,
            ..member(group, &["large"])
        };
        let (mut stream, _) = join(&broker, request).await;
        let first = delivery(&mut stream).await;
        if !as_batches {
            assert_eq!(values(&first.records), ["small"]);
        }
        settle(&broker, &first, Vec::new()).await;
        soon(async {
            while committed(&broker, group).await != [2] {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let request = v1::FetchRequest {
            topic: format!("large.{group}.dlq"),
            max_bytes: 1 << 20,
            ..Default::default()
        };
        let dead = broker.log().fetch(request).await.unwrap().into_inner();
        assert_eq!(dead.records.len(), 1);
        assert_eq!(
            header(&dead.records[0], "varvelog-dead-reason"),
            "undeliverable"
        );
    }
    let request = v1::ConsumeRequest {
        accept_omitted: true,
        ..member("whole", &["large"])
    };
    let (mut stream, _) = join(&broker, request).await;
    let first = delivery(&mut stream).await;
    assert!(first.records[0].value_omitted);
    assert_eq!(first.records[0].value_bytes, 6 << 20);
}

#[tokio::test]
async fn a_delayed_record_is_kept_from_groups_and_not_from_readers() {
    let broker = with_policy(quick(), &[]).await;
    let record = |value: &str, delay| v1::NewRecord {
        delay,
        ..super::record(value)
    };
    let request = v1::ProduceRequest {
        topic: "orders".into(),
        records: vec![
            record("later", Some(millis(300))),
            record("now", None),
            record("never", Some(seconds(86_400))),
        ],
        ..Default::default()
    };
    broker.log().produce(request).await.unwrap();
    assert_eq!(
        values(&stored(&broker, "orders").await),
        ["later", "now", "never"]
    );
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    assert_eq!(values(&first.records), ["now"]);
    settle(&broker, &first, Vec::new()).await;
    let later = delivery(&mut stream).await;
    assert_eq!(values(&later.records), ["later"]);
    assert_eq!((later.records[0].offset, later.records[0].attempt), (0, 1));
    settle(&broker, &later, Vec::new()).await;
    assert_eq!(committed(&broker, "email").await, [3]);
}

#[tokio::test]
async fn a_group_that_starts_late_is_given_what_it_starts_with() {
    let broker = with_policy(quick(), &["a", "b"]).await;
    let request = v1::ConsumeRequest {
        start: Some(v1::Position {
            at: Some(At::Offset(1)),
        }),
        ..member("late", &["orders"])
    };
    let (mut stream, _) = join(&broker, request).await;
    let first = delivery(&mut stream).await;
    settle(
        &broker,
        &first,
        vec![failure(1, v1::FailureAction::DeadLetter)],
    )
    .await;
    assert_eq!(values(&stored(&broker, "orders.late.dlq").await), ["b"]);
    assert!(stored(&broker, "orders.email.dlq").await.is_empty());
}
