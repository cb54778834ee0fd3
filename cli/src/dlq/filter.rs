//! Which dead letters, as options.

use clap::Args;
use varvelog_proto::v1;

use crate::parse;

/// Options that choose dead letters: all that are given must hold, of one given several times any.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which dead letters")]
pub(super) struct FilterArgs {
    /// Of this error code, or of those that begin so if it ends in *
    #[arg(long, value_name = "CODE")]
    code: Vec<String>,
    /// Of this fingerprint, as `dlq stats` shows it
    #[arg(long, value_name = "HEX")]
    fingerprint: Vec<String>,
    /// transient, permanent, timeout, crash, undeliverable or `release_loop`
    #[arg(long, value_name = "CLASS")]
    class: Vec<String>,
    /// `max_deliveries`, permanent, `max_age`, undeliverable, `parked_key` or operator
    #[arg(long, value_name = "REASON")]
    reason: Vec<String>,
    /// That died at this time or later
    #[arg(long, value_parser = parse::time, value_name = "TIME")]
    after: Option<i64>,
    /// That died before this time
    #[arg(long, value_parser = parse::time, value_name = "TIME")]
    before: Option<i64>,
    /// With this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Whose error message holds this text
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "TEXT"
    )]
    grep: String,
    /// Of this partition
    #[arg(long, value_name = "N")]
    partition: Vec<i32>,
    /// Replayed at most so often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    max_replays: Option<i32>,
    /// Of this message
    #[arg(long, value_name = "ID")]
    message_id: Vec<String>,
}

impl FilterArgs {
    /// As the contract has it; `ids` name entries.
    pub(super) fn to_filter(&self, ids: &[v1::DeadLetterId]) -> v1::DeadLetterFilter {
        v1::DeadLetterFilter {
            error_codes: self.code.clone(),
            fingerprints: self.fingerprint.clone(),
            died_after_time: self.after.map(timestamp),
            died_before_time: self.before.map(timestamp),
            key: self.key.clone().map(|key| key.into_bytes().into()),
            ids: ids.to_vec(),
            message_contains: self.grep.clone(),
            error_classes: self.class.clone(),
            reasons: self.reason.clone(),
            partitions: self.partition.clone(),
            message_ids: self.message_id.clone(),
            max_replay_count: self.max_replays,
        }
    }
}

/// An entry, by where it lies in the dead-letter topic.
pub(super) fn entry(text: &str) -> Result<v1::DeadLetterId, String> {
    let parsed = text.split_once('@').and_then(|(partition, offset)| {
        Some(v1::DeadLetterId {
            partition: partition.parse().ok().filter(|number| *number >= 0)?,
            offset: offset.parse().ok().filter(|number| *number >= 0)?,
        })
    });
    parsed.ok_or_else(|| format!("`{text}` is no dead letter: give PARTITION@OFFSET, such as 0@17"))
}

pub(super) fn timestamp(ms: i64) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: ms.div_euclid(1_000),
        nanos: i32::try_from(ms.rem_euclid(1_000)).unwrap_or(0) * 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_partition_and_an_offset() {
        let id = entry("3@17").unwrap();
        assert_eq!((id.partition, id.offset), (3, 17));
        for wrong in ["17", "-1@0", "0@-1", "a@1", "orders/0@1", "@"] {
            assert!(
                entry(wrong).unwrap_err().contains("is no dead letter"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_time_before_1970_is_one_too() {
        let time = timestamp(-1);
        assert_eq!((time.seconds, time.nanos), (-1, 999_000_000));
    }
}
