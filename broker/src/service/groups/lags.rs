//! How old what a group has not done is: append times, read from the logs.

use std::time::Duration;

use varvelog_store::partition::ReadError;
use varvelog_store::{Offset, WallMs};

use super::snapshot::{GroupSnapshot, PartitionSnapshot};
use crate::service::context::Context;
use crate::service::read;

/// Ages of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ages {
    /// Of the oldest record not done in place; none where all is done.
    pub(super) oldest: Option<Duration>,
    /// Of the oldest that could be given out.
    pub(super) ready: Option<Duration>,
    /// Since the first append, of the oldest in the retry topic.
    pub(super) retried: Option<Duration>,
    /// Since the soonest retry was due that could be given out.
    pub(super) overdue: Option<Duration>,
}

/// The ages of each partition of `group`, in its order.
pub(super) async fn ages(context: &Context, group: &GroupSnapshot) -> Vec<Ages> {
    let now = context.wall();
    let mut ages = Vec::with_capacity(group.partitions.len());
    for partition in &group.partitions {
        ages.push(ages_of(context, partition, now).await);
    }
    ages
}

async fn ages_of(context: &Context, partition: &PartitionSnapshot, now: WallMs) -> Ages {
    // The low watermark is the oldest that is not done.
    let low = (partition.lag > 0).then_some(partition.low);
    let oldest = age_at(context, partition, low, now).await;
    let ready = match partition.open.ready {
        same if same == low => oldest,
        offset => age_at(context, partition, offset, now).await,
    };
    let due = partition.open.due.map(|due| since(due, now));
    Ages {
        oldest,
        ready: ready.max(due),
        overdue: due,
        retried: age_at(context, partition, partition.open.origin, now).await,
    }
}

/// The age of the record at `offset`; retention may just have passed it.
async fn age_at(
    context: &Context,
    partition: &PartitionSnapshot,
    offset: Option<Offset>,
    now: WallMs,
) -> Option<Duration> {
    let offset = offset?;
    let catalog = context.view().catalog();
    let topic = catalog.by_id.get(&partition.id.topic)?;
    let view = topic
        .partitions
        .get(usize::try_from(partition.id.partition).ok()?)?;
    let there = offset.max(view.reader.start());
    let time = match read::append_time_at(&view.reader, there).await {
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
    Some(since(time, now))
}

fn since(time: WallMs, now: WallMs) -> Duration {
    Duration::from_millis(u64::try_from(now.0.saturating_sub(time.0)).unwrap_or(0))
}
