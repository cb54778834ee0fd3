//! Whether a retry policy is within its bounds. All that is wrong with it is told, and nothing is
//! corrected.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::retry_policy::{DELAY_FLOOR_MS, DELAY_MAX_MS, RetryPolicy, Schedule};

/// Most counted deliveries of a record.
pub const DELIVERIES_MAX: u32 = 1_000;
/// Most delays of a list.
pub const DELAYS_MAX: usize = 64;
/// Most rules.
pub const RULES_MAX: usize = 100;
/// Most bytes of a rule's pattern.
pub const PATTERN_BYTES_MAX: usize = 128;

const BASE_MAX_MS: u64 = 3_600_000;
const JITTER_MAX_MS: u64 = 3_600_000;
const MULTIPLIER_PERMILLE: RangeInclusive<u32> = 1_000..=10_000;

/// Something that is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyViolation {
    /// Path of the field in the proto message `RetryPolicy`: `delays[3]`, `max_delay`.
    pub field: String,
    /// What is wrong, for people.
    pub text: String,
    /// The bound that is passed, with its unit.
    pub bound: String,
    /// What was given, with its unit.
    pub value: String,
}

impl PolicyViolation {
    fn new(
        field: impl Into<String>,
        text: impl Into<String>,
        bound: impl fmt::Display,
        value: impl fmt::Display,
    ) -> Self {
        Self {
            field: field.into(),
            text: text.into(),
            bound: bound.to_string(),
            value: value.to_string(),
        }
    }
}

impl RetryPolicy {
    /// All that is wrong with it, in the order of the proto's fields; empty if it may be used.
    pub fn validate(&self) -> Vec<PolicyViolation> {
        let mut found = Vec::new();
        if !(1..=DELIVERIES_MAX).contains(&self.deliveries_max) {
            let text = format!("must be 1 to {DELIVERIES_MAX}, or 0 for the default");
            let value = self.deliveries_max;
            found.push(PolicyViolation::new(
                "max_deliveries",
                text,
                DELIVERIES_MAX,
                value,
            ));
        }
        match &self.schedule {
            Schedule::List(delays) => self.check_list(delays, &mut found),
            Schedule::Exponential {
                base_ms,
                multiplier_permille,
                delay_max_ms,
                ..
            } => check_exponential(*base_ms, *multiplier_permille, *delay_max_ms, &mut found),
        }
        within(
            "jitter_max",
            self.jitter_max_ms,
            0..=JITTER_MAX_MS,
            &mut found,
        );
        if self.jitter_ppm > 1_000_000 {
            let value = Decimal(self.jitter_ppm.into(), 6);
            let text = "must be 0 to 1";
            found.push(PolicyViolation::new("jitter_ratio", text, 1, value));
        }
        let largest_ms = self.largest_delay_ms();
        if self.age_max_ms > 0 && self.age_max_ms <= largest_ms {
            let (bound, value) = (Span(largest_ms), Span(self.age_max_ms));
            let text = format!("must be longer than the largest delay, {bound}");
            found.push(PolicyViolation::new("max_age", text, bound, value));
        }
        self.check_rules(&mut found);
        found
    }

    fn check_list(&self, delays: &[u64], found: &mut Vec<PolicyViolation>) {
        let retries = usize::try_from(self.deliveries_max.saturating_sub(1)).unwrap_or(usize::MAX);
        // What is wrong with the deliveries is told of them.
        let is_counted = (1..=DELIVERIES_MAX).contains(&self.deliveries_max);
        let count = delays.len();
        if count > DELAYS_MAX {
            let text = format!("must be at most {DELAYS_MAX}");
            found.push(PolicyViolation::new("delays", text, DELAYS_MAX, count));
        } else if is_counted && count > retries {
            let text = format!("must be at most max_deliveries - 1, {retries}");
            found.push(PolicyViolation::new("delays", text, retries, count));
        } else if count == 0 && self.deliveries_max > 1 {
            let text = "must have a delay at least";
            found.push(PolicyViolation::new("delays", text, 1, count));
        }
        for (index, delay_ms) in delays.iter().enumerate().take(DELAYS_MAX) {
            let field = format!("delays[{index}]");
            within(field, *delay_ms, DELAY_FLOOR_MS..=DELAY_MAX_MS, found);
        }
    }

    fn check_rules(&self, found: &mut Vec<PolicyViolation>) {
        let count = self.rules.len();
        if count > RULES_MAX {
            let text = format!("must be at most {RULES_MAX}");
            found.push(PolicyViolation::new("rules", text, RULES_MAX, count));
        }
        for (index, rule) in self.rules.iter().enumerate().take(RULES_MAX) {
            let bytes = rule.pattern.len();
            let field = || format!("rules[{index}].code_pattern");
            if bytes == 0 || bytes > PATTERN_BYTES_MAX {
                let text = format!("must have 1 to {PATTERN_BYTES_MAX} bytes");
                let bound = PATTERN_BYTES_MAX;
                found.push(PolicyViolation::new(field(), text, bound, bytes));
            } else if rule.pattern.find('*').is_some_and(|at| at + 1 < bytes) {
                let text = "may have a * at its end only";
                found.push(PolicyViolation::new(field(), text, "", &rule.pattern));
            }
        }
    }
}

fn check_exponential(
    base_ms: u64,
    multiplier_permille: u32,
    delay_max_ms: u64,
    found: &mut Vec<PolicyViolation>,
) {
    within("base", base_ms, DELAY_FLOOR_MS..=BASE_MAX_MS, found);
    if !MULTIPLIER_PERMILLE.contains(&multiplier_permille) {
        let value = Decimal(multiplier_permille.into(), 3);
        let text = "must be 1 to 10";
        let bound = if value.0 < 1_000 { 1 } else { 10 };
        found.push(PolicyViolation::new("multiplier", text, bound, value));
    }
    if delay_max_ms < base_ms {
        let (bound, value) = (Span(base_ms), Span(delay_max_ms));
        let text = format!("must be at least base, {bound}");
        found.push(PolicyViolation::new("max_delay", text, bound, value));
    } else if delay_max_ms > DELAY_MAX_MS {
        let (bound, value) = (Span(DELAY_MAX_MS), Span(delay_max_ms));
        let text = format!("must be at most {bound}");
        found.push(PolicyViolation::new("max_delay", text, bound, value));
    }
}

fn within(
    field: impl Into<String>,
    value_ms: u64,
    bounds_ms: RangeInclusive<u64>,
    found: &mut Vec<PolicyViolation>,
) {
    if bounds_ms.contains(&value_ms) {
        return;
    }
    let (least, most) = (Span(*bounds_ms.start()), Span(*bounds_ms.end()));
    let text = format!("must be {least} to {most}");
    let bound = if value_ms < least.0 { least } else { most };
    found.push(PolicyViolation::new(field, text, bound, Span(value_ms)));
}

/// Milliseconds as people write them.
#[derive(Clone, Copy)]
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(Duration::from_millis(self.0)).fmt(f)
    }
}

/// A number in units of ten to the minus so many.
#[derive(Clone, Copy)]
struct Decimal(u64, u32);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = 10_u64.pow(self.1);
        let digits = usize::try_from(self.1).unwrap_or(0);
        let (whole, part) = (self.0 / unit, self.0 % unit);
        write!(f, "{whole}.{part:0digits$}")
    }
}

#[cfg(test)]
#[path = "policy_check_tests.rs"]
mod tests;
