use proptest::prelude::*;
use tonic_types::StatusExt;

use super::*;
use crate::core::retry_policy::{ErrorRule, Schedule};
use crate::core::settings::AdmissionSettings;
use crate::service::status::Explanation;

fn seconds(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

fn with(change: impl FnOnce(&mut v1::GroupConfig)) -> v1::GroupConfig {
    let mut config = v1::GroupConfig::default();
    change(&mut config);
    config
}

fn retrying(retry: v1::RetryPolicy) -> Result<RetryPolicy, CallFailure> {
    read(Some(&with(|config| config.retry = Some(retry)))).map(|settings| settings.retry)
}

#[test]
fn nothing_asked_for_is_the_defaults() {
    assert_eq!(read(None).unwrap(), GroupSettings::default());
    let empty = v1::GroupConfig {
        retry: Some(v1::RetryPolicy::default()),
        dead_letter: Some(v1::DeadLetterConfig::default()),
        admission: Some(v1::Admission::default()),
        ..v1::GroupConfig::default()
    };
    assert_eq!(read(Some(&empty)).unwrap(), GroupSettings::default());
}

#[test]
fn keys_are_not_parked_without_dead_letters() {
    let park = |off| {
        with(|config| {
            config.on_head_dead = v1::OnHeadDead::Park.into();
            config.dead_letter = Some(v1::DeadLetterConfig {
                off,
                ..Default::default()
            });
        })
    };
    assert_eq!(
        read(Some(&park(false))).unwrap().on_head_dead,
        OnHeadDead::Park
    );
    let refused = Explanation::from(&read(Some(&park(true))).unwrap_err());
    assert_eq!(refused.field.unwrap().0, "config.on_head_dead");
}

#[test]
fn the_form_decides_what_is_meant_by_what_is_unset() {
    let list = retrying(v1::RetryPolicy {
        max_deliveries: 3,
        ..Default::default()
    });
    let list = list.unwrap();
    assert_eq!(list.schedule, Schedule::List(vec![1_000, 10_000]));
    assert_eq!((list.jitter_max_ms, list.jitter_ppm), (0, 100_000));
    let once = retrying(v1::RetryPolicy {
        max_deliveries: 1,
        ..Default::default()
    });
    assert_eq!(once.unwrap().schedule, Schedule::List(Vec::new()));
    let exponential = retrying(v1::RetryPolicy {
        base: Some(seconds(1)),
        ..Default::default()
    });
    assert_eq!(exponential.unwrap(), RetryPolicy::exponential());
    let exact = retrying(v1::RetryPolicy {
        jitter_ratio: Some(0.0),
        ..Default::default()
    });
    let exact = exact.unwrap();
    assert_eq!((exact.jitter_max_ms, exact.jitter_ppm), (0, 0));
}

#[test]
fn all_that_is_wrong_with_a_policy_is_told_by_its_field() {
    let wrong = v1::RetryPolicy {
        max_deliveries: -1,
        delays: vec![seconds(1)],
        base: Some(seconds(3)),
        max_delay: Some(seconds(2)),
        multiplier: f64::NAN,
        jitter_ratio: Some(1.5),
        max_age: Some(seconds(0)),
        ..Default::default()
    };
    let failure = retrying(wrong).unwrap_err();
    let status = tonic::Status::from(failure);
    let told = status.get_error_details();
    let fields: Vec<&str> = told
        .bad_request()
        .unwrap()
        .field_violations
        .iter()
        .map(|violation| violation.field.as_str())
        .collect();
    for field in [
        "max_deliveries",
        "delays",
        "max_delay",
        "multiplier",
        "jitter_ratio",
        "max_age",
    ] {
        let path = format!("config.retry.{field}");
        assert_eq!(
            fields.iter().filter(|told| **told == path).count(),
            1,
            "{path} among {fields:?}"
        );
    }
    assert_eq!(fields.len(), 6, "{fields:?}");
    assert_eq!(told.error_info().unwrap().reason, "INVALID_FIELD");
}

#[test]
fn what_is_of_the_other_form_is_refused_and_not_passed_over() {
    let field = |retry| {
        let refused = Explanation::from(&retrying(retry).unwrap_err());
        refused.field.unwrap().0
    };
    assert_eq!(
        field(v1::RetryPolicy {
            max_delay: Some(seconds(1)),
            ..Default::default()
        }),
        "config.retry.max_delay"
    );
    assert_eq!(
        field(v1::RetryPolicy {
            multiplier: 2.0,
            ..Default::default()
        }),
        "config.retry.multiplier"
    );
    let five = v1::RetryPolicy {
        delays: vec![seconds(1); 5],
        ..Default::default()
    };
    assert_eq!(field(five), "config.retry.delays");
}

#[test]
fn each_field_out_of_its_bounds_is_refused_by_name() {
    let field = |change: fn(&mut v1::GroupConfig)| {
        let refused = Explanation::from(&read(Some(&with(change))).unwrap_err());
        refused.field.unwrap().0
    };
    let dead_letter = |dead_letter| with(|config| config.dead_letter = Some(dead_letter));
    assert_eq!(
        field(|c| c.visibility_timeout = Some(seconds(0))),
        "config.visibility_timeout"
    );
    assert_eq!(
        field(|c| c.session_timeout = Some(seconds(1801))),
        "config.session_timeout"
    );
    assert_eq!(field(|c| c.max_in_flight = 10_001), "config.max_in_flight");
    assert_eq!(
        field(|c| c.max_lease_total = Some(seconds(43_201))),
        "config.max_lease_total"
    );
    assert_eq!(field(|c| c.mode = 9), "config.mode");
    assert_eq!(field(|c| c.on_failure = 9), "config.on_failure");
    assert_eq!(field(|c| c.on_head_dead = 9), "config.on_head_dead");
    assert_eq!(field(|c| c.isolate_after = 1_001), "config.isolate_after");
    assert_eq!(field(|c| c.max_releases = 10_001), "config.max_releases");
    for share in [0.049, 0.5001, -0.1, f64::NAN] {
        let config = with(|config| config.retry_share = share);
        let refused = Explanation::from(&read(Some(&config)).unwrap_err());
        assert_eq!(refused.field.unwrap().0, "config.retry_share", "{share}");
    }
    for (config, field) in [
        (
            dead_letter(v1::DeadLetterConfig {
                max_bytes: -1,
                ..Default::default()
            }),
            "max_bytes",
        ),
        (
            dead_letter(v1::DeadLetterConfig {
                max_replays: 1_001,
                ..Default::default()
            }),
            "max_replays",
        ),
        (
            dead_letter(v1::DeadLetterConfig {
                retention_age: Some(seconds(-1)),
                ..Default::default()
            }),
            "retention_age",
        ),
    ] {
        let refused = Explanation::from(&read(Some(&config)).unwrap_err());
        assert_eq!(
            refused.field.unwrap().0,
            format!("config.dead_letter.{field}")
        );
    }
}

fn mask(paths: &[&str]) -> prost_types::FieldMask {
    prost_types::FieldMask {
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    }
}

#[test]
fn a_mask_takes_what_it_names_with_or_without_its_prefix() {
    let config = v1::GroupConfig {
        paused: true,
        max_in_flight: 7,
        ..Default::default()
    };
    let current = GroupSettings {
        session_timeout_ms: 2000,
        ..GroupSettings::default()
    };
    for path in ["paused", "config.paused"] {
        let settings = changed(&current, Some(&config), Some(&mask(&[path]))).unwrap();
        let expected = GroupSettings {
            paused: true,
            ..current.clone()
        };
        assert_eq!(settings, expected);
    }
    for unknown in ["name", "retry.name", "paused.name", ""] {
        let refused = changed(&current, Some(&config), Some(&mask(&[unknown])));
        assert!(refused.is_err(), "{unknown:?}");
    }
}

#[test]
fn a_mask_reaches_into_the_policy_and_what_was_default_follows() {
    let current = GroupSettings {
        retry: RetryPolicy {
            age_max_ms: 7_200_000,
            ..RetryPolicy::list()
        },
        ..GroupSettings::default()
    };
    let config = with(|config| {
        config.retry = Some(v1::RetryPolicy {
            max_deliveries: 3,
            base: Some(seconds(2)),
            ..Default::default()
        });
    });
    let fewer = changed(
        &current,
        Some(&config),
        Some(&mask(&["retry.max_deliveries"])),
    );
    let expected = RetryPolicy {
        deliveries_max: 3,
        schedule: Schedule::List(vec![1_000, 10_000]),
        ..current.retry.clone()
    };
    assert_eq!(fewer.unwrap().retry, expected);
    let other = changed(&current, Some(&config), Some(&mask(&["retry.base"])));
    let expected = RetryPolicy {
        age_max_ms: 7_200_000,
        schedule: Schedule::Exponential {
            base_ms: 2_000,
            multiplier_permille: 2_000,
            delay_max_ms: 60_000,
            clamp_after_jitter: false,
        },
        ..RetryPolicy::exponential()
    };
    assert_eq!(other.unwrap().retry, expected);
    let off = with(|config| {
        config.dead_letter = Some(v1::DeadLetterConfig {
            off: true,
            ..Default::default()
        });
    });
    let off = changed(&current, Some(&off), Some(&mask(&["dead_letter.off"]))).unwrap();
    assert!(off.dead_letter.off);
    assert_eq!(off.retry, current.retry);
}

fn schedule() -> impl Strategy<Value = (u32, Schedule)> {
    let list = (1_u32..=1_000).prop_flat_map(|deliveries| {
        let longest = usize::try_from(deliveries - 1).unwrap().min(64);
        let delays = proptest::collection::vec(10_u64..=604_800_000, longest.min(1)..=longest);
        (Just(deliveries), delays.prop_map(Schedule::List))
    });
    let exponential = (
        1_u32..=1_000,
        10_u64..=3_600_000,
        1_000_u32..=10_000,
        any::<bool>(),
    )
        .prop_flat_map(
            |(deliveries, base_ms, multiplier_permille, clamp_after_jitter)| {
                let longest = base_ms..=604_800_000;
                (
                    Just(deliveries),
                    longest.prop_map(move |delay_max_ms| Schedule::Exponential {
                        base_ms,
                        multiplier_permille,
                        delay_max_ms,
                        clamp_after_jitter,
                    }),
                )
            },
        );
    prop_oneof![list, exponential]
}

prop_compose! {
    fn policy()(
        (deliveries_max, schedule) in schedule(),
        jitter_max_ms in 0_u64..=3_600_000,
        jitter_ppm in 0_u32..=1_000_000,
        age_max_ms in prop_oneof![Just(0), 604_800_001_u64..1 << 50],
        rules in proptest::collection::vec(("[a-z]{1,5}[*]?", any::<bool>()), 0..4),
        permanent_by_default: bool,
    ) -> RetryPolicy {
        let rules = rules.into_iter();
        let rules = rules.map(|(pattern, permanent)| ErrorRule { pattern, permanent });
        RetryPolicy {
            deliveries_max,
            schedule,
            jitter_max_ms,
            jitter_ppm,
            age_max_ms,
            rules: rules.collect(),
            permanent_by_default,
        }
    }
}

prop_compose! {
    fn dead_letters()(
        bytes_max in 1_u64..1 << 62,
        retention_age_ms in 0_u64..1 << 50,
        replays_max in 1_u32..=1_000,
        [off, drop_oldest_when_full, omit_error_message, omit_error_stack]: [bool; 4],
    ) -> DeadLetterSettings {
        DeadLetterSettings {
            off,
            bytes_max,
            retention_age_ms,
            drop_oldest_when_full,
            omit_error_message,
            omit_error_stack,
            replays_max,
        }
    }
}

prop_compose! {
    fn admissions()(
        (depth_max, age_max_ms, bytes_max) in (0..1_u64 << 40, 0..1_u64 << 40, 0..1_u64 << 40),
        resume_permille in 1_u32..=1_000,
        observe: bool,
    ) -> AdmissionSettings {
        AdmissionSettings { depth_max, age_max_ms, bytes_max, resume_permille, observe }
    }
}

prop_compose! {
    fn settings()(
        mode in prop_oneof![Just(GroupMode::Stream), Just(GroupMode::Queue)],
        on_failure in prop_oneof![Just(OnFailure::Overtake), Just(OnFailure::Hold)],
        on_head_dead in prop_oneof![
            Just(OnHeadDead::Continue), Just(OnHeadDead::Halt), Just(OnHeadDead::Park)
        ],
        retry in policy(),
        dead_letter in dead_letters(),
        (visibility_timeout_ms, session_timeout_ms, lease_total_max_ms)
            in (1_000_u64..=43_200_000, 1_000_u64..=1_800_000, 1_u64..=43_200_000),
        (in_flight_max, isolate_after, releases_max, retry_share_permille)
            in (1_u32..=10_000, 1_u32..=1_000, 1_u32..=10_000, 50_u32..=500),
        [circuit_breaker, retain_until_consumed, paused]: [bool; 3],
        admission in admissions(),
    ) -> GroupSettings {
        GroupSettings {
            mode,
            on_failure,
            on_head_dead,
            retry,
            dead_letter: DeadLetterSettings {
                off: dead_letter.off && on_head_dead != OnHeadDead::Park,
                ..dead_letter
            },
            visibility_timeout_ms,
            session_timeout_ms,
            in_flight_max,
            lease_total_max_ms,
            isolate_after,
            releases_max,
            retry_share_permille,
            circuit_breaker,
            retain_until_consumed,
            paused,
            admission,
        }
    }
}

proptest! {
    #[test]
    fn what_is_shown_reads_back_as_it_was(settings in settings()) {
        prop_assert_eq!(read(Some(&shown(&settings))).unwrap(), settings);
    }

    #[test]
    fn a_mask_leaves_alone_what_it_does_not_name(settings in settings(), paused: bool) {
        let config = with(|config| config.paused = paused);
        let now = changed(&settings, Some(&config), Some(&mask(&["paused"]))).unwrap();
        prop_assert_eq!(now, GroupSettings { paused, ..settings });
    }
}
