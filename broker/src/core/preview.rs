//! What a change would come to, without being done.

use varvelog_store::{Offset, PartitionId};

use super::applied::Outcome;
use super::command::Change;
use super::state::State;
use crate::names::GroupName;

/// The outcome that a change would have, for a call that only validates. The change passed
/// [`State::check`] and is no append, settlement or start of a broker.
pub(super) fn preview(state: &State, change: &Change) -> Outcome {
    match change {
        Change::CreateTopic(create) => Outcome::Topic(create.topic),
        Change::UpdateTopic { topic, .. } | Change::AddPartitions { topic, .. } => {
            Outcome::Topic(*topic)
        }
        Change::MoveLogStart { partition, start } => {
            let now = state
                .topics
                .partition(*partition)
                .map(super::partitions::Partition::start);
            Outcome::LogStart(now.unwrap_or_default().max(*start))
        }
        Change::InitProducer { name } => {
            let (id, epoch) = state.producers.next_of(name, state.broker.producer_ids);
            Outcome::Producer { id, epoch }
        }
        Change::ResetOffsets { group, positions } => Outcome::Moved(moves(state, group, positions)),
        Change::StartReplay(start) => state.replay_started(start, state.broker.stamp()),
        Change::Discard(_) => Outcome::Discarded {
            discarded: 0,
            skipped: 0,
        },
        Change::NextGeneration { group } => {
            let now = state.groups.get(group).map_or(0, |group| group.generation);
            Outcome::Generation(now + 1)
        }
        Change::Append(_)
        | Change::DeleteTopic { .. }
        | Change::ForgetTopic { .. }
        | Change::ExpireProducers { .. }
        | Change::CreateGroup(_)
        | Change::AddGroupTopics { .. }
        | Change::UpdateGroup { .. }
        | Change::DeleteGroup { .. }
        | Change::CommitOffsets(_)
        | Change::Settle(_)
        | Change::HandOut(_)
        | Change::HandBack(_)
        | Change::MakeDue(_)
        | Change::Replay(_)
        | Change::ControlReplay { .. }
        | Change::BrokerStarted { .. } => Outcome::Done,
    }
}

fn moves(
    state: &State,
    group: &GroupName,
    positions: &[(PartitionId, Offset)],
) -> Vec<(PartitionId, Offset, Offset)> {
    let Some(group) = state.groups.get(group) else {
        return Vec::new();
    };
    let moved = |(id, wanted): &(PartitionId, Offset)| {
        let partition = state.topics.partition(*id)?;
        let to = (*wanted).clamp(partition.start(), partition.next());
        Some((*id, group.progress(*id)?.low(), to))
    };
    positions.iter().filter_map(moved).collect()
}
