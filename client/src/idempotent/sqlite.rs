//! In SQLite.

use std::time::Duration;

use sqlx::{Sqlite, SqlitePool, Transaction};

use super::processed::{CREATE, FORGOTTEN_AT_ONCE, ProcessedTable, seconds};
use crate::worker::Message;

/// The table in a SQLite database. Transactions take the write lock as they begin, so they wait
/// for each other, for as long as the pool's `busy_timeout` says (5 s by default).
#[derive(Debug, Clone)]
pub struct SqliteTable {
    pool: SqlitePool,
    group: String,
}

impl SqliteTable {
    /// The table of this group, which is made if it is not there. Of several groups that share a
    /// database each has its own notes.
    pub async fn open(pool: SqlitePool, group: impl Into<String>) -> Result<Self, sqlx::Error> {
        for statement in CREATE {
            sqlx::query(statement).execute(&pool).await?;
        }
        let group = group.into();
        Ok(Self { pool, group })
    }
}

impl ProcessedTable for SqliteTable {
    type Transaction = Transaction<'static, Sqlite>;
    type Error = sqlx::Error;

    async fn begin(&self) -> Result<Self::Transaction, sqlx::Error> {
        // One that began as a reader could not become a writer behind another.
        self.pool.begin_with("BEGIN IMMEDIATE").await
    }

    async fn note(
        &self,
        transaction: &mut Self::Transaction,
        message: &Message,
    ) -> Result<bool, sqlx::Error> {
        let statement = "INSERT INTO varvelog_processed (group_name, topic, message_id, noted_at)
             VALUES (?, ?, ?, unixepoch()) ON CONFLICT DO NOTHING";
        let noted = sqlx::query(statement)
            .bind(&self.group)
            .bind(message.topic())
            .bind(message.message_id())
            .execute(&mut **transaction)
            .await?;
        Ok(noted.rows_affected() == 1)
    }

    async fn commit(&self, transaction: Self::Transaction) -> Result<(), sqlx::Error> {
        transaction.commit().await
    }

    async fn roll_back(&self, transaction: Self::Transaction) -> Result<(), sqlx::Error> {
        transaction.rollback().await
    }

    async fn forget(&self, older_than: Duration) -> Result<u64, sqlx::Error> {
        let statement = "DELETE FROM varvelog_processed WHERE rowid IN (
                 SELECT rowid FROM varvelog_processed
                 WHERE noted_at < unixepoch() - ? AND group_name = ? LIMIT ?)";
        let mut forgotten = 0;
        loop {
            let gone = sqlx::query(statement)
                .bind(seconds(older_than))
                .bind(&self.group)
                .bind(FORGOTTEN_AT_ONCE)
                .execute(&self.pool)
                .await?
                .rows_affected();
            forgotten += gone;
            if gone == 0 {
                return Ok(forgotten);
            }
        }
    }
}
