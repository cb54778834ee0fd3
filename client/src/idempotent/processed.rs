//! Note and effect in one transaction.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::worker::{HandlerError, Message};

/// What a handler made by [`once`] gives.
pub type Handled<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// A table, in the database of the effects, of messages that were processed.
///
/// [`once`] calls [`begin`](Self::begin), then [`note`](Self::note), and after the effect
/// [`commit`](Self::commit). A transaction that is dropped must leave nothing behind.
pub trait ProcessedTable: Send + Sync + 'static {
    /// A transaction of that database.
    type Transaction: Send;
    /// What goes wrong.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Begins a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, Self::Error>> + Send;

    /// Notes within the transaction that the message was processed; false if that was noted
    /// before. When another transaction has noted it and is not over, this one waits for its end.
    fn note(
        &self,
        transaction: &mut Self::Transaction,
        message: &Message,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Makes note and effect last, together.
    fn commit(
        &self,
        transaction: Self::Transaction,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Gives up note and effect, together.
    fn roll_back(
        &self,
        transaction: Self::Transaction,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Removes what was noted longer ago than this, and says how many. A record that comes again
    /// after that is processed again.
    fn forget(&self, older_than: Duration)
    -> impl Future<Output = Result<u64, Self::Error>> + Send;
}

/// A handler for a [`Worker`](crate::Worker) that runs `effect` once for each message id, in a
/// transaction of the table. See the [module](crate::idempotent).
///
/// When the effect fails nothing of it stays, nothing is noted, and the record is what its
/// [`HandlerError`] says. When the database fails the record comes again. A message without an id
/// (no broker gives one) is refused for good, with the code `message_id`.
#[cfg_attr(
    feature = "sqlite",
    doc = r#"
```
use varvelog_client::idempotent::{SqliteTable, once};
use varvelog_client::{Connection, HandlerError, Worker};
# use varvelog_client::{Admin, NewTopic, Producer, Record};
# use varvelog_broker::config::{Config, FileText, Sources};
# async fn broker(data: &std::path::Path) -> varvelog_broker::BrokerHandle {
#     let any = "127.0.0.1:0";
#     let text = format!("data_dir = {data:?}\nlisten = '{any}'\nhttp_listen = '{any}'");
#     let file = Some(FileText { name: "varvelog.toml".into(), text });
#     let config = Config::load(&Sources { file, ..Sources::default() }).unwrap();
#     varvelog_broker::start(config).await.unwrap()
# }
#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    # let data = tempfile::tempdir()?;
    # let broker = broker(data.path()).await;
    # let address = broker.grpc_addr().to_string();
    let connection = Connection::open(address).await?;
    # Admin::new(&connection).create_topic(NewTopic::new("payments")).await?;
    # let producer = Producer::config().message_ids(true).open(&connection, "payments").await?;
    # for _ in 0..2 { producer.send(Record::new("25").message_id("payment-1")).await?.await?; }
    # producer.close().await?;
    # let file = format!("sqlite://{}?mode=rwc", data.path().join("shop.db").display());
    let pool = sqlx::SqlitePool::connect(&file).await?;
    sqlx::query("CREATE TABLE account (cents INTEGER NOT NULL)").execute(&pool).await?;
    let table = SqliteTable::open(pool.clone(), "booking").await?;
    let book = once(table, |message, transaction| {
        Box::pin(async move {
            let text = std::str::from_utf8(message.value().unwrap_or_default())
                .map_err(HandlerError::decode)?;
            let cents: i64 = text.parse().map_err(HandlerError::decode)?;
            sqlx::query("INSERT INTO account VALUES (?)")
                .bind(cents)
                .execute(&mut **transaction)
                .await?;
            Ok(())
        })
    });
    let worker = Worker::builder(&connection, "booking").topics(["payments"]);
    # let worker = worker.limit(1);
    worker.handler(book).run().await?;
    # let sum = "SELECT sum(cents) FROM account";
    # let booked: i64 = sqlx::query_scalar(sum).fetch_one(&pool).await?;
    # assert_eq!(booked, 25);
    # broker.stop().await?;
    Ok(())
}
```
"#
)]
pub fn once<T, E>(
    table: T,
    effect: E,
) -> impl Fn(Message) -> Handled<'static> + Send + Sync + 'static
where
    T: ProcessedTable,
    E: for<'a> Fn(&'a Message, &'a mut T::Transaction) -> Handled<'a> + Send + Sync + 'static,
{
    let shared = Arc::new((table, effect));
    move |message| {
        let shared = Arc::clone(&shared);
        Box::pin(async move {
            let (table, effect) = &*shared;
            process(table, effect, &message).await
        })
    }
}

async fn process<T, E>(table: &T, effect: &E, message: &Message) -> Result<(), HandlerError>
where
    T: ProcessedTable,
    E: for<'a> Fn(&'a Message, &'a mut T::Transaction) -> Handled<'a> + Send + Sync,
{
    if message.message_id().is_empty() {
        return Err(HandlerError::permanent(
            "message_id",
            "the message has no id to be known by",
        ));
    }
    let mut transaction = table.begin().await?;
    if !table.note(&mut transaction, message).await? {
        tracing::debug!(
            id = message.message_id(),
            "the message was processed before"
        );
        table.roll_back(transaction).await?;
        return Ok(());
    }
    if let Err(failed) = effect(message, &mut transaction).await {
        // What the effect said counts; a connection that cannot roll back is given up.
        if let Err(error) = table.roll_back(transaction).await {
            tracing::warn!(%error, "a failed effect could not be rolled back by itself");
        }
        return Err(failed);
    }
    table.commit(transaction).await?;
    Ok(())
}

/// The table, in both dialects, and an index for [`ProcessedTable::forget`].
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS varvelog_processed (
        group_name TEXT NOT NULL,
        topic TEXT NOT NULL,
        message_id TEXT NOT NULL,
        noted_at BIGINT NOT NULL,
        PRIMARY KEY (group_name, topic, message_id)
    )",
    "CREATE INDEX IF NOT EXISTS varvelog_processed_noted_at ON varvelog_processed (noted_at)",
];

/// Rows that one statement removes at most, so that it holds no lock for long.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) const FORGOTTEN_AT_ONCE: i64 = 10_000;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn seconds(age: Duration) -> i64 {
    i64::try_from(age.as_secs()).unwrap_or(i64::MAX)
}
