use std::collections::BTreeSet;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;
use varvelog_proto::v1;
use varvelog_store::Offset;

use super::core_failures::{appends, replays};
use super::{
    CallFailure, EdgeRefusal, Explanation, FieldViolation, LookupRefusal, RETRY_PUSHBACK,
    ReadRefusal, Reason, RecordRefusal,
};
use crate::core::admission::{Measure, TurnedAway};
use crate::core::refusal::{CallError, GroupRefusal, QuotaRefusal, TopicRefusal};
use crate::names::GroupName;
use crate::service::wire::Malformed;

fn topics() -> Vec<CallFailure> {
    let of = |refusal: TopicRefusal| CallFailure::from(refusal);
    let (earliest, latest) = (Offset::ZERO, Offset::ZERO.plus(9));
    vec![
        of(TopicRefusal::NotFound { topic: "t".into() }),
        of(TopicRefusal::PartitionNotFound {
            topic: "t".into(),
            partition: 4,
            partitions: 2,
        }),
        of(TopicRefusal::Exists { topic: "t".into() }),
        of(TopicRefusal::Derived {
            topic: "t.g.dlq".into(),
            group: "g".into(),
        }),
        of(TopicRefusal::OffsetOutOfRange {
            offset: 11,
            earliest,
            latest,
        }),
        of(TopicRefusal::PartitionsFewer {
            topic: "t".into(),
            current: 3,
        }),
        of(TopicRefusal::DeadLettersNotEmpty {
            queue: "t.g.dlq".into(),
            depth: 2,
        }),
    ]
}

fn groups() -> Vec<CallFailure> {
    let of = |refusal: GroupRefusal| CallFailure::from(refusal);
    let group = || String::from("g");
    let (committed, got) = (Offset::ZERO.plus(5), Offset::ZERO);
    vec![
        of(GroupRefusal::NotFound { group: group() }),
        of(GroupRefusal::Exists { group: group() }),
        of(GroupRefusal::NotEmpty {
            group: group(),
            members: 2,
            leases: 3,
        }),
        of(GroupRefusal::Mode { group: group() }),
        of(GroupRefusal::MemberFenced { generation: 8 }),
        of(GroupRefusal::OffsetMovesBack { committed, got }),
        of(GroupRefusal::DerivedNameTooLong {
            name: "t".into(),
            limit: 249,
        }),
        of(GroupRefusal::TopicsMissing { group: group() }),
        of(GroupRefusal::TopicNotOfGroup {
            group: group(),
            topic: "t".into(),
        }),
        of(GroupRefusal::LeaseLost { offset: committed }),
        of(GroupRefusal::Mode { group: group() }),
    ]
}

fn calls() -> Vec<CallFailure> {
    let retry_after = Duration::from_millis(200);
    let turned = |measure| {
        CallFailure::from(CallError::TurnedAway(Box::new(TurnedAway {
            group: GroupName::parse("email").unwrap(),
            topic: "orders".into(),
            measure,
            limit: 1_000,
            current: 1_001,
            resume_at: 800,
            retry_after,
        })))
    };
    let others = vec![
        QuotaRefusal {
            what: "topics",
            limit: 1,
            current: 1,
        }
        .into(),
        CallError::Busy {
            limit_bytes: 1,
            retry_after,
        }
        .into(),
        CallError::DiskReserve {
            free_bytes: 1,
            reserve_bytes: 2,
        }
        .into(),
        CallError::Draining.into(),
        CallError::Fenced.into(),
    ];
    [others, Measure::ALL.map(turned).to_vec()].concat()
}

fn others() -> Vec<CallFailure> {
    let retry_after = Duration::from_millis(200);
    let offset = Offset::ZERO.plus(7);
    let field = || String::from("records[0]");
    vec![
        Malformed::new("x".into()).into(),
        LookupRefusal::Topic {
            name: "t".into(),
            nearest: Some("u".into()),
        }
        .into(),
        LookupRefusal::Group {
            name: "g".into(),
            nearest: None,
        }
        .into(),
        LookupRefusal::Queue {
            name: "orders.email".into(),
            nearest: None,
        }
        .into(),
        FieldViolation::bound("f", 1, 2, "too large").into(),
        RecordRefusal::TooLarge {
            field: field(),
            limit: 1,
            size: 2,
        }
        .into(),
        RecordRefusal::ReservedHeader { field: field() }.into(),
        RecordRefusal::BatchInvalid {
            field: field(),
            what: "its CRC".into(),
        }
        .into(),
        ReadRefusal::Truncated {
            safe_offset: offset,
            epoch: 2,
        }
        .into(),
        ReadRefusal::Corrupt {
            topic: "t".into(),
            partition: 0,
            first: offset,
            last: offset,
        }
        .into(),
        ReadRefusal::Unreadable {
            what: "EMFILE".into(),
        }
        .into(),
        EdgeRefusal::RequestTooLarge { limit: 1, size: 2 }.into(),
        EdgeRefusal::AckTokenInvalid.into(),
        EdgeRefusal::not_implemented("message_id").into(),
        CallFailure::Fields(vec![
            FieldViolation::new("a", "is wrong"),
            FieldViolation::new("b", "is wrong too"),
        ]),
        EdgeRefusal::BuffersFull {
            limit_bytes: 1,
            retry_after,
        }
        .into(),
        EdgeRefusal::Starting.into(),
    ]
}

