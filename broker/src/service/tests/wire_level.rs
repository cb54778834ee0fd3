//! Requests that no generated client sends, over a real connection.

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_types::StatusExt;

use super::{TestBroker, soon};

/// Sends a body as it is; gives code and text of the status.
async fn send(broker: &TestBroker, path: &str, body: impl Into<Bytes>) -> (Code, String) {
    send_with(broker, path, body, &[]).await
}

async fn send_with(
    broker: &TestBroker,
    path: &str,
    body: impl Into<Bytes>,
    headers: &[(&'static str, &'static str)],
) -> (Code, String) {
    let (head, body) = soon(answer(broker, path, body.into(), headers))
        .await
        .into_parts();
    let trailers = if head.headers.contains_key("grpc-status") {
        head.headers
    } else {
        let collected = soon(body.collect()).await.unwrap();
        collected
            .trailers()
            .cloned()
            .expect("a status in the trailers")
    };
    let status = tonic::Status::from_header_map(&trailers).expect("a status");
    let reason = status.get_details_error_info().map(|info| info.reason);
    (
        status.code(),
        reason.unwrap_or_else(|| status.message().to_owned()),
    )
}

/// One call on a connection of its own, by a client that adds nothing of its own.
async fn answer(
    broker: &TestBroker,
    path: &str,
    body: Bytes,
    headers: &[(&'static str, &'static str)],
) -> http::Response<hyper::body::Incoming> {
    let socket = TcpStream::connect(broker.handle.grpc_addr()).await.unwrap();
    let io = TokioIo::new(socket);
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://{}{path}", broker.handle.grpc_addr()))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body)).unwrap();
    client.send_request(request).await.unwrap()
}

fn framed(message: &[u8]) -> Bytes {
    prefixed(0, message.len(), message)
}

fn prefixed(flag: u8, length: usize, message: &[u8]) -> Bytes {
    let [a, b, c, d] = u32::try_from(length).unwrap().to_le_bytes();
    let mut body = BytesMut::new();
    body.put_slice(&[flag, d, c, b, a]);
    body.put_slice(message);
    body.freeze()
}

const PRODUCE: &str = "/varvelog.v1.LogService/Produce";
const FETCH: &str = "/varvelog.v1.LogService/Fetch";
const STREAM: &str = "/varvelog.v1.LogService/ProduceStream";
const SESSION: &str = "/varvelog.v1.GroupService/ConsumeSession";
const ACK: &str = "/varvelog.v1.GroupService/Ack";
const CREATE: &str = "/varvelog.v1.TopicService/CreateTopic";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

fn malformed() -> (Code, String) {
    (Code::InvalidArgument, "MALFORMED_REQUEST".to_owned())
}

