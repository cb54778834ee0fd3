//! `Produce`, `ProduceStream`, `InitProducer`.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tonic::codegen::BoxStream;
use tonic::{Status, Streaming};
use varvelog_proto::v1;
use varvelog_store::PartitionId;
use varvelog_store::batch::BatchRules;

use super::checks;
use super::context::Context;
use super::edge::Phase;
use super::lookup;
use super::results::{self, Places};
use super::status::{CallFailure, EdgeRefusal, Explanation, FieldViolation};
use super::transcode::{
    BatchLimits, HEADERS_MAX, KEY_BYTES_MAX, ProduceHead, RecordTarget, RecordsIn, StreamProduceIn,
    batches_in,
};
use super::wire;
use crate::core::command::RequestId;
use crate::core::refusal::CallError;
use crate::core::request::{AppendRequest, AppendRequestPart, Appended, ChangeDone, ChangeRequest};
use crate::core::reserved_headers::RESERVED_PREFIX;
use crate::view::TopicView;

/// Requests of one stream that are on their way to being committed.
const IN_FLIGHT_MAX: usize = 128;
/// Requests of one stream that are read and wait. Small messages that are not read count against
/// the whole connection, so a stream is read ahead.
const BACKLOG_MAX: usize = 16 * 1024;
/// And their bytes, in units that each takes at least one of.
const BACKLOG_UNIT_BYTES: usize = 256;
/// How far ahead of the broker's clock a record may be, ms.
pub(super) const AHEAD_MS_MAX: i64 = 3_600_000;
/// A request of so many bytes is walked off the edge's own thread.
pub(super) const ASIDE_BYTES: usize = 1 << 20;
/// And one with more batches: each may expand to as much as the largest request.
const ASIDE_BATCHES: u32 = 2;
/// Together they may expand to so many of the largest requests.
const EXPANDED_REQUESTS_MAX: u64 = 32;
const PRODUCER_NAME_BYTES_MAX: usize = 128;

/// A request that is ready to be committed.
struct Prepared {
    append: AppendRequest,
    answer: Answer,
    is_unwatched: bool,
    counted: Counted,
}

/// What is counted of a request, and where.
struct Counted {
    topic: Arc<TopicView>,
    records: u64,
    bytes: usize,
}

impl Counted {
    /// Counts a request by what became of it.
    fn count(&self, context: &Context, appended: &Result<Appended, CallError>) {
        match appended {
            Ok(_) => context.came_in(&self.topic, self.records, self.bytes),
            Err(error) => {
                let reason = Explanation::from(&CallFailure::from(error.clone())).reason;
                self.topic.traffic.refuse(reason.as_str());
            }
        }
    }
}

/// How the results of an append are told.
enum Answer {
    /// For each record.
    Records(Places),
    /// One for each part.
    Batches,
}

/// `Produce`.
pub(super) async fn produce(
    context: &Arc<Context>,
    request: wire::ProduceRequest,
) -> Result<v1::ProduceResponse, CallFailure> {
    let prepared = prepare_aside(context, request.0).await?;
    if prepared.is_unwatched {
        return begin_unwatched(context, prepared);
    }
    let Prepared {
        append,
        answer,
        counted,
        ..
    } = prepared;
    let appended = context.core().append(append).await;
    counted.count(context, &appended);
    Ok(response(context, &answer, &appended?))
}

async fn prepare_aside(context: &Arc<Context>, wire: Bytes) -> Result<Prepared, CallFailure> {
    let head = ProduceHead::read(&wire)?;
    if wire.len() < ASIDE_BYTES && head.batches <= ASIDE_BATCHES {
        return prepare(context, &wire);
    }
    let context = Arc::clone(context);
    let prepared = tokio::task::spawn_blocking(move || prepare(&context, &wire)).await;
    // Only a runtime that goes down gives no result.
    prepared.unwrap_or(Err(CallError::Draining.into()))
}

fn prepare(context: &Context, wire: &Bytes) -> Result<Prepared, CallFailure> {
    let head = ProduceHead::read(wire)?;
    let acks: v1::Acks = checks::known("acks", head.acks)?;
    let topic = lookup::own_topic(context.view(), "topic", head.topic)?;
    let (parts, content_hash, answer) = if head.records > 0 {
        records_of(context, wire, &head, &topic)?
    } else {
        batches_of(context, wire, &head, &topic)?
    };
    let request = (!head.request_id.is_empty()).then(|| RequestId {
        topic: topic.id,
        id: head.request_id.to_owned(),
        content_hash,
    });
    let records = parts.iter().map(|part| u64::from(part.record_count)).sum();
    Ok(Prepared {
        append: AppendRequest { request, parts },
        answer,
        is_unwatched: acks == v1::Acks::None,
        counted: Counted {
            topic,
            records,
            bytes: wire.len(),
        },
    })
}

type PartsOf = (Vec<AppendRequestPart>, u64, Answer);

