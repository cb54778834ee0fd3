//! `Fetch` and `ListOffsets`.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use varvelog_proto::v1;
use varvelog_store::partition::ReadError;
use varvelog_store::{Epoch, Offset};

use super::checks;
use super::context::Context;
use super::edge::Phase;
use super::lookup;
use super::positions::{Position, bounds};
use super::read::{self, BatchesLimit};
use super::status::{CallFailure, FieldViolation, ReadRefusal};
use super::transcode::{RecordStyle, ReplyLimit, ReplyRecords};
use super::wire::{self, MessageWriter, Payload};
use crate::core::refusal::TopicRefusal;
use crate::view::{PartitionView, TopicView};

/// Records of a reply, unless asked for otherwise, and the most.
pub(super) const REPLY_RECORDS: (u32, u32) = (500, 10_000);
/// Bytes of a reply, unless asked for otherwise.
pub(super) const REPLY_BYTES: u32 = 1 << 20;
const WAIT: Duration = Duration::from_millis(500);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a reply waits for room to be made in.
pub(super) const ROOM_WAIT_MAX: Duration = Duration::from_secs(2);

/// A fetch whose fields are within their bounds.
struct Fetch {
    topic: Arc<TopicView>,
    partition: PartitionView,
    from: Offset,
    limit: ReplyLimit,
    as_batches: bool,
    wait: Duration,
}

impl Fetch {
    fn read(context: &Context, request: &v1::FetchRequest) -> Result<Self, CallFailure> {
        let topic = lookup::topic(context.view(), "topic", &request.topic)?;
        let partition = lookup::partition(&topic, "partition", request.partition)?.clone();
        let from = checks::offset("offset", request.offset)?;
        let records = checks::count("max_records", request.max_records, REPLY_RECORDS)?;
        let limit = ReplyLimit::new(records, reply_bytes(context, request.max_bytes)?);
        let bounds = (Duration::ZERO, WAIT_MAX);
        let wait = checks::duration_ms("max_wait", request.max_wait.as_ref(), bounds)?
            .map_or(WAIT, Duration::from_millis);
        check_epoch(&partition.epochs, from, request.current_epoch)?;
        Ok(Self {
            topic,
            partition,
            from,
            limit,
            as_batches: request.as_batches,
            wait,
        })
    }

    fn failure(&self, error: &ReadError) -> CallFailure {
        read::failure(&self.topic.name, &self.partition, self.from, error)
    }
}

