//! From what an edge asks to the changes that do it, and from their outcomes to the answer.
//!
//! Quotas are checked here and not in apply: they are a broker's configuration. A change that is
//! returned passes [`State::check`] on the same state.

use varvelog_store::{Offset, PartitionId, TopicId};

use super::applied::Outcome;
use super::command::{
    Change, CommitOffsets, CreateGroup, CreateTopic, GroupTopic, MakeDue, OffsetCommit,
};
use super::dead_letters::JobNumber;
use super::quota;
use super::refusal::{GroupRefusal, Refusal};
use super::replay_command::JobControl;
use super::request::{ChangeDone, ChangeRequest, CommitRequest, StartAt};
use super::settings::{GroupSettings, TopicSettings};
use super::state::State;
use super::topic_changes::check_within;
use super::topics::{Topic, derived_refusal};
use crate::names::{GroupName, TopicName};

/// How many there may be, derived topics not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountLimits {
    /// See `limits.topics`.
    pub topics: u64,
    /// Of all topics together; see `limits.partitions`.
    pub partitions: u64,
    /// See `limits.groups`.
    pub groups: u64,
}

impl Default for CountLimits {
    fn default() -> Self {
        Self {
            topics: 1_000,
            partitions: 10_000,
            groups: 10_000,
        }
    }
}

/// What keeps a group in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// Live members, those that are waited for included.
    pub members: u32,
    /// Hand-outs that are neither settled nor given back.
    pub leases: u32,
}

/// The changes that do what is asked, to be applied in order, each when the one before it is.
///
/// `sessions_live` counts what keeps a group in use. `dice` gives a fresh random
/// UUID with each call.
pub fn decide(
    state: &State,
    request: &ChangeRequest,
    sessions_live: &dyn Fn(&GroupName) -> Live,
    dice: &mut dyn FnMut() -> [u8; 16],
    limits: &CountLimits,
) -> Result<Vec<Change>, Refusal> {
    let change = match request {
        ChangeRequest::CreateTopic {
            name,
            partitions,
            settings,
        } => create_topic(state, (name, *partitions, settings), dice, limits)?,
        ChangeRequest::UpdateTopic { name, settings } => update_topic(state, name, settings)?,
        ChangeRequest::AddPartitions { name, total } => {
            add_partitions(state, name, *total, limits)?
        }
        ChangeRequest::DeleteTopic { name, force } => delete_topic(state, name, *force)?,
        ChangeRequest::DeleteRecords {
            name,
            partition,
            before,
        } => delete_records(state, name, *partition, *before)?,
        ChangeRequest::InitProducer { name } => Change::InitProducer { name: name.clone() },
        ChangeRequest::CreateGroup {
            name,
            topics,
            settings,
            start,
        } => {
            let topics = group_topics(state, name, topics, start, dice)?;
            create_group(state, name, settings, topics, limits)?
        }
        ChangeRequest::UpdateGroup { name, settings } => {
            update_group(state, name, settings, sessions_live)?
        }
        ChangeRequest::DeleteGroup {
            name,
            purge_dead_letters,
        } => delete_group(state, name, *purge_dead_letters, sessions_live)?,
        ChangeRequest::CommitOffsets {
            group,
            offsets,
            member,
        } => {
            if state.groups.get(group).is_none() {
                return commit_to_new_group(state, (group, offsets), dice, limits);
            }
            commit(state, group, offsets, member.is_some())?
        }
        ChangeRequest::ResetOffsets {
            group,
            positions,
            force,
        } => {
            if !force {
                check_idle(state, group, sessions_live)?;
            }
            reset_offsets(state, group, positions)?
        }
        ChangeRequest::MakeDue { group, records } => make_due(group, records),
        ChangeRequest::StartReplay(start) => Change::StartReplay(start.clone()),
        ChangeRequest::ControlReplay { job, control } => control_replay(*job, *control),
        ChangeRequest::Discard(discard) => Change::Discard(discard.clone()),
    };
    state.check(&change, state.broker.stamp())?;
    Ok(vec![change])
}

