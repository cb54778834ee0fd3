//! The settings of a group as options: how its records are given out.

use std::time::Duration;

use clap::{Args, ValueEnum};
use varvelog_proto::v1;

use super::admission_settings::AdmissionArgs;
use super::dead_letter_settings::DeadLetterArgs;
use super::retry_settings::RetryArgs;
use crate::failure::Failure;
use crate::parse::{self, Switch};

/// Options for settings; what is not given is not changed.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SettingArgs {
    #[command(flatten)]
    delivery: DeliveryArgs,
    #[command(flatten)]
    retry: RetryArgs,
    #[command(flatten)]
    dead_letter: DeadLetterArgs,
    #[command(flatten)]
    admission: AdmissionArgs,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Delivery")]
struct DeliveryArgs {
    /// Stream: each partition belongs to one member. Queue: any member is given records of any
    /// partition. Changes only without live members [default: stream]
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,
    /// Overtake: a failed record waits in the retry topic and later ones flow. Hold: its key (of a
    /// queue) or its partition (of a stream) waits. Changes only without live members
    /// [default: overtake]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_failure: Option<OnFailure>,
    /// With hold, once the record that held is dead. Continue: the next one is given out. Park:
    /// those of its key follow it to the dead letters. Halt: all wait for an operator
    /// [default: continue]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_head_dead: Option<OnHeadDead>,
    /// How long a record is held before it is given to another, 1s to 12h [default: 30s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    visibility_timeout: Option<Duration>,
    /// Longest hold with extensions, up to 12h [default: 1h]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    max_lease_total: Option<Duration>,
    /// How long a member whose connection broke is waited for, 1s to 30m [default: 45s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    session_timeout: Option<Duration>,
    /// Records of one partition given out and unsettled, up to 10000 [default: 2000]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), value_name = "RECORDS")]
    max_in_flight: Option<i32>,
    /// Crashes or timeouts after which a record is given out alone [default: 2]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), value_name = "N")]
    isolate_after: Option<i32>,
    /// Releases of one record after which each counts as a failure [default: 100]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), value_name = "N")]
    max_releases: Option<i32>,
    /// Share of what is given out that is kept for retries, 0.05 to 0.5 [default: 0.25]
    #[arg(long, value_parser = parse::positive, value_name = "SHARE")]
    retry_share: Option<f64>,
    /// Slow first deliveries while most settlements fail [default: off]
    #[arg(long, value_enum, require_equals = true, num_args = 0..=1,
        default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    circuit_breaker: Option<Switch>,
    /// Retention never passes what the group has not done [default: off]
    #[arg(long, value_enum, require_equals = true, num_args = 0..=1,
        default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    retain_until_consumed: Option<Switch>,
    /// Give out nothing; settlements go on
    #[arg(long, conflicts_with = "resume")]
    paused: bool,
    /// Give out records again
    #[arg(long)]
    resume: bool,
}

/// `--mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Stream,
    Queue,
}

/// `--on-failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnFailure {
    Overtake,
    Hold,
}

/// `--on-head-dead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnHeadDead {
    Continue,
    Park,
    Halt,
}

/// A config with what was given, and the paths of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Given {
    pub(super) config: v1::GroupConfig,
    pub(super) paths: Vec<String>,
}

impl Given {
    pub(super) fn name(&mut self, path: &str) {
        self.paths.push(path.to_owned());
    }

    pub(super) fn names(&mut self, below: &str, fields: &[&str]) {
        let path = |field: &&str| format!("{below}.{field}");
        self.paths.extend(fields.iter().map(path));
    }
}

impl SettingArgs {
    /// The settings, and the paths of those that were given, each once.
    pub(super) fn to_config(&self) -> Result<Given, Failure> {
        let mut given = Given::default();
        self.delivery.put(&mut given)?;
        self.retry.put(&mut given)?;
        self.dead_letter.put(&mut given)?;
        self.admission.put(&mut given)?;
        given.paths.sort_unstable();
        given.paths.dedup();
        Ok(given)
    }
}

impl DeliveryArgs {
    fn put(&self, given: &mut Given) -> Result<(), Failure> {
        if let Some(mode) = self.mode {
            given.name("mode");
            given.config.set_mode(match mode {
                Mode::Stream => v1::GroupMode::Stream,
                Mode::Queue => v1::GroupMode::Queue,
            });
        }
        if let Some(on_failure) = self.on_failure {
            given.name("on_failure");
            given.config.set_on_failure(match on_failure {
                OnFailure::Overtake => v1::OnFailure::Overtake,
                OnFailure::Hold => v1::OnFailure::Hold,
            });
        }
        if let Some(on_head_dead) = self.on_head_dead {
            given.name("on_head_dead");
            given.config.set_on_head_dead(match on_head_dead {
                OnHeadDead::Continue => v1::OnHeadDead::Continue,
                OnHeadDead::Park => v1::OnHeadDead::Park,
                OnHeadDead::Halt => v1::OnHeadDead::Halt,
            });
        }
        self.put_times(given)?;
        self.put_counts(given);
        if let Some(switch) = self.circuit_breaker {
            given.name("circuit_breaker");
            given.config.circuit_breaker = switch.is_on();
        }
        if let Some(switch) = self.retain_until_consumed {
            given.name("retain_until_consumed");
            given.config.retain_until_consumed = switch.is_on();
        }
        if self.paused || self.resume {
            given.name("paused");
            given.config.paused = self.paused;
        }
        Ok(())
    }

    fn put_times(&self, given: &mut Given) -> Result<(), Failure> {
        if let Some(time) = self.visibility_timeout {
            given.name("visibility_timeout");
            given.config.visibility_timeout = Some(to_duration("--visibility-timeout", time)?);
        }
        if let Some(time) = self.max_lease_total {
            given.name("max_lease_total");
            given.config.max_lease_total = Some(to_duration("--max-lease-total", time)?);
        }
        if let Some(time) = self.session_timeout {
            given.name("session_timeout");
            given.config.session_timeout = Some(to_duration("--session-timeout", time)?);
        }
        Ok(())
    }

    fn put_counts(&self, given: &mut Given) {
        if let Some(records) = self.max_in_flight {
            given.name("max_in_flight");
            given.config.max_in_flight = records;
        }
        if let Some(failures) = self.isolate_after {
            given.name("isolate_after");
            given.config.isolate_after = failures;
        }
        if let Some(releases) = self.max_releases {
            given.name("max_releases");
            given.config.max_releases = releases;
        }
        if let Some(share) = self.retry_share {
            given.name("retry_share");
            given.config.retry_share = share;
        }
    }
}

/// A duration as the contract says it.
pub(super) fn to_duration(
    option: &str,
    duration: Duration,
) -> Result<prost_types::Duration, Failure> {
    prost_types::Duration::try_from(duration)
        .map_err(|_range| Failure::usage(format!("{option}: that long cannot be said")))
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