/// `max_bytes` of a reply.
pub(super) fn reply_bytes(context: &Context, max_bytes: i32) -> Result<usize, FieldViolation> {
    let most = u32::try_from(context.request_bytes_max()).unwrap_or(u32::MAX);
    let bytes = checks::count("max_bytes", max_bytes, (REPLY_BYTES, most))?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Refuses a reader who has read what was cut off since: the epoch that follows the one it read
/// begins where that was cut.
fn check_epoch(
    epochs: &[(Epoch, Offset)],
    from: Offset,
    current_epoch: i32,
) -> Result<(), CallFailure> {
    let read = u32::try_from(current_epoch).map_err(|_negative| {
        FieldViolation::bound("current_epoch", 0, current_epoch, "must not be negative")
    })?;
    if read == 0 {
        return Ok(());
    }
    let next = epochs.iter().find(|(epoch, _)| *epoch > Epoch(read));
    match next {
        Some((epoch, cut)) if from > *cut => {
            let (safe_offset, epoch) = (*cut, epoch.as_i32());
            Err(ReadRefusal::Truncated { safe_offset, epoch }.into())
        }
        Some(_) | None => Ok(()),
    }
}

/// `Fetch`.
pub(super) async fn fetch(
    context: &Context,
    request: v1::FetchRequest,
) -> Result<wire::FetchResponse, CallFailure> {
    let mut fetch = Fetch::read(context, &request)?;
    let end = wait_for_record(context, &mut fetch).await?;
    let began = context.meters().start();
    let room = fetch.limit.bytes_aim;
    let _room = context.replies.acquire_within(room, ROOM_WAIT_MAX).await?;
    let (mut reply, records, next) = if fetch.as_batches {
        fetch_batches(&fetch, end).await?
    } else {
        fetch_records(&fetch, end).await?
    };
    let (earliest, latest) = bounds(&fetch.partition);
    let mut tail = BytesMut::with_capacity(64);
    let mut writer = MessageWriter::new(&mut tail);
    writer.int(2, next.as_i64());
    writer.int(3, earliest.as_i64());
    writer.int(4, latest.as_i64());
    writer.int(5, i64::from(fetch.partition.epoch.as_i32()));
    reply.push(tail.freeze());
    context.went_out(&fetch.topic, records, reply.len());
    context.meters().took(&context.meters().fetch, began);
    Ok(wire::FetchResponse(reply))
}

/// Waits until there is a record at the offset, the time is over or the broker drains; gives the
/// visible end.
async fn wait_for_record(context: &Context, fetch: &mut Fetch) -> Result<Offset, CallFailure> {
    let (earliest, latest) = bounds(&fetch.partition);
    let from = fetch.from;
    if from < earliest || from > latest {
        let offset = from.as_i64();
        return Err(TopicRefusal::OffsetOutOfRange {
            offset,
            earliest,
            latest,
        }
        .into());
    }
    if from < latest || fetch.wait.is_zero() {
        return Ok(latest);
    }
    let waited = tokio::select! {
        waited = fetch.partition.end.wait_for(|end| *end > from) => waited.map(|end| *end),
        () = tokio::time::sleep(fetch.wait) => Ok(latest),
        () = context.phase.reached(Phase::Draining) => Ok(latest),
    };
    // The sender goes when the partition is deleted.
    waited.map_err(|_gone| {
        TopicRefusal::NotFound {
            topic: fetch.topic.name.to_string(),
        }
        .into()
    })
}

async fn fetch_records(fetch: &Fetch, end: Offset) -> Result<(Payload, u64, Offset), CallFailure> {
    let range = (fetch.from, end);
    let mut reply = ReplyRecords::new(1, fetch.limit, RecordStyle::default(), range);
    let filled = read::fill(&fetch.partition, end, &mut reply).await;
    filled.map_err(|error| fetch.failure(&error))?;
    let (records, next) = (reply.count(), reply.next());
    let mut payload = Payload::default();
    payload.push(reply.finish());
    Ok((payload, records, next))
}

async fn fetch_batches(fetch: &Fetch, end: Offset) -> Result<(Payload, u64, Offset), CallFailure> {
    let mut payload = Payload::default();
    let limit = BatchesLimit {
        records_max: fetch.limit.records_max,
        bytes_max: fetch.limit.bytes_aim,
        until: end,
    };
    let filled = read::fill_batches(&fetch.partition, fetch.from, limit, (&mut payload, 6)).await;
    let taken = filled.map_err(|error| fetch.failure(&error))?;
    Ok((payload, taken.records, taken.next))
}

/// `ListOffsets`.
pub(super) async fn list_offsets(
    context: &Context,
    request: v1::ListOffsetsRequest,
) -> Result<v1::ListOffsetsResponse, CallFailure> {
    let topic = lookup::topic(context.view(), "topic", &request.topic)?;
    let at = Position::read("at", request.at.as_ref(), Position::Latest)?;
    let mut wanted = request.partitions;
    wanted.sort_unstable();
    wanted.dedup();
    let partitions = if wanted.is_empty() {
        topic.partitions.iter().collect()
    } else {
        wanted
            .iter()
            .map(|number| lookup::partition(&topic, "partitions", *number))
            .collect::<Result<Vec<_>, _>>()?
    };
    let mut offsets = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let found = offset_at(at, partition).await;
        let (offset, append_time_ms) =
            found.map_err(|error| read::failure(&topic.name, partition, Offset::ZERO, &error))?;
        offsets.push(v1::PartitionOffset {
            partition: i32::try_from(partition.id.partition).unwrap_or(i32::MAX),
            offset: offset.as_i64(),
            append_time_ms,
        });
    }
    Ok(v1::ListOffsetsResponse { offsets })
}

/// The offset at a position, and the append time of the record there: -1 for none.
async fn offset_at(at: Position, partition: &PartitionView) -> Result<(Offset, i64), ReadError> {
    let offset = at.resolve(partition).await?;
    let time = read::append_time_at(&partition.reader, offset).await?;
    Ok((offset, time.map_or(-1, |time| time.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::status::{Explanation, Reason};

    #[test]
    fn a_reader_of_an_epoch_that_was_cut_is_told_where_and_one_before_the_cut_goes_on() {
        let at = |offset| Offset::ZERO.plus(offset);
        let epochs = [(Epoch(1), at(0)), (Epoch(3), at(100)), (Epoch(4), at(150))];
        let check = |from, epoch| check_epoch(&epochs, at(from), epoch);
        for (from, epoch) in [(100, 1), (99, 1), (150, 3), (900, 4), (900, 9), (900, 0)] {
            assert_eq!(check(from, epoch), Ok(()), "{from} {epoch}");
        }
        for (from, epoch, cut, now) in [
            (101, 1, "100", "3"),
            (101, 2, "100", "3"),
            (151, 3, "150", "4"),
        ] {
            let refused = Explanation::from(&check(from, epoch).unwrap_err());
            assert_eq!(refused.reason, Reason::OffsetTruncated);
            let told: Vec<&str> = refused
                .metadata
                .iter()
                .map(|entry| entry.1.as_str())
                .collect();
            assert_eq!(told, [cut, now]);
        }
        assert!(check(0, -1).is_err());
    }
}
