use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use varvelog_proto::v1;

use super::{TestBroker, soon};

#[tokio::test]
async fn a_connection_over_the_cap_is_closed_at_once() {
    let broker = TestBroker::with(&[("limits.connections", "2")]).await;
    let mut second = TcpStream::connect(broker.handle.grpc_addr()).await.unwrap();
    let mut third = TcpStream::connect(broker.handle.grpc_addr()).await.unwrap();
    assert!(closed(&mut third).await);
    // The first two go on.
    broker.topic("orders", 1).await;
    second
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    assert_ne!(soon(second.read(&mut [0; 9])).await.unwrap(), 0);
}

/// Whether the broker closes the connection, whatever it says first.
async fn closed(socket: &mut TcpStream) -> bool {
    soon(async {
        let mut buffer = [0; 1024];
        loop {
            match socket.read(&mut buffer).await {
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
        }
    })
    .await
}

#[tokio::test]
async fn bytes_that_are_not_http2_end_their_connection_and_no_other() {
    let broker = TestBroker::start().await;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 100],
        b"PRI * HTTP/2.0\r\n\r\nXX",
    ] {
        let mut socket = TcpStream::connect(broker.handle.grpc_addr()).await.unwrap();
        socket.write_all(garbage).await.unwrap();
        assert!(closed(&mut socket).await);
    }
    broker.topic("orders", 1).await;
}

#[tokio::test]
async fn tokens_made_up_by_a_client_settle_nothing() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    broker.produce("orders", &["a"]).await;
    let create = v1::CreateGroupRequest {
        name: "email".into(),
        topics: vec!["orders".into()],
        ..Default::default()
    };
    broker.group_admin().create_group(create).await.unwrap();
    let forged = crate::service::token::encode(&crate::core::request::AckToken {
        group: crate::names::GroupName::parse("email").unwrap(),
        group_id: 999,
        reset_count: 0,
        partition: varvelog_store::PartitionId::default(),
        first: varvelog_store::Offset::ZERO,
        last: varvelog_store::Offset::ZERO,
        lease: crate::core::request::LeaseId(1),
        run: 1,
        attempt: 1,
        origins: Vec::new(),
    });
    let ack = v1::AckRequest {
        ack_token: forged,
        ..Default::default()
    };
    let answer = broker.groups().ack(ack).await.unwrap().into_inner();
    assert_eq!((answer.done, answer.conflicts.len()), (0, 1));
}

#[tokio::test]
async fn calls_beyond_the_limit_of_a_connection_wait_and_do_not_fail() {
    let broker = TestBroker::with(&[("limits.streams_per_connection", "4")]).await;
    broker.topic("orders", 1).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut log = broker.log();
        calls.spawn(async move {
            let request = v1::FetchRequest {
                topic: "orders".into(),
                max_wait: Some(super::millis(1)),
                ..Default::default()
            };
            log.fetch(request).await.unwrap()
        });
    }
    assert_eq!(soon(calls.join_all()).await.len(), 50);
}
