//! The producer as its users hold it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use varvelog_proto::v1;

use super::config::ProducerConfig;
use super::driver::{Command, Driver};
use super::error::{RecordError, SendError};
use super::identified::Identified;
use super::lane::Identity;
use super::pressure::Pressure;
use super::ticket::{Item, Ticket};
use crate::clock;
use crate::connection::{Connection, answer};
use crate::error::CallError;
use crate::record::Record;
use crate::retry;

/// Records on their way from senders to the driver.
const COMMANDS_MAX: usize = 16_384;

/// The most partitions of a topic.
const PARTITIONS_MAX: u32 = 10_000;

/// Appends records to one topic. Cheap to clone; clones share everything.
///
/// When the last clone is dropped, what was sent is still delivered in the background, as long as
/// the runtime lives; [`close`](Self::close) waits for it.
#[derive(Debug, Clone)]
pub struct Producer {
    commands: mpsc::Sender<Command>,
    buffer: Arc<Semaphore>,
    buffer_bytes: usize,
    max_block: Duration,
    topic: Arc<str>,
    message_ids: bool,
    pressure: Pressure,
}

/// Why there is no producer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("no producer for topic {topic:?}: {error}")]
pub struct OpenError {
    /// As asked for.
    pub topic: String,
    /// What the broker, or the way to it, answered last.
    #[source]
    pub error: CallError,
}

impl Producer {
    /// A producer with default settings; see [`ProducerConfig::open`].
    pub async fn open(
        connection: &Connection,
        topic: impl Into<String>,
    ) -> Result<Self, OpenError> {
        ProducerConfig::default().open(connection, topic).await
    }

    /// Settings to open one with.
    pub fn config() -> ProducerConfig {
        ProducerConfig::default()
    }

    /// The topic it appends to.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Send a record: waits for room in the buffer, not for the answer, which is the ticket's.
    /// Records of one key sent one after the other keep their order.
    pub async fn send(&self, record: Record) -> Result<Ticket, SendError> {
        check(&record, self.message_ids)?;
        let slot = self.reserve(record.buffer_bytes()).await?;
        slot.submit(record)
    }

    /// Send a record if there is room now.
    pub fn try_send(&self, record: Record) -> Result<Ticket, SendError> {
        check(&record, self.message_ids)?;
        let wanted = self.fits(record.buffer_bytes())?;
        match self.try_reserve(wanted)? {
            Some(slot) => slot.submit(record),
            None => Err(self.full(Duration::ZERO)),
        }
    }

    /// Wait for room for a record of `bytes`, as [`Record::buffer_bytes`] counts them, at most
    /// [`max_block`](ProducerConfig::max_block).
    pub async fn reserve(&self, bytes: usize) -> Result<Slot, SendError> {
        let wanted = self.fits(bytes)?;
        if let Some(slot) = self.try_reserve(wanted)? {
            return Ok(slot);
        }
        let slot = async {
            let room = self.buffer.clone().acquire_many_owned(wanted).await;
            let place = self.commands.clone().reserve_owned().await;
            match (room, place) {
                (Ok(room), Ok(place)) => Ok(self.slot(room, place)),
                _ => Err(SendError::Closed),
            }
        };
        match tokio::time::timeout(self.max_block, slot).await {
            Ok(slot) => slot,
            Err(_elapsed) => Err(self.full(self.max_block)),
        }
    }

    /// Send everything sent so far without lingering, and wait until all of it is settled. An
    /// error is the first that any record met with since the last flush.
    pub async fn flush(&self) -> Result<(), SendError> {
        let (done, wait) = oneshot::channel();
        self.commands
            .send(Command::Flush(done))
            .await
            .map_err(|_gone| SendError::Closed)?;
        wait.await.unwrap_or(Err(SendError::Lost))
    }

    /// Flush, and take no more records from any clone.
    pub async fn close(self) -> Result<(), SendError> {
        let (done, wait) = oneshot::channel();
        self.commands
            .send(Command::Close(done))
            .await
            .map_err(|_gone| SendError::Closed)?;
        drop(self);
        wait.await.unwrap_or(Err(SendError::Lost))
    }

    fn fits(&self, bytes: usize) -> Result<u32, RecordError> {
        u32::try_from(bytes)
            .ok()
            .filter(|_| bytes <= self.buffer_bytes)
            .ok_or(RecordError::TooLarge {
                bytes,
                buffer_bytes: self.buffer_bytes,
            })
    }

    fn try_reserve(&self, wanted: u32) -> Result<Option<Slot>, SendError> {
        let Ok(room) = self.buffer.clone().try_acquire_many_owned(wanted) else {
            return if self.buffer.is_closed() {
                Err(SendError::Closed)
            } else {
                Ok(None)
            };
        };
        match self.commands.clone().try_reserve_owned() {
            Ok(place) => Ok(Some(self.slot(room, place))),
            Err(TrySendError::Full(_)) => Ok(None),
            Err(TrySendError::Closed(_)) => Err(SendError::Closed),
        }
    }

    fn slot(&self, room: OwnedSemaphorePermit, place: mpsc::OwnedPermit<Command>) -> Slot {
        Slot {
            room,
            place,
            message_ids: self.message_ids,
        }
    }

