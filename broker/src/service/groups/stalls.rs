//! Why a partition gives out nothing new though it has records.

use std::time::Duration;

use varvelog_proto::v1;
use varvelog_store::batch::key_hash;
use varvelog_store::{Offset, WallMs};

use super::snapshot::{GroupSnapshot, PartitionSnapshot};
use crate::core::durable_groups::{ACK_WINDOW, DurableGroup, Progress};
use crate::core::failure::{FailureNote, Wait};
use crate::core::groups::{PartitionDescription, StallReason};
use crate::core::settings::{GroupMode, OnFailure};
use crate::service::context::Context;
use crate::service::read::record_at;

/// A stall as the core knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stalled {
    reason: v1::StallReason,
    /// Of the record that causes it.
    offset: Option<Offset>,
    /// When that record failed last.
    since: Option<WallMs>,
}

impl Stalled {
    /// Why.
    pub(super) fn reason(&self) -> v1::StallReason {
        self.reason
    }
}

/// The stall of a partition, if there is one.
pub(super) fn stalled(
    group: &DurableGroup,
    progress: &Progress,
    end: Offset,
    described: Option<&PartitionDescription>,
) -> Option<Stalled> {
    if progress.not_done(end) == 0 {
        return None;
    }
    let by = |reason, offset: Offset| {
        let note = progress.notes().get(&offset);
        Stalled {
            reason,
            offset: Some(offset),
            since: note.map(failed_at),
        }
    };
    let mut notes = progress.notes().iter();
    let halted = notes.find(|(_, note)| matches!(note.wait, Wait::Operator(_)));
    if let Some((offset, _)) = halted {
        return Some(by(v1::StallReason::Halted, *offset));
    }
    match described.and_then(|described| described.stall) {
        Some(StallReason::Order { offset, .. }) => Some(by(v1::StallReason::Order, offset)),
        Some(StallReason::Retries) => Some(Stalled {
            reason: v1::StallReason::Retries,
            offset: None,
            since: None,
        }),
        Some(StallReason::Window) => Some(by(v1::StallReason::Window, progress.low())),
        None if is_full(progress, end) => Some(by(v1::StallReason::Window, progress.low())),
        None => held(group, progress).map(|offset| by(v1::StallReason::Order, offset)),
    }
}

/// Whether records were given out as far beyond the low watermark as they may be.
fn is_full(progress: &Progress, end: Offset) -> bool {
    let limit = progress.low().plus(ACK_WINDOW);
    let last = limit.minus(1);
    let is_out = progress.done().contains(last)
        || progress.out().has(last)
        || progress.notes().contains_key(&last);
    end > limit && is_out
}

/// The failed record that a partition of a stream waits for.
fn held(group: &DurableGroup, progress: &Progress) -> Option<Offset> {
    let settings = &group.settings;
    if settings.on_failure != OnFailure::Hold || settings.mode != GroupMode::Stream {
        return None;
    }
    let mut notes = progress.notes().iter();
    let (offset, _) = notes.find(|(_, note)| !matches!(note.wait, Wait::Ready))?;
    Some(*offset)
}

fn failed_at(note: &FailureNote) -> WallMs {
    note.log.last().map_or(note.first_failure, |last| last.at)
}

/// All stalls of a group, as they are shown.
pub(super) async fn shown(context: &Context, group: &GroupSnapshot) -> Vec<v1::Stall> {
    let mut stalls = Vec::new();
    for partition in &group.partitions {
        if let Some(stalled) = partition.stalled {
            stalls.push(one(context, group, partition, stalled).await);
        }
    }
    stalls
}

async fn one(
    context: &Context,
    group: &GroupSnapshot,
    partition: &PartitionSnapshot,
    stalled: Stalled,
) -> v1::Stall {
    let is_held = group.settings.on_failure == OnFailure::Hold;
    let key_hash = match stalled.offset.filter(|_| is_held) {
        Some(offset) => hash_at(context, partition, offset).await,
        None => None,
    };
    let topic = group.topics.get(partition.topic).map(ToString::to_string);
    let age = |since: WallMs| {
        let age_ms = u64::try_from(context.wall().0.saturating_sub(since.0)).unwrap_or(0);
        Duration::from_millis(age_ms).try_into().unwrap_or_default()
    };
    v1::Stall {
        reason: stalled.reason.into(),
        topic: topic.unwrap_or_default(),
        partition: i32::try_from(partition.id.partition).unwrap_or(i32::MAX),
        offset: stalled.offset.map_or(-1, Offset::as_i64),
        key_hash,
        age: stalled.since.map(age),
    }
}

/// The hash of the key of a record, if it has one and can be read.
async fn hash_at(context: &Context, partition: &PartitionSnapshot, offset: Offset) -> Option<i32> {
    let catalog = context.view().catalog();
    let topic = catalog.by_id.get(&partition.id.topic)?;
    let number = usize::try_from(partition.id.partition).ok()?;
    let view = topic.partitions.get(number)?;
    record_at(view, offset)
        .await
        .ok()??
        .find(offset)?
        .key
        .map(key_hash)
}
