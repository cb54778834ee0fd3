//! `RetryPolicy` of the API read and shown. What is unset depends on the form: the list and the
//! exponential form have defaults of their own.

use std::time::Duration;

use varvelog_proto::v1;

use super::numbers::{fraction, share};
use super::settings::duration;
use crate::core::policy_check::PolicyViolation;
use crate::core::retry_policy::{DELIVERIES_DEFAULT, ErrorRule, RetryPolicy, Schedule};
use crate::service::checks;
use crate::service::status::{CallFailure, FieldViolation};

const PERMILLE: u32 = 1_000;
const PPM: u32 = 1_000_000;
/// Bounds of durations whose own bounds the policy knows.
const ANY: (Duration, Duration) = (Duration::ZERO, Duration::MAX);
/// Zero is no age.
const AGE: (Duration, Duration) = (Duration::from_millis(1), Duration::MAX);

/// The policy that a message asks for; all that is wrong with it is told.
pub(super) fn read(path: &str, given: &v1::RetryPolicy) -> Result<RetryPolicy, CallFailure> {
    let mut found = Vec::new();
    let policy = Reading {
        path,
        given,
        found: &mut found,
    }
    .policy();
    found.extend(policy.validate().into_iter().map(|wrong| told(path, wrong)));
    CallFailure::of_fields(found).map_or(Ok(policy), Err)
}

fn told(path: &str, wrong: PolicyViolation) -> FieldViolation {
    let PolicyViolation {
        field,
        text,
        bound,
        value,
    } = wrong;
    FieldViolation::bound(format!("{path}.{field}"), bound, value, text)
}

struct Reading<'a> {
    path: &'a str,
    given: &'a v1::RetryPolicy,
    /// What cannot even be put into a policy.
    found: &'a mut Vec<FieldViolation>,
}

impl Reading<'_> {
    fn policy(mut self) -> RetryPolicy {
        let given = self.given;
        let deliveries_max = self.deliveries();
        let preset = match given.base {
            Some(_) => RetryPolicy::exponential(),
            None => RetryPolicy::list(),
        };
        let schedule = match &given.base {
            Some(base) => self.exponential(base),
            None => self.list(deliveries_max),
        };
        let jitter = given.jitter_max.as_ref();
        let jitter_max_ms = self.ms("jitter_max", jitter, ANY);
        let ratio = given.jitter_ratio;
        let jitter_ppm = ratio.map(|ratio| self.fraction("jitter_ratio", ratio, PPM));
        let age = given.max_age.as_ref();
        let rules = given.rules.iter().map(|rule| ErrorRule {
            pattern: rule.code_pattern.clone(),
            permanent: rule.permanent,
        });
        RetryPolicy {
            deliveries_max,
            schedule,
            jitter_max_ms: jitter_max_ms.unwrap_or(preset.jitter_max_ms),
            jitter_ppm: jitter_ppm.unwrap_or(preset.jitter_ppm),
            age_max_ms: self.ms("max_age", age, AGE).unwrap_or(0),
            rules: rules.collect(),
            permanent_by_default: given.permanent_by_default,
        }
    }

    fn deliveries(&mut self) -> u32 {
        match u32::try_from(self.given.max_deliveries) {
            Ok(0) => DELIVERIES_DEFAULT,
            Ok(deliveries) => deliveries,
            Err(_negative) => {
                let (field, got) = (self.at("max_deliveries"), self.given.max_deliveries);
                let wrong = FieldViolation::bound(field, 0, got, "must not be negative");
                self.found.push(wrong);
                DELIVERIES_DEFAULT
            }
        }
    }

    fn list(&mut self, deliveries_max: u32) -> Schedule {
        let exponential_only = [
            ("multiplier", self.given.multiplier != 0.0),
            ("max_delay", self.given.max_delay.is_some()),
            ("clamp_after_jitter", self.given.clamp_after_jitter),
        ];
        for (field, _) in exponential_only.into_iter().filter(|(_, is_set)| *is_set) {
            let wrong = FieldViolation::new(self.at(field), "is of the exponential form: set base");
            self.found.push(wrong);
        }
        if self.given.delays.is_empty() {
            return Schedule::List(Schedule::listed_delays(deliveries_max));
        }
        let delays = self.given.delays.iter().enumerate();
        let ms = |(index, delay)| {
            let field = format!("delays[{index}]");
            self.ms(&field, Some(delay), ANY).unwrap_or_default()
        };
        Schedule::List(delays.map(ms).collect())
    }

    fn exponential(&mut self, base: &prost_types::Duration) -> Schedule {
        let Schedule::Exponential {
            multiplier_permille,
            delay_max_ms,
            ..
        } = RetryPolicy::exponential().schedule
        else {
            unreachable!("the exponential preset is of the exponential form")
        };
        let given = self.given;
        if !given.delays.is_empty() {
            let wrong =
                FieldViolation::new(self.at("delays"), "base and delays exclude each other");
            self.found.push(wrong);
        }
        let raised = given.multiplier != 0.0;
        let raised = raised.then(|| self.fraction("multiplier", given.multiplier, PERMILLE));
        let longest = self.ms("max_delay", given.max_delay.as_ref(), ANY);
        Schedule::Exponential {
            base_ms: self.ms("base", Some(base), ANY).unwrap_or_default(),
            multiplier_permille: raised.unwrap_or(multiplier_permille),
            delay_max_ms: longest.unwrap_or(delay_max_ms),
            clamp_after_jitter: given.clamp_after_jitter,
        }
    }

    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    fn ms(
        &mut self,
        field: &str,
        value: Option<&prost_types::Duration>,
        bounds: (Duration, Duration),
    ) -> Option<u64> {
        match checks::duration_ms(&self.at(field), value, bounds) {
            Ok(ms) => ms,
            Err(wrong) => {
                self.found.push(wrong);
                None
            }
        }
    }

    fn fraction(&mut self, field: &str, value: f64, parts: u32) -> u32 {
        match fraction(&self.at(field), value, parts) {
            Ok(value) => value,
            Err(wrong) => {
                self.found.push(wrong);
                // Within all bounds, so that it is not told twice.
                if parts == PERMILLE { 2 * PERMILLE } else { 0 }
            }
        }
    }
}