fn all() -> Vec<CallFailure> {
    [appends(), topics(), groups(), replays(), calls(), others()].concat()
}

const BEHIND: &str = "current group limit resume_at topic";

/// Code, reason, metadata keys and further details (B: bad request, R: retry, Q: quota,
/// I: resource), as the contract's table has them.
const TABLE: &[(Code, &str, &str, &str)] = &[
    (Code::InvalidArgument, "MALFORMED_REQUEST", "", ""),
    (Code::InvalidArgument, "INVALID_FIELD", "field", "B"),
    (Code::InvalidArgument, "RECORD_TOO_LARGE", "limit size", "B"),
    (Code::InvalidArgument, "RESERVED_HEADER", "", "B"),
    (Code::InvalidArgument, "BATCH_INVALID", "", "B"),
    (Code::InvalidArgument, "REQUEST_ID_REUSED", "request_id", ""),
    (Code::InvalidArgument, "ACK_TOKEN_INVALID", "", ""),
    (Code::NotFound, "TOPIC_NOT_FOUND", "", "I"),
    (Code::NotFound, "GROUP_NOT_FOUND", "", "I"),
    (Code::NotFound, "QUEUE_NOT_FOUND", "", "I"),
    (Code::NotFound, "JOB_NOT_FOUND", "", "I"),
    (
        Code::NotFound,
        "PARTITION_NOT_FOUND",
        "partition partitions topic",
        "",
    ),
    (Code::AlreadyExists, "TOPIC_EXISTS", "", "I"),
    (Code::AlreadyExists, "GROUP_EXISTS", "", "I"),
    (
        Code::OutOfRange,
        "OFFSET_OUT_OF_RANGE",
        "earliest latest",
        "",
    ),
    (
        Code::OutOfRange,
        "OFFSET_TRUNCATED",
        "epoch safe_offset",
        "",
    ),
    (Code::FailedPrecondition, "DERIVED_TOPIC", "group topic", ""),
    (Code::FailedPrecondition, "SEQUENCE_GAP", "expected got", ""),
    (
        Code::FailedPrecondition,
        "SEQUENCE_TOO_OLD",
        "producer_id",
        "",
    ),
    (
        Code::FailedPrecondition,
        "PRODUCER_UNKNOWN",
        "producer_id",
        "",
    ),
    (
        Code::FailedPrecondition,
        "OFFSET_MOVES_BACK",
        "committed got",
        "",
    ),
    (
        Code::FailedPrecondition,
        "GROUP_NOT_EMPTY",
        "leases members",
        "",
    ),
    (Code::FailedPrecondition, "GROUP_MODE", "group", ""),
    (Code::FailedPrecondition, "WOULD_REORDER", "group", ""),
    (Code::FailedPrecondition, "PLAN_REQUIRED", "", ""),
    (Code::FailedPrecondition, "PLAN_EXPIRED", "", ""),
    (Code::FailedPrecondition, "JOB_ENDED", "state", ""),
    (
        Code::FailedPrecondition,
        "DEAD_LETTERS_NOT_EMPTY",
        "depth queue",
        "",
    ),
    (Code::Aborted, "LEASE_LOST", "offset", ""),
    (Code::Aborted, "PRODUCER_FENCED", "epoch", ""),
    (Code::Aborted, "MEMBER_FENCED", "generation", ""),
    (
        Code::ResourceExhausted,
        "REQUEST_TOO_LARGE",
        "limit size",
        "",
    ),
    (Code::ResourceExhausted, "BACKPRESSURE_DEPTH", BEHIND, "RQ"),
    (Code::ResourceExhausted, "BACKPRESSURE_AGE", BEHIND, "RQ"),
    (Code::ResourceExhausted, "BACKPRESSURE_BYTES", BEHIND, "RQ"),
    (
        Code::ResourceExhausted,
        "BACKPRESSURE_DISK",
        "current limit",
        "RQ",
    ),
    (Code::ResourceExhausted, "BROKER_BUSY", "", "R"),
    (
        Code::ResourceExhausted,
        "QUOTA_EXCEEDED",
        "current limit",
        "Q",
    ),
    (Code::Unavailable, "BROKER_STARTING", "", "R"),
    (Code::Unavailable, "BROKER_DRAINING", "", "R"),
    (Code::Unavailable, "BROKER_FENCED", "", ""),
    (
        Code::DataLoss,
        "SEGMENT_CORRUPT",
        "first_offset last_offset partition topic",
        "",
    ),
    (Code::Unimplemented, "NOT_IMPLEMENTED", "feature", ""),
];

