use varvelog_proto::v1;
use varvelog_proto::v1::position::At;

use super::groups::{committed, delivery, join, member};
use super::{TestBroker, reason, refused};

#[tokio::test]
async fn positions_kept_by_hand_move_forward_only() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b", "c"]).await;
    let commit = async |offset, partition| {
        let one = v1::OffsetCommit {
            topic: "orders".into(),
            partition,
            offset,
            metadata: "mine".into(),
        };
        let request = v1::CommitOffsetsRequest {
            group: "loop".into(),
            offsets: vec![one],
            ..Default::default()
        };
        broker.groups().commit_offsets(request).await
    };
    commit(2, 0).await.unwrap();
    assert_eq!(committed(&broker, "loop").await, [2]);
    let (_, reason_, metadata) = refused(commit(1, 0).await);
    assert_eq!(
        (reason_.as_str(), metadata["committed"].as_str()),
        ("OFFSET_MOVES_BACK", "2")
    );
    assert_eq!(reason(commit(4, 0).await), "OFFSET_OUT_OF_RANGE");
    assert_eq!(reason(commit(0, 1).await), "PARTITION_NOT_FOUND");
    assert_eq!(reason(commit(-1, 0).await), "INVALID_FIELD");
    let unknown = v1::GetOffsetsRequest {
        group: "lop".into(),
        ..Default::default()
    };
    let status = broker.groups().get_offsets(unknown).await.unwrap_err();
    assert!(
        status.message().contains("nearest name is loop"),
        "{}",
        status.message()
    );
    let half = v1::CommitOffsetsRequest {
        group: "loop".into(),
        offsets: vec![v1::OffsetCommit {
            topic: "orders".into(),
            ..Default::default()
        }],
        generation: 3,
        ..Default::default()
    };
    assert_eq!(
        reason(broker.groups().commit_offsets(half).await),
        "INVALID_FIELD"
    );
}

/// A group that has done the first of three records.
async fn with_group() -> TestBroker {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a", "b", "c"]).await;
    broker.group_admin().create_group(email()).await.unwrap();
    broker
}

fn email() -> v1::CreateGroupRequest {
    v1::CreateGroupRequest {
        name: "email".into(),
        topics: vec!["orders".into()],
        start: Some(v1::Position {
            at: Some(At::LastN(2)),
        }),
        ..Default::default()
    }
}

async fn shown(broker: &TestBroker) -> v1::Group {
    let get = v1::GetGroupRequest {
        name: "email".into(),
    };
    broker
        .group_admin()
        .get_group(get)
        .await
        .unwrap()
        .into_inner()
        .group
        .unwrap()
}

#[tokio::test]
async fn a_group_is_made_once_and_shown_with_its_members_and_lags() {
    let broker = with_group().await;
    let made = shown(&broker).await;
    assert_eq!(
        (made.total_lag, made.topics.as_slice()),
        (2, ["orders".to_owned()].as_slice())
    );
    assert_eq!(made.status(), v1::GroupStatus::NoMembers);
    assert_eq!(
        reason(broker.group_admin().create_group(email()).await),
        "GROUP_EXISTS"
    );
    let same = v1::CreateGroupRequest {
        ok_if_exists: true,
        ..email()
    };
    broker.group_admin().create_group(same).await.unwrap();

    let (mut stream, event) = join(&broker, member("email", &[])).await;
    delivery(&mut stream).await;
    let now = shown(&broker).await;
    assert_eq!(
        (now.members[0].id.clone(), now.members[0].in_flight),
        (event.member_id, 2)
    );
    assert!(now.members[0].address.starts_with("127.0.0.1:"));
    assert_eq!(now.status(), v1::GroupStatus::Ok);
    let lag = &now.lags[0];
    assert_eq!(
        (
            lag.committed_offset,
            lag.latest_offset,
            lag.lag,
            lag.in_flight
        ),
        (1, 3, 2, 2)
    );
    let pinned = lag.pinned.as_ref().unwrap();
    assert_eq!(
        (pinned.offset, pinned.state()),
        (1, v1::RecordState::Leased)
    );
    assert!(now.oldest_unprocessed_age.is_some());
}

#[tokio::test]
async fn positions_move_either_way_and_live_members_hold_them_unless_forced() {
    let broker = with_group().await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    delivery(&mut stream).await;
    let shift = async |shift_by, force, validate_only| {
        let request = v1::ResetOffsetsRequest {
            group: "email".into(),
            shift_by,
            force,
            validate_only,
            ..Default::default()
        };
        broker.group_admin().reset_offsets(request).await
    };
    let (_, reason_, metadata) = refused(shift(-1, false, false).await);
    assert_eq!(reason_, "GROUP_NOT_EMPTY");
    assert_eq!((&*metadata["members"], &*metadata["leases"]), ("1", "1"));
    assert_eq!(reason(shift(0, true, false).await), "INVALID_FIELD");
    let change = |response: v1::ResetOffsetsResponse| {
        let change = &response.changes[0];
        (change.topic.clone(), change.old_offset, change.new_offset)
    };
    let orders = || String::from("orders");
    let checked = change(shift(-9, true, true).await.unwrap().into_inner());
    assert_eq!(checked, (orders(), 1, 0), "kept within the log");
    assert_eq!(
        committed(&broker, "email").await,
        [1],
        "a check moves nothing"
    );
    assert_eq!(
        change(shift(1, true, false).await.unwrap().into_inner()),
        (orders(), 1, 2)
    );
    assert_eq!(committed(&broker, "email").await, [2]);
}

