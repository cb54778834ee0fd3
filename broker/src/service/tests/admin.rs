use tonic::Code;
use varvelog_proto::v1;
use varvelog_proto::v1::alert_service_client::AlertServiceClient;
use varvelog_proto::v1::cluster_service_client::ClusterServiceClient;

use super::{TestBroker, reason, refused, seconds, soon};

fn named(name: &str) -> v1::Topic {
    v1::Topic {
        name: name.into(),
        ..Default::default()
    }
}

async fn shown(broker: &TestBroker, name: &str) -> v1::Topic {
    let get = v1::GetTopicRequest { name: name.into() };
    broker
        .topics()
        .get_topic(get)
        .await
        .unwrap()
        .into_inner()
        .topic
        .unwrap()
}

#[tokio::test]
async fn a_topic_is_made_with_its_defaults_and_changed_by_a_mask() {
    let broker = TestBroker::start().await;
    let made = broker.topic("orders", 0).await;
    assert_eq!((made.partitions, made.status.len()), (1, 1));
    assert_eq!(made.config.as_ref().unwrap().segment_bytes, 128 << 20);
    let config = Some(v1::TopicConfig {
        retention_age: Some(seconds(60)),
        ..Default::default()
    });
    let topic = Some(v1::Topic {
        config,
        ..named("orders")
    });
    let mask = prost_types::FieldMask {
        paths: vec!["config.retention_age".into()],
    };
    let update = |validate_only| v1::UpdateTopicRequest {
        topic: topic.clone(),
        update_mask: Some(mask.clone()),
        validate_only,
    };
    let age = |topic: &v1::Topic| {
        topic
            .config
            .as_ref()
            .unwrap()
            .retention_age
            .unwrap()
            .seconds
    };
    let checked = broker
        .topics()
        .update_topic(update(true))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(age(&checked.topic.unwrap()), 60);
    let now = shown(&broker, "orders").await;
    assert_eq!(age(&now), 7 * 24 * 3600, "a check changes nothing");
    broker.topics().update_topic(update(false)).await.unwrap();
    let now = shown(&broker, "orders").await;
    assert_eq!((age(&now), now.id), (60, made.id));
}

#[tokio::test]
async fn a_log_start_moves_up_within_the_log() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    broker.produce("orders", &["a", "b"]).await;
    let cut = |before_offset| v1::DeleteRecordsRequest {
        name: "orders".into(),
        before_offset,
        ..Default::default()
    };
    let start = broker
        .topics()
        .delete_records(cut(1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(start.earliest_offset, 1);
    assert_eq!(
        reason(broker.topics().delete_records(cut(3)).await),
        "OFFSET_OUT_OF_RANGE"
    );
    assert_eq!(
        reason(broker.topics().delete_records(cut(-1)).await),
        "INVALID_FIELD"
    );
    let now = shown(&broker, "orders").await;
    let first = &now.status[0];
    assert_eq!((first.earliest_offset, first.latest_offset), (1, 2));
    assert!(first.oldest_append_time.is_some() && now.status[1].oldest_append_time.is_none());
}

#[tokio::test]
async fn a_topic_grows_never_shrinks_and_goes() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    let grow = async |total| {
        let request = v1::AddPartitionsRequest {
            name: "orders".into(),
            total,
            ..Default::default()
        };
        broker.topics().add_partitions(request).await
    };
    assert_eq!(
        grow(3)
            .await
            .unwrap()
            .into_inner()
            .topic
            .unwrap()
            .partitions,
        3
    );
    for bad in [2, 0, -1, 10_001] {
        assert_eq!(reason(grow(bad).await), "INVALID_FIELD", "{bad}");
    }
    let delete = v1::DeleteTopicRequest {
        name: "orders".into(),
        ..Default::default()
    };
    broker.topics().delete_topic(delete.clone()).await.unwrap();
    assert_eq!(
        reason(broker.topics().delete_topic(delete).await),
        "TOPIC_NOT_FOUND"
    );
    let get = v1::GetTopicRequest {
        name: "orders".into(),
    };
    assert_eq!(
        reason(broker.topics().get_topic(get).await),
        "TOPIC_NOT_FOUND"
    );
}

#[tokio::test]
async fn names_that_are_taken_or_derived_are_refused() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let create = |name: &str, ok_if_exists| v1::CreateTopicRequest {
        topic: Some(named(name)),
        ok_if_exists,
        ..Default::default()
    };
    let (code, reason_, _) = refused(broker.topics().create_topic(create("orders", false)).await);
    assert_eq!(
        (code, reason_.as_str()),
        (Code::AlreadyExists, "TOPIC_EXISTS")
    );
    broker
        .topics()
        .create_topic(create("orders", true))
        .await
        .unwrap();
    for derived in ["orders.email.retry", "x.dlq"] {
        let refused = broker.topics().create_topic(create(derived, false)).await;
        assert_eq!(reason(refused), "DERIVED_TOPIC");
    }
    let empty = v1::CreateTopicRequest::default();
    assert_eq!(
        reason(broker.topics().create_topic(empty).await),
        "INVALID_FIELD"
    );
}

