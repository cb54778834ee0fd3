//! `TopicConfig` read, changed by a mask, and shown.

use std::collections::HashMap;
use std::time::Duration;

use varvelog_proto::v1;
use varvelog_store::limits;

use crate::core::settings::TopicSettings;
use crate::service::checks;
use crate::service::status::{CallFailure, EdgeRefusal, FieldViolation};

const MESSAGE_ID_WINDOW_MAX: Duration = Duration::from_hours(7 * 24);
/// Longest that can be told apart from no limit at all: a hundred thousand years.
const RETENTION_AGE_MAX: Duration = Duration::from_hours(100_000 * 365 * 24);
const LABELS_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 256;

/// All fields of a `TopicConfig`, in the order of the contract.
const FIELDS: &[&str] = &[
    "retention_age",
    "retention_bytes",
    "segment_bytes",
    "compact",
    "max_record_bytes",
    "message_id_window",
    "labels",
];

/// The settings that a config asks for. `record_bytes_max` bounds what a topic may allow.
pub(super) fn read(
    config: Option<&v1::TopicConfig>,
    record_bytes_max: u32,
) -> Result<TopicSettings, CallFailure> {
    let mut settings = TopicSettings::default();
    settings.record_bytes_max = settings.record_bytes_max.min(record_bytes_max);
    if let Some(config) = config {
        for field in FIELDS {
            set(&mut settings, config, field, record_bytes_max)?;
        }
    }
    Ok(settings)
}

/// `current`, with what the mask names taken from `config`; without a mask everything is.
pub(super) fn changed(
    current: &TopicSettings,
    config: Option<&v1::TopicConfig>,
    mask: Option<&prost_types::FieldMask>,
    record_bytes_max: u32,
) -> Result<TopicSettings, CallFailure> {
    let Some(mask) = mask.filter(|mask| !mask.paths.is_empty()) else {
        return read(config, record_bytes_max);
    };
    let default = v1::TopicConfig::default();
    let config = config.unwrap_or(&default);
    let mut settings = current.clone();
    for path in &mask.paths {
        let field = path.strip_prefix("config.").unwrap_or(path);
        if path == "config" {
            settings = read(Some(config), record_bytes_max)?;
        } else if FIELDS.contains(&field) {
            set(&mut settings, config, field, record_bytes_max)?;
        } else {
            return Err(unknown_path(path, FIELDS));
        }
    }
    Ok(settings)
}

/// A path of a mask that names no field.
pub(in crate::service) fn unknown_path(path: &str, fields: &[&str]) -> CallFailure {
    let shown: String = path.chars().take(64).collect();
    let limit = fields.join(", ");
    FieldViolation::bound(
        "update_mask",
        limit,
        shown,
        "a path names no field of the config",
    )
    .into()
}

fn set(
    settings: &mut TopicSettings,
    config: &v1::TopicConfig,
    field: &str,
    record_bytes_max: u32,
) -> Result<(), CallFailure> {
    let default = TopicSettings::default();
    let path = format!("config.{field}");
    match field {
        "retention_age" => {
            let bounds = (Duration::ZERO, RETENTION_AGE_MAX);
            let age = checks::duration_ms(&path, config.retention_age.as_ref(), bounds)?;
            settings.retention_age_ms = age.unwrap_or(default.retention_age_ms);
        }
        "retention_bytes" => {
            settings.retention_bytes = checks::not_negative(&path, config.retention_bytes)?;
        }
        "segment_bytes" => {
            let bounds = (
                limits::SEGMENT_BYTES_MIN.into(),
                limits::SEGMENT_BYTES_MAX.into(),
            );
            let bytes = checks::bytes(
                &path,
                config.segment_bytes,
                default.segment_bytes.into(),
                bounds,
            )?;
            settings.segment_bytes = u32::try_from(bytes).unwrap_or(default.segment_bytes);
        }
        "compact" if config.compact => {
            return Err(EdgeRefusal::not_implemented("compact").into());
        }
        "max_record_bytes" => {
            let default = default.record_bytes_max.min(record_bytes_max);
            settings.record_bytes_max =
                checks::count(&path, config.max_record_bytes, (default, record_bytes_max))?;
        }
        "message_id_window" => {
            let bounds = (Duration::ZERO, MESSAGE_ID_WINDOW_MAX);
            let window = checks::duration_ms(&path, config.message_id_window.as_ref(), bounds)?;
            settings.message_id_window_ms = window.unwrap_or(default.message_id_window_ms);
        }
        "labels" => {
            check_labels(&path, &config.labels)?;
            settings.labels = config
                .labels
                .iter()
                .map(|(name, text)| (name.clone(), text.clone()))
                .collect();
        }
        _ => {}
    }
    Ok(())
}

