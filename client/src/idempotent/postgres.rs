//! In PostgreSQL.

use std::time::Duration;

use sqlx::{PgPool, Postgres, Transaction};

use super::processed::{CREATE, FORGOTTEN_AT_ONCE, ProcessedTable, seconds};
use crate::worker::Message;

/// The table in a PostgreSQL database. Two transactions with the same message wait for each other,
/// others do not.
#[derive(Debug, Clone)]
pub struct PostgresTable {
    pool: PgPool,
    group: String,
}

impl PostgresTable {
    /// The table of this group, which is made in the first schema of the search path if it is not
    /// there. Of several groups that share a database each has its own notes.
    pub async fn open(pool: PgPool, group: impl Into<String>) -> Result<Self, sqlx::Error> {
        let mut transaction = pool.begin().await?;
        // Two that make the table at the same time would get in each other's way.
        sqlx::query("SELECT pg_advisory_xact_lock(hashtext('varvelog_processed'))")
            .execute(&mut *transaction)
            .await?;
        for statement in CREATE {
            sqlx::query(statement).execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        let group = group.into();
        Ok(Self { pool, group })
    }
}

impl ProcessedTable for PostgresTable {
    type Transaction = Transaction<'static, Postgres>;
    type Error = sqlx::Error;

    async fn begin(&self) -> Result<Self::Transaction, sqlx::Error> {
        self.pool.begin().await
    }

    async fn note(
        &self,
        transaction: &mut Self::Transaction,
        message: &Message,
    ) -> Result<bool, sqlx::Error> {
        let statement = "INSERT INTO varvelog_processed (group_name, topic, message_id, noted_at)
             VALUES ($1, $2, $3, extract(epoch FROM now())::bigint) ON CONFLICT DO NOTHING";
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
        let statement = "DELETE FROM varvelog_processed WHERE ctid IN (
                 SELECT ctid FROM varvelog_processed
                 WHERE noted_at < extract(epoch FROM now())::bigint - $1 AND group_name = $2
                 LIMIT $3)";
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
