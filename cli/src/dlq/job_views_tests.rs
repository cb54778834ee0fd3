//! What is printed, to the character.

use super::super::filter::timestamp;
use super::*;

const NOW_MS: i64 = 979_397_760_000;

fn job() -> v1::ReplayJob {
    v1::ReplayJob {
        id: "replay-7".into(),
        queue: "orders.email.dlq".into(),
        state: v1::ReplayState::Running.into(),
        matched: 1_204,
        replayed: 1_000,
        failed: 1,
        failed_again: 20,
        start_time: Some(timestamp(NOW_MS)),
        note: "fixed in 1.2".into(),
        max_per_second: 50.0,
        estimated_remaining: Some(prost_types::Duration {
            seconds: 4,
            nanos: 60_000_000,
        }),
        ..v1::ReplayJob::default()
    }
}

#[test]
fn a_plan_shows_what_would_be_replayed_by_cause() {
    let plan = v1::ReplayDeadLettersResponse {
        matched: 1_204,
        plan_id: "f00d".into(),
        matched_bytes: 2 << 20,
        estimated_duration: Some(prost_types::Duration {
            seconds: 24,
            nanos: 80_000_000,
        }),
        errors: vec![v1::ErrorBucket {
            error_code: "timeout".into(),
            fingerprint: "00c0ffee00c0ffee".into(),
            count: 1_204,
            first_seen_time: Some(timestamp(NOW_MS - 7_260_000)),
            last_seen_time: Some(timestamp(NOW_MS)),
            sample_message: "the shop did not answer".into(),
            error_class: "transient".into(),
            sample_id: Some(v1::DeadLetterId {
                partition: 3,
                offset: 17,
            }),
        }],
        skipped: 3,
        ..v1::ReplayDeadLettersResponse::default()
    };
    let view = replay_plan_view("orders.email.dlq", &plan, &TimeZone::UTC);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.json["matched"], "1204");
}

#[test]
fn jobs_are_listed_in_a_line_each_and_one_is_shown_whole() {
    let held = v1::ReplayJob {
        id: "replay-6".into(),
        waiting_for: "canary".into(),
        estimated_remaining: None,
        ..job()
    };
    let view = jobs_view(&[job(), held], &TimeZone::UTC);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.names, ["replay-7", "replay-6"]);
    let view = job_view(&job(), &TimeZone::UTC);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    assert_eq!(view.json["failedAgain"], "20");
}

#[test]
fn a_discard_and_the_audit_say_how_many() {
    let done = v1::DiscardDeadLettersResponse {
        matched: 12,
        discarded: 10,
        skipped: 2,
        ..v1::DiscardDeadLettersResponse::default()
    };
    let view = discard_view("orders.email.dlq", &done);
    insta::assert_snapshot!(view.to_text(str::to_owned));
    let entry = v1::AuditEntry {
        time: Some(timestamp(NOW_MS)),
        action: "DiscardDeadLetters".into(),
        subject: "orders.email.dlq".into(),
        detail: "codes=timeout".into(),
        count: 10,
        ..v1::AuditEntry::default()
    };
    let view = audit_view(&[entry], &TimeZone::UTC);
    insta::assert_snapshot!(view.to_text(str::to_owned));
}
