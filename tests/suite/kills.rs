//! Killed at random moments under load: what was acknowledged is there once, in order, at the
//! offset that was answered; committed offsets never go back.
//!
//! A short form runs with the other tests; `VARVELOG_SOAK=1` makes it a hundred kills.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tempfile::TempDir;
use tokio::sync::watch;
use varvelog_client::proto::{
    CommitOffsetsRequest, FetchRequest, GetOffsetsRequest, OffsetCommit, Record as ReadRecord,
    group_service_client::GroupServiceClient, log_service_client::LogServiceClient,
};
use varvelog_client::{Admin, Connection, NewTopic, Producer, Record};

use crate::program::Program;

const TOPIC: &str = "kills";
const PARTITIONS: u32 = 3;
const GROUP: &str = "watchers";

/// What the broker vouched for: value by partition and offset.
type Acknowledged = BTreeMap<(u32, i64), String>;

/// Committed offsets that were answered with OK, by partition.
type Committed = BTreeMap<i32, i64>;

struct Run {
    data: TempDir,
    address: String,
    settings: Vec<(&'static str, &'static str)>,
    dice: StdRng,
}

impl Run {
    fn start(&self) -> Program {
        Program::start(self.data.path(), &self.address, &self.settings)
    }
}

fn kills_wanted(short: u32) -> u32 {
    if std::env::var_os("VARVELOG_SOAK").is_some() {
        100
    } else {
        short
    }
}

