//! Holding what was handed out for longer.

use std::time::Duration;

use varvelog_store::WallMs;

use super::candidate::first_missing;
use super::durable::Durable;
use super::group::Group;
use super::lease::Stage;
use super::settle::lost;
use super::settling::group_gone;
use super::turn::Turn;
use crate::core::refusal::{CallError, Refusal, TopicRefusal};
use crate::core::request::{AckToken, GroupReply};

/// Holds what a token names for longer.
pub(super) fn extend<S: Durable>(
    turn: &mut Turn<'_, S>,
    group: Option<&mut Group>,
    token: &AckToken,
    ack_timeout_ms: Option<u64>,
) -> Result<GroupReply, CallError> {
    let facts = turn
        .state
        .group(&token.group)
        .ok_or_else(|| group_gone(&token.group))?;
    let first = token.origin(token.first);
    if facts.id != token.group_id {
        return Err(lost(first));
    }
    let position = turn
        .state
        .position(&token.group, token.partition)
        .ok_or_else(|| {
            Refusal::from(TopicRefusal::NotFound {
                topic: token.partition.topic.to_string(),
            })
        })?;
    if position.reset_count != token.reset_count || token.last >= position.end {
        return Err(lost(first));
    }
    let feed = group
        .as_ref()
        .and_then(|group| group.feeds.get(&token.partition));
    let own = turn.shared.own_lease(token);
    let lease = own.and_then(|own| feed?.leases.get(own)).cloned();
    let done = |from| turn.state.next_done(&token.group, token.partition, from);
    let held = |from| {
        let run = lease.as_ref().map(|lease| (lease.first, lease.last));
        run.filter(|(_, last)| *last >= from)
    };
    if let Some(offset) = first_missing(token.first, token.last, &[&done, &held]) {
        return Err(lost(token.origin(offset)));
    }
    let (Some(lease), Some(group)) = (lease, group) else {
        // All of it is settled: there is nothing left to hold.
        return Ok(GroupReply::Extended {
            deadline: turn.wall,
            capped: true,
        });
    };
    let Stage::Out {
        deadline,
        hold_end,
        ack_timeout_ms: usual_ms,
        ..
    } = lease.stage
    else {
        return Err(lost(first));
    };
    let (mut to, id) = (deadline, lease.id);
    if deadline < hold_end {
        let wanted = Duration::from_millis(ack_timeout_ms.unwrap_or(usual_ms));
        to = turn.now.plus(wanted).min(hold_end);
        group.set_deadline(turn, (token.partition, id), to);
    }
    if let Some(tally) = turn.tally(&token.group, token.partition) {
        tally.extends.inc();
    }
    let left_ms = i64::try_from(to.since(turn.now).as_millis()).unwrap_or(i64::MAX);
    let deadline = WallMs(turn.wall.0.saturating_add(left_ms));
    Ok(GroupReply::Extended {
        deadline,
        capped: to >= hold_end,
    })
}
