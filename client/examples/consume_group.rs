//! Works through a topic as a member of a group: `consume_group TOPIC GROUP`. The broker is at
//! `VARVELOG_SERVER`, or on this machine.

use varvelog_client::{Connection, GroupConsumer, ReadRecord, Settlement};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("VARVELOG_SERVER").unwrap_or_else(|_| "localhost".to_owned());
    let mut arguments = std::env::args().skip(1);
    let topic = arguments.next().ok_or("which topic?")?;
    let group = arguments.next().ok_or("which group?")?;

    let connection = Connection::open(server).await?;
    let mut consumer = GroupConsumer::config(group)
        .topics([topic])
        .open(&connection)
        .await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        let mut settlement = Settlement::done();
        for record in delivery.records() {
            if let Err(problem) = work(record) {
                settlement = settlement.retry(record.offset, "not-text", problem.to_string());
            }
        }
        delivery.settle(settlement).await?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "an example shows what it got")]
fn work(record: &ReadRecord) -> Result<(), std::str::Utf8Error> {
    let text = std::str::from_utf8(record.value.as_deref().unwrap_or_default())?;
    println!("{} (delivery {}): {text}", record.offset, record.attempt);
    Ok(())
}
