//! The processed table of one database or another: what every one of them must do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::SqlitePool;
use varvelog_client::idempotent::{ProcessedTable, SqliteTable, once};
use varvelog_client::{HandlerError, Message, ReadRecord};

pub(super) fn message(topic: &str, id: &str) -> Message {
    let record = ReadRecord {
        message_id: id.into(),
        ..ReadRecord::default()
    };
    Message::new(topic, 0, 1, record)
}

/// Two workers with the same record at the same time: one effect, and both are done.
pub(super) async fn two_at_once_are_one<T: ProcessedTable + Clone>(table: T) {
    let effects = Arc::new(AtomicU32::new(0));
    let handler = {
        let effects = Arc::clone(&effects);
        Arc::new(once(table, move |_message, _transaction| {
            let effects = Arc::clone(&effects);
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                effects.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
        }))
    };
    let works = (0..4).map(|_| {
        let handler = Arc::clone(&handler);
        tokio::spawn(async move { handler(message("t", "same")).await })
    });
    for work in works.collect::<Vec<_>>() {
        work.await.unwrap().unwrap();
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
}

/// An effect that fails leaves no note, so the next try has its effect; then none has.
pub(super) async fn a_failure_leaves_no_note<T: ProcessedTable + Clone>(table: T) {
    let tries = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&tries);
    let handler = once(table, move |_message, _transaction| {
        let number = seen.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if number == 0 {
                return Err(HandlerError::transient("flaky", "the first time"));
            }
            Ok(())
        })
    });
    assert!(handler(message("t", "a")).await.is_err());
    for _ in 0..3 {
        handler(message("t", "a")).await.unwrap();
    }
    assert_eq!(tries.load(Ordering::SeqCst), 2);
    // The same id in another topic is another message.
    handler(message("u", "a")).await.unwrap();
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}

/// Notes go by their age, and those of other groups stay.
pub(super) async fn notes_go_by_age<T: ProcessedTable>(table: &T, other: &T) {
    let note = async |table: &T, id: &str| {
        let mut transaction = table.begin().await.unwrap();
        let noted = table
            .note(&mut transaction, &message("t", id))
            .await
            .unwrap();
        table.commit(transaction).await.unwrap();
        noted
    };
    assert!(note(table, "old").await && note(other, "old").await);
    assert_eq!(table.forget(Duration::from_hours(1)).await.unwrap(), 0);
    assert!(!note(table, "old").await);
    // Whole seconds are kept: what is younger than one is never older than none.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(table.forget(Duration::ZERO).await.unwrap(), 1);
    assert!(note(table, "old").await);
    assert!(!note(other, "old").await);
}

async fn pool(folder: &tempfile::TempDir) -> SqlitePool {
    let file = folder.path().join("effects.db");
    let address = format!("sqlite://{}?mode=rwc", file.display());
    SqlitePool::connect(&address).await.unwrap()
}

#[tokio::test]
async fn sqlite_notes_each_message_once() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder).await;
    let table = |group: &'static str| SqliteTable::open(pool.clone(), group);
    two_at_once_are_one(table("a").await.unwrap()).await;
    a_failure_leaves_no_note(table("b").await.unwrap()).await;
    notes_go_by_age(&table("c").await.unwrap(), &table("d").await.unwrap()).await;
}

#[tokio::test]
async fn sqlite_keeps_nothing_of_an_effect_whose_task_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let pool = pool(&folder).await;
    sqlx::query("CREATE TABLE effects (id TEXT)")
        .execute(&pool)
        .await
        .unwrap();
    let table = SqliteTable::open(pool.clone(), "g").await.unwrap();
    let hang = once(table.clone(), |_message, transaction| {
        Box::pin(async move {
            sqlx::query("INSERT INTO effects VALUES ('x')")
                .execute(&mut **transaction)
                .await?;
            std::future::pending().await
        })
    });
    let dropped = tokio::time::timeout(Duration::from_millis(200), hang(message("t", "a"))).await;
    assert!(dropped.is_err());
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effects")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(effects, 0);
    let mut transaction = table.begin().await.unwrap();
    assert!(
        table
            .note(&mut transaction, &message("t", "a"))
            .await
            .unwrap()
    );
    table.roll_back(transaction).await.unwrap();
}