#[tokio::test]
async fn bytes_that_do_not_decode_are_the_callers_error_everywhere() {
    let broker = TestBroker::start().await;
    let bad: [&[u8]; 5] = [
        &[0x0a, 2, 0xff, 0xfe], // a text that is not UTF-8
        &[0x0a, 9, b'x'],       // a field that is cut off
        &[0x0f, 0],             // wire type 7
        &[0x08, 1],             // a number where a text belongs
        &[
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
        ], // too long a number
    ];
    for path in [PRODUCE, FETCH, ACK, CREATE, HEALTH] {
        for message in bad {
            // Field 1 of an ack is bytes, which need not be text; it is no token then.
            let is_token = path == ACK && message[1] == 2;
            let answer = send(&broker, path, framed(message)).await;
            if is_token {
                assert_eq!(answer.1, "ACK_TOKEN_INVALID");
            } else if !(path == CREATE && message == bad[0]) {
                assert_eq!(answer, malformed(), "{path} {message:?}");
            }
        }
    }
    for path in [STREAM, SESSION] {
        for message in [&bad[2], &bad[1]] {
            assert_eq!(
                send(&broker, path, framed(message)).await,
                malformed(),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_broken_chain_of_messages_is_the_callers_error_everywhere() {
    let broker = TestBroker::start().await;
    for path in [PRODUCE, FETCH, HEALTH] {
        let bodies = [
            Bytes::new(),                               // no message
            Bytes::from_static(&[0, 0]),                // half a prefix
            prefixed(0, 10, b"abc"),                    // half a message
            prefixed(1, 0, b""),                        // compressed, and no one says how
            prefixed(7, 0, b""),                        // no flag at all
            [framed(b""), framed(b"")].concat().into(), // one too many
        ];
        for body in bodies {
            assert_eq!(
                send(&broker, path, body.clone()).await,
                malformed(),
                "{path} {body:?}"
            );
        }
    }
    for path in [STREAM, SESSION] {
        for body in [
            Bytes::from_static(&[0, 0]),
            prefixed(0, 10, b"abc"),
            prefixed(7, 0, b""),
        ] {
            assert_eq!(
                send(&broker, path, body.clone()).await,
                malformed(),
                "{path} {body:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_message_over_its_limit_is_refused_by_the_five_bytes_in_front_of_it() {
    let broker = TestBroker::start().await;
    let too_large = (Code::ResourceExhausted, "REQUEST_TOO_LARGE".to_owned());
    let limits = [
        (PRODUCE, 16 << 20),
        (FETCH, 1 << 20),
        (CREATE, 256 << 10),
        (STREAM, 16 << 20),
    ];
    for (path, limit) in limits {
        let answer = send(&broker, path, prefixed(0, limit + 1, b"")).await;
        assert_eq!(answer, too_large, "{path}");
    }
    let four_gib = Bytes::from_static(&[0, 255, 255, 255, 255]);
    assert_eq!(send(&broker, PRODUCE, four_gib).await, too_large);
}

#[tokio::test]
async fn two_million_empty_records_are_refused_at_the_first_too_many() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let mut message = b"\x0a\x06orders".to_vec();
    message.extend([0x12, 0x00].repeat(2_000_000));
    let answer = send(&broker, PRODUCE, framed(&message)).await;
    assert_eq!(answer, (Code::InvalidArgument, "INVALID_FIELD".to_owned()));
}

#[tokio::test]
async fn deadlines_compression_and_unknown_methods_are_answered_as_grpc_asks() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let wait = framed(b"\x0a\x06orders\x32\x02\x08\x1e");
    let (code, _) = send_with(&broker, FETCH, wait.clone(), &[("grpc-timeout", "50m")]).await;
    assert_eq!(code, Code::DeadlineExceeded);
    let (_, reason) = send_with(&broker, FETCH, wait, &[("grpc-timeout", "soon")]).await;
    assert_eq!(reason, "MALFORMED_REQUEST");
    let gzip = [("grpc-encoding", "gzip")];
    let (code, _) = send_with(&broker, FETCH, prefixed(1, 3, b"abc"), &gzip).await;
    assert_eq!(code, Code::Unimplemented);
    let (code, _) = send(&broker, "/varvelog.v1.LogService/Nothing", framed(b"")).await;
    assert_eq!(code, Code::Unimplemented);
    let (code, _) = send(&broker, "/nobody.Home/Nothing", framed(b"")).await;
    assert_eq!(code, Code::Unimplemented);
}

#[tokio::test]
async fn good_messages_in_front_of_a_bad_one_are_answered_first() {
    let broker = TestBroker::start().await;
    broker.topic("orders", 1).await;
    let request = b"\x08\x05\x12\x0a\x0a\x06orders\x12\x00";
    let body = [framed(request), prefixed(9, 0, b"")].concat();
    let response = answer(&broker, STREAM, body.into(), &[]).await;
    let collected = soon(response.into_body().collect()).await.unwrap();
    let trailers = collected.trailers().cloned().unwrap();
    let status = tonic::Status::from_header_map(&trailers).unwrap();
    assert_eq!(status.code(), Code::InvalidArgument);
    let replies = collected.to_bytes();
    assert_eq!(
        replies[5..7],
        [0x08, 0x05],
        "the answer to the first request"
    );
}
