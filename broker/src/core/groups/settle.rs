//! Settling what was handed out, by token.

use std::collections::BTreeMap;

use varvelog_store::Offset;

use super::action::CallId;
use super::durable::{Durable, Position};
use super::fates::{Court, How, Plan, Unprocessed};
use super::feed::{Feed, GRANT_RECORDS_MAX, Run};
use super::group::Group;
use super::judge::{Judge, Standing};
use super::lease::Lease;
use super::settling::{Asked, Settling, begin, group_gone};
use super::turn::Turn;
use crate::core::command::RequestId;
use crate::core::refusal::{AppendRefusal, CallError, GroupRefusal, Refusal};
use crate::core::request::{
    AckToken, Conflict, GroupReply, LeaseId, RecordFailure, SettleRequest, Settled,
};
use crate::core::settings::{GroupMode, GroupSettings, OnFailure};

/// A call that settles, and how often it was judged before.
pub(super) type Call = (CallId, SettleRequest, u32);

/// The records of a token that a call names.
#[derive(Debug)]
struct Named {
    /// In the partition of the token.
    run: Option<Run>,
    /// Failures that are not of these records.
    strangers: Conflicts,
}

/// Records that are not settled, by their first appends, and why.
type Conflicts = Vec<(Offset, Conflict)>;

/// Settles what a token names. `group` is its live side, if there is one.
pub(super) fn settle<S: Durable>(
    turn: &mut Turn<'_, S>,
    group: Option<&mut Group>,
    (call, request, tries): Call,
) {
    let token = &request.token;
    let Some(facts) = turn.state.group(&token.group) else {
        turn.reply(call, Err(group_gone(&token.group)));
        return;
    };
    let position = turn.state.position(&token.group, token.partition);
    let position =
        position.filter(|it| facts.id == token.group_id && it.reset_count == token.reset_count);
    let Named { run, strangers } = named(&request);
    let (Some(named), Some(position)) = (run, position) else {
        answer_void(turn, call, &request, (run, strangers));
        return;
    };
    if let Some(answer) = repeated_outputs(turn, &request, named) {
        turn.reply(call, answer.map(GroupReply::Settled));
        return;
    }
    let must_wait = !request.failures.is_empty() || request.outputs.is_some();
    if must_wait && let Some(group) = &group {
        let feed = group.feeds.get(&token.partition);
        if let Some(ticket) = feed.and_then(|feed| feed.underway.ticket_of(named)) {
            turn.shared.follow(ticket, (call, request));
            return;
        }
    }
    decide(
        turn,
        group,
        (call, request, tries),
        (named, strangers, position),
    );
}

/// Decides on every record, and sends on its way what follows.
fn decide<S: Durable>(
    turn: &mut Turn<'_, S>,
    group: Option<&mut Group>,
    (call, request, tries): Call,
    (named, strangers, position): (Run, Conflicts, Position),
) {
    let token = &request.token;
    let state = turn.state;
    let Some(facts) = state.group(&token.group) else {
        return;
    };
    let feed = group.as_ref().and_then(|it| it.feeds.get(&token.partition));
    let judge = Judge::new(turn, feed, token, named);
    let consumer = consumer(group.as_deref(), token, turn.shared.run);
    let mut plan = Plan::new(&token.group, &facts, position.reset_count, token.partition);
    plan.counts.conflicts = strangers;
    let court = Court {
        group: &token.group,
        settings: facts.settings,
        partition: token.partition,
        is_retry: !token.origins.is_empty(),
    };
    let releases = releases_of(feed, turn.shared.own_lease(token));
    let failures = by_place(&request, named);
    let holds_all = is_held_whole(facts.settings);
    let mut from = named.0;
    while from <= named.1 {
        let next = failures.range(from..).next();
        let Some((at, failure)) = next.filter(|(at, _)| **at == from) else {
            let last = next.map_or(named.1, |(at, _)| at.minus(1));
            settle_done(turn, &judge, &mut plan, (from, last));
            from = last.plus(1);
            continue;
        };
        let origin = token.origin(*at);
        match judge.standing(turn, from, failure) {
            Standing::Open => {
                let record = unprocessed(from, origin, failure, (releases, &consumer));
                court.decide(turn, &mut plan, record);
            }
            Standing::Settled => plan.counts.already_settled += 1,
            Standing::Conflict(why) => plan.counts.conflicts.push((origin, why)),
        }
        from = from.plus(1);
        if holds_all && plan.is_noted(*at) {
            // The partition waits for it: what is behind it is given back, whatever was said.
            plan.release_run((from, named.1), releases);
            break;
        }
    }
    send(turn, group, (call, request, tries), (named, plan));
}