fn check_labels(path: &str, labels: &HashMap<String, String>) -> Result<(), FieldViolation> {
    if labels.len() > LABELS_MAX {
        let what = format!("at most {LABELS_MAX} are allowed");
        return Err(FieldViolation::bound(path, LABELS_MAX, labels.len(), what));
    }
    for text in labels.iter().flat_map(|(name, text)| [name, text]) {
        checks::text(path, text, LABEL_BYTES_MAX)?;
    }
    Ok(())
}

/// The config that settings are shown as, every default filled in.
pub(super) fn shown(settings: &TopicSettings) -> v1::TopicConfig {
    v1::TopicConfig {
        retention_age: Some(duration(settings.retention_age_ms)),
        retention_bytes: i64::try_from(settings.retention_bytes).unwrap_or(i64::MAX),
        segment_bytes: settings.segment_bytes.into(),
        compact: false,
        max_record_bytes: i32::try_from(settings.record_bytes_max).unwrap_or(i32::MAX),
        message_id_window: Some(duration(settings.message_id_window_ms)),
        labels: settings.labels.clone().into_iter().collect(),
    }
}

fn duration(ms: u64) -> prost_types::Duration {
    Duration::from_millis(ms).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::status::{Explanation, Reason};

    const MOST: u32 = 15 << 20;

    fn seconds(seconds: i64) -> prost_types::Duration {
        prost_types::Duration { seconds, nanos: 0 }
    }

    #[test]
    fn an_unset_config_gives_the_defaults_and_so_does_an_empty_one() {
        assert_eq!(read(None, MOST).unwrap(), TopicSettings::default());
        let empty = v1::TopicConfig::default();
        assert_eq!(read(Some(&empty), MOST).unwrap(), TopicSettings::default());
    }

    #[test]
    fn what_is_shown_reads_back_as_it_was() {
        let config = v1::TopicConfig {
            retention_age: Some(seconds(0)),
            retention_bytes: 5,
            segment_bytes: 1 << 20,
            compact: false,
            max_record_bytes: 2,
            message_id_window: Some(seconds(0)),
            labels: [("team".to_owned(), "mail".to_owned())].into(),
        };
        let settings = read(Some(&config), MOST).unwrap();
        assert_eq!(
            settings.retention_age_ms, 0,
            "zero is no limit, not the default"
        );
        assert_eq!(shown(&settings), config);
        assert_eq!(read(Some(&shown(&settings)), MOST).unwrap(), settings);
    }

    #[test]
    fn each_field_out_of_its_bounds_is_refused_by_name() {
        let refused = |change: fn(&mut v1::TopicConfig)| {
            let mut config = v1::TopicConfig::default();
            change(&mut config);
            let failure = read(Some(&config), MOST).unwrap_err();
            Explanation::from(&failure).field.unwrap().0
        };
        assert_eq!(
            refused(|c| c.retention_age = Some(seconds(-1))),
            "config.retention_age"
        );
        assert_eq!(
            refused(|c| c.retention_bytes = -1),
            "config.retention_bytes"
        );
        assert_eq!(
            refused(|c| c.segment_bytes = (1 << 20) - 1),
            "config.segment_bytes"
        );
        assert_eq!(
            refused(|c| c.segment_bytes = (1 << 30) + 1),
            "config.segment_bytes"
        );
        assert_eq!(
            refused(|c| c.max_record_bytes = (15 << 20) + 1),
            "config.max_record_bytes"
        );
        assert_eq!(
            refused(|c| c.message_id_window = Some(seconds(604_801))),
            "config.message_id_window"
        );
        assert_eq!(
            refused(|c| c.labels = (0..65).map(|n| (n.to_string(), String::new())).collect()),
            "config.labels"
        );
    }

    #[test]
    fn a_mask_takes_what_it_names_and_nothing_else() {
        let config = v1::TopicConfig {
            retention_bytes: 9,
            segment_bytes: 1 << 21,
            ..Default::default()
        };
        let current = TopicSettings {
            retention_age_ms: 1,
            ..TopicSettings::default()
        };
        let mask = |paths: &[&str]| prost_types::FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        };
        let change = |paths: &[&str]| changed(&current, Some(&config), Some(&mask(paths)), MOST);
        let with = change(&["config.retention_bytes"]).unwrap();
        assert_eq!(
            with,
            TopicSettings {
                retention_bytes: 9,
                ..current.clone()
            }
        );
        assert_eq!(change(&["retention_bytes"]).unwrap(), with);
        assert_eq!(
            change(&["config"]).unwrap(),
            read(Some(&config), MOST).unwrap()
        );
        assert_eq!(change(&[]).unwrap(), read(Some(&config), MOST).unwrap());
        let refused = Explanation::from(&change(&["partitions"]).unwrap_err());
        assert_eq!(refused.reason, Reason::InvalidField);
    }

    #[test]
    fn compaction_is_not_in_this_release() {
        let config = v1::TopicConfig {
            compact: true,
            ..Default::default()
        };
        let refused = Explanation::from(&read(Some(&config), MOST).unwrap_err());
        assert_eq!(refused.reason, Reason::NotImplemented);
    }
}