#[tokio::test]
async fn a_kill_at_any_moment_loses_nothing_that_was_acknowledged() {
    kill_again_and_again("always", kills_wanted(12)).await;
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_written_without_a_sync() {
    kill_again_and_again("never", kills_wanted(4)).await;
}

async fn kill_again_and_again(sync: &'static str, kills: u32) {
    let seed = rand::random();
    println!("seed {seed}");
    let mut run = Run {
        data: TempDir::new().unwrap(),
        address: "127.0.0.1:0".into(),
        // Small files, so that rolls, recycling and checkpoints are among what is interrupted.
        settings: vec![
            ("VARVELOG__WAL__SYNC", sync),
            ("VARVELOG__WAL__FILE_BYTES", "1MiB"),
            ("VARVELOG__CHECKPOINT__WAL_BYTES", "3MiB"),
            ("VARVELOG__CHECKPOINT__INTERVAL", "1s"),
            ("VARVELOG__FLUSH__INTERVAL", "100ms"),
        ],
        dice: StdRng::seed_from_u64(seed),
    };
    let mut program = run.start();
    run.address.clone_from(&program.grpc);
    let connection = program.connect().await;
    let topic = NewTopic::new(TOPIC).partitions(PARTITIONS);
    Admin::new(&connection).create_topic(topic).await.unwrap();

    // One producer for the whole run: it retries through every kill.
    let (stop, stopped) = watch::channel(false);
    let producing = tokio::spawn(produce(connection, stopped));
    let mut committed = Committed::new();
    for _ in 0..kills {
        let until_kill = Duration::from_millis(run.dice.random_range(0..400));
        drop(tokio::time::timeout(until_kill, commit(&program, &mut committed)).await);
        program.kill();
        program = run.start();
        check_committed(&program, &committed).await;
    }
    stop.send(true).unwrap();
    let acknowledged = producing.await.unwrap();
    assert!(
        acknowledged.len() > 1000,
        "only {} were acknowledged",
        acknowledged.len()
    );
    check_log(&program, &acknowledged).await;
    let status = program.stop();
    assert_eq!(status.code(), Some(0), "a clean stop");
    let program = run.start();
    check_log(&program, &acknowledged).await;
    check_committed(&program, &committed).await;
}

/// Sends numbered values until told to stop, and returns what was acknowledged.
async fn produce(connection: Connection, stopped: watch::Receiver<bool>) -> Acknowledged {
    let producer = Producer::config().open(&connection, TOPIC).await.unwrap();
    let mut acknowledged = Acknowledged::new();
    let mut number = 0_u64;
    while !*stopped.borrow() {
        let mut tickets = Vec::new();
        for _ in 0..100 {
            let value = format!("{number:010} {}", "v".repeat(200));
            let record = Record::new(value.clone()).key(format!("key-{}", number % 7));
            tickets.push((value, producer.send(record).await.unwrap()));
            number += 1;
        }
        for (value, ticket) in tickets {
            let appended = ticket
                .await
                .expect("an idempotent producer retries until it succeeds");
            let place = (appended.partition, appended.offset);
            let before = acknowledged.insert(place, value);
            assert_eq!(before, None, "two records were answered with {place:?}");
        }
    }
    producer.close().await.unwrap();
    acknowledged
}

/// Commits rising offsets, one after the other, noting what was answered, until dropped.
async fn commit(program: &Program, committed: &mut Committed) {
    let Ok(connection) = Connection::open(program.grpc.clone()).await else {
        return;
    };
    let mut groups = GroupServiceClient::new(channel(&connection));
    let mut log = LogServiceClient::new(channel(&connection));
    loop {
        for partition in 0..i32::try_from(PARTITIONS).unwrap() {
            let offset = committed.get(&partition).copied().unwrap_or(0);
            let fetch = FetchRequest {
                topic: TOPIC.into(),
                partition,
                offset,
                max_records: 50,
                ..FetchRequest::default()
            };
            let Ok(fetched) = log.fetch(fetch).await else {
                return;
            };
            let offset = fetched.into_inner().next_offset;
            let commit = OffsetCommit {
                topic: TOPIC.into(),
                partition,
                offset,
                metadata: String::new(),
            };
            let request = CommitOffsetsRequest {
                group: GROUP.into(),
                offsets: vec![commit],
                ..CommitOffsetsRequest::default()
            };
            if groups.commit_offsets(request).await.is_err() {
                return;
            }
            committed.insert(partition, offset);
        }
    }
}

fn channel(connection: &Connection) -> tonic::transport::Channel {
    tonic::transport::Endpoint::from_shared(format!("http://{}", address(connection)))
        .unwrap()
        .connect_lazy()
}

fn address(connection: &Connection) -> String {
    connection
        .address()
        .trim_start_matches("http://")
        .to_owned()
}

async fn check_committed(program: &Program, committed: &Committed) {
    if committed.is_empty() {
        return;
    }
    let connection = program.connect().await;
    let request = GetOffsetsRequest {
        group: GROUP.into(),
        topic: String::new(),
    };
    let answer = GroupServiceClient::new(channel(&connection))
        .get_offsets(request)
        .await;
    let found: Committed = answer
        .unwrap()
        .into_inner()
        .offsets
        .into_iter()
        .map(|commit| (commit.partition, commit.offset))
        .collect();
    for (partition, offset) in committed {
        // One more may have been committed whose answer the kill took.
        assert!(
            found[partition] >= *offset,
            "partition {partition}: {found:?} < {committed:?}"
        );
    }
}

/// Everything acknowledged is at its offset; no value twice; each key in order; offsets dense.
async fn check_log(program: &Program, acknowledged: &Acknowledged) {
    let connection = program.connect().await;
    let mut log = LogServiceClient::new(channel(&connection));
    let mut seen = BTreeSet::new();
    for partition in 0..PARTITIONS {
        let records = read_all(&mut log, i32::try_from(partition).unwrap()).await;
        let mut last_of_key: BTreeMap<Vec<u8>, String> = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            assert_eq!(
                record.offset,
                i64::try_from(index).unwrap(),
                "offsets are dense"
            );
            let value = String::from_utf8(record.value.clone().unwrap().to_vec()).unwrap();
            let key = record.key.clone().unwrap().to_vec();
            let before = last_of_key.insert(key, value.clone());
            assert!(
                before.is_none_or(|before| before < value),
                "a key kept its order"
            );
            assert!(seen.insert(value), "a value is there twice");
        }
        for ((_, offset), value) in acknowledged.range((partition, 0)..(partition + 1, 0)) {
            let record = records.get(usize::try_from(*offset).unwrap());
            let found = record
                .and_then(|record| record.value.clone())
                .unwrap_or_default();
            assert_eq!(
                found,
                value.as_bytes(),
                "partition {partition}, offset {offset}"
            );
        }
    }
}

async fn read_all(
    log: &mut LogServiceClient<tonic::transport::Channel>,
    partition: i32,
) -> Vec<ReadRecord> {
    let mut records = Vec::new();
    let mut offset = 0;
    loop {
        let fetch = FetchRequest {
            topic: TOPIC.into(),
            partition,
            offset,
            max_records: 10_000,
            max_wait: Some(prost_types::Duration::default()),
            ..FetchRequest::default()
        };
        let fetched = log.fetch(fetch).await.unwrap().into_inner();
        if fetched.records.is_empty() {
            assert_eq!(offset, fetched.latest_offset);
            return records;
        }
        records.extend(fetched.records);
        offset = fetched.next_offset;
    }
}
