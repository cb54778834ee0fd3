use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::super::edge::PhaseSender;
use super::*;

const SEATS: usize = 3;

/// A port with limits short enough to be reached.
struct Port {
    address: std::net::SocketAddr,
    phase: PhaseSender,
    served: tokio::task::JoinHandle<()>,
}

fn open(head_max: Duration, age_max: Duration) -> Port {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let limits = HttpLimits {
        accept: AcceptLimits {
            connections_max: SEATS,
            connections_per_address_max: SEATS,
        },
        head_max,
        age_max,
    };
    let (phase, watch) = PhaseSender::new(Phase::Serving);
    let served = tokio::spawn(serve(listener, limits, (watch.clone(), router(watch))));
    Port {
        address,
        phase,
        served,
    }
}

const LONG: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_millis(300);

impl Port {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it must come soon")
}

/// Everything until the other end closes.
async fn rest(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset ends it too.
    drop(soon(socket.read_to_end(&mut bytes)).await);
    String::from_utf8(bytes).unwrap()
}

/// One answer on a connection that stays open.
async fn answer(socket: &mut TcpStream) -> String {
    let request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n";
    socket.write_all(request).await.unwrap();
    let mut bytes = vec![0; 1024];
    let mut read = 0;
    while !bytes[..read].ends_with(b"ok\n") {
        match soon(socket.read(&mut bytes[read..])).await {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    String::from_utf8(bytes[..read].to_vec()).unwrap()
}

#[tokio::test]
async fn the_broker_is_ready_only_while_it_serves() {
    let (sender, watch) = PhaseSender::new(Phase::Starting);
    let ready = || async { readyz(State(watch.clone())).await.0 };
    assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
    sender.advance(Phase::Serving);
    assert_eq!(ready().await, StatusCode::OK);
    sender.advance(Phase::Draining);
    assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_a_freed_seat_is_taken() {
    let port = open(LONG, LONG);
    let mut seated = Vec::new();
    for _ in 0..SEATS {
        let mut socket = port.connect().await;
        assert!(answer(&mut socket).await.starts_with("HTTP/1.1 200"));
        seated.push(socket);
    }
    assert_eq!(answer(&mut port.connect().await).await, "");
    seated.pop();
    let again = async { while answer(&mut port.connect().await).await.is_empty() {} };
    soon(again).await;
    assert!(answer(&mut seated[0]).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn idle_and_slow_clients_lose_their_seats() {
    let port = open(SHORT, LONG);
    let mut idle = port.connect().await;
    let mut slow = port.connect().await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost:")
        .await
        .unwrap();
    let mut kept = port.connect().await;
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200"));
    for socket in [&mut idle, &mut slow, &mut kept] {
        let said = rest(socket).await;
        assert!(
            said.is_empty() || said.starts_with("HTTP/1.1 408"),
            "{said}"
        );
    }
    assert!(
        answer(&mut port.connect().await)
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn a_head_that_trickles_in_gets_no_more_time() {
    let port = open(SHORT, LONG);
    let (mut from, mut to) = port.connect().await.into_split();
    let trickle = async {
        for byte in b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: "
            .iter()
            .chain([b'x'].iter().cycle())
        {
            tokio::time::sleep(SHORT / 20).await;
            if to.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    };
    let mut said = Vec::new();
    tokio::select! {
        ended = soon(from.read_to_end(&mut said)) => drop(ended),
        () = trickle => {}
    }
}

#[tokio::test]
async fn a_large_head_is_refused() {
    let port = open(LONG, LONG);
    let mut socket = port.connect().await;
    let head = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    drop(socket.write_all(head.as_bytes()).await);
    assert!(rest(&mut socket).await.starts_with("HTTP/1.1 431"));
    let mut socket = port.connect().await;
    let head = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(65));
    drop(socket.write_all(head.as_bytes()).await);
    assert!(rest(&mut socket).await.starts_with("HTTP/1.1 431"));
}

#[tokio::test]
async fn a_connection_ends_at_its_age_and_when_the_edge_drains() {
    let port = open(LONG, SHORT);
    assert_eq!(rest(&mut port.connect().await).await, "");
    let port = open(LONG, LONG);
    let mut idle = port.connect().await;
    assert!(answer(&mut idle).await.starts_with("HTTP/1.1 200"));
    port.phase.advance(Phase::Draining);
    assert_eq!(rest(&mut idle).await, "");
    soon(port.served).await.unwrap();
}

#[test]
fn the_limits_follow_the_settings_within_bounds() {
    let connections = |setting| HttpLimits::new(setting, 100).accept.connections_max;
    assert_eq!([1, 4, 1000, 100_000].map(connections), [1, 1, 250, 256]);
}