    fn full(&self, waited: Duration) -> SendError {
        if let Some(error) = self.pressure.get() {
            return SendError::Backpressure {
                waited,
                error,
                may_have_applied: false,
            };
        }
        SendError::BufferFull {
            waited,
            buffer_bytes: self.buffer_bytes,
        }
    }
}

/// Room in a producer's buffer.
#[derive(Debug)]
pub struct Slot {
    room: OwnedSemaphorePermit,
    place: mpsc::OwnedPermit<Command>,
    message_ids: bool,
}

impl Slot {
    /// Send a record that fits, without waiting.
    pub fn submit(self, record: Record) -> Result<Ticket, SendError> {
        check(&record, self.message_ids)?;
        let bytes = record.buffer_bytes();
        if bytes > self.room.num_permits() {
            let buffer_bytes = self.room.num_permits();
            return Err(RecordError::TooLarge {
                bytes,
                buffer_bytes,
            }
            .into());
        }
        let (item, ticket) = Item::new(record, self.room);
        self.place.send(Command::Record(item));
        Ok(ticket)
    }
}

/// What would make the whole batch unfit is refused before it gets there.
fn check(record: &Record, message_ids: bool) -> Result<(), RecordError> {
    if record.message_id.is_some() && !message_ids {
        return Err(RecordError::MessageId);
    }
    if let Some(partition) = record
        .partition
        .filter(|partition| *partition >= PARTITIONS_MAX)
    {
        return Err(RecordError::Partition {
            partition,
            max: PARTITIONS_MAX,
        });
    }
    if let Some(timestamp_ms) = record.timestamp_ms.filter(|time| *time < 0) {
        return Err(RecordError::Timestamp { timestamp_ms });
    }
    let mut names = record.headers.iter().map(|(name, _)| name);
    match names.position(|name| std::str::from_utf8(name).is_err()) {
        Some(header) => Err(RecordError::HeaderName { header }),
        None => Ok(()),
    }
}

pub(super) async fn open(
    config: ProducerConfig,
    connection: Connection,
    topic: String,
) -> Result<Producer, OpenError> {
    let opened = async {
        let found = keep_trying(&config, || get_topic(&connection, &topic)).await?;
        let identity = if config.idempotent && !config.message_ids {
            Some(keep_trying(&config, || identity(&connection, &config.name)).await?)
        } else {
            None
        };
        Ok((found, identity))
    };
    let (found, identity) = match opened.await {
        Ok(opened) => opened,
        Err(error) => return Err(OpenError { topic, error }),
    };
    let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
    let buffer = Arc::new(Semaphore::new(config.buffer_bytes));
    let pressure = Pressure::default();
    let producer = Producer {
        commands,
        buffer: buffer.clone(),
        buffer_bytes: config.buffer_bytes,
        max_block: config.max_block,
        topic: topic.as_str().into(),
        message_ids: config.message_ids,
        pressure: pressure.clone(),
    };
    if config.message_ids {
        let window = id_window(&found);
        let driver = Identified::new(config, connection, (topic, window), pressure);
        tokio::spawn(driver.run(receiver, buffer));
        return Ok(producer);
    }
    let partitions = count(&found);
    let driver = Driver::new(config, connection, topic, (partitions, identity), pressure);
    tokio::spawn(driver.run(receiver, buffer));
    Ok(producer)
}

/// Tries until it works, is refused, or has taken as long as a send may block.
async fn keep_trying<T, F: Future<Output = Result<T, CallError>>>(
    config: &ProducerConfig,
    mut call: impl FnMut() -> F,
) -> Result<T, CallError> {
    let give_up_at = clock::now() + config.max_block;
    let mut delays = config.backoff.delays(retry::roll);
    loop {
        let error = match call().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let delay = delays
            .next()
            .unwrap_or_default()
            .max(error.retry_after().unwrap_or_default());
        if !error.is_retryable() || clock::now() + delay >= give_up_at {
            return Err(error);
        }
        tracing::debug!(%error, ?delay, "the producer tries again to open");
        tokio::time::sleep(delay).await;
    }
}

/// How many partitions the topic has.
pub(super) async fn partitions(connection: &Connection, topic: &str) -> Result<u32, CallError> {
    get_topic(connection, topic)
        .await
        .map(|found| count(&found))
}

async fn get_topic(connection: &Connection, topic: &str) -> Result<v1::Topic, CallError> {
    let request = connection.request(v1::GetTopicRequest {
        name: topic.to_owned(),
    });
    let response = answer(connection.topics().get_topic(request).await)?;
    Ok(response.topic.unwrap_or_default())
}

fn count(topic: &v1::Topic) -> u32 {
    u32::try_from(topic.partitions).unwrap_or(1).max(1)
}

/// For how long the topic knows a message id again.
fn id_window(topic: &v1::Topic) -> Duration {
    let window = topic.config.as_ref().and_then(|it| it.message_id_window);
    window.and_then(|it| it.try_into().ok()).unwrap_or_default()
}

/// A producer id.
pub(super) async fn identity(connection: &Connection, name: &str) -> Result<Identity, CallError> {
    let request = connection.request(v1::InitProducerRequest {
        producer_name: name.to_owned(),
    });
    let response = answer(connection.log().init_producer(request).await)?;
    let epoch = i16::try_from(response.producer_epoch).map_err(|_range| {
        CallError::local(
            tonic::Code::Internal,
            "the broker gave an epoch out of range",
        )
    })?;
    Ok(Identity {
        id: response.producer_id,
        epoch,
    })
}
