//! From a grant to the response that brings its records.

use bytes::BytesMut;
use prost::Message;
use varvelog_proto::v1;
use varvelog_store::partition::ReadError;
use varvelog_store::{Offset, PartitionId, TopicId};

use crate::core::request::{AckToken, Grant, MemberEvent};
use crate::names::{GroupName, TopicName};
use crate::service::context::Context;
use crate::service::read::{self, BatchesLimit};
use crate::service::transcode::{Origins, RecordStyle, ReplyLimit, ReplyRecords, leased_range};
use crate::service::wire::{ConsumeResponse, MessageWriter, Payload};
use crate::service::{edge::BudgetPermit, token};
use crate::view::PartitionView;

/// How a member wants its records.
#[derive(Debug, Clone)]
pub(super) struct DeliveryRules {
    pub(super) group: GroupName,
    pub(super) limit: ReplyLimit,
    pub(super) as_batches: bool,
    pub(super) auto_ack: bool,
}

/// What was read of a grant.
pub(super) enum Read {
    /// Records up to and with `last`, as fields of the response.
    Records {
        payload: Payload,
        records: u64,
        last: Offset,
    },
    /// Nothing can be read before this offset, now or ever.
    SkipTo(Offset),
    /// Nothing can be read now.
    Unreadable,
    /// The first record is larger than the member takes.
    Undeliverable,
}

/// Reads what a grant allows.
pub(super) async fn read_grant(context: &Context, rules: &DeliveryRules, grant: &Grant) -> Read {
    let catalog = context.view().catalog();
    let partition = catalog.by_id.get(&grant.partition.topic).and_then(|topic| {
        topic
            .partitions
            .get(usize::try_from(grant.partition.partition).ok()?)
    });
    // A topic that is gone: the core says so when it comes to it.
    let (Some(partition), Some(source)) = (partition, catalog.by_name.get(&grant.topic)) else {
        return Read::Unreadable;
    };
    let place = (partition, source.id);
    // Records given out again, or by way of the retry topic, come as records, never as batches.
    let read = if rules.as_batches && grant.attempt == 1 && grant.origins.is_empty() {
        read_batches(context, place, (rules, grant)).await
    } else {
        read_records(context, place, (rules, grant)).await
    };
    read.unwrap_or_else(|error| unread(grant, &error))
}

fn unread(grant: &Grant, error: &ReadError) -> Read {
    tracing::warn!(%error, partition = %grant.partition, from = %grant.from,
        "a grant could not be read");
    match error {
        ReadError::OutOfRange { start, .. } if *start > grant.from => Read::SkipTo(*start),
        ReadError::Corrupt { last, .. } if *last >= grant.from => Read::SkipTo(last.plus(1)),
        ReadError::OutOfRange { .. } | ReadError::Corrupt { .. } | ReadError::Io(_) => {
            Read::Unreadable
        }
    }
}

async fn read_records(
    context: &Context,
    (partition, source): (&PartitionView, TopicId),
    (rules, grant): (&DeliveryRules, &Grant),
) -> Result<Read, ReadError> {
    let origins = Origins {
        partition: PartitionId {
            topic: source,
            partition: grant.partition.partition,
        },
        first: grant.from,
        offsets: grant.origins.clone(),
    };
    let style = RecordStyle {
        attempt: grant.attempt,
        as_produced: true,
        key_equals: None,
        origins: (!grant.origins.is_empty()).then_some(origins),
    };
    let mut reply = ReplyRecords::new(3, rules.limit, style, (grant.from, grant.until));
    read::fill_on(
        partition,
        grant.until,
        (&mut reply, Some(&context.open_batches)),
    )
    .await?;
    let (records, next) = (reply.count(), reply.next());
    if records == 0 {
        return Ok(match reply.oversized() {
            Some(oversized) => {
                tracing::info!(partition = %grant.partition, offset = %oversized.offset,
                    bytes = oversized.bytes, group = %rules.group,
                    "a record is larger than its member takes");
                Read::Undeliverable
            }
            None => Read::Unreadable,
        });
    }
    let mut payload = Payload::default();
    payload.push(reply.finish());
    Ok(Read::Records {
        payload,
        records,
        last: next.minus(1),
    })
}

async fn read_batches(
    context: &Context,
    (partition, source): (&PartitionView, TopicId),
    (rules, grant): (&DeliveryRules, &Grant),
) -> Result<Read, ReadError> {
    let limit = BatchesLimit {
        records_max: rules.limit.records_max,
        bytes_max: rules.limit.bytes_aim,
        until: grant.until,
    };
    let mut payload = Payload::default();
    let taken = read::fill_batches(partition, grant.from, limit, (&mut payload, 9)).await?;
    // One batch alone may pass what its member takes: its records are then looked at one by one.
    if payload.len() > rules.limit.record_bytes_max {
        return read_records(context, (partition, source), (rules, grant)).await;
    }
    let next = taken.next.min(grant.until);
    if next <= grant.from {
        return Ok(Read::Unreadable);
    }
    let last = next.minus(1);
    payload.push(leased_range(10, grant.from, last));
    Ok(Read::Records {
        payload,
        records: next.since(grant.from),
        last,
    })
}

/// The response that brings what was read.
pub(super) fn response(
    context: &Context,
    rules: &DeliveryRules,
    grant: &Grant,
    (mut payload, last): (Payload, Offset),
    room: BudgetPermit,
) -> ConsumeResponse {
    let mut rest = BytesMut::with_capacity(512);
    let mut writer = MessageWriter::new(&mut rest);
    writer.bytes(1, grant.topic.as_str().as_bytes());
    writer.int(2, i64::from(grant.partition.partition));
    if !rules.auto_ack {
        writer.bytes(4, &token::encode(&ack_token(rules, grant, last)));
        let timeout_ms = i64::try_from(grant.ack_timeout_ms).unwrap_or(i64::MAX);
        writer.int(5, context.wall().0.saturating_add(timeout_ms));
    }
    writer.int(6, i64::try_from(grant.lag_records).unwrap_or(i64::MAX));
    writer.int(7, grant.fence);
    payload.push(rest.freeze());
    payload.hold(room);
    ConsumeResponse(payload)
}

fn ack_token(rules: &DeliveryRules, grant: &Grant, last: Offset) -> AckToken {
    let records = usize::try_from(last.plus(1).since(grant.from)).unwrap_or(usize::MAX);
    AckToken {
        group: rules.group.clone(),
        group_id: grant.group_id,
        reset_count: grant.reset_count,
        partition: grant.partition,
        first: grant.from,
        last,
        lease: grant.lease,
        run: grant.run,
        attempt: grant.attempt,
        origins: grant.origins.iter().take(records).copied().collect(),
    }
}

/// The response that tells a member who it is and what it has.
pub(super) fn event(event: &MemberEvent) -> ConsumeResponse {
    let listed = |partitions: &[(TopicName, u32)]| {
        partitions
            .iter()
            .map(|(topic, partition)| v1::TopicPartition {
                topic: topic.to_string(),
                partition: i32::try_from(*partition).unwrap_or(i32::MAX),
            })
            .collect()
    };
    let message = v1::ConsumeResponse {
        event: Some(v1::GroupEvent {
            member_id: event.member_id.clone(),
            generation: i64::try_from(event.generation).unwrap_or(i64::MAX),
            assigned: listed(&event.assigned),
            revoked: listed(&event.revoked),
        }),
        ..v1::ConsumeResponse::default()
    };
    let mut payload = Payload::default();
    payload.push(message.encode_to_vec().into());
    ConsumeResponse(payload)
}
