//! Broker and workers killed at random moments under a handler that fails: every record ends done
//! or dead, exactly one of them, and no attempt goes far beyond the limit.
//!
//! A short form runs with the other tests; `VARVELOG_SOAK=1` makes it ten minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tempfile::TempDir;
use tokio::time::Instant;
use varvelog_client::proto::{
    ConsumeRequest, CreateGroupRequest, GroupConfig, GroupMode, RetryPolicy,
    group_admin_service_client::GroupAdminServiceClient,
};
use varvelog_client::{Admin, NewTopic, Producer, Record};

use super::workers::{
    Handled, Handler, Seen, Witness, Worker, caught_up, connect, describe, read_topic, text,
};
use crate::program::Program;

const PARTITIONS: u32 = 4;
const DELIVERIES_MAX: i32 = 4;
const WORKERS: usize = 4;
const PATIENCE: Duration = Duration::from_mins(2);

/// What the workers saw.
#[derive(Debug, Default)]
struct Ledger {
    /// Records whose processing was settled, as the broker said.
    done: Mutex<BTreeSet<String>>,
    /// Records that were processed, settled or not.
    processed: Mutex<BTreeSet<String>>,
    highest_attempt: Mutex<i32>,
}

/// Fails one record in five, by its value and attempt, some of them for good.
fn unreliable(ledger: &Arc<Ledger>) -> Handler {
    let ledger = Arc::clone(ledger);
    Arc::new(move |seen| {
        let mut highest = ledger.highest_attempt.lock().unwrap();
        *highest = (*highest).max(seen.attempt);
        let draw = draw(seen);
        if draw < 180 {
            return Handled::Transient("FLAKY");
        }
        if draw < 200 {
            return Handled::Permanent("BROKEN");
        }
        ledger.processed.lock().unwrap().insert(seen.value.clone());
        Handled::Done
    })
}

/// 0 to 999, the same for the same record and attempt.
fn draw(seen: &Seen) -> u32 {
    let mut hash = 0x811c_9dc5_u32;
    for byte in format!("{} {}", seen.value, seen.attempt).bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    (hash >> 8) % 1_000
}

fn witness(ledger: &Arc<Ledger>) -> Witness {
    let ledger = Arc::clone(ledger);
    Arc::new(move |seen, handled| {
        if *handled == Handled::Done {
            ledger.done.lock().unwrap().insert(seen.value.clone());
        }
    })
}

fn millis(ms: i64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: ms / 1_000,
        nanos: i32::try_from(ms % 1_000 * 1_000_000).unwrap(),
    }
}

async fn create_group(server: &str, mode: GroupMode) {
    let config = GroupConfig {
        mode: mode.into(),
        retry: Some(RetryPolicy {
            max_deliveries: DELIVERIES_MAX,
            delays: vec![millis(20), millis(50)],
            ..RetryPolicy::default()
        }),
        visibility_timeout: Some(millis(2_000)),
        session_timeout: Some(millis(1_000)),
        ..GroupConfig::default()
    };
    let request = CreateGroupRequest {
        name: "g".into(),
        topics: vec!["jobs".into()],
        config: Some(config),
        ..CreateGroupRequest::default()
    };
    let channel = connect(server).await.unwrap();
    GroupAdminServiceClient::new(channel)
        .create_group(request)
        .await
        .unwrap();
}

fn worker(server: &str, ledger: &Arc<Ledger>) -> Worker {
    let request = ConsumeRequest {
        group: "g".into(),
        max_records: 20,
        max_unacked_responses: 2,
        ..ConsumeRequest::default()
    };
    Worker::start(server, request, (unreliable(ledger), witness(ledger)))
}

