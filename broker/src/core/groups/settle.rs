//! Settling and holding what was handed out, by token.

use std::time::Duration;

use varvelog_store::{Offset, WallMs};

use super::action::CallId;
use super::durable::Durable;
use super::feed::{GRANT_RECORDS_MAX, Run, first_missing};
use super::group::Group;
use super::lease::Stage;
use super::turn::{Proposal, Settling, Turn};
use crate::core::applied::{Outcome, RangeSettled};
use crate::core::command::{Change, Settle};
use crate::core::refusal::{CallError, GroupRefusal, Refusal, TopicRefusal};
use crate::core::request::{AckToken, Conflict, GroupReply, LeaseId, SettleRequest, Settled};
use crate::names::GroupName;

/// Records of a token and what this call may do with them.
#[derive(Debug, Default)]
struct Judged {
    /// May be settled; rising and apart.
    runs: Vec<Run>,
    conflicts: Vec<(Offset, Conflict)>,
}

impl Judged {
    fn conflict(&mut self, (first, last): Run, why: Conflict) {
        let count = last.plus(1).since(first);
        self.conflicts
            .extend((0..count).map(|at| (first.plus(at), why)));
    }
}

/// Settles what a token names. `group` is its live side, if there is one.
pub(super) fn settle<S: Durable>(
    turn: &mut Turn<'_, S>,
    group: Option<&mut Group>,
    call: CallId,
    request: &SettleRequest,
) {
    let token = &request.token;
    let Some(facts) = turn.state.group(&token.group) else {
        turn.reply(call, Err(group_gone(&token.group)));
        return;
    };
    let named = (
        token.first,
        request
            .up_to
            .map_or(token.last, |up_to| up_to.min(token.last)),
    );
    let judged = judge_named(turn, group.as_deref(), (token, facts.id), named);
    let done = |from| turn.state.next_done(&token.group, token.partition, from);
    let missing = judged
        .runs
        .iter()
        .find_map(|run| first_missing(run.0, run.1, &[&done]));
    if missing.is_none() {
        let already_settled = judged
            .runs
            .iter()
            .map(|run| run.1.plus(1).since(run.0))
            .sum();
        let conflicts = judged.conflicts;
        let settled = Settled {
            done: 0,
            already_settled: narrow(already_settled),
            conflicts,
        };
        turn.reply(call, Ok(GroupReply::Settled(settled)));
        return;
    }
    let change = Settle {
        group: token.group.clone(),
        group_id: token.group_id,
        reset_count: token.reset_count,
        partition: token.partition,
        ranges: judged.runs.clone(),
    };
    let settling = Settling {
        group: token.group.clone(),
        partition: token.partition,
        call: Some(call),
        runs: judged.runs.clone(),
        conflicts: judged.conflicts,
    };
    let proposal = turn.propose(Proposal::Settle(settling), Change::Settle(change));
    if let Some(feed) = group.and_then(|group| group.feeds.get_mut(&token.partition)) {
        feed.settle(proposal, judged.runs);
    }
}

/// As [`judge`], for a token that may be void as a whole. `group_id` is of the present group.
fn judge_named<S: Durable>(
    turn: &Turn<'_, S>,
    group: Option<&Group>,
    (token, group_id): (&AckToken, u64),
    named: Run,
) -> Judged {
    let position = turn.state.position(&token.group, token.partition);
    let position = position
        .filter(|position| group_id == token.group_id && position.reset_count == token.reset_count);
    let mut judged = Judged::default();
    let count = named.1.plus(1).since(named.0);
    match position {
        _ if count == 0 => {}
        // No such token was ever given out.
        _ if count > GRANT_RECORDS_MAX => judged.conflict((named.0, named.0), Conflict::Unknown),
        None => judged.conflict(named, Conflict::Unknown),
        Some(position) => {
            judged = judge(group, token, turn.shared.run, named, position.end);
        }
    }
    judged
}

