//! What a send promises.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use varvelog_proto::v1::Durability;

use super::error::SendError;
use crate::record::Record;

/// Where a record went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// From 0.
    pub partition: u32,
    /// In its partition.
    pub offset: i64,
    /// Of the partition.
    pub epoch: i32,
    /// An earlier try had appended it.
    pub duplicate: bool,
    /// What the broker vouches for.
    pub durability: Durability,
}

/// Resolves when a record is appended or given up. Dropping it changes nothing about the record;
/// [`Producer::flush`](super::Producer::flush) tells of failures all the same.
#[derive(Debug)]
#[must_use = "a ticket says whether the record arrived"]
pub struct Ticket(oneshot::Receiver<Result<Appended, SendError>>);

impl Future for Ticket {
    type Output = Result<Appended, SendError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|answer| answer.unwrap_or(Err(SendError::Lost)))
    }
}

/// A record with those who wait for it.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) record: Record,
    pub(super) sender: oneshot::Sender<Result<Appended, SendError>>,
    /// Its share of the buffer, given back when it is settled.
    pub(super) room: OwnedSemaphorePermit,
}

impl Item {
    pub(super) fn new(record: Record, room: OwnedSemaphorePermit) -> (Self, Ticket) {
        let (sender, receiver) = oneshot::channel();
        (
            Self {
                record,
                sender,
                room,
            },
            Ticket(receiver),
        )
    }

    /// Tell whoever waits, if anybody still does.
    pub(super) fn settle(self, outcome: Result<Appended, SendError>) {
        drop(self.room);
        drop(self.sender.send(outcome));
    }
}