fn records_of(
    context: &Context,
    wire: &[u8],
    head: &ProduceHead<'_>,
    topic: &TopicView,
) -> Result<PartsOf, CallFailure> {
    let now_ms = context.wall().0;
    let target = RecordTarget {
        topic: topic.name.as_str(),
        partitions: lookup::partition_count(topic),
        // The same again for the same id, so that a repeated request makes the same batches.
        sticky: if head.request_id.is_empty() {
            rand::random()
        } else {
            crc32fast::hash(head.request_id.as_bytes())
        },
        record_bytes_max: topic.settings.record_bytes_max,
        now_ms,
        timestamp_ms_max: now_ms.saturating_add(AHEAD_MS_MAX),
        is_hashed: !head.request_id.is_empty(),
        has_id_window: topic.settings.message_id_window_ms > 0,
        path: "",
    };
    let made = RecordsIn::read(wire, head.records, &target)?;
    let mut places = Places::default();
    places.add(&made, 0);
    let parts = made.parts.into_iter();
    let parts = parts.map(|part| part.to_append(topic.id)).collect();
    // With other partitions the same records would make other batches.
    let content_hash = made.content_hash ^ u64::from(target.partitions);
    Ok((parts, content_hash, Answer::Records(places)))
}

fn batches_of(
    context: &Context,
    wire: &Bytes,
    head: &ProduceHead<'_>,
    topic: &TopicView,
) -> Result<PartsOf, CallFailure> {
    let request_bytes_max = context.request_bytes_max() as u64;
    let limits = BatchLimits {
        topic: topic.name.as_str(),
        partitions: lookup::partition_count(topic),
        rules: BatchRules {
            record_bytes_max: topic.settings.record_bytes_max,
            key_bytes_max: KEY_BYTES_MAX,
            headers_max: HEADERS_MAX,
            records_max: varvelog_store::limits::BATCH_RECORDS_MAX,
            decompressed_bytes_max: request_bytes_max,
            timestamp_ms_max: context.wall().0.saturating_add(AHEAD_MS_MAX),
            reserved_header_prefix: RESERVED_PREFIX,
        },
        expanded_bytes_max: request_bytes_max.saturating_mul(EXPANDED_REQUESTS_MAX),
        is_hashed: !head.request_id.is_empty(),
    };
    let (batches, content_hash) = batches_in(wire, &limits)?;
    let part = |batch: super::transcode::BatchIn| AppendRequestPart {
        partition: PartitionId {
            topic: topic.id,
            partition: batch.partition,
        },
        record_count: batch.record_count,
        producer: batch.producer,
        delays_ms: Vec::new(),
        ids: Vec::new(),
        body: batch.body,
    };
    Ok((
        batches.into_iter().map(part).collect(),
        content_hash,
        Answer::Batches,
    ))
}

/// Appends without anybody waiting for it.
fn begin_unwatched(
    context: &Arc<Context>,
    prepared: Prepared,
) -> Result<v1::ProduceResponse, CallFailure> {
    let Ok(permit) = Arc::clone(&context.unwatched).try_acquire_owned() else {
        let limit_bytes = context.config().limits.memory_bytes;
        let retry_after = std::time::Duration::from_millis(200);
        return Err(EdgeRefusal::BuffersFull {
            limit_bytes,
            retry_after,
        }
        .into());
    };
    let context = Arc::clone(context);
    tokio::spawn(async move {
        let Prepared {
            append, counted, ..
        } = prepared;
        let appended = context.core().append(append).await;
        counted.count(&context, &appended);
        if let Err(error) = appended {
            tracing::debug!(%error, "an append that nobody waits for failed");
        }
        drop(permit);
    });
    Ok(v1::ProduceResponse {
        results: Vec::new(),
        duplicate: false,
        durability: v1::Durability::Received.into(),
    })
}

fn response(context: &Context, answer: &Answer, appended: &Appended) -> v1::ProduceResponse {
    let results = match answer {
        Answer::Batches => results::of_batches(&appended.parts),
        Answer::Records(places) => results::of_records(places, appended),
    };
    v1::ProduceResponse {
        results,
        duplicate: appended.duplicate,
        durability: context.durability().into(),
    }
}

/// `InitProducer`.
pub(super) async fn init_producer(
    context: &Context,
    request: v1::InitProducerRequest,
) -> Result<v1::InitProducerResponse, CallFailure> {
    let name = request.producer_name;
    checks::text("producer_name", &name, PRODUCER_NAME_BYTES_MAX)?;
    let done = context
        .core()
        .change(ChangeRequest::InitProducer { name }, false)
        .await?;
    let ChangeDone::Producer { id, epoch } = done else {
        unreachable!("InitProducer was answered by {done:?}")
    };
    Ok(v1::InitProducerResponse {
        producer_id: id,
        producer_epoch: i32::from(epoch),
    })
}

/// A message of a stream, and its share of the backlog.
type Backlogged = (
    Result<wire::ProduceStreamRequest, Status>,
    tokio::sync::OwnedSemaphorePermit,
);

/// What becomes of one request of a stream, in its order.
enum StreamAnswer {
    Ready(Result<v1::ProduceStreamResponse, Status>),
    Pending(BoxedAnswer),
}

type BoxedAnswer =
    std::pin::Pin<Box<dyn Future<Output = Result<v1::ProduceStreamResponse, Status>> + Send>>;

