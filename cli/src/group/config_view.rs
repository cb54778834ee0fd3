//! The settings of a group in words.

use std::time::Duration;

use varvelog_proto::v1;

use crate::output::{Block, show_bytes, show_count, show_text};

/// What a group was told to do. What a broker does not say is left out.
pub(super) fn config_block(config: &v1::GroupConfig) -> Block {
    let held = config.on_failure() == v1::OnFailure::Hold;
    let mut pairs = vec![("when one fails", on_failure(config).to_owned())];
    if held {
        pairs.push(("when that is dead", on_head_dead(config).to_owned()));
    }
    if let Some(retry) = &config.retry {
        pairs.push(("deliveries", deliveries(retry)));
        pairs.push(("errors", errors(retry)));
    }
    if let Some(dead_letter) = &config.dead_letter {
        pairs.push(("dead letters", dead_letters(dead_letter)));
        pairs.push(("not stored", omitted(dead_letter).to_owned()));
    }
    pairs.extend([
        ("held for", hold(config)),
        (
            "members missed for",
            show_duration(config.session_timeout.as_ref()),
        ),
        ("in flight", counted(config.max_in_flight, "a partition")),
        (
            "alone after",
            counted(config.isolate_after, "crashes or timeouts"),
        ),
        (
            "counted after",
            counted(config.max_releases, "releases of a record"),
        ),
        ("kept for retries", percent(config.retry_share)),
        ("producers", admission(config.admission.as_ref())),
        (
            "circuit breaker",
            when(config.circuit_breaker, "slows first deliveries"),
        ),
        (
            "retention",
            when(config.retain_until_consumed, "waits for this group"),
        ),
    ]);
    Block::Pairs(pairs)
}

/// The mode in one word.
pub(super) fn mode(config: Option<&v1::GroupConfig>) -> &'static str {
    match config.map_or(v1::GroupMode::Unspecified, v1::GroupConfig::mode) {
        v1::GroupMode::Unspecified | v1::GroupMode::Stream => "stream",
        v1::GroupMode::Queue => "queue",
    }
}

fn on_failure(config: &v1::GroupConfig) -> &'static str {
    match (config.on_failure(), config.mode()) {
        (v1::OnFailure::Unspecified | v1::OnFailure::Overtake, _) => "later ones overtake it",
        (v1::OnFailure::Hold, v1::GroupMode::Queue) => "those of its key wait",
        (v1::OnFailure::Hold, v1::GroupMode::Unspecified | v1::GroupMode::Stream) => {
            "its partition waits"
        }
    }
}

fn on_head_dead(config: &v1::GroupConfig) -> &'static str {
    match config.on_head_dead() {
        v1::OnHeadDead::Unspecified | v1::OnHeadDead::Continue => "the next one is given out",
        v1::OnHeadDead::Park => "those of its key follow it to the dead letters",
        v1::OnHeadDead::Halt => "all wait for an operator",
    }
}

/// `5, after 1s, 10s, 1m 40s, 16m 40s and up to 10% more`.
fn deliveries(retry: &v1::RetryPolicy) -> String {
    if retry.max_deliveries == 1 {
        return String::from("1, no retry");
    }
    let count = show_count(i64::from(retry.max_deliveries));
    let count = (retry.max_deliveries > 0).then_some(count);
    let after = delays(retry).map(|delays| format!("after {delays}{}", jitter(retry)));
    let age = is_some_time(retry.max_age.as_ref()).then(|| {
        let age = show_duration(retry.max_age.as_ref());
        format!("none of a record older than {age}")
    });
    let parts: Vec<_> = [count, after, age].into_iter().flatten().collect();
    parts.join(", ")
}

fn delays(retry: &v1::RetryPolicy) -> Option<String> {
    if let Some(base) = &retry.base {
        let multiplier = if retry.multiplier == 0.0 {
            2.0
        } else {
            retry.multiplier
        };
        let (base, longest) = (show_duration(Some(base)), retry.max_delay.as_ref());
        let longest = show_duration(longest);
        return Some(format!(
            "{base}, x{multiplier} each time, at most {longest}"
        ));
    }
    let shown = |delay: &prost_types::Duration| show_duration(Some(delay));
    let delays: Vec<_> = retry.delays.iter().map(shown).collect();
    (!delays.is_empty()).then(|| delays.join(", "))
}

