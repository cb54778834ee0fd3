//! Reading partitions of a topic from offsets on, without a group.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use varvelog_proto::v1;

use super::decode::{View, read_batch};
use super::error::ReadError;
use crate::admin::{Admin, duration};
use crate::connection::{Connection, answer};
use crate::error::{CallError, reason};
use crate::record::{Position, ReadRecord};
use crate::retry::{self, BackoffConfig};

/// Fetches that wait at the broker at a time; more partitions take turns.
const FETCHES_MAX: usize = 64;

/// Wait of a fetch at the end of its partition, when partitions take turns.
const WAIT_IN_TURNS: Duration = Duration::from_millis(10);

/// What to do when the records at the reader's place are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnLost {
    /// Give [`ReadError::Lost`] and stop reading the partition.
    #[default]
    Fail,
    /// Go on with the oldest record that is left.
    Earliest,
}

/// What to read.
#[derive(Debug, Clone)]
#[must_use = "a reader is made by `open`"]
pub struct ReaderConfig {
    topic: String,
    partitions: Vec<u32>,
    start: Position,
    offsets: BTreeMap<u32, i64>,
    stop_at_end: bool,
    on_lost: OnLost,
    max_records: i32,
    max_bytes: i32,
    max_wait: Duration,
    backoff: BackoffConfig,
}

impl ReaderConfig {
    /// All partitions of a topic of any kind, from the oldest record on, without end.
    pub fn new(topic: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            partitions: Vec::new(),
            start: Position::Earliest,
            offsets: BTreeMap::new(),
            stop_at_end: false,
            on_lost: OnLost::default(),
            max_records: 0,
            max_bytes: 0,
            max_wait: Duration::from_millis(500),
            backoff: BackoffConfig::default(),
        }
    }

    /// Only these partitions; none: all.
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = u32>) -> Self {
        self.partitions = partitions.into_iter().collect();
        self
    }

    /// Where to begin in partitions that are given no offset.
    pub fn start(mut self, start: Position) -> Self {
        self.start = start;
        self
    }

    /// Begin a partition at this offset, such as [`ReadBatch::next_offset`] of an earlier reader.
    pub fn start_at(mut self, partition: u32, offset: i64) -> Self {
        self.offsets.insert(partition, offset);
        self
    }

    /// End where the partitions ended when the reader was opened.
    pub fn stop_at_end(mut self, stop: bool) -> Self {
        self.stop_at_end = stop;
        self
    }

    /// When the records at the reader's place are gone.
    pub fn on_lost(mut self, on_lost: OnLost) -> Self {
        self.on_lost = on_lost;
        self
    }

    /// Records of one fetch, at most 10,000; 0: 500.
    pub fn max_records(mut self, records: u32) -> Self {
        self.max_records = i32::try_from(records).unwrap_or(i32::MAX);
        self
    }

    /// Bytes of one fetch; 0: 1 MiB. One record or batch comes whatever its size.
    pub fn max_bytes(mut self, bytes: u32) -> Self {
        self.max_bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        self
    }

    /// Wait at the end of a partition for a first record, at most 30 s. Default 500 ms.
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.max_wait = wait;
        self
    }

    /// Waits between tries while the broker cannot be reached.
    pub fn backoff(mut self, backoff: BackoffConfig) -> Self {
        self.backoff = backoff;
        self
    }

    /// Look up where to begin, and begin.
    pub async fn open(self, connection: &Connection) -> Result<Reader, CallError> {
        let admin = Admin::new(connection);
        let begin = admin
            .list_offsets(&self.topic, &self.partitions, self.start)
            .await?;
        let mut ends = BTreeMap::new();
        if self.stop_at_end {
            let latest = admin.list_offsets(&self.topic, &self.partitions, Position::Latest);
            ends.extend(latest.await?.iter().map(|end| (end.partition, end.offset)));
        }
        let mut places = BTreeMap::new();
        for found in begin {
            let Ok(partition) = u32::try_from(found.partition) else {
                continue;
            };
            let offset = self
                .offsets
                .get(&partition)
                .copied()
                .unwrap_or(found.offset);
            let end = ends.get(&found.partition).copied().unwrap_or(i64::MAX);
            if offset < end {
                places.insert(
                    partition,
                    Place {
                        offset,
                        end,
                        epoch: 0,
                    },
                );
            }
        }
        let waiting = places.keys().copied().collect();
        let connection = connection.clone();
        Ok(Reader {
            config: self,
            connection,
            places,
            waiting,
            running: FuturesUnordered::new(),
        })
    }
}

/// Records of one partition, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadBatch {
    /// From 0.
    pub partition: u32,
    /// Rising offsets, at least one; as stored, reserved headers included.
    pub records: Vec<ReadRecord>,
    /// Where to go on.
    pub next_offset: i64,
    /// One past the last record of the partition, when this was read.
    pub latest_offset: i64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    offset: i64,
    end: i64,
    /// Of the partition when it was last read; 0: not read yet.
    epoch: i32,
}

/// Reads partitions of a topic; in order within each, in any order between them. Broken
/// connections are waited out. A partition that cannot be read on gives one error, and the others
/// go on; the reader ends when none is left.
pub struct Reader {
    config: ReaderConfig,
    connection: Connection,
    places: BTreeMap<u32, Place>,
    /// Partitions whose turn has not come.
    waiting: VecDeque<u32>,
    running: FuturesUnordered<BoxFuture<'static, Fetched>>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (topic, places) = (&self.config.topic, &self.places);
        f.debug_struct("Reader")
            .field("topic", topic)
            .field("places", places)
            .finish_non_exhaustive()
    }
}

