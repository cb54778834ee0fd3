//! The settings of a topic as options.

use std::time::Duration;

use clap::Args;
use varvelog_proto::v1;

use crate::failure::Failure;
use crate::parse;

/// Options for settings; what is not given is not changed.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SettingArgs {
    /// How long records are kept since they were appended, or none for ever [default: 7d]
    #[arg(long, value_parser = parse::duration_or_none, value_name = "DURATION|none")]
    retention: Option<Duration>,
    /// How much a partition keeps, or none for no limit [default: none]
    #[arg(long, value_parser = parse::bytes_or_none, value_name = "SIZE|none")]
    retention_bytes: Option<i64>,
    /// Size of a segment file, 1 MiB to 1 GiB [default: 128MiB]
    #[arg(long, value_parser = parse::bytes, value_name = "SIZE")]
    segment_bytes: Option<i64>,
    /// Largest record, with key and headers, up to 16 MiB [default: 1MiB]
    #[arg(long, value_parser = parse::bytes, value_name = "SIZE")]
    max_record_bytes: Option<i64>,
    /// How long message ids are remembered, or none for not at all [default: 5m]
    #[arg(long, value_parser = parse::duration_or_none, value_name = "DURATION|none")]
    message_id_window: Option<Duration>,
    /// A label of your own; may be given again
    #[arg(long = "label", value_parser = parse::pair, value_name = "NAME=VALUE")]
    labels: Vec<(String, String)>,
}

impl SettingArgs {
    /// The settings, and the paths of those that were given.
    pub(crate) fn to_config(&self) -> Result<(v1::TopicConfig, Vec<String>), Failure> {
        let mut config = v1::TopicConfig::default();
        let mut paths = Vec::new();
        if let Some(age) = self.retention {
            config.retention_age = Some(to_duration("--retention", age)?);
            paths.push(String::from("config.retention_age"));
        }
        if let Some(bytes) = self.retention_bytes {
            config.retention_bytes = bytes;
            paths.push(String::from("config.retention_bytes"));
        }
        if let Some(bytes) = self.segment_bytes {
            config.segment_bytes = bytes;
            paths.push(String::from("config.segment_bytes"));
        }
        if let Some(bytes) = self.max_record_bytes {
            config.max_record_bytes = i32::try_from(bytes).map_err(|_range| {
                Failure::usage(format!("--max-record-bytes: {bytes} is too large"))
            })?;
            paths.push(String::from("config.max_record_bytes"));
        }
        if let Some(window) = self.message_id_window {
            config.message_id_window = Some(to_duration("--message-id-window", window)?);
            paths.push(String::from("config.message_id_window"));
        }
        if !self.labels.is_empty() {
            config.labels = self.labels.iter().cloned().collect();
            paths.push(String::from("config.labels"));
        }
        Ok((config, paths))
    }
}

fn to_duration(option: &str, duration: Duration) -> Result<prost_types::Duration, Failure> {
    prost_types::Duration::try_from(duration)
        .map_err(|_range| Failure::usage(format!("{option}: that long cannot be said")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_is_in_the_mask() {
        let (config, paths) = SettingArgs::default().to_config().unwrap();
        assert_eq!((config, paths), (v1::TopicConfig::default(), Vec::new()));
        let args = SettingArgs {
            retention: Some(Duration::ZERO),
            max_record_bytes: Some(2 << 20),
            labels: vec![("team".into(), "air".into())],
            ..SettingArgs::default()
        };
        let (config, paths) = args.to_config().unwrap();
        assert_eq!(config.retention_age, Some(prost_types::Duration::default()));
        assert_eq!(config.max_record_bytes, 2 << 20);
        assert_eq!(
            paths,
            [
                "config.retention_age",
                "config.max_record_bytes",
                "config.labels"
            ]
        );
    }

    #[test]
    fn a_size_that_the_contract_cannot_say_is_refused() {
        let args = SettingArgs {
            max_record_bytes: Some(1 << 40),
            ..SettingArgs::default()
        };
        assert!(
            args.to_config()
                .unwrap_err()
                .message
                .contains("--max-record-bytes")
        );
    }
}
