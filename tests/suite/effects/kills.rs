//! Workers and broker killed at random moments, under a handler that fails one time in five (T37).
//!
//! A short form runs with the other tests; `VARVELOG_SOAK=1` makes each of them ten minutes.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt;
use tokio::time::Instant;
use varvelog_client::proto::{
    CreateGroupRequest, GroupConfig, GroupMode, Record as Read, ResetOffsetsRequest, RetryPolicy,
    group_admin_service_client::GroupAdminServiceClient,
};
use varvelog_client::{Admin, NewTopic, Producer, Record};

use super::postgres::Server;
use super::process::{Database, GROUP, Keeping, POISON, TOPIC, WorkerProcess};
use crate::deliveries::workers::{caught_up, connect, describe, header, read_topic};
use crate::program::Program;

const WORKERS: usize = 2;
const PATIENCE: Duration = Duration::from_mins(10);

/// Records, and for how long there are kills.
fn size() -> (usize, Duration) {
    if std::env::var_os("VARVELOG_SOAK").is_some() {
        (30_000, Duration::from_mins(10))
    } else {
        (700, Duration::from_secs(4))
    }
}

fn millis(ms: i64) -> prost_types::Duration {
    prost_types::Duration {
        seconds: ms / 1_000,
        nanos: i32::try_from(ms % 1_000 * 1_000_000).unwrap(),
    }
}

async fn create_group(server: &str) {
    let config = GroupConfig {
        mode: GroupMode::Queue.into(),
        retry: Some(RetryPolicy {
            max_deliveries: 200,
            delays: vec![millis(20)],
            ..RetryPolicy::default()
        }),
        visibility_timeout: Some(millis(2_000)),
        session_timeout: Some(millis(1_000)),
        ..GroupConfig::default()
    };
    let request = CreateGroupRequest {
        name: GROUP.into(),
        topics: vec![TOPIC.into()],
        config: Some(config),
        ..CreateGroupRequest::default()
    };
    let mut groups = GroupAdminServiceClient::new(connect(server).await.unwrap());
    groups.create_group(request).await.unwrap();
}

/// All again from the start, as when somebody fears that something was missed.
async fn reset(server: &str) {
    let request = ResetOffsetsRequest {
        group: GROUP.into(),
        force: true,
        to: Some(varvelog_client::proto::Position {
            at: Some(varvelog_client::proto::position::At::Earliest(true)),
        }),
        ..ResetOffsetsRequest::default()
    };
    let mut groups = GroupAdminServiceClient::new(connect(server).await.unwrap());
    groups.reset_offsets(request).await.unwrap();
}

/// Each payment twice, as by two programs that do not know of each other, and one bad one.
async fn produce(broker: &Program, records: usize) {
    let connection = broker.connect().await;
    let topic = NewTopic::new(TOPIC).partitions(2);
    Admin::new(&connection).create_topic(topic).await.unwrap();
    create_group(&broker.grpc).await;
    let (mut fresh, mut duplicate) = (0, 0);
    for _ in 0..2 {
        let producer = Producer::config().message_ids(true);
        let producer = producer.open(&connection, TOPIC).await.unwrap();
        let mut tickets = Vec::new();
        for number in 0..records {
            let record = Record::new(number.to_string()).key(number.to_string());
            let record = record.message_id(format!("payment-{number}"));
            tickets.push(producer.send(record).await.unwrap());
        }
        let poison = Record::new(POISON).message_id(POISON);
        tickets.push(producer.send(poison).await.unwrap());
        for ticket in tickets {
            if ticket.await.unwrap().duplicate {
                duplicate += 1;
            } else {
                fresh += 1;
            }
        }
        producer.close().await.unwrap();
    }
    assert_eq!((fresh, duplicate), (records + 1, records + 1));
}

/// What came of a run.
struct Outcome {
    /// How often each effect happened, when all was done in spite of the kills.
    after_kills: BTreeMap<String, u64>,
    /// And when all was done again after a reset.
    after_reset: BTreeMap<String, u64>,
    records: usize,
}

async fn work(url: &str, keeping: Keeping) -> Outcome {
    let (records, time) = size();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut broker = Program::start(&data, "127.0.0.1:0", &[]);
    let server = broker.grpc.clone();
    produce(&broker, records).await;
    let database = Database::open(url).await;
    let start = || WorkerProcess::start(&server, url, keeping);
    let mut workers: Vec<WorkerProcess> = (0..WORKERS).map(|_| start()).collect();
    let end = Instant::now() + time;
    let (mut broker_kills, mut worker_kills) = (0, 0);
    while Instant::now() < end {
        let pause = rand::rng().random_range(150..400);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if rand::rng().random_ratio(1, 4) {
            broker.kill();
            broker = Program::start(&data, &server, &[]);
            broker_kills += 1;
        } else {
            let victim = rand::rng().random_range(0..WORKERS);
            workers.remove(victim).kill();
            workers.push(start());
            worker_kills += 1;
        }
    }
    let left = describe(&server, GROUP).await.total_lag;
    println!("{broker_kills} brokers and {worker_kills} workers killed, {left} records left then");
    caught_up(&server, GROUP, PATIENCE).await;
    let after_kills = database.counts().await;
    reset(&server).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    caught_up(&server, GROUP, PATIENCE).await;
    let after_reset = database.counts().await;
    let dead = read_topic(&server, &format!("{TOPIC}.{GROUP}.dlq"), 2).await;
    drop(workers);
    has_its_id(&dead);
    assert_eq!(broker.stop().code(), Some(0));
    Outcome {
        after_kills,
        after_reset,
        records,
    }
}

/// The bad one is a dead letter, under the id that it was produced with.
fn has_its_id(dead: &[Read]) {
    assert!(!dead.is_empty());
    for record in dead {
        let reason = header(record, "varvelog-dead-reason");
        assert_eq!(
            (record.message_id.as_str(), reason.as_deref()),
            (POISON, Some("permanent"))
        );
    }
}

fn happened(counts: &BTreeMap<String, u64>) -> (usize, usize) {
    (counts.len(), counts.values().filter(|it| **it > 1).count())
}

/// Each once, whatever was killed, and no more when all comes again.
fn check_once(outcome: &Outcome) {
    assert_eq!(happened(&outcome.after_kills), (outcome.records, 0));
    assert_eq!(outcome.after_reset, outcome.after_kills);
    println!("{} effects, each once", outcome.records);
}

fn sqlite(folder: &tempfile::TempDir) -> String {
    let file = folder.path().join("effects.db");
    format!("sqlite://{}?mode=rwc", file.display())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_processed_table_each_effect_happens_exactly_once() {
    let folder = tempfile::tempdir().unwrap();
    check_once(&work(&sqlite(&folder), Keeping::Table).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_processed_table_in_postgresql_each_effect_happens_exactly_once() {
    let Some(server) = Server::start_if_there() else {
        return;
    };
    server.pool().await.close().await;
    check_once(&work(&server.url(), Keeping::Table).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_it_a_record_that_comes_again_has_its_effect_again() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = work(&sqlite(&folder), Keeping::Nothing).await;
    let (all, twice) = happened(&outcome.after_kills);
    println!("without the table {twice} of {all} effects happened more than once");
    assert_eq!(all, outcome.records, "none is missing");
    assert_eq!(
        happened(&outcome.after_reset),
        (outcome.records, outcome.records),
        "each is doubled by a reset"
    );
}
