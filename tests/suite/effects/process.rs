//! A worker that is a process of its own, so that it can be killed like one: this test binary,
//! started again with a part to play.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rand::RngExt;
use sqlx::{PgPool, Postgres, Sqlite, SqlitePool, Transaction};
use varvelog_client::idempotent::{PostgresTable, SqliteTable, once};
use varvelog_client::{Connection, HandlerError, Message, Worker};

/// How a worker keeps an effect from being doubled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keeping {
    /// By the processed table.
    Table,
    /// Not at all.
    Nothing,
}

const SERVER: &str = "EFFECTS_SERVER";
const DATABASE: &str = "EFFECTS_DATABASE";
const TABLE: &str = "EFFECTS_TABLE";

/// Group of the workers.
pub(super) const GROUP: &str = "booking";
/// Topic that they work at.
pub(super) const TOPIC: &str = "payments";
/// Value of a record that no effect can be made of.
pub(super) const POISON: &str = "poison";

/// A worker's process.
pub(super) struct WorkerProcess(Child);

impl WorkerProcess {
    /// With its effects in the database at `url`.
    pub(super) fn start(server: &str, url: &str, keeping: Keeping) -> Self {
        let test = std::env::current_exe().expect("a test knows its own path");
        let child = Command::new(test)
            .args(["--exact", "effects::process::a_worker_process", "--ignored"])
            .env(SERVER, server)
            .env(DATABASE, url)
            .env(TABLE, if keeping == Keeping::Table { "1" } else { "" })
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test can be started again");
        Self(child)
    }

    /// Without a word to anybody.
    pub(super) fn kill(mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ends");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Where effects happen: each is a row.
#[derive(Debug, Clone)]
pub(super) enum Database {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Database {
    /// By its URL; the table of the effects is there then.
    pub(super) async fn open(url: &str) -> Self {
        let effects = "CREATE TABLE IF NOT EXISTS effects (message_id TEXT NOT NULL)";
        if url.starts_with("postgres:") {
            let pool = PgPool::connect(url).await.unwrap();
            // Two at once may both find none.
            drop(sqlx::query(effects).execute(&pool).await);
            return Self::Postgres(pool);
        }
        let pool = SqlitePool::connect(url).await.unwrap();
        // Workers are killed, not the machine: what a transaction wrote is safe in the page cache.
        for statement in ["PRAGMA journal_mode = WAL", effects] {
            sqlx::query(statement).execute(&pool).await.unwrap();
        }
        Self::Sqlite(pool)
    }

    /// How often each effect happened.
    pub(super) async fn counts(&self) -> BTreeMap<String, u64> {
        let all = "SELECT message_id, count(*) FROM effects GROUP BY message_id";
        let rows: Vec<(String, i64)> = match self {
            Self::Sqlite(pool) => sqlx::query_as(all).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_as(all).fetch_all(pool).await.unwrap(),
        };
        let rows = rows.into_iter();
        rows.map(|(id, count)| (id, u64::try_from(count).unwrap()))
            .collect()
    }
}

fn a_moment() -> Duration {
    Duration::from_millis(rand::rng().random_range(0..8))
}

/// What can become of an effect whose row is written.
async fn chance(message: &Message) -> Result<(), HandlerError> {
    if message.value() == Some(POISON.as_bytes()) {
        let text = "nothing can be made of it";
        return Err(HandlerError::permanent("poison", text));
    }
    tokio::time::sleep(a_moment()).await;
    if rand::rng().random_ratio(1, 5) {
        return Err(HandlerError::transient("flaky", "one time in five"));
    }
    Ok(())
}

async fn in_sqlite(
    message: &Message,
    transaction: &mut Transaction<'static, Sqlite>,
) -> Result<(), HandlerError> {
    sqlx::query("INSERT INTO effects VALUES (?)")
        .bind(message.message_id())
        .execute(&mut **transaction)
        .await?;
    chance(message).await
}

async fn in_postgres(
    message: &Message,
    transaction: &mut Transaction<'static, Postgres>,
) -> Result<(), HandlerError> {
    sqlx::query("INSERT INTO effects VALUES ($1)")
        .bind(message.message_id())
        .execute(&mut **transaction)
        .await?;
    chance(message).await
}

/// The effect in a transaction of its own. What comes behind the commit can fail too.
async fn alone(database: Database, message: Message) -> Result<(), HandlerError> {
    match database {
        Database::Sqlite(pool) => {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            in_sqlite(&message, &mut transaction).await?;
            transaction.commit().await?;
        }
        Database::Postgres(pool) => {
            let mut transaction = pool.begin().await?;
            in_postgres(&message, &mut transaction).await?;
            transaction.commit().await?;
        }
    }
    tokio::time::sleep(a_moment()).await;
    Ok(())
}

#[tokio::test]
#[ignore = "the part of a worker, played for other tests"]
async fn a_worker_process() {
    let Ok(server) = std::env::var(SERVER) else {
        return;
    };
    let database = Database::open(&std::env::var(DATABASE).unwrap()).await;
    let keeps = !std::env::var(TABLE).unwrap().is_empty();
    loop {
        work(&server, &database, keeps).await;
        // A broker that is away ends a worker, and a supervisor starts it again.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn work(server: &str, database: &Database, keeps: bool) {
    let Ok(connection) = Connection::open(server.to_owned()).await else {
        return;
    };
    let worker = Worker::builder(&connection, GROUP)
        .topics([TOPIC])
        .concurrency(4);
    let ended = match database.clone() {
        database if !keeps => {
            let handler = move |message| alone(database.clone(), message);
            worker.handler(handler).run().await
        }
        Database::Sqlite(pool) => {
            let table = SqliteTable::open(pool, GROUP).await.unwrap();
            let handler = once(table, |message, transaction| {
                Box::pin(in_sqlite(message, transaction))
            });
            worker.handler(handler).run().await
        }
        Database::Postgres(pool) => {
            let table = PostgresTable::open(pool, GROUP).await.unwrap();
            let handler = once(table, |message, transaction| {
                Box::pin(in_postgres(message, transaction))
            });
            worker.handler(handler).run().await
        }
    };
    drop(ended);
}
