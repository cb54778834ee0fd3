//! Dead letters as people and programs read them.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use varvelog_proto::v1;

use crate::output::{Block, View, show_age, show_bytes, show_count, show_text, show_time, to_json};

/// Characters of the longest bar of a trend.
const BAR_MAX: i64 = 24;
/// Characters of an error message in a table.
const MESSAGE_MAX: usize = 60;

/// A list of queues.
pub(super) fn queues_view(queues: &[v1::DeadLetterQueue]) -> View {
    let row = |queue: &v1::DeadLetterQueue| {
        vec![
            queue.name.clone(),
            show_count(queue.depth),
            show_bytes(queue.bytes),
            age(queue),
            show_count(queue.arrivals_last_hour),
            show_count(queue.departures_last_hour),
            show_count(queue.waiting),
            or_dash(&queue.top_error_code),
        ]
    };
    let items: Vec<Value> = queues
        .iter()
        .map(|queue| to_json("DeadLetterQueue", queue))
        .collect();
    let header = vec![
        "QUEUE",
        ">DEPTH",
        ">BYTES",
        ">OLDEST",
        ">IN/H",
        ">OUT/H",
        ">WAITING",
        "TOP ERROR",
    ];
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows: queues.iter().map(row).collect(),
        }],
        json: json!({ "queues": items }),
        items,
        names: queues.iter().map(|queue| queue.name.clone()).collect(),
    }
}

/// One queue: in short, by cause, and its trend.
pub(super) fn stats_view(stats: &v1::GetDeadLetterStatsResponse, zone: &TimeZone) -> View {
    let queue = stats.queue.clone().unwrap_or_default();
    let mut blocks = vec![Block::Pairs(vec![
        ("queue", queue.name.clone()),
        ("group", queue.group.clone()),
        ("dead letters", show_count(queue.depth)),
        ("bytes", show_bytes(queue.bytes)),
        ("oldest", age(&queue)),
        ("newest", show_time(queue.newest_death_time.as_ref(), zone)),
        ("came, last hour", show_count(queue.arrivals_last_hour)),
        ("went, last hour", show_count(queue.departures_last_hour)),
        ("waiting for room", above_zero(queue.waiting)),
        ("claimed by replays", above_zero(queue.claimed)),
    ])];
    if !stats.errors.is_empty() {
        blocks.push(errors_block(&stats.errors, zone));
    }
    if stats.trend.iter().any(has_moved) {
        blocks.push(trend_block(&stats.trend, zone));
    }
    let json = to_json("GetDeadLetterStatsResponse", stats);
    View::one(queue.name, json, blocks)
}

pub(super) fn errors_block(errors: &[v1::ErrorBucket], zone: &TimeZone) -> Block {
    let row = |error: &v1::ErrorBucket| {
        vec![
            show_count(error.count),
            or_dash(&error.error_code),
            or_dash(&error.error_class),
            or_dash(&error.fingerprint),
            show_time(error.first_seen_time.as_ref(), zone),
            show_time(error.last_seen_time.as_ref(), zone),
            id_text(error.sample_id),
            short(&error.sample_message),
        ]
    };
    Block::Table {
        title: String::new(),
        header: vec![
            ">COUNT",
            "CODE",
            "CLASS",
            "FINGERPRINT",
            "FIRST",
            "LAST",
            "SAMPLE",
            "MESSAGE",
        ],
        rows: errors.iter().map(row).collect(),
    }
}

fn has_moved(point: &v1::TrendPoint) -> bool {
    point.arrived + point.replayed + point.discarded > 0
}

fn trend_block(trend: &[v1::TrendPoint], zone: &TimeZone) -> Block {
    let most = trend.iter().map(|point| point.arrived).max().unwrap_or(0);
    let row = |point: &v1::TrendPoint| {
        vec![
            show_time(point.bucket_time.as_ref(), zone),
            show_count(point.arrived),
            show_count(point.replayed),
            show_count(point.discarded),
            show_count(point.depth),
            bar(point.arrived, most),
        ]
    };
    Block::Table {
        title: String::new(),
        header: vec![
            "SINCE",
            ">CAME",
            ">REPLAYED",
            ">DISCARDED",
            ">DEPTH",
            "CAME",
        ],
        rows: trend.iter().map(row).collect(),
    }
}

/// As long as its share of the most; what is not nothing is seen.
fn bar(count: i64, most: i64) -> String {
    let length = if count > 0 && most > 0 {
        (count.saturating_mul(BAR_MAX) / most).max(1)
    } else {
        0
    };
    "#".repeat(usize::try_from(length).unwrap_or(0))
}

