//! `GroupConfig` read, changed by a mask, and shown. What delivery with failures brings is not in
//! this release: such a field that asks for something else than the default is refused by name.

use std::time::Duration;

use varvelog_proto::v1;

use crate::core::settings::GroupSettings;
use crate::service::checks;
use crate::service::consume::ACK_TIMEOUT;
use crate::service::status::{CallFailure, EdgeRefusal};
use crate::service::topics::unknown_path;

const SESSION_TIMEOUT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(30));
const LEASE_TOTAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(12));
const IN_FLIGHT_MAX: u32 = 10_000;

/// All fields of a `GroupConfig`, in the order of the contract.
const FIELDS: &[&str] = &[
    "mode",
    "on_failure",
    "retry",
    "visibility_timeout",
    "session_timeout",
    "max_in_flight",
    "admission",
    "max_lease_total",
    "isolate_after",
    "max_releases",
    "retry_share",
    "on_head_dead",
    "circuit_breaker",
    "retain_until_consumed",
    "dead_letter",
    "paused",
];

/// The settings that a config asks for.
pub(super) fn read(config: Option<&v1::GroupConfig>) -> Result<GroupSettings, CallFailure> {
    let mut settings = GroupSettings::default();
    if let Some(config) = config {
        for field in FIELDS {
            set(&mut settings, config, field)?;
        }
    }
    Ok(settings)
}

/// `current`, with what the mask names taken from `config`; without a mask everything is.
pub(super) fn changed(
    current: &GroupSettings,
    config: Option<&v1::GroupConfig>,
    mask: Option<&prost_types::FieldMask>,
) -> Result<GroupSettings, CallFailure> {
    let Some(mask) = mask.filter(|mask| !mask.paths.is_empty()) else {
        return read(config);
    };
    let default = v1::GroupConfig::default();
    let config = config.unwrap_or(&default);
    let mut settings = current.clone();
    for path in &mask.paths {
        let field = path.strip_prefix("config.").unwrap_or(path);
        if path == "config" {
            settings = read(Some(config))?;
        } else if FIELDS.contains(&field) {
            set(&mut settings, config, field)?;
        } else {
            return Err(unknown_path(path, FIELDS));
        }
    }
    Ok(settings)
}

fn set(
    settings: &mut GroupSettings,
    config: &v1::GroupConfig,
    field: &str,
) -> Result<(), CallFailure> {
    let default = GroupSettings::default();
    let path = format!("config.{field}");
    match field {
        "visibility_timeout" => {
            let timeout = config.visibility_timeout.as_ref();
            settings.visibility_timeout_ms = checks::duration_ms(&path, timeout, ACK_TIMEOUT)?
                .unwrap_or(default.visibility_timeout_ms);
        }
        "session_timeout" => {
            let timeout = config.session_timeout.as_ref();
            settings.session_timeout_ms = checks::duration_ms(&path, timeout, SESSION_TIMEOUT)?
                .unwrap_or(default.session_timeout_ms);
        }
        "max_in_flight" => {
            let bounds = (default.in_flight_max, IN_FLIGHT_MAX);
            settings.in_flight_max = checks::count(&path, config.max_in_flight, bounds)?;
        }
        "max_lease_total" => {
            let total = config.max_lease_total.as_ref();
            settings.lease_total_max_ms = checks::duration_ms(&path, total, LEASE_TOTAL)?
                .unwrap_or(default.lease_total_max_ms);
        }
        "paused" => settings.paused = config.paused,
        _ => refuse_unbuilt(config, field, &path)?,
    }
    Ok(())
}

/// Refuses what is not in this release; the values that mean what this release does pass.
fn refuse_unbuilt(config: &v1::GroupConfig, field: &str, path: &str) -> Result<(), CallFailure> {
    let missing = match field {
        "mode" => {
            let mode: v1::GroupMode = checks::known(path, config.mode)?;
            (mode == v1::GroupMode::Queue).then_some("queue_mode")
        }
        "on_failure" => {
            let on_failure: v1::OnFailure = checks::known(path, config.on_failure)?;
            (on_failure == v1::OnFailure::Hold).then_some("hold")
        }
        "on_head_dead" => {
            let on_head_dead: v1::OnHeadDead = checks::known(path, config.on_head_dead)?;
            let is_built = matches!(
                on_head_dead,
                v1::OnHeadDead::Unspecified | v1::OnHeadDead::Continue
            );
            (!is_built).then_some("on_head_dead")
        }
        "retry" => is_set(config.retry.as_ref()).then_some("retry_policy"),
        "admission" => is_set(config.admission.as_ref()).then_some("admission"),
        "isolate_after" => (config.isolate_after != 0).then_some("isolate_after"),
        "max_releases" => (config.max_releases != 0).then_some("max_releases"),
        "retry_share" => (config.retry_share != 0.0).then_some("retry_share"),
        "circuit_breaker" => config.circuit_breaker.then_some("circuit_breaker"),
        "retain_until_consumed" => config
            .retain_until_consumed
            .then_some("retain_until_consumed"),
        "dead_letter" => is_set(config.dead_letter.as_ref()).then_some("dead_letter"),
        _ => None,
    };
    match missing {
        Some(feature) => Err(EdgeRefusal::not_implemented(feature).into()),
        None => Ok(()),
    }
}