fn jitter(retry: &v1::RetryPolicy) -> String {
    let most = retry.jitter_max.as_ref();
    let most = is_some_time(most).then(|| show_duration(most));
    let ratio = retry.jitter_ratio.unwrap_or(0.0);
    let ratio = (ratio > 0.0).then(|| percent(ratio));
    let jitter: Vec<_> = most.into_iter().chain(ratio).collect();
    if jitter.is_empty() {
        return String::new();
    }
    let bound = if retry.clamp_after_jitter {
        " within that"
    } else {
        ""
    };
    format!(" and up to {} more{bound}", jitter.join(" or "))
}

/// `VAL_* permanent, DB_* transient, others transient`.
fn errors(retry: &v1::RetryPolicy) -> String {
    let class = |permanent| if permanent { "permanent" } else { "transient" };
    let rule = |rule: &v1::ErrorRule| {
        let pattern = show_text(rule.code_pattern.as_bytes());
        format!("{pattern} {}, ", class(rule.permanent))
    };
    let rules: String = retry.rules.iter().map(rule).collect();
    match (rules.is_empty(), retry.permanent_by_default) {
        (true, false) => String::new(),
        (true, true) => String::from("permanent"),
        (false, permanent) => format!("{rules}others {}", class(permanent)),
    }
}

fn dead_letters(config: &v1::DeadLetterConfig) -> String {
    if config.off {
        return String::from("dropped, and counted as lost");
    }
    let mut parts = Vec::new();
    parts.push(match config.retention_age.as_ref() {
        age if is_some_time(age) => format!("kept {}", show_duration(age)),
        Some(_zero) => String::from("kept for ever"),
        None => String::from("kept"),
    });
    if config.max_bytes > 0 {
        let full = if config.drop_oldest_when_full {
            "then the oldest goes"
        } else {
            "then records wait"
        };
        let bytes = show_bytes(config.max_bytes);
        parts.push(format!("up to {bytes} a partition, {full}"));
    }
    if config.max_replays > 0 {
        parts.push(format!(
            "{} replays each",
            show_count(i64::from(config.max_replays))
        ));
    }
    parts.join("; ")
}

fn omitted(config: &v1::DeadLetterConfig) -> &'static str {
    match (config.omit_error_message, config.omit_error_stack) {
        (false, false) => "",
        (true, false) => "error messages",
        (false, true) => "error stacks",
        (true, true) => "error messages and stacks",
    }
}

fn hold(config: &v1::GroupConfig) -> String {
    let once = show_duration(config.visibility_timeout.as_ref());
    if once.is_empty() || config.max_lease_total.is_none() {
        return once;
    }
    let total = show_duration(config.max_lease_total.as_ref());
    format!("{once}, with extensions up to {total}")
}

fn admission(admission: Option<&v1::Admission>) -> String {
    let Some(admission) = admission else {
        return String::new();
    };
    let mut limits = Vec::new();
    if admission.max_depth > 0 {
        limits.push(format!("{} records", show_count(admission.max_depth)));
    }
    if is_some_time(admission.max_age.as_ref()) {
        limits.push(show_duration(admission.max_age.as_ref()));
    }
    if admission.max_bytes > 0 {
        limits.push(show_bytes(admission.max_bytes));
    }
    if limits.is_empty() {
        return String::new();
    }
    let what = if admission.observe {
        "counted, not refused,"
    } else {
        "refused"
    };
    let again = match percent(admission.resume_ratio).as_str() {
        "" => String::new(),
        share => format!(", until back at {share}"),
    };
    format!("{what} from {} behind{again}", limits.join(" or "))
}

fn counted(count: i32, of_what: &str) -> String {
    if count == 0 {
        return String::new();
    }
    format!("{} {of_what}", show_count(i64::from(count)))
}

fn percent(share: f64) -> String {
    if share == 0.0 {
        return String::new();
    }
    let tenths = (share * 1_000.0).round() / 10.0;
    format!("{tenths}%")
}

fn when(is_so: bool, text: &str) -> String {
    if is_so {
        text.to_owned()
    } else {
        String::new()
    }
}

/// A time that somebody set, exactly; empty if unset.
fn show_duration(duration: Option<&prost_types::Duration>) -> String {
    let time = duration.and_then(|duration| Duration::try_from(*duration).ok());
    time.map_or_else(String::new, |time| {
        humantime::format_duration(time).to_string()
    })
}

fn is_some_time(duration: Option<&prost_types::Duration>) -> bool {
    let time = duration.and_then(|duration| Duration::try_from(*duration).ok());
    time.is_some_and(|time| !time.is_zero())
}

#[cfg(test)]
#[path = "config_view_tests.rs"]
mod tests;
