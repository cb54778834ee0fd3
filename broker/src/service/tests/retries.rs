//! What an operator sees of records that wait, and does to single records.

use varvelog_proto::v1;

use super::failures::{failure, quick, settle, stored, with_group, with_policy};
use super::groups::{committed, delivery, join, member};
use super::{TestBroker, reason, record, refused, seconds, values};

fn slow() -> v1::RetryPolicy {
    v1::RetryPolicy {
        delays: vec![seconds(100)],
        ..quick()
    }
}

/// All records of the first delivery failed, the first for the longest time.
async fn waiting(config: v1::GroupConfig) -> TestBroker {
    let broker = with_group(config, &["a", "b", "c"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    let failures = (0..3).map(|offset| v1::Failure {
        retry_after: Some(seconds(300 - 100 * offset)),
        ..failure(offset, v1::FailureAction::Retry)
    });
    let settled = settle(&broker, &first, failures.collect()).await;
    assert_eq!(settled.retried, 3);
    broker
}

fn overtaking() -> v1::GroupConfig {
    v1::GroupConfig {
        retry: Some(slow()),
        ..Default::default()
    }
}

fn holding() -> v1::GroupConfig {
    v1::GroupConfig {
        mode: v1::GroupMode::Queue.into(),
        on_failure: v1::OnFailure::Hold.into(),
        ..overtaking()
    }
}

async fn list(broker: &TestBroker, page_size: i32, token: &str) -> v1::ListRetriesResponse {
    let request = v1::ListRetriesRequest {
        group: "email".into(),
        page_size,
        page_token: token.into(),
        ..Default::default()
    };
    let listed = broker.group_admin().list_retries(request).await;
    listed.unwrap().into_inner()
}

async fn shown(broker: &TestBroker) -> v1::Group {
    let get = v1::GetGroupRequest {
        name: "email".into(),
    };
    let shown = broker.group_admin().get_group(get).await.unwrap();
    shown.into_inner().group.unwrap()
}

fn named(offset: i64) -> v1::TopicPartitionOffset {
    v1::TopicPartitionOffset {
        topic: "orders".into(),
        partition: 0,
        offset,
    }
}

#[tokio::test]
async fn what_waits_is_listed_soonest_first_in_pages_whether_it_moved_or_not() {
    for config in [overtaking(), holding()] {
        let broker = waiting(config).await;
        let first = list(&broker, 2, "").await;
        let offsets = |page: &v1::ListRetriesResponse| {
            let offsets = page.retries.iter().map(|retry| retry.offset);
            offsets.collect::<Vec<_>>()
        };
        assert_eq!(offsets(&first), [2, 1]);
        let one = &first.retries[0];
        assert_eq!((one.topic.as_str(), one.partition), ("orders", 0));
        assert_eq!(one.attempt, 2);
        assert_eq!(one.error_code, "E7");
        assert_eq!(one.error_message, "it is down");
        let counted: i64 = first.histogram.iter().map(|bucket| bucket.count).sum();
        assert_eq!(counted, 3);
        let second = list(&broker, 2, &first.next_page_token).await;
        assert_eq!(offsets(&second), [0]);
        assert!(second.next_page_token.is_empty() && second.histogram.is_empty());
        let group = shown(&broker).await;
        assert_eq!(group.retries_scheduled, 3);
        assert!(group.end_to_end_age.is_some());
    }
}

#[tokio::test]
async fn what_cannot_be_listed_is_refused() {
    let broker = with_policy(quick(), &[]).await;
    broker.topic("other", 1).await;
    let list = async |request| reason(broker.group_admin().list_retries(request).await);
    let email = || v1::ListRetriesRequest {
        group: "email".into(),
        ..Default::default()
    };
    let unknown = v1::ListRetriesRequest {
        group: "emial".into(),
        ..email()
    };
    assert_eq!(list(unknown).await, "GROUP_NOT_FOUND");
    let token = v1::ListRetriesRequest {
        page_token: "1:orders".into(),
        ..email()
    };
    assert_eq!(list(token).await, "INVALID_FIELD");
    let other = v1::ListRetriesRequest {
        topic: "other".into(),
        ..email()
    };
    assert_eq!(list(other).await, "INVALID_FIELD");
}

#[tokio::test]
async fn what_waits_can_be_made_due_by_name_or_all_at_once() {
    for config in [overtaking(), holding()] {
        let broker = waiting(config).await;
        let retry_now = async |records, validate_only| {
            let request = v1::RetryNowRequest {
                group: "email".into(),
                records,
                validate_only,
                ..Default::default()
            };
            let made = broker.group_admin().retry_now(request).await.unwrap();
            made.into_inner().matched
        };
        assert_eq!(retry_now(Vec::new(), true).await, 3);
        let some = vec![named(1), named(1), named(9)];
        assert_eq!(retry_now(some.clone(), true).await, 1);
        let (mut stream, _) = join(&broker, member("email", &[])).await;
        assert_eq!(retry_now(some.clone(), false).await, 1);
        let again = delivery(&mut stream).await;
        assert_eq!(values(&again.records), ["b"]);
        // Hand-outs are noted without a hurry.
        super::soon(async {
            while list(&broker, 10, "").await.retries.len() != 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(settle(&broker, &again, Vec::new()).await.done, 1);
        assert_eq!(retry_now(some, false).await, 0);
        assert_eq!(retry_now(Vec::new(), false).await, 2);
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let again = delivery(&mut stream).await;
            seen.extend(values(&again.records));
            settle(&broker, &again, Vec::new()).await;
        }
        seen.sort();
        assert_eq!(seen, ["a", "c"]);
        assert_eq!(shown(&broker).await.retries_scheduled, 0);
    }
}

#[tokio::test]
async fn an_operator_settles_single_records_wherever_they_are() {
    let broker = waiting(overtaking()).await;
    broker.produce("orders", &["d"]).await;
    let operate = async |offsets: &[i64], action: v1::OperatorAction, validate_only| {
        let request = v1::SettleRecordsRequest {
            group: "email".into(),
            records: offsets.iter().copied().map(named).collect(),
            action: action.into(),
            note: "by hand".into(),
            validate_only,
        };
        let settled = broker.group_admin().settle_records(request).await.unwrap();
        settled.into_inner().settled
    };
    let skip = v1::OperatorAction::Skip;
    assert_eq!(operate(&[0, 3, 3, 99], skip, true).await, 2);
    assert_eq!(operate(&[0, 3], skip, false).await, 2);
    assert_eq!(operate(&[0, 3], skip, false).await, 0, "done already");
    assert_eq!(committed(&broker, "email").await, [4]);
    let dead = v1::OperatorAction::DeadLetter;
    assert_eq!(operate(&[1], dead, false).await, 1);
    assert_eq!(values(&stored(&broker, "orders.email.dlq").await), ["b"]);
    let retry = v1::OperatorAction::Retry;
    assert_eq!(operate(&[2], retry, false).await, 1);
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let again = delivery(&mut stream).await;
    assert_eq!(values(&again.records), ["c"]);
    assert_eq!(again.records[0].attempt, 1, "counted from the beginning");
}

#[tokio::test]
async fn an_operator_is_told_what_is_wrong_with_a_settlement() {
    let broker = with_policy(quick(), &["a"]).await;
    let good = || v1::SettleRecordsRequest {
        group: "email".into(),
        records: vec![named(0)],
        action: v1::OperatorAction::Skip.into(),
        ..Default::default()
    };
    let field = async |request| {
        let refused = refused(broker.group_admin().settle_records(request).await);
        assert_eq!(refused.1, "INVALID_FIELD");
        refused.2["field"].clone()
    };
    let unsaid = v1::SettleRecordsRequest {
        action: 0,
        ..good()
    };
    assert_eq!(field(unsaid).await, "action");
    let none = v1::SettleRecordsRequest {
        records: Vec::new(),
        ..good()
    };
    assert_eq!(field(none).await, "records");
    let long = v1::SettleRecordsRequest {
        note: "x".repeat(513),
        ..good()
    };
    assert_eq!(field(long).await, "note");
    let many = v1::SettleRecordsRequest {
        records: vec![named(0); 10_001],
        ..good()
    };
    assert_eq!(field(many).await, "records");
    let derived = v1::SettleRecordsRequest {
        records: vec![v1::TopicPartitionOffset {
            topic: "orders.email.retry".into(),
            ..Default::default()
        }],
        ..good()
    };
    let refused = broker.group_admin().settle_records(derived).await;
    assert_eq!(reason(refused), "DERIVED_TOPIC");
}

#[tokio::test]
async fn a_record_that_waits_in_place_is_what_pins_its_group() {
    let broker = waiting(holding()).await;
    let group = shown(&broker).await;
    let pinned = group.lags[0].pinned.as_ref().unwrap();
    assert_eq!((pinned.offset, pinned.attempt), (0, 2));
    assert_eq!(pinned.state(), v1::RecordState::Waiting);
    assert!(pinned.member_id.is_empty() && pinned.age.is_some());
    assert!(group.ready_age.is_none(), "nothing could be given out");
}

#[tokio::test]
async fn a_halted_head_is_shown_as_a_stall_until_an_operator_settles_it() {
    let config = v1::GroupConfig {
        on_failure: v1::OnFailure::Hold.into(),
        on_head_dead: v1::OnHeadDead::Halt.into(),
        retry: Some(quick()),
        ..Default::default()
    };
    let broker = with_group(config, &["a", "b"]).await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let first = delivery(&mut stream).await;
    settle(
        &broker,
        &first,
        vec![failure(0, v1::FailureAction::DeadLetter)],
    )
    .await;
    let stalls = shown(&broker).await.stalls;
    assert_eq!(stalls.len(), 1, "{stalls:?}");
    assert_eq!(
        (stalls[0].reason(), stalls[0].offset, stalls[0].key_hash),
        (v1::StallReason::Halted, 0, None)
    );
    let skip = v1::SettleRecordsRequest {
        group: "email".into(),
        records: vec![named(0)],
        action: v1::OperatorAction::Skip.into(),
        ..Default::default()
    };
    broker.group_admin().settle_records(skip).await.unwrap();
    assert_eq!(values(&delivery(&mut stream).await.records), ["b"]);
    assert!(shown(&broker).await.stalls.is_empty());
}

#[tokio::test]
async fn the_key_of_a_dead_record_is_parked_and_its_letters_say_why() {
    let config = v1::GroupConfig {
        on_head_dead: v1::OnHeadDead::Park.into(),
        ..holding()
    };
    let broker = with_group(config, &[]).await;
    let produce = async |keys: &[&str]| {
        let keyed = |key: &&str| v1::NewRecord {
            key: Some((*key).to_owned().into()),
            ..record(key)
        };
        let request = v1::ProduceRequest {
            topic: "orders".into(),
            records: keys.iter().map(keyed).collect(),
            ..Default::default()
        };
        broker.log().produce(request).await.unwrap();
    };
    produce(&["k", "k", "other"]).await;
    let one = v1::ConsumeRequest {
        max_records: 1,
        ..member("email", &[])
    };
    let (mut stream, _) = join(&broker, one).await;
    let first = delivery(&mut stream).await;
    let dead = vec![failure(0, v1::FailureAction::DeadLetter)];
    settle(&broker, &first, dead).await;
    let next = delivery(&mut stream).await;
    assert_eq!(values(&next.records), ["other"]);
    settle(&broker, &next, Vec::new()).await;
    // The second one follows while others are given out.
    let mut letters = stored(&broker, "orders.email.dlq").await;
    while letters.len() < 2 {
        tokio::task::yield_now().await;
        letters = stored(&broker, "orders.email.dlq").await;
    }
    assert_eq!(values(&letters), ["k", "k"]);
    let reasons = letters
        .iter()
        .map(|it| &it.headers["varvelog-dead-reason"][..]);
    let expected: [&[u8]; 2] = [b"permanent", b"parked_key"];
    assert_eq!(reasons.collect::<Vec<_>>(), expected);
}