/// The answer to a request whose changes had these outcomes, in order.
pub fn answer(request: &ChangeRequest, outcomes: &[Outcome]) -> ChangeDone {
    match (request, outcomes.last()) {
        (
            ChangeRequest::CreateTopic { .. }
            | ChangeRequest::UpdateTopic { .. }
            | ChangeRequest::AddPartitions { .. },
            Some(Outcome::Topic(topic)),
        ) => ChangeDone::Topic(*topic),
        (ChangeRequest::DeleteRecords { .. }, Some(Outcome::LogStart(start))) => {
            ChangeDone::LogStart(*start)
        }
        (ChangeRequest::InitProducer { .. }, Some(Outcome::Producer { id, epoch })) => {
            ChangeDone::Producer {
                id: *id,
                epoch: *epoch,
            }
        }
        (ChangeRequest::ResetOffsets { .. }, Some(Outcome::Moved(moved))) => {
            ChangeDone::Moved(moved.clone())
        }
        (ChangeRequest::StartReplay(_), Some(Outcome::Replay(job))) => ChangeDone::Replay(*job),
        (ChangeRequest::Discard(_), Some(Outcome::Discarded { discarded, skipped })) => {
            ChangeDone::Discarded {
                discarded: *discarded,
                skipped: *skipped,
            }
        }
        (_, Some(Outcome::Done)) => ChangeDone::Done,
        (request, outcome) => unreachable!("{request:?} had the outcome {outcome:?}"),
    }
}

/// Topics as they come to a group that lacks them, with fresh ids for their derived topics. Topics
/// that the group has, or that are named twice, are left out.
pub fn group_topics(
    state: &State,
    group: &GroupName,
    topics: &[TopicName],
    start: &StartAt,
    dice: &mut dyn FnMut() -> [u8; 16],
) -> Result<Vec<GroupTopic>, Refusal> {
    let mut found: Vec<GroupTopic> = Vec::with_capacity(topics.len());
    for name in topics {
        let topic = own_topic(state, name)?;
        let has =
            |group: &super::durable_groups::DurableGroup| group.topics.contains_key(&topic.id);
        let is_known = state.groups.get(group).is_some_and(has);
        if !is_known && found.iter().all(|new| new.topic != topic.id) {
            found.push(GroupTopic {
                topic: topic.id,
                start: starts(topic, start),
                retry: TopicId(dice()),
                dead_letter: TopicId(dice()),
            });
        }
    }
    Ok(found)
}

/// The change that makes a group, if there may be one more.
pub fn create_group(
    state: &State,
    name: &GroupName,
    settings: &GroupSettings,
    topics: Vec<GroupTopic>,
    limits: &CountLimits,
) -> Result<Change, Refusal> {
    let (group, settings) = (name.clone(), settings.clone());
    let change = Change::CreateGroup(CreateGroup {
        group,
        settings,
        topics,
    });
    state.check(&change, state.broker.stamp())?;
    quota::check("groups", state.groups.count(), 1, limits.groups)?;
    Ok(change)
}

fn create_topic(
    state: &State,
    (name, partitions, settings): (&TopicName, u32, &TopicSettings),
    dice: &mut dyn FnMut() -> [u8; 16],
    limits: &CountLimits,
) -> Result<Change, Refusal> {
    let topic = TopicId(dice());
    let (name, settings) = (name.clone(), settings.clone());
    let change = Change::CreateTopic(CreateTopic {
        topic,
        name,
        partitions,
        settings,
    });
    state.check(&change, state.broker.stamp())?;
    quota::check("topics", state.topics.counts().topics, 1, limits.topics)?;
    quota::check_partitions(state, partitions, limits)?;
    Ok(change)
}

fn add_partitions(
    state: &State,
    name: &TopicName,
    total: u32,
    limits: &CountLimits,
) -> Result<Change, Refusal> {
    let topic = own_topic(state, name)?;
    let more = total.saturating_sub(topic.partition_count());
    quota::check_partitions(state, more, limits)?;
    Ok(Change::AddPartitions {
        topic: topic.id,
        total,
    })
}

fn update_topic(
    state: &State,
    name: &TopicName,
    settings: &TopicSettings,
) -> Result<Change, Refusal> {
    let (topic, settings) = (own_topic(state, name)?.id, settings.clone());
    Ok(Change::UpdateTopic { topic, settings })
}

fn delete_topic(state: &State, name: &TopicName, force: bool) -> Result<Change, Refusal> {
    let topic = own_topic(state, name)?.id;
    Ok(Change::DeleteTopic { topic, force })
}

fn delete_records(
    state: &State,
    name: &TopicName,
    partition: u32,
    start: Offset,
) -> Result<Change, Refusal> {
    let topic = own_topic(state, name)?.id;
    let partition = PartitionId { topic, partition };
    Ok(Change::MoveLogStart { partition, start })
}

