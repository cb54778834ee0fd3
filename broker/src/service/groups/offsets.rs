//! `ResetOffsets`.

use std::collections::BTreeSet;

use varvelog_proto::v1;
use varvelog_store::{Offset, PartitionId};

use super::snapshot::{GroupSnapshot, PartitionSnapshot};
use crate::core::refusal::GroupRefusal;
use crate::core::request::{ChangeDone, ChangeRequest};
use crate::names::GroupName;
use crate::service::ack::with_nearest;
use crate::service::context::Context;
use crate::service::lookup;
use crate::service::positions::{Position, bounds};
use crate::service::read;
use crate::service::status::{CallFailure, FieldViolation};

/// Where positions are moved to.
#[derive(Debug, Clone, Copy)]
enum Target {
    To(Position),
    Shift(i64),
}

impl Target {
    fn read(request: &v1::ResetOffsetsRequest) -> Result<Self, FieldViolation> {
        let is_set = request.to.as_ref().is_some_and(|to| to.at.is_some());
        match (is_set, request.shift_by) {
            (true, 0) => {
                let to = Position::read("to", request.to.as_ref(), Position::Earliest)?;
                Ok(Self::To(to))
            }
            (false, shift) if shift != 0 => Ok(Self::Shift(shift)),
            (true, _) => Err(FieldViolation::new(
                "shift_by",
                "to and shift_by exclude each other",
            )),
            (false, _) => Err(FieldViolation::new("to", "to or shift_by must be given")),
        }
    }
}

/// `ResetOffsets`.
pub(super) async fn reset(
    context: &Context,
    request: v1::ResetOffsetsRequest,
) -> Result<v1::ResetOffsetsResponse, CallFailure> {
    let name = lookup::group_name("group", &request.group)?;
    let target = Target::read(&request)?;
    let group = snapshot(context, &name).await?;
    let wanted = wanted(context, &request, &group)?;
    let mut positions = Vec::with_capacity(wanted.len());
    for partition in &wanted {
        let to = resolve(context, &group, partition, target).await?;
        positions.push((partition.id, to));
    }
    let change = ChangeRequest::ResetOffsets {
        group: name,
        positions,
        force: request.force,
    };
    let done = context.core().change(change, request.validate_only).await?;
    let ChangeDone::Moved(moved) = done else {
        unreachable!("ResetOffsets was answered by {done:?}")
    };
    let change = |(id, old, new): (PartitionId, Offset, Offset)| v1::OffsetChange {
        topic: topic_of(&group, &wanted, id),
        partition: i32::try_from(id.partition).unwrap_or(i32::MAX),
        old_offset: old.as_i64(),
        new_offset: new.as_i64(),
    };
    Ok(v1::ResetOffsetsResponse {
        changes: moved.into_iter().map(change).collect(),
    })
}

fn topic_of(group: &GroupSnapshot, wanted: &[PartitionSnapshot], id: PartitionId) -> String {
    let found = wanted
        .iter()
        .find(|partition| partition.id.topic == id.topic);
    let name = found.and_then(|partition| group.topics.get(partition.topic));
    name.map(ToString::to_string).unwrap_or_default()
}

/// A group by name, as the core has it.
pub(super) async fn snapshot(
    context: &Context,
    name: &GroupName,
) -> Result<GroupSnapshot, CallFailure> {
    let (wanted, now) = (name.clone(), context.wall());
    let found = context
        .core()
        .query(move |view| GroupSnapshot::find(view, &wanted, now))
        .await?;
    with_nearest(context, name, found.map_err(Into::into)).await
}

/// The partitions that the request is about.
fn wanted(
    context: &Context,
    request: &v1::ResetOffsetsRequest,
    group: &GroupSnapshot,
) -> Result<Vec<PartitionSnapshot>, CallFailure> {
    if request.topic.is_empty() {
        if !request.partitions.is_empty() {
            return Err(FieldViolation::new("topic", "must be given with partitions").into());
        }
        return Ok(group.partitions.clone());
    }
    let topic = lookup::topic(context.view(), "topic", &request.topic)?;
    if !group.topics.contains(&topic.name) {
        let (group, topic) = (group.name.to_string(), topic.name.to_string());
        return Err(GroupRefusal::TopicNotOfGroup { group, topic }.into());
    }
    let mut numbers = BTreeSet::new();
    for number in &request.partitions {
        numbers.insert(
            lookup::partition(&topic, "partitions", *number)?
                .id
                .partition,
        );
    }
    let is_wanted = |partition: &&PartitionSnapshot| {
        partition.id.topic == topic.id
            && (numbers.is_empty() || numbers.contains(&partition.id.partition))
    };
    Ok(group.partitions.iter().filter(is_wanted).cloned().collect())
}

async fn resolve(
    context: &Context,
    group: &GroupSnapshot,
    partition: &PartitionSnapshot,
    target: Target,
) -> Result<Offset, CallFailure> {
    let name = group
        .topics
        .get(partition.topic)
        .map(ToString::to_string)
        .unwrap_or_default();
    let topic = lookup::topic(context.view(), "topic", &name)?;
    let number = i32::try_from(partition.id.partition).unwrap_or(i32::MAX);
    let view = lookup::partition(&topic, "partitions", number)?;
    match target {
        Target::To(position) => position
            .resolve(view)
            .await
            .map_err(|error| read::failure(&topic.name, view, partition.low, &error)),
        Target::Shift(by) => {
            let (earliest, latest) = bounds(view);
            let shifted = if by < 0 {
                partition.low.minus(by.unsigned_abs())
            } else {
                partition.low.plus(by.unsigned_abs())
            };
            Ok(shifted.clamp(earliest, latest))
        }
    }
}
