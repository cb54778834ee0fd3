//! Where records go: through the client's producer, or without waiting for any answer.

use std::collections::VecDeque;

use futures_util::FutureExt as _;
use varvelog_client::{Producer, Record, SendError, Ticket};
use varvelog_proto::v1;

use crate::connect::Connection;
use crate::failure::Failure;

/// Tickets kept at a time, so that what is known about lines is bounded.
const TICKETS_MAX: usize = 65_536;
/// A request without answer is sent when it holds so many records or bytes.
const UNANSWERED_RECORDS_MAX: usize = 1000;
const UNANSWERED_BYTES_MAX: usize = 256 << 10;

/// What became of a line.
#[derive(Debug)]
pub(super) struct Settled {
    /// From 1.
    pub(super) line: u64,
    /// Its length.
    pub(super) bytes: u64,
    /// Whether it had been appended before, or why it was not.
    pub(super) outcome: Result<bool, SendError>,
}

/// Records on their way through a producer, oldest first.
#[derive(Debug)]
pub(super) struct Committed {
    producer: Producer,
    tickets: VecDeque<(u64, u64, Ticket)>,
}

impl Committed {
    pub(super) fn new(producer: Producer) -> Self {
        Self {
            producer,
            tickets: VecDeque::new(),
        }
    }

    /// Sends a record, and takes in what has been answered meanwhile.
    pub(super) async fn send(
        &mut self,
        line: u64,
        bytes: u64,
        record: Record,
        settled: &mut Vec<Settled>,
    ) {
        match self.producer.send(record).await {
            Ok(ticket) => self.tickets.push_back((line, bytes, ticket)),
            Err(error) => settled.push(Settled {
                line,
                bytes,
                outcome: Err(error),
            }),
        }
        self.take_answered(settled);
        if self.tickets.len() >= TICKETS_MAX {
            self.take_oldest(settled).await;
        }
    }

    /// Waits until every record is answered.
    pub(super) async fn finish(mut self, settled: &mut Vec<Settled>) {
        // Each ticket says what became of its record, so the flush adds nothing but haste.
        drop(self.producer.flush().await);
        while !self.tickets.is_empty() {
            self.take_oldest(settled).await;
        }
        drop(self.producer.close().await);
    }

    fn take_answered(&mut self, settled: &mut Vec<Settled>) {
        while let Some((line, bytes, ticket)) = self.tickets.front_mut() {
            let Some(answer) = ticket.now_or_never() else {
                return;
            };
            settled.push(Settled {
                line: *line,
                bytes: *bytes,
                outcome: answer.map(|it| it.duplicate),
            });
            self.tickets.pop_front();
        }
    }

    async fn take_oldest(&mut self, settled: &mut Vec<Settled>) {
        if let Some((line, bytes, ticket)) = self.tickets.pop_front() {
            settled.push(Settled {
                line,
                bytes,
                outcome: ticket.await.map(|it| it.duplicate),
            });
        }
    }
}

/// Records that nobody vouches for.
#[derive(Debug)]
pub(super) struct Unanswered {
    connection: Connection,
    topic: String,
    records: Vec<v1::NewRecord>,
    bytes: usize,
}

impl Unanswered {
    pub(super) fn new(connection: Connection, topic: String) -> Self {
        Self {
            connection,
            topic,
            records: Vec::new(),
            bytes: 0,
        }
    }

    /// Gathers a record; the number of records that were sent because of it.
    pub(super) async fn send(&mut self, record: v1::NewRecord) -> Result<u64, Failure> {
        self.bytes += record.value.as_ref().map_or(0, bytes::Bytes::len);
        self.records.push(record);
        let full =
            self.records.len() >= UNANSWERED_RECORDS_MAX || self.bytes >= UNANSWERED_BYTES_MAX;
        if full { self.flush().await } else { Ok(0) }
    }

    /// Sends what was gathered; the number of records.
    pub(super) async fn flush(&mut self) -> Result<u64, Failure> {
        if self.records.is_empty() {
            return Ok(0);
        }
        let records = std::mem::take(&mut self.records);
        self.bytes = 0;
        let count = records.len() as u64;
        let request = self.connection.request(v1::ProduceRequest {
            topic: self.topic.clone(),
            records,
            acks: v1::Acks::None.into(),
            ..v1::ProduceRequest::default()
        });
        self.connection
            .answer(self.connection.log().produce(request))
            .await?;
        Ok(count)
    }
}
