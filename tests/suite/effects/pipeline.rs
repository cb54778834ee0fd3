//! The example of consume, transform, produce, with worker and broker killed at random moments.
//!
//! A short form runs with the other tests; `VARVELOG_SOAK=1` makes it 100,000 orders and a hundred
//! kills.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tempfile::TempDir;
use varvelog_client::proto::Record as Read;
use varvelog_client::{Connection, Producer, Record};
use varvelog_examples::pipeline::{GROUP, INVOICES, ORDERS, PARCELS, run, set_up};

use crate::deliveries::workers::{caught_up, read_topic, text};
use crate::program::Program;

const PARTITIONS: u32 = 3;
const CUSTOMERS: u32 = 50;
const WORKERS: usize = 2;
const PATIENCE: Duration = Duration::from_mins(3);
const SERVER: &str = "PIPELINE_SERVER";

/// Orders and kills.
fn size() -> (u32, u32) {
    if std::env::var_os("VARVELOG_SOAK").is_some() {
        (100_000, 100)
    } else {
        (4_000, 8)
    }
}

/// A worker's process: this test binary with a part to play.
struct WorkerProcess(Child);

impl WorkerProcess {
    fn start(server: &str) -> Self {
        let test = std::env::current_exe().expect("a test knows its own path");
        let child = Command::new(test)
            .args([
                "--exact",
                "effects::pipeline::a_pipeline_process",
                "--ignored",
            ])
            .env(SERVER, server)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("this test can be started again"))
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test]
#[ignore = "the part of a worker, played for another test"]
async fn a_pipeline_process() {
    let Ok(server) = std::env::var(SERVER) else {
        return;
    };
    let connection = Connection::open(server).await.unwrap();
    loop {
        // A broker that is away for long ends the pipeline, and a supervisor starts it again.
        drop(run(&connection).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn produce(server: String, orders: u32, pause: Duration) {
    let connection = Connection::open(server).await.unwrap();
    let producer = Producer::config().delivery_timeout(PATIENCE);
    let producer = producer.open(&connection, ORDERS).await.unwrap();
    let mut tickets = Vec::new();
    for order in 0..orders {
        let record = Record::new(order.to_string()).key(format!("customer-{}", order % CUSTOMERS));
        tickets.push(producer.send(record).await.unwrap());
        if order % 100 == 99 {
            tokio::time::sleep(pause).await;
        }
    }
    for ticket in tickets {
        ticket.await.unwrap();
    }
    producer.close().await.unwrap();
}

/// Numbers of the orders that records were made of, by customer, in the order of the records.
fn by_customer(records: &[Read]) -> BTreeMap<String, Vec<u32>> {
    let mut all: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for record in records {
        let value = text(record.value.as_deref());
        let number = value.rsplit(' ').next().unwrap().parse().unwrap();
        let customer = text(record.key.as_deref());
        all.entry(customer).or_default().push(number);
    }
    all
}

fn expected(orders: u32, is_wanted: impl Fn(u32) -> bool) -> BTreeMap<String, Vec<u32>> {
    let mut all: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for order in (0..orders).filter(|order| is_wanted(*order)) {
        let customer = format!("customer-{}", order % CUSTOMERS);
        all.entry(customer).or_default().push(order);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_order_has_its_outputs_once_and_in_order_whatever_is_killed() {
    let (orders, kills) = size();
    let seed = rand::random();
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let data = TempDir::new().unwrap();
    let settings = [("VARVELOG__CHECKPOINT__INTERVAL", "1s")];
    let mut broker = Program::start(data.path(), "127.0.0.1:0", &settings);
    let server = broker.grpc.clone();
    set_up(&broker.connect().await, PARTITIONS).await.unwrap();
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|_| WorkerProcess::start(&server))
        .collect();
    // The orders come for about as long as the kills go on.
    let pause = Duration::from_millis(500) * kills / (orders / 100);
    let producing = tokio::spawn(produce(server.clone(), orders, pause));
    let mut broker_kills = 0;
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(dice.random_range(100..900))).await;
        if dice.random_bool(0.4) {
            broker.kill();
            broker = Program::start(data.path(), &server, &settings);
            broker_kills += 1;
        } else {
            workers.swap_remove(dice.random_range(0..WORKERS));
            workers.push(WorkerProcess::start(&server));
        }
    }
    producing.await.unwrap();
    caught_up(&server, GROUP, PATIENCE).await;
    drop(workers);
    println!("{orders} orders, {broker_kills} of {kills} kills were of the broker");
    let partitions = i32::try_from(PARTITIONS).unwrap();
    let invoices = read_topic(&server, INVOICES, partitions).await;
    assert_eq!(by_customer(&invoices), expected(orders, |_| true));
    let parcels = read_topic(&server, PARCELS, partitions).await;
    let is_third = |order: u32| order.is_multiple_of(3);
    assert_eq!(by_customer(&parcels), expected(orders, is_third));
    let dead = format!("{ORDERS}.{GROUP}.dlq");
    assert!(read_topic(&server, &dead, partitions).await.is_empty());
}
