//! Settings of a producer.

use std::time::Duration;

use varvelog_store::batch::Codec;

use super::{OpenError, Producer};
use crate::batcher::BatchLimits;
use crate::connection::Connection;
use crate::retry::BackoffConfig;

/// How the records of a batch are compressed, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Slow, small.
    Gzip,
    /// Fast.
    Snappy,
    /// Fastest.
    Lz4,
    /// Smallest for its speed.
    Zstd,
}

impl From<Compression> for Codec {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::None,
            Compression::Gzip => Self::Gzip,
            Compression::Snappy => Self::Snappy,
            Compression::Lz4 => Self::Lz4,
            Compression::Zstd => Self::Zstd,
        }
    }
}

/// Most requests of one producer that may be unanswered at a time.
pub const IN_FLIGHT_MAX: usize = 64;

/// Unanswered batches of one producer in one partition, with idempotence: as many as the broker
/// remembers.
pub(crate) const IN_FLIGHT_PER_PARTITION: usize = 5;

/// Settings of a [`Producer`]; the defaults suit most.
#[derive(Debug, Clone)]
#[must_use = "a producer is made by `open`"]
pub struct ProducerConfig {
    pub(crate) compression: Compression,
    pub(crate) limits: BatchLimits,
    pub(crate) request_bytes: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) in_flight: usize,
    pub(crate) idempotent: bool,
    pub(crate) message_ids: bool,
    pub(crate) name: String,
    pub(crate) delivery_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) max_block: Duration,
    pub(crate) backoff: BackoffConfig,
    pub(crate) partitions_refresh: Duration,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            compression: Compression::None,
            limits: BatchLimits {
                bytes: 16 * 1024,
                records: 10_000,
                linger: Duration::from_millis(5),
            },
            request_bytes: 1 << 20,
            buffer_bytes: 32 << 20,
            in_flight: 5,
            idempotent: true,
            message_ids: false,
            name: String::new(),
            delivery_timeout: Duration::from_mins(2),
            request_timeout: Duration::from_secs(30),
            max_block: Duration::from_mins(1),
            backoff: BackoffConfig::default(),
            partitions_refresh: Duration::from_mins(5),
        }
    }
}

impl ProducerConfig {
    /// How batches are compressed. Default: not.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Size of a batch before compression, at least 1. Default 16 KiB; a larger record goes
    /// alone. For throughput: 256 KiB to 1 MiB.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.limits.bytes = bytes.max(1);
        self
    }

    /// Longest wait of a record for others to fill its batch. Default 5 ms; zero: none.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.limits.linger = linger;
        self
    }

    /// Size up to which batches of several partitions share a request. Default 1 MiB.
    pub fn request_bytes(mut self, bytes: usize) -> Self {
        self.request_bytes = bytes.max(1);
        self
    }

    /// Records not yet answered, in bytes with some overhead each. Default 32 MiB; at least 1 KiB
    /// and at most 2 GiB.
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.buffer_bytes = bytes.clamp(1 << 10, 2 << 30);
        self
    }

    /// Requests sent ahead of their answers: 1 to [`IN_FLIGHT_MAX`]. Default 5. With idempotence
    /// at most 5 of them hold batches of the same partition.
    pub fn in_flight(mut self, requests: usize) -> Self {
        self.in_flight = requests.clamp(1, IN_FLIGHT_MAX);
        self
    }

    /// Whether the broker tells repeated batches from new ones, so that a try after an unanswered
    /// one never doubles records, and order survives. Default true.
    pub fn idempotent(mut self, idempotent: bool) -> Self {
        self.idempotent = idempotent;
        self
    }

    /// Whether records have message ids ([`Record::message_id`](crate::Record::message_id)): a
    /// second append of an id to the topic, within its message-id window, appends nothing and is
    /// answered with where the first one lies. Default false, and then an id is refused.
    ///
    /// Such a producer sends records one by one on the wire, one request after the other, up to
    /// 1,000 records each: `compression`, `batch_bytes`, `linger`, `in_flight`, `idempotent` and
    /// `name` mean nothing to it. No try doubles a record, whether it has an id or not.
    pub fn message_ids(mut self, message_ids: bool) -> Self {
        self.message_ids = message_ids;
        self
    }

    /// A name that only one producer has at a time: opening one fences those of the same name
    /// before it. At most 128 bytes. Default: none.
    ///
    /// With a name the producer ends, refusing everything, once it cannot know what became of a
    /// batch: only who reads the log can then go on from the right place.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Longest time from a send to its answer, tries and waits included. Default 120 s.
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.delivery_timeout = timeout;
        self
    }

    /// Longest wait for the answer to one request, before the connection counts as broken.
    /// Default 30 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// Longest wait of a send for room in the buffer, and longest time that the broker may refuse
    /// producers of the topic before records are given up with
    /// [`SendError::Backpressure`](super::SendError::Backpressure). Default 60 s.
    pub fn max_block(mut self, wait: Duration) -> Self {
        self.max_block = wait;
        self
    }

    /// Waits between tries, unless the broker says how long. Default 100 ms to 1 s.
    pub fn backoff(mut self, backoff: BackoffConfig) -> Self {
        self.backoff = backoff;
        self
    }

    /// How often the number of partitions is asked for. Default 5 min.
    pub fn partitions_refresh(mut self, interval: Duration) -> Self {
        self.partitions_refresh = interval;
        self
    }

    /// Open a producer for a topic. Asks the broker for the topic and for a producer id, again
    /// and again for up to [`max_block`](Self::max_block) while the broker cannot be reached.
    pub async fn open(
        self,
        connection: &Connection,
        topic: impl Into<String>,
    ) -> Result<Producer, OpenError> {
        super::handle::open(self, connection.clone(), topic.into()).await
    }
}
