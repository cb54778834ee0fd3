//! A group as the API shows it.

use std::time::Duration;

use varvelog_proto::v1;

use super::advice::Load;
use super::lags::ages;
use super::open_records::Budget;
use super::snapshot::{GroupSnapshot, PartitionSnapshot};
use super::trend::{Sample, Trend};
use super::{admission, settings, stalls};
use crate::core::groups::{MemberDescription, OpenState};
use crate::core::refusal::CallError;
use crate::service::context::Context;
use crate::service::topics::timestamp;

/// Without a settlement for so long, a group that has members and lag is stalled.
const STALLED_AFTER_MS: i64 = 60_000;
/// Groups of an overview.
const WORST: usize = 5;

/// How much of a group is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// As in lists.
    Brief,
    /// With lags and stalls.
    Whole,
}

/// A group as it is now.
pub(super) async fn shown(context: &Context, group: &GroupSnapshot, detail: Detail) -> v1::Group {
    let ages = ages(context, group).await;
    let oldest = ages.iter().filter_map(|ages| ages.oldest).max();
    let retried = ages.iter().filter_map(|ages| ages.retried).max();
    let ready = ages.iter().filter_map(|ages| ages.ready).max();
    let trend = trend(context, group);
    let load = Load::of(group, oldest.unwrap_or_default());
    let advised = (load, &group.settings.admission);
    let at = context.services.clock.mono();
    let scale_advice = context.advices.of(&group.name, advised, at);
    let scheduled = group.partitions.iter().map(|one| one.open.scheduled);
    let scheduled = scheduled.fold(0, u64::saturating_add);
    let (lags, stalls) = match detail {
        Detail::Brief => (Vec::new(), Vec::new()),
        Detail::Whole => {
            let each = group.partitions.iter().zip(&ages);
            let lags = each.map(|(one, ages)| lag(group, one, ages.oldest));
            (lags.collect(), stalls::shown(context, group).await)
        }
    };
    v1::Group {
        name: group.name.to_string(),
        config: Some(settings::shown(&group.settings)),
        status: status(context, group, trend.is_lagging).into(),
        generation: i64::try_from(group.generation).unwrap_or(i64::MAX),
        members: group.members.iter().map(|one| member(group, one)).collect(),
        lags,
        total_lag: i64::try_from(group.lag()).unwrap_or(i64::MAX),
        oldest_unprocessed_age: Some(duration(oldest.unwrap_or_default())),
        retries_scheduled: i64::try_from(scheduled).unwrap_or(i64::MAX),
        estimated_catch_up: trend.catch_up.map(duration),
        dead_letters: i64::try_from(group.dead_letters).unwrap_or(i64::MAX),
        topics: group.topics.iter().map(ToString::to_string).collect(),
        ready_age: ready.map(duration),
        end_to_end_age: Some(duration(oldest.max(retried).unwrap_or_default())),
        breaker_open: group.breaker_open,
        stalls,
        config_version: i64::try_from(group.settings_version).unwrap_or(i64::MAX),
        scale_advice,
        admission: group.admission.as_ref().map(admission::state),
    }
}

/// Which way a group goes.
pub(super) fn trend(context: &Context, group: &GroupSnapshot) -> Trend {
    let now = Sample {
        at: context.services.clock.mono(),
        lag: group.lag(),
    };
    context.trends.of(&group.name, now)
}

pub(super) fn status(
    context: &Context,
    group: &GroupSnapshot,
    is_lagging: bool,
) -> v1::GroupStatus {
    let is_live = group.members.iter().any(|member| member.address.is_some());
    let idle_ms = context.wall().0.saturating_sub(group.last_active.0);
    if !is_live {
        v1::GroupStatus::NoMembers
    } else if group.lag() > 0 && idle_ms >= STALLED_AFTER_MS {
        v1::GroupStatus::Stalled
    } else if is_lagging {
        v1::GroupStatus::Lagging
    } else {
        v1::GroupStatus::Ok
    }
}

