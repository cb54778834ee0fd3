//! Waiting records as people and programs read them.

use std::time::Duration;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use varvelog_proto::v1;

use crate::output::{Block, View, show_age, show_count, show_text, show_time, to_json};

/// What waits, soonest first, and how many are due when.
pub(super) fn retries_view(found: &v1::ListRetriesResponse, now_ms: i64, zone: &TimeZone) -> View {
    let row = |retry: &v1::ScheduledRetry| {
        vec![
            show_due(retry.due_time.as_ref(), now_ms),
            retry.topic.clone(),
            retry.partition.to_string(),
            retry.offset.to_string(),
            retry.attempt.to_string(),
            show_text(retry.error_code.as_bytes()),
            show_text(retry.error_message.as_bytes()),
        ]
    };
    let header = vec![
        "DUE",
        "TOPIC",
        ">PARTITION",
        ">OFFSET",
        ">ATTEMPT",
        "CODE",
        "MESSAGE",
    ];
    let mut blocks = vec![Block::Table {
        title: String::new(),
        header,
        rows: found.retries.iter().map(row).collect(),
    }];
    if !found.histogram.is_empty() {
        blocks.push(histogram_block(&found.histogram, zone));
    }
    let items: Vec<Value> = found
        .retries
        .iter()
        .map(|retry| to_json("ScheduledRetry", retry))
        .collect();
    let histogram: Vec<Value> = found
        .histogram
        .iter()
        .map(|bucket| to_json("DueBucket", bucket))
        .collect();
    let name = |retry: &v1::ScheduledRetry| {
        format!("{}/{}@{}", retry.topic, retry.partition, retry.offset)
    };
    View {
        blocks,
        json: json!({ "retries": items, "histogram": histogram }),
        items,
        names: found.retries.iter().map(name).collect(),
    }
}

/// How many were made due, or would be.
pub(super) fn matched_view(matched: i64, dry_run: bool) -> View {
    let what = if dry_run {
        "would be due now"
    } else {
        "due now"
    };
    let text = format!("{} {what}", show_count(matched));
    let json = json!({ "matched": matched.to_string() });
    View::one(matched.to_string(), json, vec![Block::Text(text)])
}

fn histogram_block(histogram: &[v1::DueBucket], zone: &TimeZone) -> Block {
    let row = |bucket: &v1::DueBucket| {
        vec![
            show_time(bucket.due_before_time.as_ref(), zone),
            show_count(bucket.count),
        ]
    };
    Block::Table {
        title: String::new(),
        header: vec!["DUE BEFORE", ">RECORDS"],
        rows: histogram.iter().map(row).collect(),
    }
}

/// `in 5.0s`, or `now`.
fn show_due(due: Option<&prost_types::Timestamp>, now_ms: i64) -> String {
    let due = due.and_then(|due| jiff::Timestamp::new(due.seconds, due.nanos).ok());
    let Some(due) = due else {
        return String::from("-");
    };
    let left_ms = due.as_millisecond().saturating_sub(now_ms);
    match u64::try_from(left_ms) {
        Ok(left_ms) if left_ms > 0 => format!("in {}", show_age(Duration::from_millis(left_ms))),
        Ok(_) | Err(_) => String::from("now"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 979_397_760_000;

    fn time(ms: i64) -> prost_types::Timestamp {
        prost_types::Timestamp {
            seconds: ms.div_euclid(1_000),
            nanos: i32::try_from(ms.rem_euclid(1_000)).unwrap() * 1_000_000,
        }
    }

    fn found() -> v1::ListRetriesResponse {
        let retry = |offset, due_ms, code: &str, message: &str| v1::ScheduledRetry {
            topic: "orders".into(),
            partition: 3,
            offset,
            due_time: Some(time(due_ms)),
            attempt: 2,
            error_code: code.into(),
            error_message: message.into(),
        };
        v1::ListRetriesResponse {
            retries: vec![
                retry(17, NOW_MS - 1, "timeout", "the shop\ndid not answer"),
                retry(4, NOW_MS + 5_000, "busy", "later"),
            ],
            histogram: vec![v1::DueBucket {
                due_before_time: Some(time(NOW_MS + 60_000)),
                count: 1_200,
            }],
            next_page_token: String::new(),
        }
    }

    #[test]
    fn what_waits_is_listed_with_its_error_and_when_it_is_due() {
        let view = retries_view(&found(), NOW_MS, &TimeZone::UTC);
        insta::assert_snapshot!(view.to_text(str::to_owned));
        assert_eq!(view.names, ["orders/3@17", "orders/3@4"]);
    }

    #[test]
    fn the_json_of_retries_is_the_contract_s() {
        let view = retries_view(&found(), NOW_MS, &TimeZone::UTC);
        insta::assert_snapshot!(serde_json::to_string_pretty(&view.json).unwrap());
    }

    #[test]
    fn what_was_made_due_is_counted() {
        assert_eq!(
            matched_view(1_200, false).to_text(str::to_owned),
            "1,200 due now\n"
        );
        assert_eq!(
            matched_view(1, true).json.to_string(),
            "{\"matched\":\"1\"}"
        );
    }
}
