//! Producers that are refused while a group is too far behind, through the real program.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use varvelog_client::proto::{
    ConsumeRequest, NewRecord, ProduceRequest, ProduceResponse,
    log_service_client::LogServiceClient,
};
use varvelog_client::{CallError, Producer, Record, SendError};

use super::workers::{Handled, Worker, connect, describe, read_topic, text};
use crate::program::{self, Program, run, run_ok};

/// Records of one request.
const REQUEST: usize = 10;
const LIMIT: i64 = 100;

/// A broker with topic `orders` and group `email` on it, whose depth is limited.
fn watched(folder: &TempDir, limit: &[&str]) -> Program {
    let broker = Program::start(folder.path(), "127.0.0.1:0", &[]);
    run_ok(&broker.grpc, &["topic", "create", "orders"]);
    run_ok(&broker.grpc, &["topic", "create", "bills"]);
    let create = ["group", "create", "email", "orders"];
    run_ok(&broker.grpc, &[&create, limit].concat());
    broker
}

async fn produce(server: &str, topic: &str) -> Result<ProduceResponse, CallError> {
    let record = NewRecord {
        value: Some("an order".into()),
        ..NewRecord::default()
    };
    let request = ProduceRequest {
        topic: topic.into(),
        records: vec![record; REQUEST],
        ..ProduceRequest::default()
    };
    let mut log = LogServiceClient::new(connect(server).await.unwrap());
    let response = log.produce(request).await.map_err(CallError::from)?;
    Ok(response.into_inner())
}

/// Produces until the group's gate closes; the reason, and how many records went in.
async fn fill(server: &str) -> (CallError, i64) {
    let mut records = 0;
    loop {
        match produce(server, "orders").await {
            Ok(response) => records += i64::try_from(response.results.len()).unwrap(),
            Err(error) => return (error, records),
        }
    }
}

/// Runs `varvelog produce` with these lines.
fn produce_lines(server: &str, lines: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(program::path())
        .args(["produce", "orders"])
        .args(arguments)
        .env("VARVELOG_SERVER", server)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    drop(input);
    child.wait_with_output().unwrap()
}

