//! Fan-out: one topic, services that come one after the other, and a producer that never notices.
//!
//! `cargo run -p varvelog-examples --bin fan-out` with a broker at `VARVELOG_SERVER` (or on this
//! machine). Each service is a consumer group: it gets everything, from the first record on, also
//! the one that is added when all is written.

use std::collections::BTreeMap;

use anyhow::Context as _;
use varvelog_client::{Admin, Connection, GroupConsumer, NewTopic, Producer, Record};

const TOPIC: &str = "fan-out-orders";
const ORDERS: u32 = 100;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = std::env::var("VARVELOG_SERVER").unwrap_or_else(|_| "localhost".to_owned());
    let connection = Connection::open(server).await?;
    let admin = Admin::new(&connection);
    admin
        .create_topic(NewTopic::new(TOPIC).partitions(3).ok_if_exists(true))
        .await?;

    let run = std::process::id();
    produce(&connection, run).await?;
    for service in ["billing", "shipping", "analytics-added-later"] {
        let seen = consume(&connection, service, run).await?;
        report(service, &seen);
    }
    Ok(())
}

async fn produce(connection: &Connection, run: u32) -> anyhow::Result<()> {
    let producer = Producer::open(connection, TOPIC).await?;
    for number in 0..ORDERS {
        let customer = format!("customer-{}", number % 7);
        let record = Record::new(format!("{run}/{number}")).key(customer);
        // The answer comes with the flush.
        drop(producer.send(record).await?);
    }
    producer.close().await.context("every order is appended")
}

/// Reads until it has seen every order of this run; orders by customer.
async fn consume(
    connection: &Connection,
    service: &str,
    run: u32,
) -> anyhow::Result<BTreeMap<String, Vec<u32>>> {
    let group = format!("{service}-{run}");
    let mut consumer = GroupConsumer::config(group)
        .topics([TOPIC])
        .open(connection)
        .await?;
    let mut seen: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    while seen.values().map(Vec::len).sum::<usize>() < ORDERS as usize {
        let delivery = consumer.next().await.context("the stream goes on")??;
        for record in delivery.records() {
            let text = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            let of_this_run = text.strip_prefix(&format!("{run}/")).map(str::parse);
            if let Some(number) = of_this_run {
                let customer = record.key.as_deref().unwrap_or_default();
                let customer = String::from_utf8_lossy(customer).into_owned();
                seen.entry(customer).or_default().push(number?);
            }
        }
        delivery.ack().await?;
    }
    consumer.close().await?;
    Ok(seen)
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn report(service: &str, seen: &BTreeMap<String, Vec<u32>>) {
    let in_order = seen.values().all(|orders| orders.is_sorted());
    let orders: usize = seen.values().map(Vec::len).sum();
    println!("{service}: {orders} orders, each customer's in order: {in_order}");
}
