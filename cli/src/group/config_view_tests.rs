use super::*;
use crate::output::View;

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn text(config: &v1::GroupConfig) -> String {
    let blocks = vec![config_block(config)];
    View {
        blocks,
        ..View::default()
    }
    .to_text(str::to_owned)
}

/// As a broker shows a group that was given no settings.
fn defaults() -> v1::GroupConfig {
    v1::GroupConfig {
        mode: v1::GroupMode::Stream.into(),
        on_failure: v1::OnFailure::Overtake.into(),
        on_head_dead: v1::OnHeadDead::Continue.into(),
        retry: Some(v1::RetryPolicy {
            max_deliveries: 5,
            delays: [1, 10, 100, 1000].map(seconds).to_vec(),
            jitter_max: Some(seconds(0)),
            jitter_ratio: Some(0.1),
            ..v1::RetryPolicy::default()
        }),
        visibility_timeout: Some(seconds(30)),
        session_timeout: Some(seconds(45)),
        max_in_flight: 2000,
        max_lease_total: Some(seconds(3600)),
        isolate_after: 2,
        max_releases: 100,
        retry_share: 0.25,
        dead_letter: Some(v1::DeadLetterConfig {
            max_bytes: 1 << 30,
            retention_age: Some(seconds(30 * 24 * 3600)),
            max_replays: 3,
            ..v1::DeadLetterConfig::default()
        }),
        ..v1::GroupConfig::default()
    }
}

#[test]
fn the_defaults_read_well() {
    insta::assert_snapshot!(text(&defaults()));
}

#[test]
fn settings_of_every_kind_read_well() {
    let config = v1::GroupConfig {
        mode: v1::GroupMode::Queue.into(),
        on_failure: v1::OnFailure::Hold.into(),
        on_head_dead: v1::OnHeadDead::Halt.into(),
        retry: Some(v1::RetryPolicy {
            max_deliveries: 8,
            base: Some(seconds(1)),
            multiplier: 2.5,
            max_delay: Some(seconds(60)),
            jitter_max: Some(prost_types::Duration {
                seconds: 0,
                nanos: 500_000_000,
            }),
            jitter_ratio: Some(0.125),
            max_age: Some(seconds(3600)),
            rules: [("VAL_*", true), ("DB_*", false)]
                .map(|(pattern, permanent)| v1::ErrorRule {
                    code_pattern: pattern.to_owned(),
                    permanent,
                })
                .to_vec(),
            permanent_by_default: true,
            clamp_after_jitter: true,
            ..v1::RetryPolicy::default()
        }),
        dead_letter: Some(v1::DeadLetterConfig {
            retention_age: Some(seconds(0)),
            max_bytes: 1 << 20,
            drop_oldest_when_full: true,
            omit_error_message: true,
            omit_error_stack: true,
            ..v1::DeadLetterConfig::default()
        }),
        admission: Some(v1::Admission {
            max_depth: 10_000,
            max_age: Some(seconds(300)),
            max_bytes: 1 << 30,
            observe: true,
            ..v1::Admission::default()
        }),
        circuit_breaker: true,
        retain_until_consumed: true,
        ..defaults()
    };
    insta::assert_snapshot!(text(&config));
}

#[test]
fn what_is_switched_off_is_said_in_short() {
    let config = v1::GroupConfig {
        retry: Some(v1::RetryPolicy {
            max_deliveries: 1,
            ..v1::RetryPolicy::default()
        }),
        dead_letter: Some(v1::DeadLetterConfig {
            off: true,
            ..v1::DeadLetterConfig::default()
        }),
        ..v1::GroupConfig::default()
    };
    let text = text(&config);
    assert!(text.contains("1, no retry"), "{text}");
    assert!(text.contains("dropped, and counted as lost"), "{text}");
    assert!(
        !text.contains("in flight"),
        "what is not said is left out: {text}"
    );
}
