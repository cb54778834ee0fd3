//! The retry policy of a group as options.

use std::time::Duration;

use clap::{Args, ValueEnum};
use varvelog_proto::v1;

use super::settings::{Given, to_duration};
use crate::failure::Failure;
use crate::parse::{self, Switch};

/// Fields that only a list has.
const OF_LIST: &[&str] = &["delays"];
/// Fields that only the exponential form has.
const OF_EXPONENTIAL: &[&str] = &["base", "multiplier", "max_delay", "clamp_after_jitter"];
/// Fields whose default is another in each form.
const OF_EITHER: &[&str] = &["jitter_max", "jitter_ratio"];

/// The first delay of the exponential preset.
const BASE_DEFAULT: prost_types::Duration = prost_types::Duration {
    seconds: 1,
    nanos: 0,
};

/// Options for retries.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Retries")]
pub(super) struct RetryArgs {
    /// How delays grow, with the defaults of that form. List: 1s, 10s, 100s, 1000s, and up to a
    /// tenth more. Exponential: 1s, doubled each time, at most 60s, and up to 500ms more
    /// [default: list]
    #[arg(long, value_enum, value_name = "FORM")]
    retry: Option<Form>,
    /// Deliveries of one record, the first included; 1: no retry [default: 5]
    #[arg(long, value_parser = clap::value_parser!(i32).range(1..), value_name = "N")]
    max_deliveries: Option<i32>,
    /// The list, 10ms to 7d each; the last one repeats
    #[arg(long = "delay", value_parser = parse::duration, value_delimiter = ',',
        value_name = "DURATION,...",
        conflicts_with_all = ["retry_base", "retry_multiplier", "retry_max_delay",
            "clamp_after_jitter"])]
    delays: Vec<Duration>,
    /// The first delay of the exponential form, 10ms to 1h
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    retry_base: Option<Duration>,
    /// How much longer each delay is than the one before, 1 to 10 [default: 2]
    #[arg(long, value_parser = parse::positive, value_name = "FACTOR")]
    retry_multiplier: Option<f64>,
    /// The longest delay of the exponential form, up to 7d [default: 60s]
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    retry_max_delay: Option<Duration>,
    /// Added at random to each delay: up to so much
    #[arg(long, value_parser = parse::duration, value_name = "DURATION")]
    jitter: Option<Duration>,
    /// Added at random to each delay: up to this share of it, 0 to 1; the larger of both counts
    #[arg(long, value_parser = parse::share, value_name = "SHARE")]
    jitter_ratio: Option<f64>,
    /// The longest delay bounds delay and jitter together [default: off]
    #[arg(long, value_enum, require_equals = true, num_args = 0..=1,
        default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    clamp_after_jitter: Option<Switch>,
    /// A failed record that is older is dead, or none for no limit [default: none]
    #[arg(long, value_parser = parse::duration_or_none, value_name = "DURATION|none")]
    max_age: Option<Duration>,
    /// What an error code means: PATTERN=permanent or PATTERN=transient, where a pattern may end
    /// in *. May be given again: the first that matches counts, and all rules before are replaced
    #[arg(long = "rule", value_parser = parse_rule, value_name = "PATTERN=CLASS",
        conflicts_with = "no_rules")]
    rules: Vec<Rule>,
    /// Remove all rules
    #[arg(long)]
    no_rules: bool,
    /// Errors that no rule matches are permanent [default: off]
    #[arg(long, value_enum, require_equals = true, num_args = 0..=1,
        default_missing_value = "on", value_name = "on|off", hide_possible_values = true)]
    permanent_by_default: Option<Switch>,
}

/// `--retry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    List,
    Exponential,
}

/// `--rule`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    pattern: String,
    permanent: bool,
}

impl RetryArgs {
    pub(super) fn put(&self, given: &mut Given) -> Result<(), Failure> {
        let mut policy = v1::RetryPolicy::default();
        let before = given.paths.len();
        self.put_form(&mut policy, given)?;
        self.put_jitter(&mut policy, given)?;
        if let Some(deliveries) = self.max_deliveries {
            given.name("retry.max_deliveries");
            policy.max_deliveries = deliveries;
        }
        if let Some(age) = self.max_age {
            given.name("retry.max_age");
            let limited = (!age.is_zero()).then(|| to_duration("--max-age", age));
            policy.max_age = limited.transpose()?;
        }
        if self.no_rules || !self.rules.is_empty() {
            given.name("retry.rules");
            let rule = |rule: &Rule| v1::ErrorRule {
                code_pattern: rule.pattern.clone(),
                permanent: rule.permanent,
            };
            policy.rules = self.rules.iter().map(rule).collect();
        }
        if let Some(switch) = self.permanent_by_default {
            given.name("retry.permanent_by_default");
            policy.permanent_by_default = switch.is_on();
        }
        if given.paths.len() > before {
            given.config.retry = Some(policy);
        }
        Ok(())
    }

