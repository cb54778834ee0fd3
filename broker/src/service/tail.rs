//! `Tail`: topics followed without a group.
//!
//! Each partition has a cursor. Those with records to give take turns, one message each; the
//! others wait for their partition's end to move.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::codegen::BoxStream;
use varvelog_proto::v1;
use varvelog_store::{Offset, PartitionId, TopicId};

use super::checks;
use super::context::Context;
use super::edge::Phase;
use super::fetch::{REPLY_BYTES, REPLY_RECORDS};
use super::lookup;
use super::positions::{Position, bounds};
use super::read;
use super::status::{CallFailure, FieldViolation};
use super::transcode::{RecordStyle, ReplyLimit, ReplyRecords};
use super::wire::{self, MessageWriter, Payload};
use crate::core::refusal::{CallError, TopicRefusal};
use crate::names::TopicName;
use crate::view::{PartitionView, TopicView};

/// Topics of one call.
const TOPICS_MAX: usize = 1000;
/// How often new partitions of the topics are looked for.
const GROWTH_CHECK: Duration = Duration::from_secs(1);

/// A tail whose fields are within their bounds.
struct Tail {
    cursors: BTreeMap<PartitionId, Cursor>,
    /// Of each topic: how many partitions are followed.
    followed: BTreeMap<TopicId, (TopicName, usize)>,
    left: Option<u64>,
    key_equals: Option<Bytes>,
    stops: bool,
}

struct Cursor {
    topic: TopicName,
    partition: PartitionView,
    next: Offset,
    /// Where it ends, if it does.
    stop: Option<Offset>,
}

type Moved = Pin<Box<dyn Future<Output = (PartitionId, bool)> + Send>>;

/// `Tail`.
pub(super) async fn tail(
    context: &Arc<Context>,
    request: v1::TailRequest,
) -> Result<BoxStream<wire::TailResponse>, CallFailure> {
    let tail = Tail::read(context, request).await?;
    let (messages, sent) = mpsc::channel(1);
    tokio::spawn(run(Arc::clone(context), tail, messages));
    Ok(Box::pin(ReceiverStream::new(sent)))
}

impl Tail {
    async fn read(context: &Context, request: v1::TailRequest) -> Result<Self, CallFailure> {
        if request.topics.is_empty() {
            return Err(FieldViolation::new("topics", "at least one is needed").into());
        }
        if request.topics.len() > TOPICS_MAX {
            let what = format!("at most {TOPICS_MAX} are allowed");
            let count = request.topics.len();
            return Err(FieldViolation::bound("topics", TOPICS_MAX, count, what).into());
        }
        let start = Position::read("start", request.start.as_ref(), Position::Latest)?;
        let limit = checks::not_negative("limit", request.limit)?;
        let mut tail = Self {
            cursors: BTreeMap::new(),
            followed: BTreeMap::new(),
            left: (limit > 0).then_some(limit),
            key_equals: (!request.key_equals.is_empty()).then_some(request.key_equals),
            stops: request.stop_at_end,
        };
        for (index, name) in request.topics.iter().enumerate() {
            let topic = lookup::topic(context.view(), &format!("topics[{index}]"), name)?;
            tail.follow(&topic, start).await?;
        }
        Ok(tail)
    }

    /// Adds cursors of the partitions of `topic` that have none.
    async fn follow(&mut self, topic: &TopicView, start: Position) -> Result<(), CallFailure> {
        let known = self.followed.get(&topic.id).map_or(0, |(_, count)| *count);
        for partition in topic.partitions.iter().skip(known) {
            let (earliest, latest) = bounds(partition);
            let next = start.resolve(partition).await;
            let next =
                next.map_err(|error| read::failure(&topic.name, partition, earliest, &error))?;
            let cursor = Cursor {
                topic: topic.name.clone(),
                partition: partition.clone(),
                next,
                stop: self.stops.then_some(latest),
            };
            self.cursors.insert(partition.id, cursor);
        }
        self.followed
            .insert(topic.id, (topic.name.clone(), topic.partitions.len()));
        Ok(())
    }

    /// Forgets a topic whose partitions are gone; tells whether any topic is left.
    fn forget(&mut self, topic: TopicId) -> bool {
        self.cursors.retain(|id, _| id.topic != topic);
        self.followed.remove(&topic);
        !self.followed.is_empty()
    }
}

impl Cursor {
    fn is_done(&self) -> bool {
        self.stop.is_some_and(|stop| self.next >= stop)
    }

    /// How far it may read now.
    fn until(&self) -> Offset {
        let (_, latest) = bounds(&self.partition);
        self.stop.map_or(latest, |stop| stop.min(latest))
    }

    /// Resolves when there is more to read, or with false when the partition is gone.
    fn moved(&self) -> Moved {
        let (id, next, mut end) = (self.partition.id, self.next, self.partition.end.clone());
        Box::pin(async move { (id, end.wait_for(|end| *end > next).await.is_ok()) })
    }
}

/// How a tail ends.
enum End {
    /// All was sent that was asked for, or nobody reads any more.
    Done,
    Failed(CallFailure),
}

