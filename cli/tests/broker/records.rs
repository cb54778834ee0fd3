//! Records in and out by command.

use std::fmt::Write as _;

use serde_json::Value;

use crate::running::{started, stderr, stdout};

/// `count` lines with three keys in turn.
pub(crate) fn flights(count: usize) -> String {
    let mut lines = String::new();
    let origins = ["SAN", "SFO", "LAX"].into_iter().cycle();
    for (number, origin) in origins.take(count).enumerate() {
        writeln!(lines, "{{\"origin\":\"{origin}\",\"number\":{number}}}").expect("text");
    }
    lines
}

#[test]
fn lines_go_in_and_come_out() {
    let (_folder, broker) = started();
    broker.fine("topic create flights -p 3");
    let produced = broker.feed("produce flights --key-field origin -o json", &flights(300));
    assert_eq!(produced.status.code(), Some(0), "{}", stderr(&produced));
    let summary: Value = serde_json::from_str(&stdout(&produced)).expect("JSON");
    assert_eq!(
        (&summary["records"], &summary["failed"]),
        (&"300".into(), &"0".into())
    );
    let all = broker.fine("tail flights --from earliest -e -f %v\\n");
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_by_key(|line| line.len());
    assert_eq!(lines.len(), 300);
    let last = broker.fine("tail flights -n 5 -e");
    assert_eq!(last.lines().count(), 5);
    let record: Value = serde_json::from_str(last.lines().last().expect("a line")).expect("JSON");
    assert_eq!(record["topic"], "flights");
    assert!(
        record["offset"].is_string() && record["key"].is_string(),
        "{record}"
    );
    let one_key = broker.fine("tail flights --from earliest -e --key SAN -f %k\\n");
    assert_eq!(one_key, "SAN\n".repeat(100));
    assert_eq!(
        broker
            .fine("tail flights --from earliest --limit 7")
            .lines()
            .count(),
        7
    );
    let found = broker.fine("tail flights --from earliest -e --grep :299}");
    assert_eq!(found.lines().count(), 1);
    assert_eq!(broker.fine("tail flights --from latest -e"), "");
    broker.refused("tail nothing -e", 3, "[TOPIC_NOT_FOUND]");
    broker.refused("produce nothing", 3, "[TOPIC_NOT_FOUND]");
}

#[test]
fn lines_that_are_no_records_are_reported_and_the_others_sent() {
    let (_folder, broker) = started();
    broker.fine("topic create t");
    let input = "{\"k\":\"a\"}\nnonsense\n{\"x\":1}\n{\"k\":\"b\"}";
    let produced = broker.feed("produce t --key-field k", input);
    assert_eq!(produced.status.code(), Some(8), "{}", stderr(&produced));
    assert!(
        stderr(&produced).contains("line 2: not JSON"),
        "{}",
        stderr(&produced)
    );
    assert!(
        stderr(&produced).contains("line 3: no field \"k\""),
        "{}",
        stderr(&produced)
    );
    assert_eq!(
        broker.fine("tail t -e -f %k=%v\\n"),
        "a={\"k\":\"a\"}\nb={\"k\":\"b\"}\n"
    );
    let produced = broker.feed("produce t -k : -H source=tower --tombstones", "a:\nb:1\n");
    assert_eq!(produced.status.code(), Some(0), "{}", stderr(&produced));
    let last = broker.fine("tail t -n 2 -e");
    let records: Vec<Value> = last
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(records[0]["value"], Value::Null);
    assert_eq!(records[1]["headers"]["source"], "tower");
    let unanswered = broker.feed("produce t --acks none", "x\ny\n");
    assert_eq!(unanswered.status.code(), Some(0), "{}", stderr(&unanswered));
}
