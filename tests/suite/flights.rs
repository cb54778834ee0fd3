//! The flights, by hand: what the README promises, through the real program.

use std::collections::BTreeMap;

use tempfile::TempDir;

use crate::program::{Program, run_ok};
use crate::tidy::root;

const FLIGHTS: usize = 20_000;

fn flights_path() -> String {
    root()
        .join("examples/data/flights-20k.ndjson")
        .display()
        .to_string()
}

/// The lines of the file, by airport, in the order of the file.
fn by_origin(lines: &str) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in lines.lines() {
        let flight: serde_json::Value = serde_json::from_str(line).unwrap();
        let origin = flight["origin"].as_str().unwrap().to_owned();
        found.entry(origin).or_default().push(line.to_owned());
    }
    found
}

fn json(server: &str, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&run_ok(server, arguments)).unwrap()
}

#[test]
fn flights_are_read_whole_and_in_order_by_tail_and_by_every_group() {
    let data = TempDir::new().unwrap();
    let program = Program::start(data.path(), "127.0.0.1:0", &[]);
    let server = program.grpc.as_str();
    let wanted = by_origin(&std::fs::read_to_string(flights_path()).unwrap());
    run_ok(server, &["topic", "create", "flights", "--partitions", "6"]);
    let file = flights_path();
    run_ok(
        server,
        &[
            "produce",
            "flights",
            "--key-field",
            "origin",
            "--file",
            &file,
        ],
    );

    let tailed = run_ok(
        server,
        &["tail", "flights", "--from", "earliest", "-e", "-o", "jsonl"],
    );
    check_records(&tailed, &wanted);

    let one = run_ok(
        server,
        &["consume", "flights", "-g", "one", "--exit", "-o", "jsonl"],
    );
    check_records(&one, &wanted);

    let three = three_members(server);
    assert_eq!(three.lines().count(), FLIGHTS);
    check_lag(server, "one");
    check_lag(server, "three");

    let late = run_ok(
        server,
        &["consume", "flights", "-g", "late", "--exit", "-o", "jsonl"],
    );
    check_records(&late, &wanted);
    drop(program);
}

/// Three members of one group at the same time; what each read, one behind the other.
fn three_members(server: &str) -> String {
    let members: Vec<_> = (0..3)
        .map(|_| {
            let server = server.to_owned();
            std::thread::spawn(move || {
                let arguments = ["consume", "flights", "-g", "three", "--exit", "-o", "jsonl"];
                run_ok(&server, &arguments)
            })
        })
        .collect();
    members
        .into_iter()
        .map(|member| member.join().unwrap())
        .collect()
}

/// Every flight once; per origin in the order of the file and within one partition.
fn check_records(lines: &str, wanted: &BTreeMap<String, Vec<String>>) {
    assert_eq!(lines.lines().count(), FLIGHTS);
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut partitions: BTreeMap<String, i64> = BTreeMap::new();
    for line in lines.lines() {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let key = record["key"].as_str().unwrap().to_owned();
        let partition = record["partition"].as_i64().unwrap_or_default();
        assert_eq!(
            *partitions.entry(key.clone()).or_insert(partition),
            partition
        );
        found
            .entry(key)
            .or_default()
            .push(record["value"].as_str().unwrap().to_owned());
    }
    assert_eq!(&found, wanted);
}

fn check_lag(server: &str, group: &str) {
    let described = json(server, &["group", "describe", group, "-o", "json"]);
    let lag = described["totalLag"].as_str().unwrap_or("0");
    assert_eq!(lag, "0", "{described}");
    assert_eq!(described["oldestUnprocessedAge"], "0s", "{described}");
}
