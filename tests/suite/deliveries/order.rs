//! A queue that holds: the effects of each key's records come in the order in which these were
//! produced, however many workers there are and whatever fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use varvelog_client::proto::{
    ConsumeRequest, CreateGroupRequest, GroupConfig, GroupMode, OnFailure, RetryPolicy,
    group_admin_service_client::GroupAdminServiceClient,
};
use varvelog_client::{Admin, NewTopic, Producer, Record};

use super::workers::{Handled, Handler, Seen, Worker, caught_up, connect};
use crate::program::Program;

const PARTITIONS: u32 = 4;
const KEYS: u32 = 50;
const WORKERS: usize = 16;
const RECORDS: u32 = 3_000;

/// By key: numbers of the records that took effect, as they did.
type Effects = Arc<Mutex<BTreeMap<String, Vec<u32>>>>;

/// One attempt in ten fails, by the record and the attempt.
fn handler(effects: &Effects, failures: &Arc<Mutex<u32>>) -> Handler {
    let (effects, failures) = (Arc::clone(effects), Arc::clone(failures));
    Arc::new(move |seen: &Seen| {
        let number: u32 = seen.value.parse().unwrap();
        let attempt = u32::try_from(seen.attempt).unwrap();
        let draw = number.wrapping_mul(0x9E37_79B9) ^ attempt.wrapping_mul(0x85EB_CA6B);
        if (draw >> 7).is_multiple_of(10) {
            *failures.lock().unwrap() += 1;
            return Handled::Transient("FLAKY");
        }
        let mut effects = effects.lock().unwrap();
        effects.entry(seen.key.clone()).or_default().push(number);
        Handled::Done
    })
}

async fn create_group(server: &str) {
    let config = GroupConfig {
        mode: GroupMode::Queue.into(),
        on_failure: OnFailure::Hold.into(),
        retry: Some(RetryPolicy {
            max_deliveries: 20,
            delays: vec![prost_types::Duration {
                seconds: 0,
                nanos: 20_000_000,
            }],
            ..RetryPolicy::default()
        }),
        ..GroupConfig::default()
    };
    let request = CreateGroupRequest {
        name: "g".into(),
        topics: vec!["jobs".into()],
        config: Some(config),
        ..CreateGroupRequest::default()
    };
    let mut groups = GroupAdminServiceClient::new(connect(server).await.unwrap());
    groups.create_group(request).await.unwrap();
}

#[tokio::test]
async fn with_fifty_keys_and_sixteen_workers_that_fail_each_keys_effects_are_in_produce_order() {
    let data = TempDir::new().unwrap();
    let program = Program::start(data.path(), "127.0.0.1:0", &[]);
    let server = program.grpc.clone();
    let connection = program.connect().await;
    let topic = NewTopic::new("jobs").partitions(PARTITIONS);
    Admin::new(&connection).create_topic(topic).await.unwrap();
    create_group(&server).await;

    let (effects, failures) = (Effects::default(), Arc::default());
    let request = ConsumeRequest {
        group: "g".into(),
        max_records: 5,
        max_unacked_responses: 2,
        ..ConsumeRequest::default()
    };
    let workers: Vec<Worker> = (0..WORKERS)
        .map(|_| {
            let calls = (
                handler(&effects, &failures),
                Arc::new(|_: &_, _: &_| ()) as _,
            );
            Worker::start(&server, request.clone(), calls)
        })
        .collect();
    let producer = Producer::open(&connection, "jobs").await.unwrap();
    let mut expected: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    let mut tickets = Vec::new();
    for number in 0..RECORDS {
        // Not one after the other: a key's records lie in runs and apart.
        let key = format!("key-{}", (number / 3).wrapping_mul(7) % KEYS);
        let record = Record::new(number.to_string()).key(key.clone());
        tickets.push(producer.send(record).await.unwrap());
        expected.entry(key).or_default().push(number);
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
    caught_up(&server, "g", Duration::from_mins(2)).await;
    drop(workers);
    assert_eq!(*effects.lock().unwrap(), expected);
    let failures = *failures.lock().unwrap();
    assert!(failures > RECORDS / 20, "{failures} failures only");
}