/// Splits the named records of a token into those that it may settle and conflicts.
///
/// A token settles what it holds, and what nobody was given since. A token of an earlier run of
/// the broker is known to nobody: it settles whatever is not held by another.
fn judge(
    group: Option<&Group>,
    token: &AckToken,
    run: u64,
    (first, last): Run,
    end: Offset,
) -> Judged {
    let mut judged = Judged::default();
    if last >= end {
        judged.conflict((first.max(end), last), Conflict::Unknown);
    }
    if first >= end {
        return judged;
    }
    let last = last.min(end.minus(1));
    let feed = group.and_then(|group| group.feeds.get(&token.partition));
    let own = (token.run == run).then_some(token.lease);
    let mut others: Vec<Run> = Vec::new();
    if let Some(feed) = feed {
        let leases = feed.leases.overlapping(first, last);
        let leases = leases.filter(|lease| Some(lease.id) != own);
        others.extend(leases.map(|lease| (lease.first.max(first), lease.last.min(last))));
        if let Some(own) = own {
            let since = feed.given_since(own, first, last);
            others.extend(since.map(|run| (run.0.max(first), run.1.min(last))));
        }
    }
    others.sort_unstable();
    let mut from = first;
    for run in others {
        if from < run.0 {
            judged.runs.push((from, run.0.minus(1)));
        }
        judged.conflict(run, Conflict::LeaseLost);
        from = run.1.plus(1);
    }
    if from <= last {
        judged.runs.push((from, last));
    }
    judged.conflicts.sort_unstable_by_key(|(offset, _)| *offset);
    judged
}

/// A settlement was committed, or refused.
pub(super) fn settled<S: Durable>(
    turn: &mut Turn<'_, S>,
    settling: Settling,
    outcome: &Result<Outcome, Refusal>,
) {
    let Some(call) = settling.call else { return };
    let answer = match outcome {
        Ok(Outcome::Settled(ranges)) => Ok(counted(ranges, settling.conflicts)),
        Ok(_) | Err(_) if turn.state.group(&settling.group).is_none() => {
            Err(group_gone(&settling.group))
        }
        Err(refusal @ Refusal::Quota(_)) => Err(refusal.clone().into()),
        // It was reset, or the topic was deleted, while the settlement was on its way.
        Ok(_) | Err(_) => {
            let mut judged = Judged {
                runs: Vec::new(),
                conflicts: settling.conflicts,
            };
            for run in settling.runs {
                judged.conflict(run, Conflict::Unknown);
            }
            judged.conflicts.sort_unstable_by_key(|(offset, _)| *offset);
            Ok(counted(&[], judged.conflicts))
        }
    };
    turn.reply(call, answer.map(GroupReply::Settled));
}

fn counted(ranges: &[RangeSettled], conflicts: Vec<(Offset, Conflict)>) -> Settled {
    Settled {
        done: narrow(ranges.iter().map(|range| range.done).sum()),
        already_settled: narrow(ranges.iter().map(|range| range.already).sum()),
        conflicts,
    }
}

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
    let lost = |offset| CallError::from(Refusal::from(GroupRefusal::LeaseLost { offset }));
    if facts.id != token.group_id {
        return Err(lost(token.first));
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
        return Err(lost(token.first));
    }
    let own = LeaseId(if token.run == turn.shared.run {
        token.lease.0
    } else {
        0
    });
    let feed = group
        .as_ref()
        .and_then(|group| group.feeds.get(&token.partition));
    let lease = feed.and_then(|feed| feed.leases.get(own)).cloned();
    let done = |from| turn.state.next_done(&token.group, token.partition, from);
    let held = |from| {
        let run = lease.as_ref().map(|lease| (lease.first, lease.last));
        run.filter(|(_, last)| *last >= from)
    };
    if let Some(offset) = first_missing(token.first, token.last, &[&done, &held]) {
        return Err(lost(offset));
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
    } = lease.stage
    else {
        return Err(lost(token.first));
    };
    let (mut to, id) = (deadline, lease.id);
    if deadline < hold_end {
        let wanted = Duration::from_millis(ack_timeout_ms.unwrap_or(usual_ms));
        to = turn.now.plus(wanted).min(hold_end);
        group.set_deadline(turn, (token.partition, id), to);
    }
    let left_ms = i64::try_from(to.since(turn.now).as_millis()).unwrap_or(i64::MAX);
    let deadline = WallMs(turn.wall.0.saturating_add(left_ms));
    Ok(GroupReply::Extended {
        deadline,
        capped: to >= hold_end,
    })
}

fn group_gone(group: &GroupName) -> CallError {
    Refusal::from(GroupRefusal::NotFound {
        group: group.to_string(),
    })
    .into()
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
