use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1alpha;
use varvelog_proto::v1;

use super::groups::member;
use super::{TestBroker, reason, seconds, soon};

#[tokio::test]
async fn a_stop_ends_streams_with_a_word() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let mut consume = broker
        .groups()
        .consume(member("email", &["orders"]))
        .await
        .unwrap();
    soon(consume.get_mut().message()).await.unwrap();
    let tail = v1::TailRequest {
        topics: vec!["orders".into()],
        ..Default::default()
    };
    let mut tail = broker.log().tail(tail).await.unwrap();
    let mut health = HealthClient::new(broker.channel.clone());
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(
        soon(watch.get_mut().message())
            .await
            .unwrap()
            .unwrap()
            .status,
        1
    );

    soon(broker.handle.stop()).await.unwrap();
    assert_eq!(
        reason(soon(consume.get_mut().message()).await),
        "BROKER_DRAINING"
    );
    assert_eq!(
        reason(soon(tail.get_mut().message()).await),
        "BROKER_DRAINING"
    );
    assert_eq!(
        soon(watch.get_mut().message())
            .await
            .unwrap()
            .unwrap()
            .status,
        2
    );
    assert!(soon(watch.get_mut().message()).await.unwrap().is_none());
}

#[tokio::test]
async fn a_stop_lets_calls_in_work_finish_and_takes_no_new_ones() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let wait = v1::FetchRequest {
        topic: "orders".into(),
        max_wait: Some(seconds(30)),
        ..Default::default()
    };
    let mut log = broker.log();
    let waiting = tokio::spawn(async move { log.fetch(wait).await });
    // Sent behind the fetch on the same connection, so that it has arrived.
    let mut health = HealthClient::new(broker.channel.clone());
    health.check(HealthCheckRequest::default()).await.unwrap();

    let address = broker.handle.grpc_addr();
    let mut late = broker.log();
    soon(broker.handle.stop()).await.unwrap();
    assert!(
        waiting
            .await
            .unwrap()
            .unwrap()
            .into_inner()
            .records
            .is_empty()
    );
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the listener is closed"
    );
    let status = late
        .init_producer(v1::InitProducerRequest::default())
        .await
        .unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
}

#[tokio::test]
async fn what_a_client_holds_open_is_cut_when_the_grace_is_over() {
    let broker = TestBroker::with(&[("shutdown.grace", "50ms")]).await;
    broker.topic("orders", 1).await;
    // A stream of requests that its client never ends.
    let (_open, asked) = tokio::sync::mpsc::channel::<v1::ProduceStreamRequest>(1);
    let requests = tokio_stream::wrappers::ReceiverStream::new(asked);
    let mut stream = broker
        .log()
        .produce_stream(requests)
        .await
        .unwrap()
        .into_inner();
    // And a connection that says nothing.
    let mut silent = TcpStream::connect(broker.handle.grpc_addr()).await.unwrap();
    soon(broker.handle.stop()).await.unwrap();
    assert!(soon(stream.message()).await.is_err());
    let mut rest = Vec::new();
    drop(soon(silent.read_to_end(&mut rest)).await);
}

#[tokio::test]
async fn the_http_port_says_that_the_broker_lives_and_serves() {
    let broker = TestBroker::start().await;
    let get = async |path: &str| {
        let mut socket = TcpStream::connect(broker.handle.http_addr()).await.unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        soon(socket.read_to_string(&mut answer)).await.unwrap();
        answer
    };
    assert!(get("/healthz").await.starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").await.ends_with("ready\n"));
    assert!(get("/nothing").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn reflection_shows_the_contract_in_both_versions() {
    let broker = TestBroker::start().await;
    let mut client =
        tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient::new(
            broker.channel.clone(),
        );
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            tonic_reflection::pb::v1::server_reflection_request::MessageRequest::ListServices(
                String::new(),
            ),
        ),
    };
    let answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap();
    let answer = soon(answers.into_inner().message()).await.unwrap().unwrap();
    let text = format!("{answer:?}");
    for service in [
        "LogService",
        "GroupService",
        "AlertService",
        "grpc.health.v1.Health",
    ] {
        assert!(text.contains(service), "{service}");
    }
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(broker.channel.clone());
    let symbol = v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
        "varvelog.v1.Record".to_owned(),
    );
    let request = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(symbol),
    };
    let answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap();
    let answer = soon(answers.into_inner().message()).await.unwrap().unwrap();
    assert!(format!("{answer:?}").contains("FileDescriptorResponse"));
}