struct Fetched {
    partition: u32,
    answer: Result<v1::FetchResponse, CallError>,
}

impl Reader {
    /// Everything in a topic and all that comes; see [`ReaderConfig`].
    pub fn config(topic: impl Into<String>) -> ReaderConfig {
        ReaderConfig::new(topic)
    }

    /// The next records of some partition; None when there is none to read any more.
    pub async fn next(&mut self) -> Option<Result<ReadBatch, ReadError>> {
        StreamExt::next(self).await
    }

    /// Where each partition that is still read goes on.
    pub fn positions(&self) -> impl Iterator<Item = (u32, i64)> {
        self.places
            .iter()
            .map(|(partition, place)| (*partition, place.offset))
    }

    fn start_fetches(&mut self) {
        while self.running.len() < FETCHES_MAX
            && let Some(partition) = self.waiting.pop_front()
        {
            let Some(place) = self.places.get(&partition) else {
                continue;
            };
            let in_turns = self.places.len() > FETCHES_MAX;
            let wait = if in_turns {
                WAIT_IN_TURNS
            } else {
                self.config.max_wait
            };
            let request = v1::FetchRequest {
                topic: self.config.topic.clone(),
                partition: i32::try_from(partition).unwrap_or(i32::MAX),
                offset: place.offset,
                max_records: self.config.max_records,
                max_bytes: self.config.max_bytes,
                max_wait: Some(duration(wait)),
                as_batches: true,
                current_epoch: place.epoch,
            };
            let (connection, backoff) = (self.connection.clone(), self.config.backoff);
            self.running.push(Box::pin(async move {
                Fetched {
                    partition,
                    answer: fetch(&connection, &request, wait, backoff).await,
                }
            }));
        }
    }

    /// What an answer gives to the caller; nothing: the partition waits for more.
    fn settle(&mut self, fetched: Fetched) -> Option<Result<ReadBatch, ReadError>> {
        let Fetched { partition, answer } = fetched;
        let place = self.places.get_mut(&partition)?;
        let outcome = match answer {
            Ok(response) => advance(partition, place, response),
            Err(error) => lost(partition, place, error, self.config.on_lost),
        };
        if outcome.is_err() || place.offset >= place.end {
            self.places.remove(&partition);
        } else {
            self.waiting.push_back(partition);
        }
        outcome.transpose()
    }
}

impl Stream for Reader {
    type Item = Result<ReadBatch, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            self.start_fetches();
            match std::task::ready!(self.running.poll_next_unpin(context)) {
                None => return Poll::Ready(None),
                Some(fetched) => {
                    if let Some(item) = self.settle(fetched) {
                        return Poll::Ready(Some(item));
                    }
                }
            }
        }
    }
}

/// Tries until there is an answer that trying again would not change.
async fn fetch(
    connection: &Connection,
    request: &v1::FetchRequest,
    wait: Duration,
    backoff: BackoffConfig,
) -> Result<v1::FetchResponse, CallError> {
    let mut delays = backoff.delays(retry::roll);
    loop {
        let mut call = connection.request(request.clone());
        call.set_timeout(connection.call_timeout() + wait);
        let error = match answer(connection.log().fetch(call).await) {
            Ok(response) => return Ok(response),
            Err(error) if error.is_retryable() => error,
            Err(error) => return Err(error),
        };
        let delay = delays
            .next()
            .unwrap_or_default()
            .max(error.retry_after().unwrap_or_default());
        tracing::debug!(partition = request.partition, %error, ?delay, "the fetch is tried again");
        tokio::time::sleep(delay).await;
    }
}

fn advance(
    partition: u32,
    place: &mut Place,
    response: v1::FetchResponse,
) -> Result<Option<ReadBatch>, ReadError> {
    let view = View {
        leased: &[],
        from: place.offset,
        until: place.end,
        attempt: 0,
    };
    let mut records = Vec::new();
    let mut next_offset = response.next_offset;
    for batch in &response.batches {
        let whole = records.len();
        if let Err(error) = read_batch(batch, view, &mut records) {
            // What is before it is given first; the next fetch meets it again.
            records.truncate(whole);
            next_offset = batch.base_offset;
            if records.is_empty() {
                return Err(ReadError::Corrupt {
                    partition,
                    offset: batch.base_offset,
                    error,
                });
            }
            break;
        }
    }
    let shown = place.offset..place.end;
    let single = response
        .records
        .into_iter()
        .filter(|record| shown.contains(&record.offset));
    records.extend(single.map(ReadRecord::from));
    place.offset = place.offset.max(next_offset).min(place.end);
    place.epoch = response.epoch;
    if records.is_empty() {
        return Ok(None);
    }
    let (next_offset, latest_offset) = (place.offset, response.latest_offset);
    Ok(Some(ReadBatch {
        partition,
        records,
        next_offset,
        latest_offset,
    }))
}

/// Goes on with what is left if that is wanted, else says what is wrong.
fn lost(
    partition: u32,
    place: &mut Place,
    error: CallError,
    on_lost: OnLost,
) -> Result<Option<ReadBatch>, ReadError> {
    let earliest = error
        .metadata_number("earliest")
        .filter(|first| *first > place.offset);
    match earliest.filter(|_| error.is(reason::OFFSET_OUT_OF_RANGE)) {
        None => Err(ReadError::Refused { partition, error }),
        Some(earliest) if on_lost == OnLost::Earliest => {
            tracing::warn!(
                partition,
                from = place.offset,
                to = earliest,
                "records are gone"
            );
            place.offset = earliest;
            Ok(None)
        }
        Some(earliest) => {
            let offset = place.offset;
            Err(ReadError::Lost {
                partition,
                offset,
                earliest,
            })
        }
    }
}