    /// A form that is chosen begins with its defaults; what belongs to the other one goes.
    fn put_form(&self, policy: &mut v1::RetryPolicy, given: &mut Given) -> Result<(), Failure> {
        if self.retry.is_some() {
            given.names("retry", OF_LIST);
            given.names("retry", OF_EXPONENTIAL);
            given.names("retry", OF_EITHER);
        }
        match self.form()? {
            Some(Form::List) => {
                given.names("retry", OF_EXPONENTIAL);
                given.names("retry", OF_LIST);
                let delay = |delay: &Duration| to_duration("--delay", *delay);
                policy.delays = self.delays.iter().map(delay).collect::<Result<_, _>>()?;
            }
            Some(Form::Exponential) => {
                given.names("retry", OF_LIST);
                given.names("retry", &["base"]);
                let base = self
                    .retry_base
                    .map(|base| to_duration("--retry-base", base));
                policy.base = Some(base.transpose()?.unwrap_or(BASE_DEFAULT));
            }
            None => {}
        }
        if let Some(multiplier) = self.retry_multiplier {
            given.name("retry.multiplier");
            policy.multiplier = multiplier;
        }
        if let Some(delay) = self.retry_max_delay {
            given.name("retry.max_delay");
            policy.max_delay = Some(to_duration("--retry-max-delay", delay)?);
        }
        if let Some(switch) = self.clamp_after_jitter {
            given.name("retry.clamp_after_jitter");
            policy.clamp_after_jitter = switch.is_on();
        }
        Ok(())
    }

    /// The form that was asked for; none: it stays.
    fn form(&self) -> Result<Option<Form>, Failure> {
        let exponential = self.retry_base.is_some()
            || self.retry_multiplier.is_some()
            || self.retry_max_delay.is_some()
            || self.clamp_after_jitter.is_some();
        match self.retry {
            Some(Form::List) if exponential => Err(Failure::usage(
                "--retry list goes with --delay; a base, a multiplier, a longest delay and its \
                 clamp are of the exponential form",
            )),
            Some(Form::Exponential) if !self.delays.is_empty() => Err(Failure::usage(
                "--retry exponential goes with --retry-base; --delay is of the list",
            )),
            Some(form) => Ok(Some(form)),
            None if !self.delays.is_empty() => Ok(Some(Form::List)),
            None => Ok(self.retry_base.map(|_base| Form::Exponential)),
        }
    }

    fn put_jitter(&self, policy: &mut v1::RetryPolicy, given: &mut Given) -> Result<(), Failure> {
        if let Some(jitter) = self.jitter {
            given.name("retry.jitter_max");
            policy.jitter_max = Some(to_duration("--jitter", jitter)?);
        }
        if let Some(ratio) = self.jitter_ratio {
            given.name("retry.jitter_ratio");
            policy.jitter_ratio = Some(ratio);
        }
        Ok(())
    }
}

/// `VAL_*=permanent`. A pattern may hold a `=` itself.
fn parse_rule(text: &str) -> Result<Rule, String> {
    let (pattern, permanent) = match text.rsplit_once('=') {
        Some((pattern, "permanent")) => (pattern, true),
        Some((pattern, "transient")) => (pattern, false),
        _ => {
            return Err(format!(
                "`{text}` is no PATTERN=permanent or PATTERN=transient"
            ));
        }
    };
    if pattern.is_empty() {
        return Err(format!(
            "`{text}` has no pattern; * alone matches every code"
        ));
    }
    Ok(Rule {
        pattern: pattern.to_owned(),
        permanent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_a_pattern_and_a_class() {
        let rule = |text| parse_rule(text).map(|rule| (rule.pattern, rule.permanent));
        assert_eq!(rule("VAL_*=permanent"), Ok(("VAL_*".into(), true)));
        assert_eq!(rule("a=b=transient"), Ok(("a=b".into(), false)));
        for wrong in ["VAL_*", "VAL_*=", "=permanent", "VAL_*=fatal", ""] {
            assert!(rule(wrong).is_err(), "{wrong}");
        }
    }
}
