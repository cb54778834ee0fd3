//! `GroupConfig` read, changed by a mask, and shown.

use std::time::Duration;

use varvelog_proto::v1;

use super::numbers::{fraction, share};
use super::{admission, retry_config};
use crate::core::retry_policy::RetryPolicy;
use crate::core::settings::{DeadLetterSettings, GroupMode, GroupSettings, OnFailure, OnHeadDead};
use crate::service::checks;
use crate::service::consume::ACK_TIMEOUT;
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::topics::unknown_path;

const SESSION_TIMEOUT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(30));
const LEASE_TOTAL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(12));
/// Up to the longest that can be told apart from no limit at all: a hundred thousand years.
pub(super) const RETENTION_AGE: (Duration, Duration) =
    (Duration::ZERO, Duration::from_hours(100_000 * 365 * 24));
const IN_FLIGHT_MAX: u32 = 10_000;
const ISOLATE_AFTER_MAX: u32 = 1_000;
const RELEASES_MAX: u32 = 10_000;
const REPLAYS_MAX: u32 = 1_000;
const RETRY_SHARE_PERMILLE: (u32, u32) = (50, 500);
const PERMILLE: u32 = 1_000;

/// The settings that a config asks for.
pub(super) fn read(config: Option<&v1::GroupConfig>) -> Result<GroupSettings, CallFailure> {
    let default = GroupSettings::default();
    let Some(config) = config else {
        return Ok(default);
    };
    let ms = |field: &str, value: &Option<prost_types::Duration>, bounds, default_ms| {
        let ms = checks::duration_ms(&format!("config.{field}"), value.as_ref(), bounds);
        ms.map(|ms| ms.unwrap_or(default_ms))
    };
    let retry = config.retry.as_ref();
    let retry = retry.map(|retry| retry_config::read("config.retry", retry));
    Ok(GroupSettings {
        mode: mode(config)?,
        on_failure: on_failure(config)?,
        on_head_dead: on_head_dead(config)?,
        retry: retry.transpose()?.unwrap_or_else(RetryPolicy::list),
        dead_letter: dead_letter(config.dead_letter.as_ref())?,
        visibility_timeout_ms: ms(
            "visibility_timeout",
            &config.visibility_timeout,
            ACK_TIMEOUT,
            default.visibility_timeout_ms,
        )?,
        session_timeout_ms: ms(
            "session_timeout",
            &config.session_timeout,
            SESSION_TIMEOUT,
            default.session_timeout_ms,
        )?,
        in_flight_max: checks::count(
            "config.max_in_flight",
            config.max_in_flight,
            (default.in_flight_max, IN_FLIGHT_MAX),
        )?,
        lease_total_max_ms: ms(
            "max_lease_total",
            &config.max_lease_total,
            LEASE_TOTAL,
            default.lease_total_max_ms,
        )?,
        isolate_after: checks::count(
            "config.isolate_after",
            config.isolate_after,
            (default.isolate_after, ISOLATE_AFTER_MAX),
        )?,
        releases_max: checks::count(
            "config.max_releases",
            config.max_releases,
            (default.releases_max, RELEASES_MAX),
        )?,
        retry_share_permille: retry_share(config.retry_share, default.retry_share_permille)?,
        circuit_breaker: config.circuit_breaker,
        retain_until_consumed: config.retain_until_consumed,
        paused: config.paused,
        admission: admission::read(config.admission.as_ref())?,
    })
}

fn mode(config: &v1::GroupConfig) -> Result<GroupMode, FieldViolation> {
    Ok(match checks::known("config.mode", config.mode)? {
        v1::GroupMode::Unspecified | v1::GroupMode::Stream => GroupMode::Stream,
        v1::GroupMode::Queue => GroupMode::Queue,
    })
}

fn on_failure(config: &v1::GroupConfig) -> Result<OnFailure, FieldViolation> {
    Ok(
        match checks::known("config.on_failure", config.on_failure)? {
            v1::OnFailure::Unspecified | v1::OnFailure::Overtake => OnFailure::Overtake,
            v1::OnFailure::Hold => OnFailure::Hold,
        },
    )
}

fn on_head_dead(config: &v1::GroupConfig) -> Result<OnHeadDead, FieldViolation> {
    const FIELD: &str = "config.on_head_dead";
    let is_off = config.dead_letter.as_ref().is_some_and(|it| it.off);
    Ok(match checks::known(FIELD, config.on_head_dead)? {
        v1::OnHeadDead::Unspecified | v1::OnHeadDead::Continue => OnHeadDead::Continue,
        // A key is parked as long as it has dead letters; without any it never would be.
        v1::OnHeadDead::Park if is_off => {
            let what = "PARK needs dead letters: switch dead_letter.off off, or choose CONTINUE";
            return Err(FieldViolation::new(FIELD, what));
        }
        v1::OnHeadDead::Park => OnHeadDead::Park,
        v1::OnHeadDead::Halt => OnHeadDead::Halt,
    })
}

fn retry_share(value: f64, default_permille: u32) -> Result<u32, FieldViolation> {
    const FIELD: &str = "config.retry_share";
    if value == 0.0 {
        return Ok(default_permille);
    }
    let (least, most) = RETRY_SHARE_PERMILLE;
    let permille = fraction(FIELD, value, PERMILLE)?;
    // What is looked at is what was given, not what it is brought to.
    let is_within = (share(least, PERMILLE)..=share(most, PERMILLE)).contains(&value);
    if is_within {
        return Ok(permille);
    }
    let limit = format!("{} to {}", share(least, PERMILLE), share(most, PERMILLE));
    let what = format!(
        "must be {limit}, or 0 for {}",
        share(default_permille, PERMILLE)
    );
    Err(FieldViolation::bound(FIELD, limit, value, what))
}

