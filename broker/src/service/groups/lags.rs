//! How old what a group has not done is: append times, read from the logs.

use std::time::Duration;

use varvelog_store::WallMs;
use varvelog_store::partition::ReadError;

use super::snapshot::{GroupSnapshot, PartitionSnapshot};
use crate::service::context::Context;
use crate::service::read;

/// The age of the oldest record not done, of each partition of `group`, in its order; none where
/// all is done.
pub(super) async fn ages(context: &Context, group: &GroupSnapshot) -> Vec<Option<Duration>> {
    let now = context.wall();
    let mut ages = Vec::with_capacity(group.partitions.len());
    for partition in &group.partitions {
        ages.push(age(context, partition, now).await);
    }
    ages
}

async fn age(context: &Context, partition: &PartitionSnapshot, now: WallMs) -> Option<Duration> {
    if partition.lag == 0 {
        return None;
    }
    let catalog = context.view().catalog();
    let topic = catalog.by_id.get(&partition.id.topic)?;
    let view = topic
        .partitions
        .get(usize::try_from(partition.id.partition).ok()?)?;
    // The low watermark is the oldest that is not done; retention may just have passed it.
    let oldest = partition.low.max(view.reader.start());
    let time = match read::append_time_at(&view.reader, oldest).await {
        Ok(time) => time?,
        // A record behind the damage is younger, so the age is at least its.
        Err(ReadError::Corrupt { last, .. }) => read::append_time_at(&view.reader, last.plus(1))
            .await
            .ok()??,
        Err(error) => {
            tracing::warn!(%error, partition = %partition.id, "an append time could not be read");
            return None;
        }
    };
    let age_ms = u64::try_from(now.0.saturating_sub(time.0)).unwrap_or(0);
    Some(Duration::from_millis(age_ms))
}