/// A list of dead letters.
pub(super) fn letters_view(letters: &[v1::DeadLetter], now_ms: i64) -> View {
    let row = |letter: &v1::DeadLetter| {
        vec![
            id_text(letter.id),
            died(letter, now_ms),
            letter.deliveries.to_string(),
            letter.reason.clone(),
            or_dash(&letter.error_class),
            or_dash(&letter.error_code),
            key(letter),
            short(&letter.error_message),
        ]
    };
    let items: Vec<Value> = letters
        .iter()
        .map(|letter| to_json("DeadLetter", letter))
        .collect();
    let header = vec![
        "ID", ">DIED", ">TRIES", "REASON", "CLASS", "CODE", "KEY", "MESSAGE",
    ];
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header,
            rows: letters.iter().map(row).collect(),
        }],
        json: json!({ "letters": items }),
        items,
        names: letters.iter().map(|letter| id_text(letter.id)).collect(),
    }
}

/// All that is known of one.
pub(super) fn letter_view(letter: &v1::DeadLetter, zone: &TimeZone) -> View {
    let time = |time: Option<&prost_types::Timestamp>| {
        time.map_or_else(String::new, |time| show_time(Some(time), zone))
    };
    let record = letter.record.clone().unwrap_or_default();
    let source = format!(
        "{}/{}@{}",
        letter.source_topic, letter.source_partition, letter.source_offset
    );
    let mut blocks = vec![Block::Pairs(vec![
        ("id", id_text(letter.id)),
        ("source", source),
        ("message id", show_text(record.message_id.as_bytes())),
        ("group", letter.group.clone()),
        ("died", time(letter.death_time.as_ref())),
        ("reason", letter.reason.clone()),
        ("deliveries", letter.deliveries.to_string()),
        ("replays", above_zero(letter.replay_count.into())),
        ("claimed by", letter.replay_job.clone()),
        ("error class", letter.error_class.clone()),
        ("error code", show_text(letter.error_code.as_bytes())),
        ("error", show_text(letter.error_message.as_bytes())),
        ("fingerprint", letter.error_fingerprint.clone()),
        ("first failure", time(letter.first_failure_time.as_ref())),
        ("last attempt", time(letter.last_attempt_time.as_ref())),
        ("last member", show_text(letter.last_member.as_bytes())),
        (
            "key",
            record.key.as_deref().map(show_text).unwrap_or_default(),
        ),
        ("value", value_text(&record)),
    ])];
    if !letter.attempts.is_empty() {
        blocks.push(attempts_block(&letter.attempts, zone));
    }
    if !letter.error_stack.is_empty() {
        let lines = letter.error_stack.lines();
        let lines: Vec<String> = lines.map(|line| show_text(line.as_bytes())).collect();
        blocks.push(Block::Text(lines.join("\n")));
    }
    View::one(id_text(letter.id), to_json("DeadLetter", letter), blocks)
}

fn attempts_block(attempts: &[v1::Attempt], zone: &TimeZone) -> Block {
    let row = |attempt: &v1::Attempt| {
        vec![
            attempt.attempt.to_string(),
            show_time(attempt.time.as_ref(), zone),
            attempt.error_class.clone(),
            or_dash(&attempt.error_code),
        ]
    };
    Block::Table {
        title: String::new(),
        header: vec![">ATTEMPT", "FAILED", "CLASS", "CODE"],
        rows: attempts.iter().map(row).collect(),
    }
}

fn value_text(record: &v1::Record) -> String {
    match &record.value {
        Some(value) => show_text(value),
        None if record.value_omitted => format!("left out, {}", show_bytes(record.value_bytes)),
        None => String::from("none"),
    }
}

fn key(letter: &v1::DeadLetter) -> String {
    let key = letter
        .record
        .as_ref()
        .and_then(|record| record.key.as_deref());
    key.map_or_else(|| String::from("-"), show_text)
}

fn id_text(id: Option<v1::DeadLetterId>) -> String {
    id.map_or_else(
        || String::from("-"),
        |id| format!("{}@{}", id.partition, id.offset),
    )
}

/// Time since the oldest death; `-` when empty.
fn age(queue: &v1::DeadLetterQueue) -> String {
    let age = queue.oldest_age.map(Duration::try_from);
    match age {
        Some(Ok(age)) if queue.depth > 0 => show_age(age),
        Some(_) | None => String::from("-"),
    }
}

/// `5m 10s ago`.
fn died(letter: &v1::DeadLetter, now_ms: i64) -> String {
    let Some(death) = letter.death_time else {
        return String::from("-");
    };
    let died_ms = death.seconds * 1_000 + i64::from(death.nanos / 1_000_000);
    let ago_ms = u64::try_from(now_ms.saturating_sub(died_ms)).unwrap_or(0);
    format!("{} ago", show_age(Duration::from_millis(ago_ms)))
}

/// Error texts come from elsewhere: shown with care, and only their beginning.
pub(super) fn short(text: &str) -> String {
    let shown = show_text(text.as_bytes());
    if shown.chars().count() <= MESSAGE_MAX {
        return shown;
    }
    let mut start: String = shown.chars().take(MESSAGE_MAX - 1).collect();
    start.push('…');
    start
}

pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() {
        String::from("-")
    } else {
        show_text(text.as_bytes())
    }
}

pub(super) fn above_zero(count: i64) -> String {
    if count > 0 {
        show_count(count)
    } else {
        String::new()
    }
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