/// Whether a record that waits in place holds up all that is behind it.
fn is_held_whole(settings: &GroupSettings) -> bool {
    settings.mode == GroupMode::Stream && settings.on_failure == OnFailure::Hold
}

/// Failures of named records, by where these lie.
fn by_place(request: &SettleRequest, named: Run) -> BTreeMap<Offset, &RecordFailure> {
    let place = |failure: &'_ RecordFailure| {
        let at = request.token.place_of(failure.offset)?;
        (named.0 <= at && at <= named.1).then_some(at)
    };
    let failures = request.failures.iter();
    failures
        .filter_map(|failure| Some((place(failure)?, failure)))
        .collect()
}

fn unprocessed(
    offset: Offset,
    origin: Offset,
    failure: &RecordFailure,
    (releases, consumer): (u32, &str),
) -> Unprocessed {
    Unprocessed {
        offset,
        origin,
        how: How::Said {
            action: failure.action,
            text: failure.text.clone(),
            retry_after_ms: failure.retry_after_ms,
        },
        releases,
        consumer: consumer.to_owned(),
    }
}

/// Records of a run that were processed.
fn settle_done<S: Durable>(turn: &Turn<'_, S>, judge: &Judge, plan: &mut Plan, (first, last): Run) {
    let mut from = first;
    while from <= last {
        let (standing, until) = judge.processed(turn, from, last);
        let count = until.plus(1).since(from);
        match standing {
            Standing::Open => {
                plan.counts.done += narrow(count);
                plan.done((from, until));
            }
            Standing::Settled => plan.counts.already_settled += narrow(count),
            Standing::Conflict(why) => {
                let token = &judge.token;
                let origins = (0..count).map(|at| (token.origin(from.plus(at)), why));
                plan.counts.conflicts.extend(origins);
            }
        }
        from = until.plus(1);
    }
}

/// Sends a plan on its way, or answers when there is nothing to do.
fn send<S: Durable>(
    turn: &mut Turn<'_, S>,
    group: Option<&mut Group>,
    (call, request, tries): Call,
    (named, mut plan): (Run, Plan),
) {
    let token = &request.token;
    plan.counts.conflicts.sort_unstable_by_key(|it| it.0);
    if let Some(outputs) = &request.outputs {
        let conflict = plan.counts.conflicts.first().map(|it| it.0);
        let settled = (plan.counts.already_settled > 0).then(|| token.origin(named.0));
        if let Some(offset) = conflict.or(settled) {
            turn.reply(call, Err(lost(offset)));
            return;
        }
        plan.settle.append.request = Some(output_request(&request, named));
        plan.settle.append.parts = outputs.parts(turn.wall);
    }
    let nothing =
        plan.settle.ranges.is_empty() && plan.settle.notes.is_empty() && plan.released.is_empty();
    if nothing {
        let conflicts = u64::try_from(plan.counts.conflicts.len()).unwrap_or(u64::MAX);
        if let Some(tally) = turn.tally(&token.group, token.partition)
            && conflicts > 0
        {
            tally.conflicts.inc_by(conflicts);
            tally.late_refused.inc();
        }
        turn.reply(call, Ok(GroupReply::Settled(plan.counts)));
        return;
    }
    let job = plan.copy_job(turn);
    let own = turn.shared.own_lease(token);
    let feed = group.as_ref().and_then(|it| it.feeds.get(&token.partition));
    let held = feed.and_then(|feed| feed.leases.get(own?));
    let settling = Settling {
        given: held.and_then(Lease::given),
        ticket: turn.shared.next_ticket(),
        lease: own.map(|lease| (lease, named.1)),
        settle: plan.settle,
        released: plan.released,
        answer: plan.counts,
        followers: Vec::new(),
        operator: None,
        asked: Some(Asked { call, request }),
        unasked: Vec::new(),
        left: Vec::new(),
        tries,
        failed: plan.failed,
    };
    begin(turn, group, settling, job);
}

