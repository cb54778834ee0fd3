//! Exactly once from topic to topic: consume, transform, produce, in one step.
//!
//! `cargo run -p varvelog-examples --bin exactly-once-pipeline` with a broker at `VARVELOG_SERVER`
//! (or on this machine). It works until it is stopped; stop it as you like, kill it, run several.
//! `varvelog produce pipeline-orders` gives it orders (a number a line),
//! `varvelog tail pipeline-invoices --from earliest` shows what came of them.

use varvelog_client::Connection;
use varvelog_examples::pipeline;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let server = std::env::var("VARVELOG_SERVER").unwrap_or_else(|_| "localhost".to_owned());
    let connection = Connection::open(server).await?;
    pipeline::set_up(&connection, 3).await?;
    pipeline::run(&connection).await?;
    Ok(())
}