/// What members rely on changes only while there are none.
fn update_group(
    state: &State,
    group: &GroupName,
    settings: &GroupSettings,
    sessions_live: &dyn Fn(&GroupName) -> Live,
) -> Result<Change, Refusal> {
    let now = &state.groups.find(group)?.settings;
    if (now.mode, now.on_failure) != (settings.mode, settings.on_failure) {
        check_idle(state, group, sessions_live)?;
    }
    let (group, settings) = (group.clone(), settings.clone());
    Ok(Change::UpdateGroup { group, settings })
}

fn commit(
    state: &State,
    group: &GroupName,
    offsets: &[CommitRequest],
    may_move_back: bool,
) -> Result<Change, Refusal> {
    let offsets = resolve_commits(state, offsets)?;
    let group = group.clone();
    Ok(Change::CommitOffsets(CommitOffsets {
        group,
        offsets,
        may_move_back,
    }))
}

fn delete_group(
    state: &State,
    group: &GroupName,
    purge_dead_letters: bool,
    sessions_live: &dyn Fn(&GroupName) -> Live,
) -> Result<Change, Refusal> {
    check_idle(state, group, sessions_live)?;
    let group = group.clone();
    Ok(Change::DeleteGroup {
        group,
        purge_dead_letters,
    })
}

fn reset_offsets(
    state: &State,
    group: &GroupName,
    positions: &[(PartitionId, Offset)],
) -> Result<Change, Refusal> {
    state.groups.find(group)?;
    let (group, positions) = (group.clone(), positions.to_vec());
    Ok(Change::ResetOffsets { group, positions })
}

fn control_replay(job: JobNumber, control: JobControl) -> Change {
    Change::ControlReplay { job, control }
}

fn make_due(group: &GroupName, records: &[(PartitionId, Offset)]) -> Change {
    let (group, records) = (group.clone(), records.to_vec());
    Change::MakeDue(MakeDue { group, records })
}

fn commit_to_new_group(
    state: &State,
    (group, offsets): (&GroupName, &[CommitRequest]),
    dice: &mut dyn FnMut() -> [u8; 16],
    limits: &CountLimits,
) -> Result<Vec<Change>, Refusal> {
    let names: Vec<TopicName> = offsets.iter().map(|offset| offset.topic.clone()).collect();
    let topics = group_topics(state, group, &names, &StartAt::Earliest, dice)?;
    let mut offsets = resolve_commits(state, offsets)?;
    for offset in &mut offsets {
        let partition = state.topics.find_partition(offset.partition)?;
        check_within(partition, offset.offset)?;
        // Nothing was committed yet that this could move back from.
        offset.offset = offset.offset.max(partition.start());
    }
    let create = create_group(state, group, &GroupSettings::default(), topics, limits)?;
    let group = group.clone();
    let commit = CommitOffsets {
        group,
        offsets,
        may_move_back: false,
    };
    Ok(vec![create, Change::CommitOffsets(commit)])
}

fn resolve_commits(state: &State, offsets: &[CommitRequest]) -> Result<Vec<OffsetCommit>, Refusal> {
    let resolve = |wanted: &CommitRequest| {
        let topic = state.topics.find_name(&wanted.topic)?.id;
        let partition = PartitionId {
            topic,
            partition: wanted.partition,
        };
        let metadata = wanted.metadata.clone();
        Ok(OffsetCommit {
            partition,
            offset: wanted.offset,
            metadata,
        })
    };
    offsets.iter().map(resolve).collect()
}

fn starts(topic: &Topic, start: &StartAt) -> Vec<Offset> {
    match start {
        StartAt::Earliest => Vec::new(),
        StartAt::Offsets(offsets) => topic
            .partition_ids()
            .map(|id| offsets.get(&id).copied().unwrap_or_default())
            .collect(),
    }
}

fn own_topic<'a>(state: &'a State, name: &TopicName) -> Result<&'a Topic, Refusal> {
    let topic = state.topics.find_name(name)?;
    match &topic.derived {
        None => Ok(topic),
        Some(derived) => Err(derived_refusal(name, derived.group.as_str())),
    }
}

fn check_idle(
    state: &State,
    group: &GroupName,
    sessions_live: &dyn Fn(&GroupName) -> Live,
) -> Result<(), Refusal> {
    state.groups.find(group)?;
    let Live { members, leases } = sessions_live(group);
    if members == 0 && leases == 0 {
        return Ok(());
    }
    Err(GroupRefusal::NotEmpty {
        group: group.to_string(),
        members,
        leases,
    }
    .into())
}