/// Sends numbered jobs until the end, and returns those that were acknowledged.
async fn produce(server: String, end: Instant) -> BTreeSet<String> {
    let connection = varvelog_client::Connection::open(server).await.unwrap();
    let producer = Producer::open(&connection, "jobs").await.unwrap();
    let mut sent = BTreeSet::new();
    let mut number = 0_u32;
    while Instant::now() < end {
        let mut tickets = Vec::new();
        for _ in 0..50 {
            let value = format!("job-{number}");
            let record = Record::new(value.clone()).key(format!("key-{}", number % 17));
            tickets.push((value, producer.send(record).await.unwrap()));
            number += 1;
        }
        for (value, ticket) in tickets {
            ticket
                .await
                .expect("an idempotent producer retries until it succeeds");
            sent.insert(value);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    producer.close().await.unwrap();
    sent
}

fn run_time() -> Duration {
    if std::env::var_os("VARVELOG_SOAK").is_some() {
        Duration::from_mins(10)
    } else {
        Duration::from_secs(8)
    }
}

#[tokio::test]
async fn in_a_queue_every_record_ends_done_or_dead_whatever_is_killed() {
    kill_at_random(GroupMode::Queue).await;
}

#[tokio::test]
async fn in_a_stream_every_record_ends_done_or_dead_whatever_is_killed() {
    kill_at_random(GroupMode::Stream).await;
}

async fn kill_at_random(mode: GroupMode) {
    let seed = rand::random();
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let data = TempDir::new().unwrap();
    let settings = [
        ("VARVELOG__WAL__FILE_BYTES", "1MiB"),
        ("VARVELOG__CHECKPOINT__WAL_BYTES", "3MiB"),
        ("VARVELOG__CHECKPOINT__INTERVAL", "1s"),
    ];
    let mut program = Program::start(data.path(), "127.0.0.1:0", &settings);
    let server = program.grpc.clone();
    let topic = NewTopic::new("jobs").partitions(PARTITIONS);
    Admin::new(&program.connect().await)
        .create_topic(topic)
        .await
        .unwrap();
    create_group(&server, mode).await;
    let ledger = Arc::new(Ledger::default());
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| worker(&server, &ledger)).collect();

    let end = Instant::now() + run_time();
    let producing = tokio::spawn(produce(server.clone(), end));
    let (mut broker_kills, mut worker_kills) = (0, 0);
    while Instant::now() < end {
        let pause = Duration::from_millis(dice.random_range(50..900));
        tokio::time::sleep(pause).await;
        if dice.random_bool(0.4) {
            program.kill();
            program = Program::start(data.path(), &server, &settings);
            broker_kills += 1;
        } else {
            let at = dice.random_range(0..workers.len());
            workers.swap_remove(at).die();
            workers.push(worker(&server, &ledger));
            worker_kills += 1;
        }
    }
    let sent = producing.await.unwrap();
    caught_up(&server, "g", PATIENCE).await;
    drop(workers);
    println!("{broker_kills} brokers and {worker_kills} workers killed");
    check_ends(&server, &ledger, &sent).await;
    let highest = *ledger.highest_attempt.lock().unwrap();
    assert!(
        highest <= DELIVERIES_MAX + broker_kills,
        "attempt {highest} with {broker_kills} kills of the broker"
    );
}

/// Every job is done, or a dead letter once, and none is both.
async fn check_ends(server: &str, ledger: &Ledger, sent: &BTreeSet<String>) {
    let found = describe(server, "g").await;
    let letters = read_topic(server, "jobs.g.dlq", i32::try_from(PARTITIONS).unwrap()).await;
    let mut dead: BTreeMap<String, u32> = BTreeMap::new();
    for letter in &letters {
        *dead.entry(text(letter.value.as_deref())).or_default() += 1;
    }
    let done = ledger.done.lock().unwrap();
    let processed = ledger.processed.lock().unwrap();
    println!("{} jobs, {} dead", sent.len(), dead.len());
    assert!(
        dead.values().all(|times| *times == 1),
        "a dead letter is there once"
    );
    assert_eq!(u64::try_from(found.dead_letters), Ok(letters.len() as u64));
    for job in sent {
        if dead.contains_key(job) {
            assert!(!done.contains(job), "{job} is done and dead");
        } else {
            assert!(
                processed.contains(job),
                "{job} is neither processed nor dead"
            );
        }
    }
}
