use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::record::ReadRecord;
use crate::worker::{HandlerError, Message};

/// A database of one table of effects.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Contents>>);

#[derive(Debug, Clone, Default)]
struct Contents {
    noted: HashSet<String>,
    effects: Vec<String>,
    fails_to_commit: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the database is gone")]
struct Gone;

impl ProcessedTable for Memory {
    type Transaction = Contents;
    type Error = Gone;

    async fn begin(&self) -> Result<Contents, Gone> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn note(&self, transaction: &mut Contents, message: &Message) -> Result<bool, Gone> {
        Ok(transaction.noted.insert(message.message_id().to_owned()))
    }

    async fn commit(&self, transaction: Contents) -> Result<(), Gone> {
        if transaction.fails_to_commit {
            return Err(Gone);
        }
        *self.0.lock().unwrap() = transaction;
        Ok(())
    }

    async fn roll_back(&self, _transaction: Contents) -> Result<(), Gone> {
        Ok(())
    }

    async fn forget(&self, _older_than: Duration) -> Result<u64, Gone> {
        Ok(0)
    }
}

fn message(id: &str) -> Message {
    let record = ReadRecord {
        message_id: id.into(),
        ..ReadRecord::default()
    };
    Message::new("payments", 0, 1, record)
}

fn booking(memory: &Memory) -> impl Fn(Message) -> Handled<'static> {
    once(memory.clone(), |message, transaction: &mut Contents| {
        Box::pin(async move {
            transaction.effects.push(message.message_id().to_owned());
            if message.message_id().starts_with("bad") {
                return Err(HandlerError::permanent("bad", "as its name says"));
            }
            Ok(())
        })
    })
}

fn effects(memory: &Memory) -> Vec<String> {
    memory.0.lock().unwrap().effects.clone()
}

#[tokio::test]
async fn a_message_that_comes_again_is_done_without_an_effect() {
    let memory = Memory::default();
    let handle = booking(&memory);
    for id in ["a", "b", "a", "a", "b"] {
        handle(message(id)).await.unwrap();
    }
    assert_eq!(effects(&memory), ["a", "b"]);
}

#[tokio::test]
async fn an_effect_that_fails_leaves_nothing_and_may_be_tried_again() {
    let memory = Memory::default();
    let handle = booking(&memory);
    for _ in 0..2 {
        let failed = handle(message("bad-1")).await.unwrap_err();
        assert_eq!(failed.failure().code(), "bad");
    }
    assert!(effects(&memory).is_empty() && memory.0.lock().unwrap().noted.is_empty());
}

#[tokio::test]
async fn a_message_whose_transaction_cannot_commit_comes_again() {
    let memory = Memory::default();
    let handle = booking(&memory);
    memory.0.lock().unwrap().fails_to_commit = true;
    let failed = handle(message("a")).await.unwrap_err();
    assert_eq!(
        failed.failure().action(),
        varvelog_proto::v1::FailureAction::Retry
    );
    memory.0.lock().unwrap().fails_to_commit = false;
    handle(message("a")).await.unwrap();
    assert_eq!(effects(&memory), ["a"]);
}

#[tokio::test]
async fn a_message_without_an_id_is_refused_for_good() {
    let failed = booking(&Memory::default())(message("")).await.unwrap_err();
    assert_eq!(failed.failure().code(), "message_id");
}
