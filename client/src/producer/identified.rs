//! The task of a producer whose records have message ids: one request after the other, each sent
//! again until it is answered. The ids, or an id of the request, keep a record from being doubled.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tonic::Code;
use varvelog_proto::v1;

use super::config::ProducerConfig;
use super::driver::Command;
use super::error::SendError;
use super::pressure::Pressure;
use super::ticket::{Appended, Item};
use crate::clock;
use crate::connection::{Connection, answer};
use crate::error::CallError;
use crate::record::Record;
use crate::retry;

/// Records of one request.
const RECORDS_MAX: usize = 1_000;

/// State of one producer.
pub(super) struct Identified {
    config: ProducerConfig,
    connection: Connection,
    topic: String,
    /// For how long the broker knows an id again.
    window: Duration,
    first_failure: Option<SendError>,
    /// What the handles are told while the broker refuses.
    pressure: Pressure,
}

impl Identified {
    pub(super) fn new(
        config: ProducerConfig,
        connection: Connection,
        (topic, window): (String, Duration),
        pressure: Pressure,
    ) -> Self {
        Self {
            config,
            connection,
            topic,
            window,
            first_failure: None,
            pressure,
        }
    }

    /// Until all handles are gone, or one closed it, and everything is settled.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        buffer: Arc<Semaphore>,
    ) {
        let mut taken = Vec::with_capacity(RECORDS_MAX);
        while commands.recv_many(&mut taken, RECORDS_MAX).await > 0 {
            let (mut items, mut bytes) = (Vec::new(), 0);
            for command in taken.drain(..) {
                match command {
                    Command::Record(item) => {
                        let more = item.record.buffer_bytes();
                        if bytes + more > self.config.request_bytes {
                            self.append(std::mem::take(&mut items)).await;
                            bytes = 0;
                        }
                        bytes += more;
                        items.push(item);
                    }
                    Command::Flush(done) => {
                        self.append(std::mem::take(&mut items)).await;
                        drop(done.send(self.first_failure.take().map_or(Ok(()), Err)));
                    }
                    Command::Close(done) => {
                        buffer.close();
                        commands.close();
                        self.append(std::mem::take(&mut items)).await;
                        drop(done.send(self.first_failure.take().map_or(Ok(()), Err)));
                    }
                }
            }
            self.append(items).await;
        }
    }

    /// Appends records in their order. Where one of several is at fault, each goes alone.
    async fn append(&mut self, items: Vec<Item>) {
        if items.is_empty() {
            return;
        }
        let outcome = self.send(&items).await;
        let at_fault = outcome.as_ref().is_err_and(is_at_fault);
        if items.len() > 1 && at_fault {
            for item in items {
                let outcome = self.send(std::slice::from_ref(&item)).await;
                self.settle(vec![item], outcome);
            }
        } else {
            self.settle(items, outcome);
        }
    }

    async fn send(&self, items: &[Item]) -> Result<v1::ProduceResponse, SendError> {
        let records: Vec<v1::NewRecord> = items.iter().map(|it| message(&it.record)).collect();
        let wanted = records.len();
        let request = v1::ProduceRequest {
            topic: self.topic.clone(),
            request_id: self.request_id(items),
            records,
            ..Default::default()
        };
        let after = self.config.delivery_timeout;
        let give_up_at = clock::now() + after;
        let mut delays = self.config.backoff.delays(retry::roll);
        let mut may_have_applied = false;
        let mut pressed_at = None;
        loop {
            let error = match self.call(request.clone(), give_up_at).await {
                Ok(response) if response.results.len() == wanted => {
                    self.pressure.set(None);
                    return Ok(response);
                }
                Ok(_) => CallError::local(Code::Internal, "another number of results"),
                Err(error) => error,
            };
            may_have_applied |= error.may_have_applied();
            if !error.is_retryable() {
                return Err(SendError::Refused {
                    error,
                    may_have_applied,
                });
            }
            let delay = delays.next().unwrap_or_default();
            let delay = delay.max(error.retry_after().unwrap_or_default());
            let is_pressed = error.is_backpressure();
            self.pressure.set(Some(&error).filter(|_| is_pressed));
            pressed_at = is_pressed.then(|| pressed_at.unwrap_or_else(clock::now));
            let pressed_for = pressed_at.map_or(Duration::ZERO, |at| clock::now() - at);
            if is_pressed && pressed_for + delay >= self.config.max_block {
                return Err(SendError::Backpressure {
                    waited: pressed_for,
                    error,
                    may_have_applied,
                });
            }
            if clock::now() + delay >= give_up_at {
                return Err(SendError::TimedOut {
                    after,
                    may_have_applied,
                    last: Some(error),
                });
            }
            tracing::debug!(topic = self.topic, %error, ?delay, "records are sent again");
            tokio::time::sleep(delay).await;
        }
    }

    async fn call(
        &self,
        request: v1::ProduceRequest,
        give_up_at: Instant,
    ) -> Result<v1::ProduceResponse, CallError> {
        let limit = give_up_at.min(clock::now() + self.config.request_timeout);
        let mut log = self.connection.log();
        let call = log.produce(self.connection.request(request));
        match tokio::time::timeout_at(limit, call).await {
            Ok(response) => answer(response),
            Err(_elapsed) => Err(CallError::local(
                Code::DeadlineExceeded,
                "no answer in time",
            )),
        }
    }

    /// Makes a request safe to send again where the ids of its records do not.
    fn request_id(&self, items: &[Item]) -> String {
        let longest = self.config.delivery_timeout + self.config.request_timeout;
        let all_have = items.iter().all(|it| it.record.message_id.is_some());
        if all_have && self.window > longest {
            return String::new();
        }
        format!("{:032x}", rand::random::<u128>())
    }

    fn settle(&mut self, items: Vec<Item>, outcome: Result<v1::ProduceResponse, SendError>) {
        match outcome {
            Ok(response) => {
                let durability = response.durability();
                for (item, result) in items.into_iter().zip(response.results) {
                    item.settle(Ok(Appended {
                        partition: u32::try_from(result.partition).unwrap_or_default(),
                        offset: result.offset,
                        epoch: result.epoch,
                        duplicate: result.duplicate,
                        durability,
                    }));
                }
            }
            Err(error) => {
                let records = items.len();
                tracing::warn!(topic = self.topic, records, %error, "records were not delivered");
                self.first_failure.get_or_insert_with(|| error.clone());
                for item in items {
                    item.settle(Err(error.clone()));
                }
            }
        }
    }
}

/// Whether some record of the request can never be sent.
fn is_at_fault(error: &SendError) -> bool {
    let SendError::Refused { error, .. } = error else {
        return false;
    };
    error.code() == Code::InvalidArgument
}

fn message(record: &Record) -> v1::NewRecord {
    let header = |(name, value): &(bytes::Bytes, Option<bytes::Bytes>)| {
        let name = String::from_utf8_lossy(name).into_owned();
        (name, value.clone().unwrap_or_default())
    };
    v1::NewRecord {
        key: record.key.clone(),
        value: record.value.clone(),
        headers: record.headers.iter().map(header).collect(),
        partition: record.partition.and_then(|it| i32::try_from(it).ok()),
        timestamp_ms: record.timestamp_ms,
        delay: None,
        message_id: record.message_id.clone().unwrap_or_default(),
    }
}