#[test]
fn every_reason_has_the_code_of_the_contract_and_a_failure_that_gives_it() {
    let given: BTreeSet<&str> = all()
        .iter()
        .map(|failure| Explanation::from(failure).reason.as_str())
        .collect();
    let reasons: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
    let table: BTreeSet<&str> = TABLE.iter().map(|row| row.1).collect();
    assert_eq!(given, reasons);
    assert_eq!(table, reasons);
    for (code, text, ..) in TABLE {
        let reason = Reason::ALL
            .iter()
            .find(|reason| reason.as_str() == *text)
            .unwrap();
        assert_eq!(reason.code(), *code, "{text}");
    }
}

#[test]
fn a_status_carries_the_details_of_its_row() {
    for failure in all() {
        let status = Status::from(failure.clone());
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        let row = TABLE.iter().find(|row| row.1 == info.reason).unwrap();
        assert_eq!(status.code(), row.0, "{failure:?}");
        assert_eq!(info.domain, "varvelog");
        assert_eq!(status.message(), failure.to_string());
        for key in row.2.split_whitespace() {
            assert!(info.metadata.contains_key(key), "{failure:?} says no {key}");
        }
        assert_eq!(
            details.bad_request().is_some(),
            row.3.contains('B'),
            "{failure:?}"
        );
        assert_eq!(
            details.resource_info().is_some(),
            row.3.contains('I'),
            "{failure:?}"
        );
        assert_eq!(
            details.quota_failure().is_some(),
            row.3.contains('Q'),
            "{failure:?}"
        );
        assert_eq!(
            details.retry_info().is_some(),
            row.3.contains('R'),
            "{failure:?}"
        );
    }
}

#[test]
fn automatic_retry_is_told_when_to_come_or_never() {
    for failure in all() {
        let status = Status::from(failure.clone());
        let told = status
            .metadata()
            .get(RETRY_PUSHBACK)
            .map(|value| value.to_str().unwrap());
        let tried = matches!(status.code(), Code::Unavailable | Code::ResourceExhausted);
        assert_eq!(told.is_some(), tried, "{failure:?}");
        if let Some(told) = told {
            let wait = status
                .get_error_details()
                .retry_info()
                .and_then(|info| info.retry_delay);
            let expected = wait.map_or(String::from("-1"), |wait| wait.as_millis().to_string());
            assert_eq!(told, expected, "{failure:?}");
        }
    }
}

#[test]
fn nothing_that_a_client_can_send_is_internal_or_unknown() {
    for reason in Reason::ALL {
        assert!(!matches!(
            reason.code(),
            Code::Internal | Code::Unknown | Code::Ok
        ));
    }
}

#[test]
fn an_answer_in_place_says_what_the_status_says() {
    for failure in all() {
        let error = v1::StreamError::from(&failure);
        let status = Status::from(failure.clone());
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!(error.code, i32::from(status.code()));
        assert_eq!(error.reason, info.reason);
        assert_eq!(error.message, status.message());
        assert_eq!(error.metadata, info.metadata);
        let wait = details.retry_info().and_then(|info| info.retry_delay);
        assert_eq!(
            error.retry_after.map(|after| after.try_into().unwrap()),
            wait
        );
    }
}

#[test]
fn ids_that_will_be_forgotten_are_worth_waiting_for_and_topics_are_not() {
    let ids = QuotaRefusal {
        what: "request_ids",
        limit: 1,
        current: 1,
    };
    assert!(
        Explanation::from(&CallFailure::from(ids))
            .retry_after
            .is_some()
    );
    let topics = QuotaRefusal {
        what: "topics",
        limit: 1,
        current: 1,
    };
    assert_eq!(
        Explanation::from(&CallFailure::from(topics)).retry_after,
        None
    );
}

#[test]
fn the_nearest_name_is_in_the_text_and_the_name_asked_for_in_the_details() {
    let missing = LookupRefusal::Topic {
        name: "order".into(),
        nearest: Some("orders".into()),
    };
    let status = Status::from(CallFailure::from(missing));
    assert_eq!(
        status.message(),
        "there is no topic order; the nearest name is orders"
    );
    let details = status.get_error_details();
    assert_eq!(details.resource_info().unwrap().resource_name, "order");
}
