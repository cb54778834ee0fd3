//! Connections over a real socket, with limits short enough to be reached.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::{
    AcceptLimits, Budget, ConnectionEnd, ConnectionGuard, ConnectionLimits, EdgeHandle, EdgeParts,
    FrameLimits, Methods, Phase, PhaseSender, PortCounts, open_edges,
};
use crate::core::request::StreamEnd;
use crate::service::generated::health::health_server::{Health, HealthServer};

/// A service whose stream never says anything; it keeps the guard of each.
#[derive(Debug, Clone, Default)]
struct Silence {
    guards: Arc<Mutex<Vec<ConnectionGuard>>>,
    dropped: Arc<Notify>,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tonic::async_trait]
impl Health for Silence {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        assert!(request.get_ref().service != "panic", "asked to");
        Ok(Response::new(HealthCheckResponse::default()))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckResponse>>, Status> {
        let guard = request
            .extensions()
            .get::<ConnectionGuard>()
            .unwrap()
            .clone();
        self.guards.lock().unwrap().push(guard);
        let held = NotifyOnDrop(Arc::clone(&self.dropped));
        Ok(Response::new(Box::pin(futures_util::stream::poll_fn(
            move |_| {
                let _held = &held;
                std::task::Poll::Pending
            },
        ))))
    }
}

fn limits() -> ConnectionLimits {
    let frames = FrameLimits {
        budget: Budget::new(64 << 20),
        room_wait_max: Duration::from_secs(1),
        stall_max: Duration::from_secs(30),
    };
    ConnectionLimits::new(16, frames)
}

fn open(limits: ConnectionLimits, service: Silence) -> EdgeHandle {
    let parts = EdgeParts {
        edges: 2,
        routes: Routes::new(HealthServer::new(service)),
        methods: Methods::of(&[tonic_health::pb::FILE_DESCRIPTOR_SET], 1 << 20).unwrap(),
        accept: AcceptLimits {
            connections_max: 8,
            connections_per_address_max: 8,
        },
        limits,
        counts: PortCounts::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    open_edges(parts, listener, PhaseSender::new(Phase::Serving)).unwrap()
}

async fn client(edge: &EdgeHandle) -> HealthClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", edge.address())).unwrap();
    HealthClient::new(channel.connect().await.unwrap())
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it must come soon")
}

