//! A topic as the API shows it.

use varvelog_proto::v1;
use varvelog_store::partition::ReadError;

use super::settings;
use crate::service::positions::bounds;
use crate::service::read;
use crate::service::status::CallFailure;
use crate::view::{PartitionView, TopicView};

/// Without status.
pub(super) fn brief(topic: &TopicView) -> v1::Topic {
    let bytes: u64 = topic
        .partitions
        .iter()
        .map(|partition| partition.reader.bytes())
        .sum();
    v1::Topic {
        name: topic.name.to_string(),
        id: topic.id.to_string(),
        partitions: number(topic.partitions.len()),
        config: Some(settings::shown(&topic.settings)),
        create_time: Some(timestamp(topic.created.0)),
        size_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        status: Vec::new(),
    }
}

/// With the status of every partition.
pub(super) async fn whole(topic: &TopicView) -> Result<v1::Topic, CallFailure> {
    let mut shown = brief(topic);
    for partition in &topic.partitions {
        let status = status_of(partition).await.map_err(|error| {
            read::failure(&topic.name, partition, partition.reader.start(), &error)
        })?;
        shown.status.push(status);
    }
    Ok(shown)
}

async fn status_of(partition: &PartitionView) -> Result<v1::PartitionStatus, ReadError> {
    let (earliest, latest) = bounds(partition);
    let oldest = match read::append_time_at(&partition.reader, earliest).await {
        // A damaged record must not hide the topic.
        Err(ReadError::Corrupt { .. }) => None,
        other => other?,
    };
    Ok(v1::PartitionStatus {
        partition: i32::try_from(partition.id.partition).unwrap_or(i32::MAX),
        earliest_offset: earliest.as_i64(),
        latest_offset: latest.as_i64(),
        oldest_append_time: oldest.map(|time| timestamp(time.0)),
        size_bytes: i64::try_from(partition.reader.bytes()).unwrap_or(i64::MAX),
        epoch: partition.epoch.as_i32(),
    })
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Unix milliseconds as a timestamp.
pub(in crate::service) fn timestamp(ms: i64) -> prost_types::Timestamp {
    let nanos = i32::try_from(ms.rem_euclid(1000) * 1_000_000).unwrap_or(0);
    prost_types::Timestamp {
        seconds: ms.div_euclid(1000),
        nanos,
    }
}