/// The message that a policy is shown as, every default filled in.
pub(super) fn shown(policy: &RetryPolicy) -> v1::RetryPolicy {
    let rule = |rule: &ErrorRule| v1::ErrorRule {
        code_pattern: rule.pattern.clone(),
        permanent: rule.permanent,
    };
    let mut shown = v1::RetryPolicy {
        max_deliveries: i32::try_from(policy.deliveries_max).unwrap_or(i32::MAX),
        jitter_max: Some(duration(policy.jitter_max_ms)),
        jitter_ratio: Some(share(policy.jitter_ppm, PPM)),
        max_age: (policy.age_max_ms > 0).then(|| duration(policy.age_max_ms)),
        rules: policy.rules.iter().map(rule).collect(),
        permanent_by_default: policy.permanent_by_default,
        ..v1::RetryPolicy::default()
    };
    match &policy.schedule {
        Schedule::List(delays) => {
            shown.delays = delays.iter().map(|delay| duration(*delay)).collect();
        }
        Schedule::Exponential {
            base_ms,
            multiplier_permille,
            delay_max_ms,
            clamp_after_jitter,
        } => {
            shown.base = Some(duration(*base_ms));
            shown.multiplier = share(*multiplier_permille, PERMILLE);
            shown.max_delay = Some(duration(*delay_max_ms));
            shown.clamp_after_jitter = *clamp_after_jitter;
        }
    }
    shown
}

/// As [`shown`], without what the policy has by default: what is named beside it may change the
/// form and the number of deliveries.
pub(super) fn asked(policy: &RetryPolicy) -> v1::RetryPolicy {
    let (mut asked, preset) = match &policy.schedule {
        Schedule::List(_) => (shown(policy), RetryPolicy::list()),
        Schedule::Exponential { .. } => (shown(policy), RetryPolicy::exponential()),
    };
    if policy.schedule == Schedule::List(Schedule::listed_delays(policy.deliveries_max)) {
        asked.delays.clear();
    }
    if policy.jitter_max_ms == preset.jitter_max_ms {
        asked.jitter_max = None;
    }
    if policy.jitter_ppm == preset.jitter_ppm {
        asked.jitter_ratio = None;
    }
    asked
}