fn is_set<M: Default + PartialEq>(message: Option<&M>) -> bool {
    message.is_some_and(|message| *message != M::default())
}

/// The config that settings are shown as, every default filled in.
pub(super) fn shown(settings: &GroupSettings) -> v1::GroupConfig {
    v1::GroupConfig {
        mode: v1::GroupMode::Stream.into(),
        on_failure: v1::OnFailure::Overtake.into(),
        visibility_timeout: Some(duration(settings.visibility_timeout_ms)),
        session_timeout: Some(duration(settings.session_timeout_ms)),
        max_in_flight: i32::try_from(settings.in_flight_max).unwrap_or(i32::MAX),
        max_lease_total: Some(duration(settings.lease_total_max_ms)),
        paused: settings.paused,
        ..v1::GroupConfig::default()
    }
}

/// Milliseconds as a duration of the API.
pub(super) fn duration(ms: u64) -> prost_types::Duration {
    Duration::from_millis(ms).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::status::{Explanation, Reason};

    fn seconds(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    #[test]
    fn what_is_shown_reads_back_as_it_was() {
        assert_eq!(read(None).unwrap(), GroupSettings::default());
        let config = v1::GroupConfig {
            visibility_timeout: Some(seconds(1)),
            session_timeout: Some(seconds(1800)),
            max_in_flight: 10_000,
            max_lease_total: Some(seconds(5)),
            paused: true,
            ..v1::GroupConfig::default()
        };
        let settings = read(Some(&config)).unwrap();
        assert_eq!(settings.visibility_timeout_ms, 1000);
        assert_eq!(read(Some(&shown(&settings))).unwrap(), settings);
    }

    #[test]
    fn what_is_not_in_this_release_is_refused_by_name_and_its_default_is_not() {
        let feature = |change: fn(&mut v1::GroupConfig)| {
            let mut config = v1::GroupConfig::default();
            change(&mut config);
            let refused = Explanation::from(&read(Some(&config)).unwrap_err());
            assert_eq!(refused.reason, Reason::NotImplemented);
            refused.metadata[0].1.clone()
        };
        assert_eq!(
            feature(|c| c.mode = v1::GroupMode::Queue.into()),
            "queue_mode"
        );
        assert_eq!(
            feature(|c| c.on_failure = v1::OnFailure::Hold.into()),
            "hold"
        );
        assert_eq!(
            feature(|c| {
                c.retry = Some(v1::RetryPolicy {
                    max_deliveries: 3,
                    ..Default::default()
                });
            }),
            "retry_policy"
        );
        assert_eq!(feature(|c| c.circuit_breaker = true), "circuit_breaker");
        assert_eq!(
            feature(|c| {
                c.dead_letter = Some(v1::DeadLetterConfig {
                    off: true,
                    ..Default::default()
                });
            }),
            "dead_letter"
        );
        let config = v1::GroupConfig {
            mode: v1::GroupMode::Stream.into(),
            on_failure: v1::OnFailure::Overtake.into(),
            on_head_dead: v1::OnHeadDead::Continue.into(),
            retry: Some(v1::RetryPolicy::default()),
            ..v1::GroupConfig::default()
        };
        assert_eq!(read(Some(&config)).unwrap(), GroupSettings::default());
    }

    #[test]
    fn each_field_out_of_its_bounds_is_refused_by_name() {
        let field = |change: fn(&mut v1::GroupConfig)| {
            let mut config = v1::GroupConfig::default();
            change(&mut config);
            Explanation::from(&read(Some(&config)).unwrap_err())
                .field
                .unwrap()
                .0
        };
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
            let mask = prost_types::FieldMask {
                paths: vec![path.to_owned()],
            };
            let settings = changed(&current, Some(&config), Some(&mask)).unwrap();
            assert_eq!(
                settings,
                GroupSettings {
                    paused: true,
                    ..current.clone()
                }
            );
        }
        let mask = prost_types::FieldMask {
            paths: vec!["name".to_owned()],
        };
        assert!(changed(&current, Some(&config), Some(&mask)).is_err());
    }
}