fn member(group: &GroupSnapshot, member: &MemberDescription) -> v1::Member {
    let topic_of = |id: &varvelog_store::PartitionId| {
        let found = group
            .partitions
            .iter()
            .find(|partition| partition.id == *id)?;
        Some(v1::TopicPartition {
            topic: group.topics.get(found.topic)?.to_string(),
            partition: i32::try_from(id.partition).unwrap_or(i32::MAX),
        })
    };
    v1::Member {
        id: member.id.clone(),
        name: member.name.clone().unwrap_or_default(),
        address: member.address.clone().unwrap_or_default(),
        join_time: Some(timestamp(member.joined.0)),
        partitions: member.partitions.iter().filter_map(topic_of).collect(),
        in_flight: i32::try_from(member.in_flight).unwrap_or(i32::MAX),
    }
}

fn lag(
    group: &GroupSnapshot,
    partition: &PartitionSnapshot,
    age: Option<Duration>,
) -> v1::PartitionLag {
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let topic = group.topics.get(partition.topic).map(ToString::to_string);
    v1::PartitionLag {
        topic: topic.unwrap_or_default(),
        partition: i32::try_from(partition.id.partition).unwrap_or(i32::MAX),
        committed_offset: partition.low.as_i64(),
        latest_offset: partition.end.as_i64(),
        lag: count(partition.lag),
        oldest_unprocessed_age: Some(duration(age.unwrap_or_default())),
        member_id: partition.owner.clone().unwrap_or_default(),
        in_flight: count(partition.in_flight),
        done_ahead: count(partition.done_ahead),
        pinned: pinned(partition, age),
        expired_unsettled: count(partition.expired_unsettled),
    }
}

/// The record that holds back the low watermark, if it was given out or waits.
fn pinned(partition: &PartitionSnapshot, age: Option<Duration>) -> Option<v1::PinnedRecord> {
    let pinned = partition.pinned.as_ref()?;
    let state = match pinned.state {
        OpenState::Leased => v1::RecordState::Leased,
        OpenState::Ready => v1::RecordState::Ready,
        OpenState::Waiting => v1::RecordState::Waiting,
    };
    Some(v1::PinnedRecord {
        offset: pinned.offset.as_i64(),
        state: state.into(),
        member_id: pinned.holder.clone().unwrap_or_default(),
        age: age.map(duration),
        attempt: i32::try_from(pinned.attempt).unwrap_or(i32::MAX),
    })
}

fn duration(duration: Duration) -> prost_types::Duration {
    duration.try_into().unwrap_or_default()
}

/// What an overview says of all groups.
#[derive(Debug, Default)]
pub(in crate::service) struct Worst {
    /// Those with the oldest unprocessed records, the oldest first.
    pub(in crate::service) groups: Vec<v1::Group>,
    /// That are stalled.
    pub(in crate::service) stalled: i32,
    /// Records in the dead-letter topics of all.
    pub(in crate::service) dead_letters: u64,
}

/// Looks at all groups.
pub(in crate::service) async fn worst(context: &Context) -> Result<Worst, CallError> {
    let now = context.wall();
    let groups: Vec<GroupSnapshot> = context
        .core()
        .query(move |view| {
            let mut budget = Budget::new(now);
            let groups = view.state.groups.iter();
            groups
                .map(|group| GroupSnapshot::of(view, group, &mut budget))
                .collect()
        })
        .await?;
    let mut worst = Worst::default();
    let mut all = Vec::new();
    for group in &groups {
        worst.dead_letters = worst.dead_letters.saturating_add(group.dead_letters);
        worst.stalled += i32::from(status(context, group, false) == v1::GroupStatus::Stalled);
        if group.lag() > 0 {
            all.push(shown(context, group, Detail::Brief).await);
        }
    }
    let age = |group: &v1::Group| {
        group
            .oldest_unprocessed_age
            .map_or((0, 0), |age| (age.seconds, age.nanos))
    };
    all.sort_by_key(|group| std::cmp::Reverse(age(group)));
    all.truncate(WORST);
    worst.groups = all;
    Ok(worst)
}
