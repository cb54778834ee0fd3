//! What the core knows of a group, taken on its thread in one piece.

use varvelog_store::{Offset, PartitionId, WallMs};

use super::open_records::{Budget, OpenRecords};
use super::stalls::{Stalled, stalled};
use crate::core::admission::AdmissionView;
use crate::core::dead_letters::Queue;
use crate::core::durable_groups::{DurableGroup, GroupReads};
use crate::core::groups::{GroupDescription, MemberDescription, OpenState, PinnedRecord};
use crate::core::handle::CoreView;
use crate::core::refusal::Refusal;
use crate::core::settings::GroupSettings;
use crate::names::{GroupName, TopicName};

/// A group, durable and live.
#[derive(Debug, Clone)]
pub(super) struct GroupSnapshot {
    pub(super) name: GroupName,
    pub(super) settings: GroupSettings,
    pub(super) settings_version: u64,
    pub(super) generation: u64,
    pub(super) last_active: WallMs,
    pub(super) members: Vec<MemberDescription>,
    pub(super) topics: Vec<TopicName>,
    /// By topic name and partition.
    pub(super) partitions: Vec<PartitionSnapshot>,
    /// Records in its dead-letter topics.
    pub(super) dead_letters: u64,
    /// First deliveries are slowed down.
    pub(super) breaker_open: bool,
    /// Of its gates, if it watches anything.
    pub(super) admission: Option<AdmissionView>,
}

/// A group in a partition.
#[derive(Debug, Clone)]
pub(super) struct PartitionSnapshot {
    /// Index into the topics of the group.
    pub(super) topic: usize,
    pub(super) id: PartitionId,
    pub(super) low: Offset,
    pub(super) end: Offset,
    pub(super) lag: u64,
    pub(super) done_ahead: u64,
    pub(super) expired_unsettled: u64,
    pub(super) owner: Option<String>,
    pub(super) in_flight: u64,
    /// The record at the low watermark, if it was given out or waits.
    pub(super) pinned: Option<PinnedRecord>,
    pub(super) open: OpenRecords,
    pub(super) stalled: Option<Stalled>,
    /// Behind an earlier record of their key or partition, as far as was looked.
    pub(super) blocked: u64,
    /// Of what is done beyond the low watermark.
    pub(super) ack_set_bytes: u64,
}

impl GroupSnapshot {
    /// A group by name, at this time.
    pub(super) fn find(
        view: &CoreView<'_>,
        name: &GroupName,
        now: WallMs,
    ) -> Result<Self, Refusal> {
        let mut budget = Budget::new(now);
        Ok(Self::of(view, view.state.groups.find(name)?, &mut budget))
    }

    /// A group; `budget` is that of all groups that are looked at together.
    pub(super) fn of(view: &CoreView<'_>, group: &DurableGroup, budget: &mut Budget) -> Self {
        let live = view.sessions.describe(&group.name).unwrap_or_default();
        let topics = &view.state.topics;
        let mut names = Vec::new();
        let mut partitions = Vec::new();
        let mut dead_letters = 0_u64;
        for (topic, read) in group.topics_by_name(topics) {
            let queue = view.state.dead_letters.get(read.dead_letter);
            dead_letters = dead_letters.saturating_add(queue.map_or(0, Queue::depth));
            let ids = topic.partition_ids().zip(&topic.partitions);
            for (id, partition) in ids {
                let place = (names.len(), id, partition.next());
                let found = partition_snapshot(group, (place, read), &live, budget);
                partitions.extend(found);
            }
            names.push(topic.name.clone());
        }
        Self {
            name: group.name.clone(),
            settings: group.settings.clone(),
            settings_version: group.settings_version,
            generation: group.generation,
            last_active: group.last_active.wall,
            members: live.members,
            topics: names,
            partitions,
            dead_letters,
            breaker_open: live.breaker_open,
            admission: view.admission.view(&group.name, view.stamp),
        }
    }

    /// Records not done, in all partitions.
    pub(super) fn lag(&self) -> u64 {
        self.partitions
            .iter()
            .map(|partition| partition.lag)
            .fold(0, u64::saturating_add)
    }
}

fn partition_snapshot(
    group: &DurableGroup,
    ((topic, id, end), read): ((usize, PartitionId, Offset), &GroupReads),
    live: &GroupDescription,
    budget: &mut Budget,
) -> Option<PartitionSnapshot> {
    let number = usize::try_from(id.partition).ok()?;
    let progress = read.partitions.get(number)?;
    let retries = read.retries.get(number)?;
    let described = live.partitions.get(&id);
    let lag = progress.not_done(end);
    let low = progress.low();
    let noted = progress.notes().get(&low).map(|note| PinnedRecord {
        offset: low,
        attempt: note.failures.saturating_add(1),
        holder: None,
        state: if budget.is_waiting(note.wait) {
            OpenState::Waiting
        } else {
            OpenState::Ready
        },
    });
    let given = described.and_then(|described| described.pinned.clone());
    let given = given.filter(|pinned| pinned.offset == low);
    let pinned = match (given, noted) {
        // Of one that nobody has the next attempt is told.
        (Some(given), Some(noted)) if given.holder.is_none() => Some(PinnedRecord {
            attempt: noted.attempt,
            ..given
        }),
        (Some(given), None) if given.attempt == 0 => Some(PinnedRecord {
            attempt: 1,
            ..given
        }),
        (given, noted) => given.or(noted),
    };
    Some(PartitionSnapshot {
        topic,
        id,
        low,
        end,
        lag,
        // Everything from the low watermark to the end is either done or not.
        done_ahead: end.since(low).saturating_sub(lag),
        expired_unsettled: progress.expired_unsettled(),
        owner: described.and_then(|described| described.owner.clone()),
        in_flight: described.map_or(0, |described| described.in_flight),
        pinned,
        open: OpenRecords::of(group, (progress, retries), end, budget),
        stalled: stalled(group, progress, end, described),
        blocked: described.map_or(0, |described| described.blocked),
        ack_set_bytes: progress.done().bytes(),
    })
}
