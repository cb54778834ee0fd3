//! Records in and out by command.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::running::{Broker, Follower, started, stderr, stdout};

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

#[test]
fn a_consumer_comes_back_when_its_broker_does() {
    let (folder, mut broker) = started();
    broker.fine("topic create flights");
    broker.feed("produce flights", "one\n");
    let mut consumer = Follower::start(&broker, "consume flights -g crew -f %v:%a\\n");
    assert_eq!(consumer.line(), "one:1\n");
    for (signal, value) in [("KILL", "two"), ("TERM", "three")] {
        // What was read is settled before the broker goes.
        while broker.json("group describe crew")["totalLag"] != "0" {}
        broker.signal(signal);
        broker = Broker::start_at(folder.path(), &broker.server);
        broker.feed("produce flights", &format!("{value}\n"));
        assert_eq!(consumer.line(), format!("{value}:1\n"), "after {signal}");
    }
    assert_eq!(consumer.interrupt(), Some(130));
    let members = broker.json("group describe crew")["members"].clone();
    assert!(members.as_array().is_none_or(Vec::is_empty), "{members}");
}

#[test]
fn a_read_of_damaged_records_is_code_65() {
    let (folder, mut broker) = started();
    broker.fine("topic create flights");
    broker.feed("produce flights", &flights(100));
    assert_eq!(broker.signal("TERM").status.code(), Some(0));
    let segment = segment(folder.path());
    let mut bytes = std::fs::read(&segment).expect("a segment");
    *bytes.last_mut().expect("not empty") ^= 1;
    std::fs::write(&segment, bytes).expect("written");
    let broker = Broker::start(folder.path());
    broker.refused("tail flights --from earliest -e", 65, "log verify FOLDER");
}

/// The one segment of a folder.
fn segment(folder: &Path) -> PathBuf {
    let inner = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path())
    };
    let partition = inner(folder.join("partitions"))
        .next()
        .expect("a partition");
    inner(partition)
        .find(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .expect("a segment")
}

#[test]
fn lines_with_a_message_id_are_appended_once() {
    let (_folder, broker) = started();
    broker.fine("topic create payments --message-id-window 1h");
    let lines = "{\"id\":\"a\",\"cents\":5}\n{\"id\":\"b\",\"cents\":7}\n{\"cents\":9}\n";
    let first = broker.feed("produce payments --message-id-field id -o json", lines);
    assert_eq!(first.status.code(), Some(8), "{}", stderr(&first));
    assert!(stderr(&first).contains("line 3: no field \"id\""));
    let again =
        "{\"id\":\"c\",\"cents\":1}\n{\"id\":\"b\",\"cents\":7}\n{\"id\":\"c\",\"cents\":1}\n";
    let again = broker.feed("produce payments --message-id-field id -o json", again);
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    let summary: Value = serde_json::from_str(&stdout(&again)).expect("JSON");
    assert_eq!(
        (&summary["records"], &summary["duplicate"]),
        (&"1".into(), &"2".into())
    );
    let one = broker.feed("produce payments --message-id a", "whatever\n");
    assert!(
        stderr(&one).contains("0 records and 1 duplicate"),
        "{}",
        stderr(&one)
    );
    let all = broker.fine("tail payments -e");
    let ids: Vec<Value> = all
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON")["messageId"].clone())
        .collect();
    assert_eq!(ids, ["a", "b", "c"]);
    let group = broker.fine("consume payments -g g --exit");
    assert!(group.contains("\"messageId\":\"c\""), "{group}");
}