/// The records that a call names, in the partition of its token.
fn named(request: &SettleRequest) -> Named {
    let token = &request.token;
    let mut last = Some(token.last);
    if let Some(up_to) = request.up_to {
        last = if token.origins.is_empty() {
            (up_to >= token.first).then(|| up_to.min(token.last))
        } else {
            let count = token.origins.iter().take_while(|it| **it <= up_to).count();
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            (count > 0).then(|| token.first.plus(count - 1))
        };
    }
    let run = last.map(|last| (token.first, last));
    let run = run.filter(|(first, last)| last.plus(1).since(*first) <= GRANT_RECORDS_MAX);
    if run.is_none() && last.is_some() {
        // No token for so many was ever given out.
        return Named {
            run,
            strangers: vec![(token.first, Conflict::Unknown)],
        };
    }
    let is_named = |failure: &&RecordFailure| {
        let at = token.place_of(failure.offset);
        run.zip(at)
            .is_some_and(|(run, at)| at >= run.0 && at <= run.1)
    };
    let strangers = request.failures.iter().filter(|it| !is_named(it));
    Named {
        run,
        strangers: strangers.map(|it| (it.offset, Conflict::Unknown)).collect(),
    }
}

/// Answers a call that names nothing, or whose token is void.
fn answer_void<S: Durable>(
    turn: &mut Turn<'_, S>,
    call: CallId,
    request: &SettleRequest,
    (run, mut conflicts): (Option<Run>, Conflicts),
) {
    let token = &request.token;
    if let Some((first, last)) = run {
        let all = (0..last.plus(1).since(first)).map(|at| token.origin(first.plus(at)));
        conflicts.extend(all.map(|offset| (offset, Conflict::Unknown)));
        conflicts.sort_unstable_by_key(|it| it.0);
        conflicts.dedup_by_key(|it| it.0);
    }
    let answer = match conflicts.first() {
        Some((offset, _)) if request.outputs.is_some() => Err(lost(*offset)),
        _ => Ok(GroupReply::Settled(Settled {
            conflicts,
            ..Settled::default()
        })),
    };
    turn.reply(call, answer);
}

/// The answer to a call whose outputs were appended before.
fn repeated_outputs<S: Durable>(
    turn: &Turn<'_, S>,
    request: &SettleRequest,
    named: Run,
) -> Option<Result<Settled, CallError>> {
    request.outputs.as_ref()?;
    let id = output_request(request, named);
    let (hash, mut appended) = turn.state.carried_out(&id)?;
    if hash != id.content_hash {
        let reused = AppendRefusal::RequestIdReused { id: id.id };
        return Some(Err(Refusal::from(reused).into()));
    }
    let outputs = request.outputs.as_ref().map_or(0, |it| it.parts.len());
    appended.parts.truncate(outputs);
    Some(Ok(Settled {
        already_settled: narrow(named.1.plus(1).since(named.0)),
        outputs: Some(appended),
        ..Settled::default()
    }))
}

/// A settlement with outputs is known by its hand-out and the records that it names.
fn output_request(request: &SettleRequest, named: Run) -> RequestId {
    let token = &request.token;
    let content_hash = request.outputs.as_ref().map_or(0, |it| it.content_hash);
    let (lease, run, group) = (token.lease.0, token.run, token.group_id);
    let (first, last) = (named.0.get(), named.1.get());
    RequestId {
        topic: token.partition.topic,
        id: format!("ack-{group:x}-{run:x}-{lease:x}-{first:x}-{last:x}"),
        content_hash,
    }
}

fn releases_of(feed: Option<&Feed>, lease: Option<LeaseId>) -> u32 {
    let lease = feed.and_then(|feed| feed.leases.get(lease?));
    lease.map_or(0, |lease| lease.releases)
}

/// Who had the records, for people.
fn consumer(group: Option<&Group>, token: &AckToken, run: u64) -> String {
    let found = group.filter(|_| token.run == run).and_then(|group| {
        let feed = group.feeds.get(&token.partition)?;
        let lease = feed.leases.get(token.lease)?;
        group.consumer(lease.holder)
    });
    found.unwrap_or_default()
}

pub(super) fn lost(offset: Offset) -> CallError {
    Refusal::from(GroupRefusal::LeaseLost { offset }).into()
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
