use bytes::Bytes;
use prost::Message;
use varvelog_proto::v1;
use varvelog_store::{Offset, PartitionId, TopicId};

use super::in_tests::refusal;
use super::{AckIn, outputs_hash};
use crate::core::request::{AckToken, FailureAction, LeaseId};
use crate::names::GroupName;
use crate::service::status::{Explanation, Reason};
use crate::service::token;

/// Of the records 100 to 109.
fn token() -> AckToken {
    AckToken {
        group: GroupName::parse("email").unwrap(),
        group_id: 7,
        reset_count: 0,
        partition: PartitionId {
            topic: TopicId([9; 16]),
            partition: 0,
        },
        first: Offset::ZERO.plus(100),
        last: Offset::ZERO.plus(109),
        lease: LeaseId(3),
        run: 1,
        attempt: 1,
        origins: Vec::new(),
    }
}

fn request() -> v1::AckRequest {
    v1::AckRequest {
        ack_token: token::encode(&token()),
        ..Default::default()
    }
}

fn failure(offset: i64) -> v1::Failure {
    v1::Failure {
        offset,
        ..Default::default()
    }
}

fn failing(failure: v1::Failure) -> v1::AckRequest {
    v1::AckRequest {
        failures: vec![failure],
        ..request()
    }
}

fn refused(request: &v1::AckRequest) -> Explanation {
    refusal(AckIn::read(&request.encode_to_vec()))
}

fn field(request: &v1::AckRequest) -> String {
    let refused = refused(request);
    assert_eq!(refused.reason, Reason::InvalidField);
    refused.field.unwrap().0
}

#[test]
fn failures_are_read_with_all_that_they_say() {
    let mut request = request();
    request.up_to_offset = Some(105);
    request.failures = vec![
        v1::Failure {
            offset: 105,
            action: v1::FailureAction::DeadLetter.into(),
            error_code: "E1".into(),
            error_message: "no".into(),
            error_stack: "at x".into(),
            retry_after: None,
        },
        v1::Failure {
            offset: 100,
            retry_after: Some(prost_types::Duration {
                seconds: 86_400,
                nanos: 0,
            }),
            ..Default::default()
        },
    ];
    let wire = request.encode_to_vec();
    let ack = AckIn::read(&wire).unwrap();
    assert_eq!(ack.token, token());
    assert_eq!(ack.up_to, Some(Offset::ZERO.plus(105)));
    let [first, second] = &ack.failures[..] else {
        panic!("two failures")
    };
    assert_eq!(first.offset, Offset::ZERO.plus(105));
    assert_eq!(first.action, FailureAction::DeadLetter);
    let texts = [&first.text.code, &first.text.message, &first.text.stack];
    assert_eq!(texts, ["E1", "no", "at x"]);
    assert_eq!(second.action, FailureAction::ByPolicy);
    assert_eq!(second.retry_after_ms, Some(86_400_000));
}

#[test]
fn long_and_broken_texts_are_cut_and_mended_and_never_refused() {
    let long = failing(v1::Failure {
        error_code: "c".repeat(1000),
        error_message: "ä".repeat(1 << 20),
        error_stack: "s".repeat(1 << 20),
        ..failure(100)
    });
    let wire = long.encode_to_vec();
    let ack = AckIn::read(&wire).unwrap();
    let text = &ack.failures[0].text;
    assert_eq!(text.code.len(), 128);
    assert_eq!(text.message.len(), 1024);
    assert!(text.stack.len() <= 8192 && text.stack.contains("bytes removed"));
    // Field 4 of a failure with a byte that no text has.
    let broken = [
        &request().encode_to_vec()[..],
        &[0x12, 5, 0x08, 100, 0x22, 1, 0xff],
    ]
    .concat();
    let ack = AckIn::read(&broken).unwrap();
    assert_eq!(ack.failures[0].text.message, "\u{fffd}");
}

