use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::budget::Budget;
use super::{FrameLimits, Framed, MethodShape};

const LIMIT: usize = 1 << 20;

fn shape(is_client_stream: bool) -> MethodShape {
    MethodShape {
        is_client_stream,
        is_server_stream: false,
        message_bytes_max: LIMIT,
    }
}

fn limits(budget: &Budget) -> FrameLimits {
    FrameLimits {
        budget: budget.clone(),
        room_wait_max: Duration::from_secs(2),
        stall_max: Duration::from_secs(30),
    }
}

fn message(length: usize) -> Vec<u8> {
    let mut message = vec![0];
    let [a, b, c, d] = u32::try_from(length).unwrap().to_le_bytes();
    message.extend([d, c, b, a]);
    message.extend(vec![7; length]);
    message
}

fn pieces(bytes: &[u8], sizes: &[usize]) -> Vec<Bytes> {
    let mut rest = bytes;
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*size).clamp(1, rest.len()));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = behind;
    }
    pieces
}

/// What a service would be handed: all bytes, then perhaps a failure.
async fn handed(pieces: Vec<Bytes>, shape: MethodShape) -> (Vec<u8>, Option<Status>) {
    let frames = pieces.into_iter().map(|piece| Ok(Frame::data(piece)));
    let budget = Budget::new(64 << 20);
    read(Framed::new(
        StreamBody::new(stream::iter(frames)),
        shape,
        limits(&budget),
    ))
    .await
}

async fn read(
    mut body: impl Body<Data = Bytes, Error = Status> + Unpin,
) -> (Vec<u8>, Option<Status>) {
    let mut bytes = Vec::new();
    loop {
        match body.frame().await {
            None => return (bytes, None),
            Some(Ok(frame)) => bytes.extend_from_slice(&frame.into_data().unwrap()),
            Some(Err(status)) => {
                assert!(
                    body.frame().await.is_none(),
                    "it must not go on after a failure"
                );
                return (bytes, Some(status));
            }
        }
    }
}

fn reason(status: Option<Status>) -> (Code, String) {
    let status = status.expect("a failure");
    let reason = status
        .get_error_details()
        .error_info()
        .unwrap()
        .reason
        .clone();
    (status.code(), reason)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(future)
}

proptest! {
    #[test]
    fn a_good_body_is_handed_on_as_it_came_however_it_is_cut(
        lengths in proptest::collection::vec(prop_oneof![0..40_usize, 66_000..70_000_usize], 0..5),
        sizes in proptest::collection::vec(1..90_000_usize, 1..6),
    ) {
        let body: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        let (bytes, failure) = block_on(handed(pieces(&body, &sizes), shape(true)));
        prop_assert!(failure.is_none());
        prop_assert_eq!(bytes, body);
    }

    #[test]
    fn what_is_good_before_a_break_is_handed_on_and_nothing_after(
        lengths in proptest::collection::vec(0..40_usize, 0..5),
        flag in 1..=255_u8,
        sizes in proptest::collection::vec(1..60_usize, 1..6),
    ) {
        let good: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        let mut bad = message(3);
        bad[0] = flag;
        let (bytes, failure) =
            block_on(handed(pieces(&[&good[..], &bad].concat(), &sizes), shape(true)));
        prop_assert_eq!(reason(failure), (Code::InvalidArgument, "MALFORMED_REQUEST".into()));
        // Up to four bytes of the bad prefix may have gone in an earlier piece.
        prop_assert!(bytes.len() >= good.len() && bytes.len() < good.len() + 5);
        prop_assert_eq!(&bytes[..good.len()], &good[..]);
    }

    #[test]
    fn a_body_cut_anywhere_but_between_messages_is_refused(
        length in 0..40_usize,
        cut in 1..44_usize,
        sizes in proptest::collection::vec(1..60_usize, 1..6),
    ) {
        let body = [message(4), message(length)].concat();
        let kept = body.len() - cut.min(body.len());
        let (_, failure) = block_on(handed(pieces(&body[..kept], &sizes), shape(true)));
        let is_between = kept == 0 || kept == message(4).len();
        prop_assert_eq!(failure.is_some(), !is_between);
    }
}

#[tokio::test]
async fn a_method_that_takes_one_message_gets_one_or_the_caller_is_told() {
    assert_eq!(
        handed(vec![message(3).into()], shape(false))
            .await
            .1
            .map(|s| s.code()),
        None
    );
    for bad in [vec![], [message(3), message(3)].concat()] {
        let (_, failure) = handed(pieces(&bad, &[100]), shape(false)).await;
        assert_eq!(
            reason(failure),
            (Code::InvalidArgument, "MALFORMED_REQUEST".into())
        );
    }
    assert!(
        handed(vec![], shape(true)).await.1.is_none(),
        "a stream may be empty"
    );
}

#[tokio::test]
async fn a_message_over_the_limit_is_refused_by_its_prefix_alone() {
    assert!(
        handed(pieces(&message(LIMIT), &[1 << 16]), shape(false))
            .await
            .1
            .is_none()
    );
    for prefix in [[0, 0, 0x10, 0, 1], [0, 255, 255, 255, 255]] {
        let (bytes, failure) = handed(pieces(&prefix, &[5]), shape(false)).await;
        assert!(bytes.is_empty());
        assert_eq!(
            reason(failure),
            (Code::ResourceExhausted, "REQUEST_TOO_LARGE".into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_message_waits_for_room_and_is_refused_when_there_is_none() {
    let budget = Budget::new(100 * 1024);
    let body = |budget: &Budget| {
        let frames = pieces(&message(90_000), &[1000])
            .into_iter()
            .map(|p| Ok(Frame::data(p)));
        Framed::new(
            StreamBody::new(stream::iter(frames)),
            shape(false),
            limits(budget),
        )
    };
    let taken = budget.acquire(50 * 1024).await;
    let (_, failure) = read(body(&budget)).await;
    assert_eq!(
        reason(failure),
        (Code::ResourceExhausted, "BROKER_BUSY".into())
    );
    drop(taken);
    let (bytes, failure) = read(body(&budget)).await;
    assert_eq!(
        (bytes.len(), failure.map(|status| status.code())),
        (90_005, None)
    );
    assert_eq!(budget.free_bytes(), 100 * 1024, "the room is given back");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_stands_still_is_given_up() {
    let budget = Budget::new(1 << 20);
    let begun = stream::iter([Ok(Frame::data(Bytes::from_static(&[0, 0, 0, 0, 9, 1])))]);
    let silent = begun.chain(stream::pending());
    let (_, failure) = read(Framed::new(
        StreamBody::new(silent),
        shape(true),
        limits(&budget),
    ))
    .await;
    assert_eq!(
        reason(failure),
        (Code::InvalidArgument, "MALFORMED_REQUEST".into())
    );

    // Between messages a stream may be silent for as long as it likes.
    let whole = stream::iter([Ok(Frame::data(Bytes::from(message(3))))]);
    let mut quiet = Framed::new(
        StreamBody::new(whole.chain(stream::pending())),
        shape(true),
        limits(&budget),
    );
    quiet.frame().await.unwrap().unwrap();
    let day = Duration::from_hours(24);
    assert!(tokio::time::timeout(day, quiet.frame()).await.is_err());
}
