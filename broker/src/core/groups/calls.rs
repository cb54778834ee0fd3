//! Calls of the edges that find their group first.

use super::durable::Durable;
use super::group::Group;
use super::join::{Joining, Step};
use super::member::MemberKey;
use super::membership::members_refusal;
use super::sessions::Groups;
use super::turn::Turn;
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::core::request::{GroupReply, StreamKey};
use crate::names::GroupName;

/// Takes a join as far as it gets.
pub(super) fn proceed<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, joining: Joining) {
    match joining.next_step(turn.state) {
        Err(refusal) => turn.reply(joining.call, Err(refusal.into())),
        Ok(Step::Propose(change)) => {
            let waiting = turn
                .shared
                .joining
                .get(&joining.request.group)
                .copied()
                .unwrap_or(0);
            let limit = turn.shared.limits.members_max;
            if waiting < limit {
                turn.propose_for(joining, *change);
            } else {
                turn.reply(joining.call, Err(members_refusal(limit, waiting).into()));
            }
        }
        Ok(Step::Admit(wanted)) => {
            let facts = turn.state.group(&joining.request.group);
            let generation = facts.map_or(0, |facts| facts.generation);
            let group = groups.entry(&joining.request.group, generation);
            group.admit(turn, joining, wanted);
        }
    }
}

/// Acts for the member that a stream is of; on nothing if the stream is over.
pub(super) fn on_stream<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    stream: StreamKey,
    act: impl FnOnce(&mut Group, &mut Turn<'_, S>, MemberKey),
) {
    let Some((name, key)) = turn.shared.streams.get(&stream).cloned() else {
        return;
    };
    if let Some(group) = groups.get_mut(&name) {
        act(group, turn, key);
    }
}

/// Ends a membership at once.
pub(super) fn leave<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    name: &GroupName,
    member_id: &str,
) -> Result<GroupReply, Refusal> {
    if turn.state.group(name).is_none() {
        return Err(GroupRefusal::NotFound {
            group: name.to_string(),
        }
        .into());
    }
    if let Some(group) = groups.get_mut(name) {
        group.leave(turn, member_id);
    }
    Ok(GroupReply::Left)
}
