//! Shows the last ten records of each partition of a topic and what comes after: `tail TOPIC`. The
//! broker is at `VARVELOG_SERVER`, or on this machine.

use varvelog_client::{Connection, Position, TailConfig};

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it got")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("VARVELOG_SERVER").unwrap_or_else(|_| "localhost".to_owned());
    let topic = std::env::args().nth(1).ok_or("which topic?")?;

    let connection = Connection::open(server).await?;
    let mut tail = TailConfig::new([topic])
        .start(Position::LastN(10))
        .open(&connection)
        .await?;
    while let Some(batch) = tail.next().await {
        let batch = batch?;
        for record in batch.records {
            let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            println!("{}/{} {value}", batch.partition, record.offset);
        }
    }
    Ok(())
}
