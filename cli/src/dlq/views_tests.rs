//! What is printed, to the character.

use super::super::filter::timestamp;
use super::*;

const NOW_MS: i64 = 979_397_760_000;

fn queue() -> v1::DeadLetterQueue {
    v1::DeadLetterQueue {
        name: "orders.email.dlq".into(),
        group: "email".into(),
        source_topic: "orders".into(),
        depth: 1_204,
        oldest_age: Some(prost_types::Duration {
            seconds: 7_260,
            nanos: 0,
        }),
        arrivals_last_hour: 17,
        departures_last_hour: 2,
        top_error_code: "timeout".into(),
        bytes: 2 << 20,
        newest_death_time: Some(timestamp(NOW_MS)),
        ..v1::DeadLetterQueue::default()
    }
}

fn letter() -> v1::DeadLetter {
    v1::DeadLetter {
        id: Some(v1::DeadLetterId {
            partition: 3,
            offset: 17,
        }),
        record: Some(v1::Record {
            offset: 4_711,
            key: Some(b"k-9".to_vec().into()),
            value: Some(b"{\"total\":3}".to_vec().into()),
            message_id: "m-1".into(),
            ..v1::Record::default()
        }),
        source_topic: "orders".into(),
        source_partition: 3,
        source_offset: 4_711,
        group: "email".into(),
        deliveries: 5,
        reason: "max_deliveries".into(),
        error_code: "timeout".into(),
        error_message: "the shop\ndid not answer".repeat(4),
        error_stack: "at send (mail.js:7)\nat main (app.js:1)".into(),
        death_time: Some(timestamp(NOW_MS - 310_000)),
        error_class: "transient".into(),
        error_fingerprint: "00c0ffee00c0ffee".into(),
        attempts: vec![v1::Attempt {
            attempt: 5,
            time: Some(timestamp(NOW_MS - 311_000)),
            error_class: "transient".into(),
            error_code: "timeout".into(),
        }],
        ..v1::DeadLetter::default()
    }
}

fn stats() -> v1::GetDeadLetterStatsResponse {
    let point = |minute: i64, arrived, depth| v1::TrendPoint {
        bucket_time: Some(timestamp(NOW_MS + minute * 60_000)),
        arrived,
        depth,
        ..v1::TrendPoint::default()
    };
    v1::GetDeadLetterStatsResponse {
        queue: Some(queue()),
        errors: vec![v1::ErrorBucket {
            error_code: "timeout".into(),
            fingerprint: "00c0ffee00c0ffee".into(),
            count: 1_204,
            first_seen_time: Some(timestamp(NOW_MS - 7_260_000)),
            last_seen_time: Some(timestamp(NOW_MS)),
            sample_message: "the shop did not answer".into(),
            error_class: "transient".into(),
            sample_id: letter().id,
        }],
        trend: vec![point(0, 0, 10), point(1, 1_190, 1_200), point(2, 4, 1_204)],
    }
}

#[test]
fn queues_are_listed_with_ages_and_rates() {
    let empty = v1::DeadLetterQueue {
        name: "orders.sms.dlq".into(),
        ..v1::DeadLetterQueue::default()
    };
    let view = queues_view(&[queue(), empty]);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.names, ["orders.email.dlq", "orders.sms.dlq"]);
}

#[test]
fn statistics_show_causes_and_a_bar_for_each_step() {
    let view = stats_view(&stats(), &TimeZone::UTC);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.json["errors"][0]["count"], "1204");
}

#[test]
fn letters_are_listed_in_a_line_each_and_one_is_shown_whole() {
    let view = letters_view(&[letter()], NOW_MS);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.names, ["3@17"]);
    let view = letter_view(&letter(), &TimeZone::UTC);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.json["errorCode"], "timeout");
}
