//! What applied commands mean to members and leases.

use varvelog_store::{PartitionId, TopicId};

use super::action::ProposalId;
use super::calls::proceed;
use super::durable::Durable;
use super::sessions::Groups;
use super::settle;
use super::turn::{Proposal, Settling, Turn};
use crate::core::applied::Outcome;
use crate::core::command::Change;
use crate::core::refusal::{GroupRefusal, Refusal};

/// A change was carried out.
pub(super) fn changed<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, change: &Change) {
    match change {
        Change::AddPartitions { topic, .. } => rebalance_readers(groups, turn, *topic),
        Change::DeleteTopic { topic, .. } => {
            for name in groups.readers_of(*topic) {
                if let Some(group) = groups.get_mut(&name) {
                    group.topic_gone(turn, *topic);
                }
            }
        }
        Change::MoveLogStart { partition, .. } => {
            for name in turn.shared.readers_of(*partition) {
                if let Some(group) = groups.get_mut(&name) {
                    group.low_moved(turn, *partition);
                }
            }
        }
        Change::AddGroupTopics { group, .. } => {
            if let Some(group) = groups.get_mut(group) {
                group.rebalance(turn);
            }
        }
        Change::UpdateGroup { group, .. } => {
            if let Some(group) = groups.get_mut(group) {
                let partitions: Vec<_> = group.feeds.keys().copied().collect();
                for partition in partitions {
                    group.wake(partition);
                }
            }
        }
        Change::DeleteGroup { group, .. } => {
            if let Some(group) = groups.remove(group) {
                group.gone(turn);
            }
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
            if let Some(group) = groups.get_mut(&settle.group) {
                for run in &settle.ranges {
                    group.done(turn, settle.partition, *run);
                }
            }
        }
        Change::Append(_)
        | Change::CreateTopic(_)
        | Change::UpdateTopic { .. }
        | Change::ForgetTopic { .. }
        | Change::InitProducer { .. }
        | Change::ExpireProducers { .. }
        | Change::CreateGroup(_)
        | Change::NextGeneration { .. }
        | Change::BrokerStarted { .. } => {}
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
            settlement_over(groups, &settling, id);
            settle::settled(turn, settling, outcome);
        }
    }
}

fn settlement_over(groups: &mut Groups, settling: &Settling, id: ProposalId) {
    let partition: PartitionId = settling.partition;
    if let Some(group) = groups.get_mut(&settling.group) {
        if let Some(feed) = group.feeds.get_mut(&partition) {
            feed.settled(id);
        }
        group.wake(partition);
    }
}

/// Whether a join was refused only because another call was faster.
fn is_overtaken(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Group(GroupRefusal::Exists { .. } | GroupRefusal::NotFound { .. })
    )
}