#[tokio::test]
async fn settings_of_a_group_change_by_a_mask_and_are_numbered() {
    let broker = with_group().await;
    let update = v1::UpdateGroupRequest {
        name: "email".into(),
        config: Some(v1::GroupConfig {
            paused: true,
            max_in_flight: 7,
            ..Default::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["paused".into()],
        }),
        ..Default::default()
    };
    let changed = broker
        .group_admin()
        .update_group(update)
        .await
        .unwrap()
        .into_inner();
    let changed = changed.group.unwrap();
    let config = changed.config.unwrap();
    assert_eq!(
        (config.paused, config.max_in_flight, changed.config_version),
        (true, 2000, 2)
    );
}

#[tokio::test]
async fn groups_are_listed_by_topic_and_go_when_they_are_empty() {
    let broker = with_group().await;
    broker.topic("other", 1).await;
    let (_stream, event) = join(&broker, member("email", &[])).await;
    let list = async |topic: &str| {
        let request = v1::ListGroupsRequest {
            topic: topic.into(),
            ..Default::default()
        };
        broker
            .group_admin()
            .list_groups(request)
            .await
            .unwrap()
            .into_inner()
            .groups
    };
    let listed = list("orders").await;
    assert_eq!(
        (listed.len(), listed[0].total_lag, listed[0].lags.len()),
        (1, 2, 0)
    );
    assert!(list("other").await.is_empty());
    let delete = || v1::DeleteGroupRequest {
        name: "email".into(),
        ..Default::default()
    };
    assert_eq!(
        reason(broker.group_admin().delete_group(delete()).await),
        "GROUP_NOT_EMPTY"
    );
    let leave = v1::LeaveRequest {
        group: "email".into(),
        member_id: event.member_id,
    };
    broker.groups().leave(leave).await.unwrap();
    broker.group_admin().delete_group(delete()).await.unwrap();
    assert_eq!(
        reason(broker.group_admin().delete_group(delete()).await),
        "GROUP_NOT_FOUND"
    );
}

#[tokio::test]
async fn a_token_of_a_deleted_topic_is_told_with_the_name_of_the_topic() {
    let broker = with_group().await;
    let (mut stream, _) = join(&broker, member("email", &[])).await;
    let held = delivery(&mut stream).await;
    let delete = v1::DeleteTopicRequest {
        name: "orders".into(),
        ..Default::default()
    };
    broker.topics().delete_topic(delete).await.unwrap();
    let extend = v1::ExtendAckRequest {
        ack_token: held.ack_token,
        ack_timeout: None,
    };
    let status = broker.groups().extend_ack(extend).await.unwrap_err();
    assert_eq!(status.message(), "there is no topic orders");
    assert_eq!(reason::<()>(Err(status)), "TOPIC_NOT_FOUND");
}

#[tokio::test]
async fn names_under_which_derived_topics_could_be_taken_for_others_are_refused() {
    let broker = with_group().await;
    let create = async |name: &str, topic: &str| {
        let request = v1::CreateGroupRequest {
            name: name.into(),
            topics: vec![topic.into()],
            ..Default::default()
        };
        reason(broker.group_admin().create_group(request).await)
    };
    assert_eq!(create("a.b", "orders").await, "INVALID_FIELD");
    assert_eq!(create("other", "orders.email.dlq").await, "DERIVED_TOPIC");
    assert_eq!(create("other", "orders.email.retry").await, "DERIVED_TOPIC");
    let long = "a".repeat(249 - ".other.retry".len() + 1);
    broker.topic(&long, 1).await;
    assert_eq!(create("other", &long).await, "INVALID_FIELD");
    let by_hand = v1::CreateTopicRequest {
        topic: Some(v1::Topic {
            name: "x.dlq".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let by_hand = broker.topics().create_topic(by_hand).await;
    assert_eq!(reason(by_hand), "DERIVED_TOPIC");
    let produce = v1::ProduceRequest {
        topic: "orders.email.retry".into(),
        records: vec![super::record("a")],
        ..Default::default()
    };
    assert_eq!(reason(broker.log().produce(produce).await), "DERIVED_TOPIC");
}

#[tokio::test]
async fn a_policy_that_cannot_be_is_refused_whole_and_the_old_one_stays() {
    let broker = with_group().await;
    let before = shown(&broker).await.config.unwrap();
    let update = |retry| v1::UpdateGroupRequest {
        name: "email".into(),
        config: Some(v1::GroupConfig {
            retry: Some(retry),
            paused: true,
            ..Default::default()
        }),
        ..Default::default()
    };
    let five = vec![super::seconds(1); 5];
    let bad = v1::RetryPolicy {
        max_deliveries: 5,
        delays: five.clone(),
        ..Default::default()
    };
    let refused = refused(broker.group_admin().update_group(update(bad)).await);
    assert_eq!(refused.2["field"], "config.retry.delays");
    assert_eq!(shown(&broker).await.config.unwrap(), before);
    let good = v1::RetryPolicy {
        max_deliveries: 6,
        delays: five,
        ..Default::default()
    };
    broker
        .group_admin()
        .update_group(update(good))
        .await
        .unwrap();
    let now = shown(&broker).await;
    let retry = now.config.unwrap().retry.unwrap();
    assert_eq!((retry.max_deliveries, retry.delays.len()), (6, 5));
    assert_eq!(now.config_version, 2);
}
