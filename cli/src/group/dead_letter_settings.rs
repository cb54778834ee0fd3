//! The settings of a group's dead-letter topics as options.

use std::time::Duration;

use clap::{Args, ValueEnum};
use varvelog_proto::v1;

use super::settings::{Given, to_duration};
use crate::failure::Failure;
use crate::parse::{self, Switch};

/// Options for dead letters.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Dead letters")]
#[expect(
    clippy::struct_field_names,
    reason = "fields are named as their options"
)]
pub(super) struct DeadLetterArgs {
    /// Whether records that are given out no more are kept; off: they are dropped, and counted as
    /// lost [default: on]
    #[arg(long, value_enum, value_name = "on|off", hide_possible_values = true)]
    dead_letter: Option<Switch>,
    /// What a partition of the dead-letter topic may hold [default: 1GiB]
    #[arg(long, value_parser = parse::bytes, value_name = "SIZE")]
    dead_letter_max_bytes: Option<i64>,
    /// How long they are kept since their death, or none for ever [default: 30d]
    #[arg(long, value_parser = parse::duration_or_none, value_name = "DURATION|none")]
    dead_letter_retention: Option<Duration>,
    /// When there is no room. Wait: the record stays in place until there is. Drop-oldest: the
    /// oldest dead letter goes [default: wait]
    #[arg(long, value_enum, value_name = "WHAT")]
    dead_letter_full: Option<WhenFull>,
    /// Error texts that are not stored, since they may hold personal data [default: none]
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "message,stack|none"
    )]
    dead_letter_omit: Vec<Omit>,
    /// Replays of one record without force [default: 3]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), value_name = "N")]
    dead_letter_max_replays: Option<i32>,
}

/// `--dead-letter-full`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum WhenFull {
    Wait,
    DropOldest,
}

/// `--dead-letter-omit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Omit {
    Message,
    Stack,
    None,
}

impl DeadLetterArgs {
    pub(super) fn put(&self, given: &mut Given) -> Result<(), Failure> {
        let mut config = v1::DeadLetterConfig::default();
        let before = given.paths.len();
        if let Some(switch) = self.dead_letter {
            given.name("dead_letter.off");
            config.off = !switch.is_on();
        }
        if let Some(bytes) = self.dead_letter_max_bytes {
            given.name("dead_letter.max_bytes");
            config.max_bytes = bytes;
        }
        if let Some(age) = self.dead_letter_retention {
            given.name("dead_letter.retention_age");
            config.retention_age = Some(to_duration("--dead-letter-retention", age)?);
        }
        if let Some(full) = self.dead_letter_full {
            given.name("dead_letter.drop_oldest_when_full");
            config.drop_oldest_when_full = full == WhenFull::DropOldest;
        }
        if !self.dead_letter_omit.is_empty() {
            given.names("dead_letter", &["omit_error_message", "omit_error_stack"]);
            config.omit_error_message = self.dead_letter_omit.contains(&Omit::Message);
            config.omit_error_stack = self.dead_letter_omit.contains(&Omit::Stack);
        }
        if let Some(replays) = self.dead_letter_max_replays {
            given.name("dead_letter.max_replays");
            config.max_replays = replays;
        }
        if given.paths.len() > before {
            given.config.dead_letter = Some(config);
        }
        Ok(())
    }
}