fn dead_letter(config: Option<&v1::DeadLetterConfig>) -> Result<DeadLetterSettings, CallFailure> {
    let default = DeadLetterSettings::default();
    let Some(config) = config else {
        return Ok(default);
    };
    let age = checks::duration_ms(
        "config.dead_letter.retention_age",
        config.retention_age.as_ref(),
        RETENTION_AGE,
    )?;
    Ok(DeadLetterSettings {
        off: config.off,
        bytes_max: checks::bytes(
            "config.dead_letter.max_bytes",
            config.max_bytes,
            default.bytes_max,
            (1, i64::MAX.unsigned_abs()),
        )?,
        retention_age_ms: age.unwrap_or(default.retention_age_ms),
        drop_oldest_when_full: config.drop_oldest_when_full,
        omit_error_message: config.omit_error_message,
        omit_error_stack: config.omit_error_stack,
        replays_max: checks::count(
            "config.dead_letter.max_replays",
            config.max_replays,
            (default.replays_max, REPLAYS_MAX),
        )?,
    })
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
    let mut asked = v1::GroupConfig {
        retry: Some(retry_config::asked(&current.retry)),
        ..shown(current)
    };
    for path in &mask.paths {
        let field = path.strip_prefix("config.").unwrap_or(path);
        if path == "config" {
            asked = config.clone();
        } else if !take(&mut asked, config, field) {
            return Err(unknown_path(path, FIELDS));
        }
    }
    read(Some(&asked))
}

/// Takes the field of this name, if it is one of those listed.
macro_rules! take_one {
    ($name:expr, $to:expr, $from:expr; $($field:ident),+ $(,)?) => {
        match $name {
            $(stringify!($field) => {
                $to.$field.clone_from(&$from.$field);
                true
            })+
            _ => false,
        }
    };
}

/// Takes what a path names from `from`; false if it names nothing.
fn take(to: &mut v1::GroupConfig, from: &v1::GroupConfig, path: &str) -> bool {
    match path.split_once('.') {
        None => take_one!(path, to, from;
            mode, on_failure, retry, visibility_timeout, session_timeout, max_in_flight,
            admission, max_lease_total, isolate_after, max_releases, retry_share, on_head_dead,
            circuit_breaker, retain_until_consumed, dead_letter, paused,
        ),
        Some(("retry", below)) => {
            let (to, from) = (
                to.retry.get_or_insert_default(),
                from.retry.clone().unwrap_or_default(),
            );
            take_one!(below, to, from;
                max_deliveries, delays, base, multiplier, max_delay, jitter_max, jitter_ratio,
                max_age, rules, permanent_by_default, clamp_after_jitter,
            )
        }
        Some(("dead_letter", below)) => {
            let (to, from) = (
                to.dead_letter.get_or_insert_default(),
                from.dead_letter.unwrap_or_default(),
            );
            take_one!(below, to, from;
                off, max_bytes, retention_age, drop_oldest_when_full, omit_error_message,
                omit_error_stack, max_replays,
            )
        }
        Some(("admission", below)) => {
            let (to, from) = (
                to.admission.get_or_insert_default(),
                from.admission.unwrap_or_default(),
            );
            take_one!(below, to, from; max_depth, max_age, max_bytes, resume_ratio, observe)
        }
        Some(_) => false,
    }
}

/// What a mask may name, for refusals.
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

/// The config that settings are shown as, every default filled in.
pub(super) fn shown(settings: &GroupSettings) -> v1::GroupConfig {
    let count = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    v1::GroupConfig {
        mode: match settings.mode {
            GroupMode::Stream => v1::GroupMode::Stream.into(),
            GroupMode::Queue => v1::GroupMode::Queue.into(),
        },
        on_failure: match settings.on_failure {
            OnFailure::Overtake => v1::OnFailure::Overtake.into(),
            OnFailure::Hold => v1::OnFailure::Hold.into(),
        },
        retry: Some(retry_config::shown(&settings.retry)),
        visibility_timeout: Some(duration(settings.visibility_timeout_ms)),
        session_timeout: Some(duration(settings.session_timeout_ms)),
        max_in_flight: count(settings.in_flight_max),
        admission: admission::shown(&settings.admission),
        max_lease_total: Some(duration(settings.lease_total_max_ms)),
        isolate_after: count(settings.isolate_after),
        max_releases: count(settings.releases_max),
        retry_share: share(settings.retry_share_permille, PERMILLE),
        on_head_dead: match settings.on_head_dead {
            OnHeadDead::Continue => v1::OnHeadDead::Continue.into(),
            OnHeadDead::Park => v1::OnHeadDead::Park.into(),
            OnHeadDead::Halt => v1::OnHeadDead::Halt.into(),
        },
        circuit_breaker: settings.circuit_breaker,
        retain_until_consumed: settings.retain_until_consumed,
        dead_letter: Some(v1::DeadLetterConfig {
            off: settings.dead_letter.off,
            max_bytes: i64::try_from(settings.dead_letter.bytes_max).unwrap_or(i64::MAX),
            retention_age: Some(duration(settings.dead_letter.retention_age_ms)),
            drop_oldest_when_full: settings.dead_letter.drop_oldest_when_full,
            omit_error_message: settings.dead_letter.omit_error_message,
            omit_error_stack: settings.dead_letter.omit_error_stack,
            max_replays: count(settings.dead_letter.replays_max),
        }),
        paused: settings.paused,
    }
}

/// Milliseconds as a duration of the API.
pub(super) fn duration(ms: u64) -> prost_types::Duration {
    Duration::from_millis(ms).try_into().unwrap_or_default()
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