#[tokio::test]
async fn t48_producers_are_refused_at_the_limit_through_a_kill_and_until_the_backlog_is_gone() {
    let folder = TempDir::new().unwrap();
    let broker = watched(&folder, &["--admit-max-depth", "100"]);
    let (error, records) = fill(&broker.grpc).await;
    assert_eq!(error.reason(), Some("BACKPRESSURE_DEPTH"));
    assert_eq!(records, LIMIT);
    assert!(error.retry_after().is_some() && error.is_retryable());
    produce(&broker.grpc, "bills").await.unwrap();

    let refused = produce_lines(&broker.grpc, "a\nb\n", &["--timeout", "1s"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(said.contains("[BACKPRESSURE_DEPTH]"), "{said}");
    assert!(said.contains("varvelog group advise email"), "{said}");
    let described = run_ok(&broker.grpc, &["group", "describe", "email", "-o", "table"]);
    assert!(
        described.contains("refused by BACKPRESSURE_DEPTH"),
        "{described}"
    );
    assert!(described.contains("refused from 100 records behind, until back at 80%"));

    broker.kill();
    let broker = Program::start(folder.path(), "127.0.0.1:0", &[]);
    let (error, records) = fill(&broker.grpc).await;
    assert_eq!(
        (error.metadata_number("current"), records),
        (Some(LIMIT), 0)
    );
    run_ok(
        &broker.grpc,
        &["group", "reset", "email", "--to", "latest", "--yes"],
    );
    produce(&broker.grpc, "orders").await.unwrap();
    assert_eq!(describe(&broker.grpc, "email").await.total_lag, 10);
}

/// What `group advise` says, in workers.
fn advised(server: &str, group: &str) -> i64 {
    let text = run_ok(server, &["group", "advise", group, "-o", "json"]);
    let advice: serde_json::Value = serde_json::from_str(&text).unwrap();
    advice["workers"].as_i64().unwrap()
}

#[tokio::test]
async fn t49_and_t52_a_forgotten_group_stops_nobody_and_is_advised_to_have_more_workers() {
    let folder = TempDir::new().unwrap();
    let broker = watched(&folder, &["--admit-max-depth", "100"]);
    run_ok(&broker.grpc, &["group", "create", "idle", "bills"]);
    assert_eq!(advised(&broker.grpc, "idle"), -1);
    for _ in 0..50 {
        produce(&broker.grpc, "bills").await.unwrap();
    }
    // One that nobody ever reads with, and that asks for no limit.
    run_ok(&broker.grpc, &["group", "create", "forgotten", "bills"]);
    assert_eq!(advised(&broker.grpc, "idle"), 0);
    for _ in 0..51 {
        produce(&broker.grpc, "bills").await.unwrap();
    }
    assert_eq!(advised(&broker.grpc, "idle"), 0, "not within a minute");
    assert_eq!(describe(&broker.grpc, "forgotten").await.total_lag, 1_010);
    assert_eq!(advised(&broker.grpc, "forgotten"), 2);
}

#[tokio::test]
async fn t50_a_gate_that_age_closed_outlives_a_restart_and_opens_when_the_backlog_is_skipped() {
    let folder = TempDir::new().unwrap();
    let broker = watched(&folder, &["--admit-max-age", "200ms"]);
    let (error, records) = fill(&broker.grpc).await;
    assert_eq!(error.reason(), Some("BACKPRESSURE_AGE"));
    assert!(error.metadata_number("current").unwrap() >= 200);
    assert!(records > 0);
    assert!(broker.stop().success());
    // What is there is in segments now, and the oldest is looked up there.
    let broker = Program::start(folder.path(), "127.0.0.1:0", &[]);
    let (error, _) = fill(&broker.grpc).await;
    assert_eq!(error.reason(), Some("BACKPRESSURE_AGE"));
    run_ok(
        &broker.grpc,
        &["group", "reset", "email", "--to", "latest", "--yes"],
    );
    produce(&broker.grpc, "orders").await.unwrap();
}

#[tokio::test]
async fn a_client_gives_up_with_a_typed_error_and_settings_change_without_a_restart() {
    let folder = TempDir::new().unwrap();
    let broker = watched(&folder, &["--admit-max-bytes", "1 KiB"]);
    let (error, _) = fill(&broker.grpc).await;
    assert_eq!(error.reason(), Some("BACKPRESSURE_BYTES"));
    let connection = broker.connect().await;
    let config = Producer::config().max_block(Duration::from_secs(1));
    let producer = config.open(&connection, "orders").await.unwrap();
    let refused = producer.send(Record::new("late")).await.unwrap().await;
    assert!(
        matches!(&refused, Err(SendError::Backpressure { error, .. }) if error.is_backpressure()),
        "{refused:?}"
    );
    run_ok(
        &broker.grpc,
        &["group", "update", "email", "--admit-observe"],
    );
    produce(&broker.grpc, "orders").await.unwrap();
    let described = run_ok(&broker.grpc, &["group", "describe", "email", "-o", "table"]);
    assert!(
        described.contains("would be refused by BACKPRESSURE_BYTES"),
        "{described}"
    );
    run_ok(&broker.grpc, &["group", "delete", "email", "--yes"]);
    let gone = run(&broker.grpc, &["group", "advise", "email"]);
    assert_eq!(gone.status.code(), Some(3));
}

/// The producer is faster than the group by far; what it is refused it sends again.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_producer_that_outruns_its_group_is_held_to_the_limit_and_loses_nothing() {
    const RECORDS: u64 = 3_000;
    let folder = TempDir::new().unwrap();
    let broker = watched(&folder, &["--admit-max-depth", "100"]);
    let handled = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&handled);
    let request = ConsumeRequest {
        group: "email".into(),
        max_records: 5,
        ..ConsumeRequest::default()
    };
    let slow = Arc::new(|_: &_| Handled::Done);
    let witness = Arc::new(move |_: &_, _: &_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let worker = Worker::start(&broker.grpc, request, (slow, witness));
    let connection = broker.connect().await;
    // One batch is a request: that much may go over.
    let config = Producer::config().batch_bytes(1_000).request_bytes(1_000);
    let producer = config.open(&connection, "orders").await.unwrap();
    let sending = tokio::spawn(async move {
        let mut tickets = Vec::new();
        for number in 0..RECORDS {
            let record = Record::new(number.to_string());
            tickets.push(producer.send(record).await.unwrap());
        }
        for ticket in tickets {
            ticket.await.unwrap();
        }
    });
    let mut deepest = 0;
    while !sending.is_finished() {
        deepest = deepest.max(describe(&broker.grpc, "email").await.total_lag);
        produce(&broker.grpc, "bills").await.unwrap();
    }
    sending.await.unwrap();
    while handled.load(Ordering::Relaxed) < RECORDS {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    worker.die();
    assert!(deepest <= LIMIT + 100, "{deepest}");
    let state = describe(&broker.grpc, "email").await.admission.unwrap();
    assert!(state.refused > 0, "the group was outrun");
    let values = read_topic(&broker.grpc, "orders", 1).await;
    let values = values.iter().map(|record| text(record.value.as_deref()));
    let values: Vec<String> = values.collect();
    let sent: Vec<String> = (0..RECORDS).map(|number| number.to_string()).collect();
    assert_eq!(values, sent, "in order, each once");
}
