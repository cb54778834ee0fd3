//! Following topics without a group.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use tonic::Streaming;
use varvelog_proto::v1;

use crate::connection::{Connection, answer};
use crate::error::CallError;
use crate::record::{Position, ReadRecord};

/// What to follow.
///
/// ```no_run
/// # use varvelog_client::{Connection, Position, TailConfig};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = Connection::open("localhost:7461").await?;
/// let last_ten = TailConfig::new(["orders"]).start(Position::LastN(10)).stop_at_end(true);
/// let mut tail = last_ten.open(&connection).await?;
/// while let Some(batch) = tail.next().await {
///     for record in batch?.records {
///         println!("{:?}", record.value);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a tail is made by `open`"]
pub struct TailConfig(v1::TailRequest);

impl TailConfig {
    /// At least one topic, of any kind. Without more: from the end on, without end.
    pub fn new<T: Into<String>>(topics: impl IntoIterator<Item = T>) -> Self {
        let topics = topics.into_iter().map(Into::into).collect();
        Self(v1::TailRequest {
            topics,
            ..Default::default()
        })
    }

    /// Where to begin, in every partition. Default: at the end.
    pub fn start(mut self, start: Position) -> Self {
        self.0.start = Some(start.into());
        self
    }

    /// End after so many records of all partitions together; 0: no end.
    pub fn limit(mut self, records: u64) -> Self {
        self.0.limit = i64::try_from(records).unwrap_or(i64::MAX);
        self
    }

    /// End where the partitions ended when it began.
    pub fn stop_at_end(mut self, stop: bool) -> Self {
        self.0.stop_at_end = stop;
        self
    }

    /// Only records with this key; empty: all.
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.0.key_equals = key.into();
        self
    }

    /// Begin.
    pub async fn open(self, connection: &Connection) -> Result<Tail, CallError> {
        let stream = answer(connection.log().tail(self.0).await)?;
        Ok(Tail {
            stream: Some(stream),
        })
    }
}

/// Records of one partition, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailBatch {
    /// Where they are from.
    pub topic: String,
    /// From 0.
    pub partition: u32,
    /// Rising offsets; as stored, reserved headers included.
    pub records: Vec<ReadRecord>,
}

/// Follows topics. It does not survive a broken connection: it gives the error and ends. A program
/// that has to go on from where it was uses a [`Reader`](super::Reader).
#[derive(Debug)]
pub struct Tail {
    /// None once it has ended: a broken stream is not asked again.
    stream: Option<Streaming<v1::TailResponse>>,
}

impl Tail {
    /// The next records; None at the end.
    pub async fn next(&mut self) -> Option<Result<TailBatch, CallError>> {
        StreamExt::next(self).await
    }
}

impl Stream for Tail {
    type Item = Result<TailBatch, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        let item = match std::task::ready!(stream.poll_next_unpin(context)) {
            Some(Ok(response)) => Some(Ok(TailBatch {
                topic: response.topic,
                partition: u32::try_from(response.partition).unwrap_or(0),
                records: response.records.into_iter().map(ReadRecord::from).collect(),
            })),
            Some(Err(status)) => Some(Err(status.into())),
            None => None,
        };
        if !matches!(item, Some(Ok(_))) {
            self.stream = None;
        }
        Poll::Ready(item)
    }
}