#[test]
fn what_a_failure_must_not_say_is_refused_by_its_field() {
    let after = |seconds, nanos| {
        let retry_after = Some(prost_types::Duration { seconds, nanos });
        failing(v1::Failure {
            retry_after,
            ..failure(100)
        })
    };
    assert_eq!(field(&after(86_400, 1)), "failures[0].retry_after");
    assert_eq!(field(&after(-1, 0)), "failures[0].retry_after");
    assert_eq!(field(&failing(failure(-1))), "failures[0].offset");
    let action = v1::Failure {
        action: 9,
        ..failure(100)
    };
    assert_eq!(field(&failing(action)), "failures[0].action");
    let mut twice = request();
    twice.failures = vec![failure(100), failure(101), failure(100)];
    assert_eq!(field(&twice), "failures[2].offset");
    let mut beyond = request();
    beyond.up_to_offset = Some(110);
    assert_eq!(field(&beyond), "up_to_offset");
}

#[test]
fn ten_thousand_failures_are_taken_and_one_more_is_refused_before_its_token_is_looked_at() {
    let mut many = request();
    many.failures = (0..10_000).map(failure).collect();
    let wire = many.encode_to_vec();
    assert_eq!(AckIn::read(&wire).unwrap().failures.len(), 10_000);
    many.failures.push(failure(10_000));
    many.ack_token = Bytes::new();
    assert_eq!(field(&many), "failures");
}

#[test]
fn up_to_names_records_of_retries_by_their_first_appends() {
    let token = AckToken {
        first: Offset::ZERO,
        last: Offset::ZERO.plus(1),
        origins: vec![Offset::ZERO.plus(40), Offset::ZERO.plus(90)],
        ..token()
    };
    let with = |up_to| v1::AckRequest {
        ack_token: token::encode(&token),
        up_to_offset: Some(up_to),
        ..Default::default()
    };
    let wire = with(90).encode_to_vec();
    let up_to = AckIn::read(&wire).unwrap().up_to;
    assert_eq!(up_to, Some(Offset::ZERO.plus(90)));
    for outside in [1, 39, 91] {
        assert_eq!(field(&with(outside)), "up_to_offset");
    }
}

#[test]
fn outputs_are_counted_together() {
    let output = |records| v1::Output {
        topic: "orders".into(),
        records: vec![v1::NewRecord::default(); records],
    };
    let with = |outputs| v1::AckRequest {
        outputs,
        ..request()
    };
    let wire = with(vec![output(9_999), output(1)]).encode_to_vec();
    let counts: Vec<u32> = AckIn::read(&wire)
        .unwrap()
        .outputs
        .iter()
        .map(|output| output.records)
        .collect();
    assert_eq!(counts, [9_999, 1]);
    assert_eq!(field(&with(vec![output(9_999), output(2)])), "outputs");
    assert_eq!(
        field(&with(vec![output(1), output(0)])),
        "outputs[1].records"
    );
}

#[test]
fn the_hash_tells_settlements_apart_and_not_the_order_of_failures() {
    let hash = |request: &v1::AckRequest| AckIn::read(&request.encode_to_vec()).unwrap().hash;
    let with = |failures| v1::AckRequest {
        failures,
        ..request()
    };
    let both = with(vec![failure(100), failure(101)]);
    let turned = with(vec![failure(101), failure(100)]);
    assert_eq!(hash(&both), hash(&turned));
    let half = v1::AckRequest {
        up_to_offset: Some(104),
        ..request()
    };
    let released = failing(v1::Failure {
        action: v1::FailureAction::Release.into(),
        ..failure(100)
    });
    let all = [
        request(),
        half,
        both,
        failing(failure(100)),
        failing(failure(101)),
        released,
    ];
    let hashes: std::collections::BTreeSet<u64> = all.iter().map(hash).collect();
    assert_eq!(hashes.len(), all.len());
}

#[test]
fn the_hash_of_outputs_tells_their_topics_and_order_apart() {
    let hash = |outputs: &[(&'static str, u32, u64)]| outputs_hash(1, outputs.iter().copied());
    let (a, b) = (("a", 1, 5), ("b", 1, 5));
    let all = [
        hash(&[a, b]),
        hash(&[b, a]),
        hash(&[a]),
        hash(&[("a", 2, 5)]),
        hash(&[("a", 1, 6)]),
    ];
    let distinct: std::collections::BTreeSet<u64> = all.into_iter().collect();
    assert_eq!(distinct.len(), all.len());
    assert_ne!(hash(&[a]), outputs_hash(2, [a].into_iter()));
}