async fn run(
    context: Arc<Context>,
    tail: Tail,
    messages: mpsc::Sender<Result<wire::TailResponse, Status>>,
) {
    let ended = tokio::select! {
        ended = send_all(&context, tail, &messages) => ended,
        () = context.phase.reached(Phase::Draining) => {
            End::Failed(CallError::Draining.into())
        }
        () = messages.closed() => End::Done,
    };
    if let End::Failed(failure) = ended {
        // Nobody is left to be told.
        drop(messages.send(Err(failure.into())).await);
    }
}

async fn send_all(
    context: &Context,
    mut tail: Tail,
    messages: &mpsc::Sender<Result<wire::TailResponse, Status>>,
) -> End {
    let mut ready: VecDeque<PartitionId> = tail.cursors.keys().copied().collect();
    let mut waiting: FuturesUnordered<Moved> = FuturesUnordered::new();
    let mut growth = tokio::time::interval(GROWTH_CHECK);
    growth.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        while let Some(id) = ready.pop_front() {
            let Some(cursor) = tail.cursors.get_mut(&id) else {
                continue;
            };
            let (left, key) = (tail.left, tail.key_equals.clone());
            let sent = match send_one(context, cursor, (left, key), messages).await {
                Ok(sent) => sent,
                Err(end) => return end,
            };
            if let Some(left) = &mut tail.left {
                *left = left.saturating_sub(sent);
                if *left == 0 {
                    return End::Done;
                }
            }
            if cursor.is_done() {
                tail.cursors.remove(&id);
            } else if cursor.next < cursor.until() {
                ready.push_back(id);
            } else {
                waiting.push(cursor.moved());
            }
        }
        if tail.cursors.is_empty() && tail.stops {
            return End::Done;
        }
        tokio::select! {
            Some((id, is_there)) = waiting.next() => {
                if is_there {
                    ready.push_back(id);
                } else if let Some(end) = gone(&mut tail, id) {
                    return end;
                }
            }
            _ = growth.tick(), if !tail.stops => {
                match grow(context, &mut tail).await {
                    Ok(new) => ready.extend(new),
                    Err(failure) => return End::Failed(failure),
                }
            }
        }
    }
}

/// The partition of a cursor was deleted: others go on, if there are any.
fn gone(tail: &mut Tail, id: PartitionId) -> Option<End> {
    let topic = tail.cursors.get(&id)?.topic.to_string();
    if tail.forget(id.topic) {
        return None;
    }
    Some(End::Failed(TopicRefusal::NotFound { topic }.into()))
}

/// Follows partitions that were added; they are read from their beginning, since all in them came
/// after this call did.
async fn grow(context: &Context, tail: &mut Tail) -> Result<Vec<PartitionId>, CallFailure> {
    let catalog = context.view().catalog();
    let known: Vec<(TopicId, usize)> = tail
        .followed
        .iter()
        .map(|(id, (_, count))| (*id, *count))
        .collect();
    let mut new = Vec::new();
    for (id, count) in known {
        let Some(topic) = catalog.by_id.get(&id) else {
            continue;
        };
        if topic.partitions.len() > count {
            tail.follow(topic, Position::Earliest).await?;
            new.extend(
                topic
                    .partitions
                    .iter()
                    .skip(count)
                    .map(|partition| partition.id),
            );
        }
    }
    Ok(new)
}

/// Sends the next message of a cursor, if there is one; gives the number of its records.
async fn send_one(
    context: &Context,
    cursor: &mut Cursor,
    (left, key_equals): (Option<u64>, Option<Bytes>),
    messages: &mpsc::Sender<Result<wire::TailResponse, Status>>,
) -> Result<u64, End> {
    let until = cursor.until();
    if cursor.next >= until {
        return Ok(0);
    }
    let bytes_aim = usize::try_from(REPLY_BYTES).unwrap_or(usize::MAX);
    let Some(room) = context.tails.acquire(bytes_aim).await else {
        return Err(End::Done);
    };
    let mut limit = ReplyLimit::new(REPLY_RECORDS.1, bytes_aim);
    limit.records_max = left.map_or(limit.records_max, |left| limit.records_max.min(left));
    let style = RecordStyle {
        key_equals,
        ..RecordStyle::default()
    };
    let mut reply = ReplyRecords::new(3, limit, style, (cursor.next, until));
    if let Err(error) = read::fill(&cursor.partition, until, &mut reply).await {
        let failure = read::failure(&cursor.topic, &cursor.partition, cursor.next, &error);
        return Err(End::Failed(failure));
    }
    cursor.next = reply.next();
    let records = reply.count();
    if records == 0 {
        return Ok(0);
    }
    let mut head = BytesMut::with_capacity(300);
    let mut writer = MessageWriter::new(&mut head);
    writer.bytes(1, cursor.topic.as_str().as_bytes());
    writer.int(2, i64::from(cursor.partition.id.partition));
    let mut payload = Payload::default();
    payload.push(head.freeze());
    payload.push(reply.finish());
    payload.hold(room);
    if let Some(topic) = context.view().topic(cursor.topic.as_str()) {
        context.went_out(&topic, records, payload.len());
    }
    let sent = messages.send(Ok(wire::TailResponse(payload))).await;
    sent.map_err(|_closed| End::Done)?;
    Ok(records)
}
