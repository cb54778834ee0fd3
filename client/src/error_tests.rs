use prost::Message as _;
use tonic_types::{BadRequest, ErrorDetails, RetryInfo};

use super::*;

fn refusal(code: Code, reason: &str) -> Status {
    Status::with_error_details(
        code,
        "text",
        ErrorDetails::with_error_info(reason, ERROR_DOMAIN, [("limit".into(), "7".into())]),
    )
}

fn broker(code: Code, reason: &str) -> CallError {
    CallError::from(refusal(code, reason))
}

/// (code, reason, may be retried, may have been applied) as the table of errors has them; those
/// that bring `RetryInfo` are tried apart.
const TABLE: &[(Code, &str, bool, bool)] = &[
    (Code::InvalidArgument, "MALFORMED_REQUEST", false, false),
    (Code::InvalidArgument, "INVALID_FIELD", false, false),
    (Code::InvalidArgument, "RECORD_TOO_LARGE", false, false),
    (Code::InvalidArgument, "BATCH_INVALID", false, false),
    (Code::NotFound, "TOPIC_NOT_FOUND", false, false),
    (Code::NotFound, "PARTITION_NOT_FOUND", false, false),
    (Code::AlreadyExists, "TOPIC_EXISTS", false, false),
    (Code::OutOfRange, "OFFSET_OUT_OF_RANGE", false, false),
    (Code::OutOfRange, "OFFSET_TRUNCATED", false, false),
    (Code::FailedPrecondition, "SEQUENCE_GAP", false, false),
    (Code::FailedPrecondition, "SEQUENCE_TOO_OLD", false, true),
    (Code::FailedPrecondition, "PRODUCER_UNKNOWN", false, false),
    (Code::Aborted, "LEASE_LOST", false, false),
    (Code::Aborted, "PRODUCER_FENCED", false, false),
    (Code::Aborted, "MEMBER_FENCED", false, false),
    (Code::ResourceExhausted, "REQUEST_TOO_LARGE", false, false),
    (Code::ResourceExhausted, "QUOTA_EXCEEDED", false, false),
    (Code::Unavailable, "BROKER_STARTING", true, false),
    (Code::Unavailable, "BROKER_DRAINING", true, false),
    (Code::Unavailable, "BROKER_FENCED", true, true),
    (Code::Unavailable, "NOT_LEADER", true, false),
    (Code::DataLoss, "SEGMENT_CORRUPT", false, false),
    (Code::Unimplemented, "NOT_IMPLEMENTED", false, false),
    (Code::Unauthenticated, "NOT_AUTHENTICATED", false, false),
    (Code::PermissionDenied, "NOT_ALLOWED", false, false),
];

#[test]
fn every_reason_says_whether_to_retry_and_whether_it_may_have_applied() {
    for &(code, reason, retryable, applied) in TABLE {
        let status = broker(code, reason);
        let stream = CallError::from(v1::StreamError {
            code: code as i32,
            reason: reason.to_owned(),
            ..Default::default()
        });
        for error in [status, stream] {
            assert_eq!(error.code(), code, "{reason}");
            assert_eq!(error.reason(), Some(reason));
            assert_eq!(error.is_retryable(), retryable, "retry {reason}");
            assert_eq!(error.may_have_applied(), applied, "applied {reason}");
        }
    }
}

#[test]
fn resource_exhausted_is_retryable_only_with_a_time() {
    let mut details =
        ErrorDetails::with_error_info("BROKER_BUSY", ERROR_DOMAIN, [("limit".into(), "7".into())]);
    details.set_retry_info(Some(Duration::from_millis(250)));
    let error = CallError::from(Status::with_error_details(
        Code::ResourceExhausted,
        "x",
        details,
    ));
    assert!(error.is_retryable() && !error.may_have_applied());
    assert_eq!(error.retry_after(), Some(Duration::from_millis(250)));
    assert_eq!(error.metadata_number("limit"), Some(7));
    let stream = CallError::from(v1::StreamError {
        code: Code::ResourceExhausted as i32,
        reason: "BROKER_BUSY".to_owned(),
        retry_after: Some(prost_types::Duration {
            seconds: 2,
            nanos: 0,
        }),
        ..Default::default()
    });
    assert!(stream.is_retryable());
    assert_eq!(stream.retry_after(), Some(Duration::from_secs(2)));
}

#[test]
fn a_bare_status_leaves_open_what_happened_unless_its_code_says() {
    for (code, retryable, applied) in [
        (Code::Unavailable, true, true),
        (Code::Cancelled, true, true),
        (Code::DeadlineExceeded, true, true),
        (Code::Unknown, true, true),
        (Code::Internal, false, true),
        (Code::Unimplemented, false, false),
        (Code::PermissionDenied, false, false),
        (Code::ResourceExhausted, false, false),
    ] {
        let error = CallError::from(Status::new(code, ""));
        assert_eq!(error.reason(), None);
        assert_eq!(
            (error.is_retryable(), error.may_have_applied()),
            (retryable, applied),
            "{code}"
        );
    }
}

#[test]
fn reasons_of_other_domains_are_not_taken_for_the_brokers() {
    let details = ErrorDetails::with_error_info("SEQUENCE_GAP", "proxy.example", []);
    let status = Status::with_error_details(Code::FailedPrecondition, "x", details);
    assert_eq!(CallError::from(status).reason(), None);
}

#[test]
fn details_that_do_not_decode_leave_the_status() {
    let status = Status::with_details(Code::NotFound, "gone", bytes::Bytes::from_static(b"\xff"));
    let error = CallError::from(status);
    assert_eq!(
        (error.code(), error.message(), error.reason()),
        (Code::NotFound, "gone", None)
    );
}

#[test]
fn refused_fields_are_named() {
    let mut details = ErrorDetails::new();
    details
        .set_bad_request(BadRequest::with_violation("records[3].key", "too long").field_violations);
    let status = Status::with_error_details(Code::InvalidArgument, "x", details);
    let error = CallError::from(status);
    assert_eq!(error.fields()[0].field, "records[3].key");
    assert_eq!(error.fields()[0].description, "too long");
}

#[test]
fn a_negative_retry_time_counts_as_none() {
    let mut wire = v1::StreamError {
        code: 8,
        reason: "BROKER_BUSY".into(),
        ..Default::default()
    };
    wire.retry_after = Some(prost_types::Duration {
        seconds: -1,
        nanos: 0,
    });
    let decoded = v1::StreamError::decode(wire.encode_to_vec().as_slice()).expect("round trip");
    assert_eq!(CallError::from(decoded).retry_after(), None);
    assert!(RetryInfo::new(None).retry_delay.is_none());
}

#[tokio::test]
async fn a_refused_connection_never_applied_anything() {
    let connection = crate::ConnectionConfig::new("127.0.0.1:1")
        .open_lazily()
        .expect("lazy");
    let error = crate::Admin::new(&connection)
        .info()
        .await
        .expect_err("nobody listens");
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.is_retryable());
    assert!(!error.may_have_applied());
    assert!(StdError::source(&error).is_some());
}

#[test]
fn the_text_names_code_and_reason() {
    let error = broker(Code::NotFound, "TOPIC_NOT_FOUND");
    assert_eq!(error.to_string(), "text (NotFound, TOPIC_NOT_FOUND)");
}