/// `ProduceStream`: requests are submitted in their order, up to [`IN_FLIGHT_MAX`] before the
/// first is answered, and answered in their order.
pub(super) fn produce_stream(
    context: &Arc<Context>,
    requests: Streaming<wire::ProduceStreamRequest>,
) -> BoxStream<v1::ProduceStreamResponse> {
    let (backlog, backlogged) = mpsc::channel(BACKLOG_MAX);
    let (answers, answered) = mpsc::channel(IN_FLIGHT_MAX - 1);
    tokio::spawn(read_ahead(Arc::clone(context), requests, backlog));
    tokio::spawn(submit_in_order(Arc::clone(context), backlogged, answers));
    Box::pin(futures_util::stream::unfold(
        answered,
        |mut answered| async move {
            let answer = match answered.recv().await? {
                StreamAnswer::Ready(answer) => answer,
                StreamAnswer::Pending(answer) => answer.await,
            };
            Some((answer, answered))
        },
    ))
}

/// Reads until the stream ends, fails or the broker drains, each of which is the last entry.
async fn read_ahead(
    context: Arc<Context>,
    mut requests: Streaming<wire::ProduceStreamRequest>,
    backlog: mpsc::Sender<Backlogged>,
) {
    let units = Arc::new(Semaphore::new(BACKLOG_MAX));
    loop {
        let request = tokio::select! {
            request = requests.message() => request,
            () = context.phase.reached(Phase::Draining) => {
                Err(CallFailure::from(CallError::Draining).into())
            }
            () = backlog.closed() => return,
        };
        let request = match request {
            Ok(Some(request)) => Ok(request),
            Ok(None) => return,
            Err(status) => Err(status),
        };
        let bytes = request.as_ref().map_or(0, |request| request.0.len());
        let taken = (bytes / BACKLOG_UNIT_BYTES).clamp(1, BACKLOG_MAX);
        let taken = u32::try_from(taken).unwrap_or(1);
        let Ok(share) = Arc::clone(&units).acquire_many_owned(taken).await else {
            return;
        };
        // A stream that failed must not be read again.
        let is_last = request.is_err();
        if backlog.send((request, share)).await.is_err() || is_last {
            return;
        }
    }
}

async fn submit_in_order(
    context: Arc<Context>,
    mut backlogged: mpsc::Receiver<Backlogged>,
    answers: mpsc::Sender<StreamAnswer>,
) {
    while let Some((request, share)) = backlogged.recv().await {
        let answer = match request {
            Ok(request) => submit(&context, request).await,
            Err(status) => StreamAnswer::Ready(Err(status)),
        };
        drop(share);
        if answers.send(answer).await.is_err() {
            return;
        }
    }
}

async fn submit(context: &Arc<Context>, request: wire::ProduceStreamRequest) -> StreamAnswer {
    // Without its outer fields a request cannot be answered in its place.
    let StreamProduceIn { sequence, request } = match StreamProduceIn::read(&request.0) {
        Ok(read) => read,
        Err(malformed) => {
            return StreamAnswer::Ready(Err(CallFailure::from(malformed).into()));
        }
    };
    let Some(request) = request else {
        let missing = FieldViolation::new("request", "must be given");
        return StreamAnswer::Ready(Ok(refused(sequence, &missing.into())));
    };
    match begin(context, request).await {
        Ok(Begun::Answered(response)) => StreamAnswer::Ready(Ok(accepted(sequence, response))),
        Ok(Begun::Waiting(answer)) => StreamAnswer::Pending(Box::pin(async move {
            Ok(match answer.await {
                Ok(response) => accepted(sequence, response),
                Err(failure) => refused(sequence, &failure),
            })
        })),
        Err(failure) => StreamAnswer::Ready(Ok(refused(sequence, &failure))),
    }
}

enum Begun<F> {
    Answered(v1::ProduceResponse),
    Waiting(F),
}

/// Gives a request its place in the core's queue.
async fn begin(
    context: &Arc<Context>,
    wire: Bytes,
) -> Result<
    Begun<impl Future<Output = Result<v1::ProduceResponse, CallFailure>> + use<>>,
    CallFailure,
> {
    let prepared = prepare_aside(context, wire).await?;
    if prepared.is_unwatched {
        return begin_unwatched(context, prepared).map(Begun::Answered);
    }
    let Prepared {
        append,
        answer,
        counted,
        ..
    } = prepared;
    let appended = context.core().begin_append(append).await?;
    let context = Arc::clone(context);
    Ok(Begun::Waiting(async move {
        let appended = appended.await;
        counted.count(&context, &appended);
        Ok(response(&context, &answer, &appended?))
    }))
}

fn accepted(sequence: i64, response: v1::ProduceResponse) -> v1::ProduceStreamResponse {
    let outcome = Some(v1::produce_stream_response::Outcome::Response(response));
    v1::ProduceStreamResponse { sequence, outcome }
}

fn refused(sequence: i64, failure: &CallFailure) -> v1::ProduceStreamResponse {
    let outcome = Some(v1::produce_stream_response::Outcome::Error(failure.into()));
    v1::ProduceStreamResponse { sequence, outcome }
}