async fn is_closed(socket: &mut TcpStream) {
    let mut buffer = [0; 1024];
    loop {
        match soon(socket.read(&mut buffer)).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert!(matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ));
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_stream_dropped_on_a_living_connection_is_a_clean_end() {
    let service = Silence::default();
    let edge = open(limits(), service.clone());
    let mut client = client(&edge).await;
    let stream = client.watch(HealthCheckRequest::default()).await.unwrap();
    let guard = service.guards.lock().unwrap()[0].clone();
    drop(stream);
    soon(service.dropped.notified()).await;
    assert_eq!(guard.judge().await, StreamEnd::Clean);
    client.check(HealthCheckRequest::default()).await.unwrap();
    edge.drain(Duration::from_secs(5)).await;
    assert_eq!(
        guard.judge().await,
        StreamEnd::Broken,
        "now the connection is gone"
    );
}

#[tokio::test]
async fn a_connection_that_ends_with_its_stream_is_a_broken_one() {
    let service = Silence::default();
    let edge = open(limits(), service.clone());
    let mut client = client(&edge).await;
    let stream = client.watch(HealthCheckRequest::default()).await.unwrap();
    let guard = service.guards.lock().unwrap()[0].clone();
    drop((stream, client));
    soon(service.dropped.notified()).await;
    assert_eq!(guard.judge().await, StreamEnd::Broken);
}

/// The bytes with which a client begins: preface, empty settings, and a call of `Watch`.
fn preface_and_watch() -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let path = b"/grpc.health.v1.Health/Watch";
    // Indexed :method POST and :scheme http, then :path as a literal.
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).unwrap()];
    block.extend(path);
    bytes.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
    bytes.extend(block);
    // An empty message, and the end of the stream.
    bytes.extend([0, 0, 5, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    bytes
}

#[tokio::test]
async fn a_client_that_answers_no_ping_went_silent() {
    let service = Silence::default();
    let mut limits = limits();
    limits.ping_interval = Duration::from_millis(50);
    limits.ping_timeout = Duration::from_millis(50);
    let edge = open(limits, service.clone());
    let mut socket = TcpStream::connect(edge.address()).await.unwrap();
    socket.write_all(&preface_and_watch()).await.unwrap();
    is_closed(&mut socket).await;
    soon(service.dropped.notified()).await;
    let guard = service.guards.lock().unwrap()[0].clone();
    assert_eq!(guard.end(), Some(ConnectionEnd::Silent));
    assert_eq!(guard.judge().await, StreamEnd::Silent);
}

#[tokio::test]
async fn a_connection_without_a_call_is_closed_in_time() {
    let mut limits = limits();
    limits.first_call_max = Duration::from_millis(50);
    let edge = open(limits, Silence::default());
    let mut socket = TcpStream::connect(edge.address()).await.unwrap();
    is_closed(&mut socket).await;
    let mut polite = TcpStream::connect(edge.address()).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    polite.write_all(preface).await.unwrap();
    is_closed(&mut polite).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_with_an_open_call_is_not() {
    let service = Silence::default();
    let mut limits = limits();
    limits.first_call_max = Duration::from_millis(20);
    limits.idle_max = Duration::from_millis(50);
    let edge = open(limits, service.clone());
    let mut busy = client(&edge).await;
    let _open = busy.watch(HealthCheckRequest::default()).await.unwrap();
    let guard = service.guards.lock().unwrap()[0].clone();
    // An idle one beside it, opened later, goes first.
    let mut idle = TcpStream::connect(edge.address()).await.unwrap();
    let mut bytes = preface_and_watch();
    // A reset of the stream: its call is over, its connection idle.
    bytes.extend([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);
    idle.write_all(&bytes).await.unwrap();
    is_closed(&mut idle).await;
    assert_eq!(guard.end(), None);
    busy.check(HealthCheckRequest::default()).await.unwrap();
}

#[tokio::test]
async fn at_its_age_a_connection_takes_no_new_call_and_its_open_ones_go_on() {
    let service = Silence::default();
    let mut limits = limits();
    limits.age_max = Duration::from_millis(100);
    let edge = open(limits, service.clone());
    let mut client = client(&edge).await;
    let mut stream = client
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    let guard = service.guards.lock().unwrap()[0].clone();
    // Once the connection is told to go, its client moves on to a new one by itself: the guard of
    // a new stream then outlives the old connection.
    soon(async {
        loop {
            // A call that meets the goodbye halfway is refused by the client itself.
            let watch = client.watch(HealthCheckRequest::default()).await;
            let Ok(again) = watch else { continue };
            let newest = service.guards.lock().unwrap().pop().unwrap();
            drop(again);
            if !newest.is_same(&guard) {
                return;
            }
        }
    })
    .await;
    assert_eq!(guard.end(), None);
    let waiting = tokio::time::timeout(Duration::from_millis(50), stream.message());
    assert!(waiting.await.is_err(), "the open stream goes on");
}

#[tokio::test]
async fn a_call_that_panics_fails_alone() {
    let edge = open(limits(), Silence::default());
    let mut client = client(&edge).await;
    let request = HealthCheckRequest {
        service: "panic".into(),
    };
    assert_eq!(
        client.check(request).await.unwrap_err().code(),
        Code::Internal
    );
    client.check(HealthCheckRequest::default()).await.unwrap();
}

#[tokio::test]
async fn connections_are_spread_over_the_edges_and_counted_down_again() {
    let edge = open(limits(), Silence::default());
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut one = client(&edge).await;
        one.check(HealthCheckRequest::default()).await.unwrap();
        clients.push(one);
    }
    let mut ninth = TcpStream::connect(edge.address()).await.unwrap();
    is_closed(&mut ninth).await;
    clients.pop();
    // The seat is free again as soon as the broker has seen the end.
    soon(async {
        loop {
            let address = format!("http://{}", edge.address());
            let channel = Channel::from_shared(address).unwrap().connect_lazy();
            let mut one = HealthClient::new(channel);
            if one.check(HealthCheckRequest::default()).await.is_ok() {
                return;
            }
        }
    })
    .await;
}