#[tokio::test]
async fn topics_are_listed_in_pages_by_name() {
    let broker = TestBroker::start().await;
    for name in ["c", "a", "b", "other"] {
        broker.topic(name, 1).await;
    }
    let group = v1::CreateGroupRequest {
        name: "g".into(),
        topics: vec!["a".into()],
        ..Default::default()
    };
    broker.group_admin().create_group(group).await.unwrap();
    let list = async |request: v1::ListTopicsRequest| {
        let page = broker
            .topics()
            .list_topics(request)
            .await
            .unwrap()
            .into_inner();
        let names: Vec<String> = page.topics.iter().map(|topic| topic.name.clone()).collect();
        (names, page.next_page_token)
    };
    let page = |page_token: String| v1::ListTopicsRequest {
        page_size: 2,
        page_token,
        ..Default::default()
    };
    let (first, token) = list(page(String::new())).await;
    assert_eq!(first, ["a", "b"]);
    let (second, token) = list(page(token)).await;
    assert_eq!(
        (second, token.as_str()),
        (vec!["c".into(), "other".into()], "")
    );
    let prefix = v1::ListTopicsRequest {
        name_prefix: "a".into(),
        include_derived: true,
        ..Default::default()
    };
    assert_eq!(list(prefix).await.0, ["a", "a.g.dlq", "a.g.retry"]);
    let bad = v1::ListTopicsRequest {
        page_token: "x".into(),
        ..Default::default()
    };
    assert_eq!(
        reason(broker.topics().list_topics(bad).await),
        "INVALID_FIELD"
    );
}

#[tokio::test]
async fn the_cluster_says_who_it_is_and_how_it_is_set() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    let mut cluster = ClusterServiceClient::new(broker.channel.clone());
    let info = cluster
        .get_info(v1::GetInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (info.sync_policy.as_str(), info.cluster_id.len()),
        ("never", 36)
    );
    let prefix = v1::GetConfigRequest {
        prefix: "wal.".into(),
    };
    let config = cluster
        .get_config(prefix)
        .await
        .unwrap()
        .into_inner()
        .entries;
    let shown: Vec<(&str, &str)> = config
        .iter()
        .map(|entry| (entry.key.as_str(), entry.source.as_str()))
        .collect();
    assert_eq!(shown, [("wal.file_bytes", "flag"), ("wal.sync", "flag")]);

    let routes = |cluster: &ClusterServiceClient<_>| {
        let mut cluster = cluster.clone();
        async move {
            cluster
                .get_routes(v1::GetRoutesRequest::default())
                .await
                .unwrap()
                .into_inner()
        }
    };
    let first = routes(&cluster).await;
    assert_eq!(
        first.brokers[0].address,
        broker.handle.grpc_addr().to_string()
    );
    assert_eq!(first.routes.len(), 2);
    assert!(
        first
            .routes
            .iter()
            .all(|route| route.leader_node_id == info.node_id)
    );
    broker.topic("more", 1).await;
    assert!(routes(&cluster).await.version > first.version);

    let watch = v1::WatchOverviewRequest::default();
    let mut figures = cluster.watch_overview(watch).await.unwrap().into_inner();
    assert!(
        soon(figures.message())
            .await
            .unwrap()
            .unwrap()
            .time
            .is_some()
    );
}

#[tokio::test]
async fn what_is_not_in_this_release_says_so_by_name() {
    let broker = TestBroker::start().await;
    let mut alerts = AlertServiceClient::new(broker.channel.clone());
    let listed = alerts.list_alerts(v1::ListAlertsRequest::default()).await;
    let (code, reason, metadata) = refused(listed);
    assert_eq!(
        (code, reason.as_str()),
        (Code::Unimplemented, "NOT_IMPLEMENTED")
    );
    assert_eq!(metadata["feature"], "alerts");
    let mut cluster = ClusterServiceClient::new(broker.channel.clone());
    let (_, reason, _) = refused(cluster.export_backup(v1::ExportBackupRequest {}).await);
    assert_eq!(reason, "NOT_IMPLEMENTED");
}

#[tokio::test]
async fn a_topic_that_would_grow_is_shown_as_it_would_be() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 2).await;
    let grow = async |validate_only| {
        let request = v1::AddPartitionsRequest {
            name: "orders".into(),
            total: 5,
            validate_only,
            force: false,
        };
        let grown = broker.topics().add_partitions(request).await.unwrap();
        grown.into_inner().topic.unwrap().partitions
    };
    assert_eq!(grow(true).await, 5);
    assert_eq!(
        shown(&broker, "orders").await.partitions,
        2,
        "nothing changed"
    );
    assert_eq!(grow(false).await, 5);
    assert_eq!(shown(&broker, "orders").await.partitions, 5);
}
