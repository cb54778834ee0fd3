//! What applied commands mean to members and leases.

use varvelog_store::{PartitionId, TopicId};

use super::action::ProposalId;
use super::calls::proceed;
use super::durable::Durable;
use super::group::Group;
use super::sessions::Groups;
use super::settling;
use super::turn::{Proposal, Turn};
use crate::core::applied::{Outcome, Settlement};
use crate::core::command::{Change, MakeDue, Settle};
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::core::replay_command::{Discard, ReplayStep};

/// A change was carried out.
pub(super) fn changed<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    (change, outcome): (&Change, &Outcome),
) {
    match change {
        Change::AddPartitions { topic, .. } => rebalance_readers(groups, turn, *topic),
        Change::DeleteTopic { topic, .. } => {
            topic_gone(groups, turn, *topic);
            turn.shared.tallies.drop_topic(*topic);
        }
        Change::MoveLogStart { partition, .. } => {
            dead_letters_gone(groups, turn, *partition);
            low_moved(groups, turn, *partition);
        }
        Change::AddGroupTopics { group, .. } => {
            if let Some(group) = groups.get_mut(group) {
                group.rebalance(turn);
            }
        }
        Change::UpdateGroup { group, .. } => {
            let generation = turn.state.group(group).map_or(0, |facts| facts.generation);
            groups.entry(group, generation).updated(turn);
        }
        Change::DeleteGroup { group, .. } => {
            if let Some(group) = groups.remove(group) {
                group.gone(turn);
            }
            turn.shared.tallies.drop_group(group);
        }
        Change::CommitOffsets(commit) => {
            if let Some(group) = groups.get_mut(&commit.group) {
                for commit in &commit.offsets {
                    group.low_moved(turn, commit.partition);
                }
            }
        }
        Change::ResetOffsets { group, positions } => {
            if let Some(group) = groups.get_mut(group) {
                for (partition, _) in positions {
                    group.reset(turn, *partition);
                }
            }
        }
        Change::Settle(settle) => {
            if let (Some(group), Outcome::Settled(settlement)) =
                (groups.get_mut(&settle.group), outcome)
            {
                settled(group, turn, settle, settlement);
            }
        }
        Change::MakeDue(due) => made_due(groups, turn, due),
        Change::Replay(step) => replayed(groups, turn, (step, outcome)),
        Change::Discard(discard) => discarded(groups, turn, discard),
        Change::Append(_)
        | Change::CreateTopic(_)
        | Change::UpdateTopic { .. }
        | Change::ForgetTopic { .. }
        | Change::InitProducer { .. }
        | Change::ExpireProducers { .. }
        | Change::CreateGroup(_)
        | Change::NextGeneration { .. }
        | Change::HandOut(_)
        | Change::HandBack(_)
        | Change::StartReplay(_)
        | Change::ControlReplay { .. }
        | Change::BrokerStarted { .. } => {}
    }
}

/// Records of a group were settled, by whomever.
fn settled<S: Durable>(
    group: &mut Group,
    turn: &mut Turn<'_, S>,
    settle: &Settle,
    settlement: &Settlement,
) {
    for run in &settle.ranges {
        group.done(turn, settle.partition, *run);
    }
    if !settle.parked.is_empty() {
        group.parked_changed(turn, settle.partition);
    }
    for (at, note) in &settle.notes {
        group.noted(turn, settle.partition, (*at, note.wait));
    }
    if !settle.notes.is_empty() {
        group.arm(turn, settle.partition);
        group.wake(settle.partition);
    }
    for (index, entries) in &settle.retries {
        let part = usize::try_from(*index).ok();
        if let Some(part) = part.and_then(|index| settlement.appended.parts.get(index)) {
            group.scheduled(turn, part.partition, (part.base_offset, entries));
        }
    }
}

/// Dead letters left their partition, if it is one.
fn dead_letters_gone<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    partition: PartitionId,
) {
    if let Some((name, source)) = turn.state.dead_letters_of(partition) {
        let generation = turn.state.group(&name).map_or(0, |facts| facts.generation);
        let group = groups.entry(&name, generation);
        group.room_for_dead(turn, source);
        group.parked_changed(turn, source);
    }
}

/// Dead letters were dropped.
fn discarded<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, discard: &Discard) {
    for (partition, _) in discard.claims.iter() {
        let topic = discard.queue;
        dead_letters_gone(groups, turn, PartitionId { topic, partition });
    }
}

/// Dead letters are given out again.
fn replayed<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    (step, outcome): (&ReplayStep, &Outcome),
) {
    let Outcome::Settled(settlement) = outcome else {
        return;
    };
    dead_letters_gone(groups, turn, step.partition);
    let Some((name, _)) = turn.state.dead_letters_of(step.partition) else {
        return;
    };
    let Some(group) = groups.get_mut(&name) else {
        return;
    };
    for (index, entries) in &step.retries {
        let part = usize::try_from(*index).ok();
        if let Some(part) = part.and_then(|index| settlement.appended.parts.get(index)) {
            group.scheduled(turn, part.partition, (part.base_offset, entries));
        }
    }
}

fn topic_gone<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, topic: TopicId) {
    for name in groups.readers_of(topic) {
        if let Some(group) = groups.get_mut(&name) {
            group.topic_gone(turn, topic);
        }
    }
}

fn made_due<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, due: &MakeDue) {
    if let Some(group) = groups.get_mut(&due.group) {
        for record in &due.records {
            group.made_due(turn, *record);
        }
    }
}

fn low_moved<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, partition: PartitionId) {
    for name in turn.shared.readers_of(partition) {
        if let Some(group) = groups.get_mut(&name) {
            group.low_moved(turn, partition);
        }
    }
}

fn rebalance_readers<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, topic: TopicId) {
    for name in groups.readers_of(topic) {
        if let Some(group) = groups.get_mut(&name) {
            group.rebalance(turn);
        }
    }
}

/// A proposal came back: goes on with what waited for it.
pub(super) fn resume<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    id: ProposalId,
    outcome: &Result<Outcome, Refusal>,
) {
    match turn.shared.proposals.remove(&id) {
        None => {}
        Some(Proposal::Join(joining)) => {
            turn.shared.uncount_joining(&joining);
            match outcome {
                Err(refusal) if !is_overtaken(refusal) || !joining.may_try_again() => {
                    turn.reply(joining.call, Err(refusal.clone().into()));
                }
                Ok(_) | Err(_) => proceed(groups, turn, *joining),
            }
        }
        Some(Proposal::Generation(name)) => {
            let generation = match outcome {
                Ok(Outcome::Generation(generation)) => Some(*generation),
                Ok(_) | Err(_) => None,
            };
            if let Some(group) = groups.get_mut(&name) {
                group.generation_begun(turn, id, generation);
            }
        }
        Some(Proposal::Settle(settling)) => {
            settling::resume(groups, turn, *settling, outcome);
        }
    }
}

/// Whether a join was refused only because another call was faster.
fn is_overtaken(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Group(GroupRefusal::Exists { .. } | GroupRefusal::NotFound { .. })
    )
}
