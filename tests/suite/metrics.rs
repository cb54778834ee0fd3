//! The page of metrics of the real program, and what is made of it in `deploy`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use tempfile::TempDir;

use crate::program::{Program, run, run_ok};

/// The status line and the body of the answer to `GET`.
fn get(address: &str, path: &str) -> (String, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

fn page(program: &Program) -> String {
    let (status, page) = get(&program.http, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK", "{page}");
    assert!(page.ends_with("# EOF\n"));
    page
}

/// Values by series, as the page writes it.
fn series(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let series = lines.map(|line| line.rsplit_once(' ').unwrap());
    series
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the input of a program is an ordinary file"
)]
/// A topic with two records, of which a group did one and gave the other up.
fn one_done_one_dead(program: &Program, folder: &Path) {
    let server = &program.grpc;
    run_ok(server, &["topic", "create", "orders", "--partitions", "1"]);
    let input = folder.join("input");
    std::fs::write(&input, "good\nbad\n").unwrap();
    run_ok(
        server,
        &["produce", "orders", "--file", input.to_str().unwrap()],
    );
    run_ok(
        server,
        &["group", "create", "email", "orders", "--mode", "queue"],
    );
    let handler = "read line; test \"$line\" = good || exit 65";
    let consumed = run(
        server,
        &["consume", "-g", "email", "--exit", "--exec", handler],
    );
    assert_eq!(consumed.status.code(), Some(8), "one record failed");
}

#[test]
fn the_page_tells_what_was_done_and_what_is_left() {
    let folder = TempDir::new().unwrap();
    let program = Program::start(&folder.path().join("data"), "127.0.0.1:0", &[]);
    one_done_one_dead(&program, folder.path());
    let page = page(&program);
    let found = series(&page);
    let topic = r#"{group="email",topic="orders""#;
    for (name, value) in [
        (
            r#"varvelog_records_in_total{topic="orders"}"#.to_owned(),
            2.0,
        ),
        (
            r#"varvelog_records_out_total{topic="orders"}"#.to_owned(),
            2.0,
        ),
        (
            format!("varvelog_group_lag_records{topic},partition=\"0\"}}"),
            0.0,
        ),
        (
            format!("varvelog_group_committed_offset{topic},partition=\"0\"}}"),
            2.0,
        ),
        (
            format!("varvelog_group_oldest_unprocessed_age_seconds{topic},partition=\"0\"}}"),
            0.0,
        ),
        (
            format!("varvelog_group_deliveries_total{topic},kind=\"first\"}}"),
            2.0,
        ),
        (
            format!("varvelog_group_deliveries_total{topic},kind=\"retry\"}}"),
            0.0,
        ),
        (
            format!("varvelog_group_settled_total{topic},outcome=\"done\"}}"),
            1.0,
        ),
        (
            format!("varvelog_group_settled_total{topic},outcome=\"dead_letter\"}}"),
            1.0,
        ),
        (
            format!("varvelog_group_records{topic},state=\"ready\"}}"),
            0.0,
        ),
        (format!("varvelog_dead_letters{topic}}}"), 1.0),
        ("varvelog_insecure".to_owned(), 0.0),
        (
            r#"varvelog_requests_total{call="varvelog.v1.TopicService/CreateTopic",code="OK"}"#
                .to_owned(),
            1.0,
        ),
    ] {
        assert_eq!(found.get(name.as_str()), Some(&value), "{name}\n{page}");
    }
    check_positive(&page);
}

/// What has a value as soon as anything was done.
fn check_positive(page: &str) {
    let found = series(page);
    for positive in [
        "varvelog_commit_seconds_count",
        "varvelog_wal_sync_seconds_count",
        "varvelog_apply_seconds_count",
        "varvelog_ack_seconds_count",
        "varvelog_disk_free_bytes",
        "varvelog_resident_memory_bytes",
        "varvelog_start_time_seconds",
        "varvelog_open_files",
    ] {
        assert!(found[positive] > 0.0, "{positive}");
    }
    let arrivals = page
        .lines()
        .find(|line| line.starts_with("varvelog_dead_letter_arrivals_total{"));
    assert!(arrivals.is_some_and(|line| line.ends_with(" 1")), "{page}");
}

#[test]
fn series_end_with_their_topic_and_their_group() {
    let folder = TempDir::new().unwrap();
    let program = Program::start(&folder.path().join("data"), "127.0.0.1:0", &[]);
    let server = program.grpc.clone();
    // What the calls below add themselves is there from the beginning.
    let churn = |name: &str| {
        run_ok(&server, &["topic", "create", name, "--partitions", "2"]);
        run_ok(&server, &["group", "create", "g", name]);
        assert!(page(&program).contains(name));
        run_ok(&server, &["group", "delete", "g", "--yes"]);
        run_ok(&server, &["topic", "delete", name, "--yes"]);
    };
    churn("first");
    let names = |page: &str| -> BTreeSet<String> {
        let found = series(page);
        found.into_keys().map(str::to_owned).collect()
    };
    let before = names(&page(&program));
    for number in 0..20 {
        churn(&format!("t{number}"));
    }
    assert_eq!(names(&page(&program)), before);
    let refused = run(&server, &["topic", "describe", "t1"]);
    assert!(!refused.status.success());
}

/// Names of metrics in a text, whatever its format.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("varvelog_")).collect()
}

#[test]
fn dashboards_and_alert_rules_name_only_metrics_that_are_on_the_page() {
    let folder = TempDir::new().unwrap();
    let program = Program::start(&folder.path().join("data"), "127.0.0.1:0", &[]);
    one_done_one_dead(&program, folder.path());
    let page = page(&program);
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut known = BTreeSet::new();
    for (name, kind) in types.filter_map(|line| line.split_once(' ')) {
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        known.extend(endings.iter().map(|ending| format!("{name}{ending}")));
    }
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for file in ["prometheus/varvelog.rules.yml", "grafana/varvelog.json"] {
        let text = std::fs::read_to_string(deploy.join(file)).unwrap();
        let named = names_in(&text);
        assert!(named.len() > 5, "{file} names metrics");
        for name in named {
            assert!(known.contains(name), "{file}: {name} is not on the page");
        }
    }
}
