use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct Parsed {
    #[command(flatten)]
    settings: SettingArgs,
}

fn given(line: &str) -> Given {
    let words = std::iter::once("group").chain(line.split_whitespace());
    Parsed::try_parse_from(words)
        .unwrap()
        .settings
        .to_config()
        .unwrap()
}

fn refused(line: &str) -> String {
    let words = std::iter::once("group").chain(line.split_whitespace());
    match Parsed::try_parse_from(words) {
        Ok(parsed) => parsed.settings.to_config().unwrap_err().message,
        Err(error) => error.to_string(),
    }
}

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

/// Every path that a mask may name, below messages the fields of these.
fn every_path() -> Vec<String> {
    let descriptors = crate::output::descriptors();
    let config = descriptors
        .get_message_by_name("varvelog.v1.GroupConfig")
        .unwrap();
    let mut paths = Vec::new();
    for field in config.fields() {
        let kind = field.kind();
        let message = kind.as_message();
        match message.filter(|message| message.full_name().starts_with("varvelog.")) {
            Some(below) => {
                let path = |inner: prost_reflect::FieldDescriptor| {
                    format!("{}.{}", field.name(), inner.name())
                };
                paths.extend(below.fields().map(path));
            }
            None => paths.push(field.name().to_owned()),
        }
    }
    paths.sort_unstable();
    paths
}

#[test]
fn nothing_given_is_nothing_changed() {
    assert_eq!(given(""), Given::default());
}

#[test]
fn every_setting_of_the_contract_can_be_given() {
    let line = "--mode queue --on-failure hold --on-head-dead park --visibility-timeout 1m \
        --max-lease-total 2h --session-timeout 10s --max-in-flight 7 --isolate-after 3 \
        --max-releases 9 --retry-share 0.5 --circuit-breaker --retain-until-consumed --paused \
        --max-deliveries 8 --max-age 2d --rule VAL_*=permanent --permanent-by-default \
        --retry exponential --retry-base 2s --retry-multiplier 3 --retry-max-delay 5m \
        --jitter 1s --jitter-ratio 0.2 --clamp-after-jitter --dead-letter off \
        --dead-letter-max-bytes 1MiB --dead-letter-retention none --dead-letter-full drop-oldest \
        --dead-letter-omit message,stack --dead-letter-max-replays 4 --admit-max-depth 1000 \
        --admit-max-age 5m --admit-max-bytes 1GiB --admit-resume 0.7 --admit-observe";
    let given = given(line);
    assert_eq!(given.paths, every_path());
    let wanted = v1::GroupConfig {
        mode: v1::GroupMode::Queue.into(),
        on_failure: v1::OnFailure::Hold.into(),
        on_head_dead: v1::OnHeadDead::Park.into(),
        visibility_timeout: Some(seconds(60)),
        max_lease_total: Some(seconds(7200)),
        session_timeout: Some(seconds(10)),
        max_in_flight: 7,
        isolate_after: 3,
        max_releases: 9,
        retry_share: 0.5,
        circuit_breaker: true,
        retain_until_consumed: true,
        paused: true,
        retry: Some(v1::RetryPolicy {
            max_deliveries: 8,
            base: Some(seconds(2)),
            multiplier: 3.0,
            max_delay: Some(seconds(300)),
            jitter_max: Some(seconds(1)),
            jitter_ratio: Some(0.2),
            max_age: Some(seconds(172_800)),
            rules: vec![v1::ErrorRule {
                code_pattern: "VAL_*".into(),
                permanent: true,
            }],
            permanent_by_default: true,
            clamp_after_jitter: true,
            delays: Vec::new(),
        }),
        dead_letter: Some(v1::DeadLetterConfig {
            off: true,
            max_bytes: 1 << 20,
            retention_age: Some(seconds(0)),
            drop_oldest_when_full: true,
            omit_error_message: true,
            omit_error_stack: true,
            max_replays: 4,
        }),
        admission: Some(v1::Admission {
            max_depth: 1000,
            max_age: Some(seconds(300)),
            max_bytes: 1 << 30,
            resume_ratio: 0.7,
            observe: true,
        }),
    };
    assert_eq!(given.config, wanted);
}

#[test]
fn a_form_of_retries_takes_the_place_of_the_other_with_its_own_defaults() {
    let form = [
        "base",
        "clamp_after_jitter",
        "delays",
        "max_delay",
        "multiplier",
    ];
    let form = form.map(|field| format!("retry.{field}"));
    let list = given("--delay 1s,10s --delay 1m");
    assert_eq!(list.paths, form, "jitter stays");
    let policy = list.config.retry.unwrap();
    assert_eq!(policy.delays, [seconds(1), seconds(10), seconds(60)]);
    let preset = given("--retry list");
    assert_eq!(preset.config.retry, Some(v1::RetryPolicy::default()));
    assert_eq!(preset.paths.len(), 7, "jitter too: {:?}", preset.paths);
    let preset = given("--retry exponential");
    assert_eq!(preset.config.retry.unwrap().base, Some(seconds(1)));
    assert_eq!(preset.paths.len(), 7);
    let base = given("--retry-base 2s");
    assert_eq!(base.paths, ["retry.base", "retry.delays"]);
}

#[test]
fn what_is_of_the_other_form_of_retries_is_refused() {
    assert!(refused("--retry list --retry-max-delay 1m").contains("exponential form"));
    assert!(refused("--retry exponential --delay 1s").contains("of the list"));
    assert!(refused("--delay 1s --retry-base 1s").contains("cannot be used with"));
}

#[test]
fn what_can_be_taken_away_is_named_in_the_mask_and_empty() {
    let given = given(
        "--no-rules --max-age none --resume --circuit-breaker=off --dead-letter on \
         --dead-letter-omit none --admit-max-depth none --admit-max-age none",
    );
    assert_eq!(
        given.paths,
        [
            "admission.max_age",
            "admission.max_depth",
            "circuit_breaker",
            "dead_letter.off",
            "dead_letter.omit_error_message",
            "dead_letter.omit_error_stack",
            "paused",
            "retry.max_age",
            "retry.rules",
        ]
    );
    let empty = v1::GroupConfig {
        retry: Some(v1::RetryPolicy::default()),
        dead_letter: Some(v1::DeadLetterConfig::default()),
        admission: Some(v1::Admission::default()),
        ..v1::GroupConfig::default()
    };
    assert_eq!(given.config, empty);
}

#[test]
fn what_contradicts_itself_is_refused() {
    assert!(refused("--paused --resume").contains("cannot be used with"));
    assert!(refused("--rule a=permanent --no-rules").contains("cannot be used with"));
    assert!(refused("--dead-letter maybe").contains("maybe"));
    assert!(refused("--jitter-ratio 1.5").contains("0 to 1"));
    assert!(refused("--retry-share 0").contains("above 0"));
}
