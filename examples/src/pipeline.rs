//! Consume, transform, produce: what an order leads to is appended in the same step in which the
//! order counts as done. Whoever is killed, and whenever: each order has its invoice once, and its
//! parcel if it has one, in the order in which its customer ordered.

use std::time::Duration;

use varvelog_client::proto::{
    CreateGroupRequest, GroupConfig, GroupMode, NewRecord, OnFailure, RetryPolicy,
};
use varvelog_client::{Admin, Connection, Delivery, GroupConsumer, NewTopic, Settlement};

/// What comes in: the value is the number of the order, the key the customer.
pub const ORDERS: &str = "pipeline-orders";
/// One for each order.
pub const INVOICES: &str = "pipeline-invoices";
/// One for each order whose number three divides.
pub const PARCELS: &str = "pipeline-parcels";
/// Who makes the one of the other.
pub const GROUP: &str = "pipeline";

/// Makes the topics and the group, where they are not there.
pub async fn set_up(connection: &Connection, partitions: u32) -> anyhow::Result<()> {
    let admin = Admin::new(connection);
    for topic in [ORDERS, INVOICES, PARCELS] {
        let topic = NewTopic::new(topic).partitions(partitions);
        admin.create_topic(topic.ok_if_exists(true)).await?;
    }
    let request = CreateGroupRequest {
        name: GROUP.into(),
        topics: vec![ORDERS.into()],
        config: Some(GroupConfig {
            mode: GroupMode::Stream.into(),
            // What a customer ordered later waits for what came before.
            on_failure: OnFailure::Hold.into(),
            retry: Some(RetryPolicy {
                max_deliveries: 1_000,
                delays: Duration::from_millis(50).try_into().into_iter().collect(),
                ..RetryPolicy::default()
            }),
            session_timeout: Duration::from_secs(1).try_into().ok(),
            ..GroupConfig::default()
        }),
        ..CreateGroupRequest::default()
    };
    match admin.create_group(request).await {
        Err(error) if !error.is("GROUP_EXISTS") => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Works at orders until it fails in a way that does not go away.
pub async fn run(connection: &Connection) -> anyhow::Result<()> {
    loop {
        let consumer = GroupConsumer::config(GROUP).topics([ORDERS]);
        let mut consumer = consumer.max_records(100).open(connection).await?;
        while let Some(delivery) = consumer.next().await {
            let delivery = delivery?;
            if let Err(error) = delivery.settle(made_of(&delivery)).await {
                // Another has these orders by now, or will get them: what is behind them must not
                // come first, so this member gives everything back and joins anew.
                if error.is_retryable() || error.is("LEASE_LOST") {
                    break;
                }
                return Err(error.into());
            }
        }
        consumer.close().await?;
    }
}

/// Everything that the orders of a delivery lead to.
fn made_of(delivery: &Delivery) -> Settlement {
    let mut invoices = Vec::new();
    let mut parcels = Vec::new();
    for order in delivery.records() {
        let number = String::from_utf8_lossy(order.value.as_deref().unwrap_or_default());
        let record = |what: &str| NewRecord {
            key: order.key.clone(),
            value: Some(format!("{what} of order {number}").into()),
            ..NewRecord::default()
        };
        invoices.push(record("invoice"));
        if number
            .parse()
            .is_ok_and(|number: u64| number.is_multiple_of(3))
        {
            parcels.push(record("parcel"));
        }
    }
    let mut settlement = Settlement::done();
    for (topic, records) in [(INVOICES, invoices), (PARCELS, parcels)] {
        if !records.is_empty() {
            settlement = settlement.output(topic, records);
        }
    }
    settlement
}
