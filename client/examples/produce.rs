//! Appends lines of standard input to a topic: `produce TOPIC`. The broker is at
//! `VARVELOG_SERVER`, or on this machine.

use std::io::BufRead as _;

use varvelog_client::{Admin, Compression, Connection, NewTopic, Producer, Record};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("VARVELOG_SERVER").unwrap_or_else(|_| "localhost".to_owned());
    let topic = std::env::args().nth(1).ok_or("which topic?")?;

    let connection = Connection::open(server).await?;
    let wanted = NewTopic::new(&topic).partitions(6).ok_if_exists(true);
    Admin::new(&connection).create_topic(wanted).await?;

    let config = Producer::config().compression(Compression::Lz4);
    let producer = config.open(&connection, topic).await?;
    for line in std::io::stdin().lock().lines() {
        // Nobody waits for this ticket: closing tells whether any record failed.
        drop(producer.send(Record::new(line?)).await?);
    }
    producer.close().await?;
    Ok(())
}
