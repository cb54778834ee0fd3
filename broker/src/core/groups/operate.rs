//! Operators' hands on single records.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::{Offset, PartitionId, WallMs};

use super::action::CallId;
use super::durable::Durable;
use super::fates::{Court, How, Plan, Unprocessed};
use super::sessions::Groups;
use super::settling::{Settling, begin, group_gone, is_overtaken};
use super::turn::Turn;
use crate::core::applied::Outcome;
use crate::core::failure::{Ending, ErrorClass, FailureNote, FailureText, Wait};
use crate::core::refusal::Refusal;
use crate::core::request::{GroupReply, OperatorAction};
use crate::names::GroupName;

/// A call of an operator whose settlements are on their way.
#[derive(Debug, Default)]
pub(super) struct Operation {
    waiting: u32,
    settled: u64,
}

/// One of its settlements.
#[derive(Debug)]
pub(super) struct Operated {
    call: CallId,
    action: OperatorAction,
    records: BTreeMap<Offset, Offset>,
}

/// Records to operate on, by the partition in which they lie now: offset and first append.
type Placed = BTreeMap<PartitionId, BTreeMap<Offset, Offset>>;

/// Settles records by hand; those that are done are passed over.
pub(super) fn operate<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    call: CallId,
    (name, records, action): (&GroupName, &[(PartitionId, Offset)], OperatorAction),
) {
    if turn.state.group(name).is_none() {
        turn.reply(call, Err(group_gone(name)));
        return;
    }
    let mut operation = Operation::default();
    for (partition, records) in placed(turn, name, records) {
        let part = Operated {
            call,
            action,
            records,
        };
        operation.waiting += u32::from(start(groups, turn, (name, partition), (part, 0)));
    }
    if operation.waiting == 0 {
        turn.reply(call, Ok(GroupReply::Operated { settled: 0 }));
    } else {
        turn.shared.operations.insert(call, operation);
    }
}

/// Sends one settlement of an operator on its way; whether there is anything to settle.
fn start<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    (name, partition): (&GroupName, PartitionId),
    (part, tries): (Operated, u32),
) -> bool {
    let state = turn.state;
    let (facts, place) = (state.group(name), state.place(name, partition));
    let (Some(facts), Some(place), Some(position)) =
        (facts, place, state.position(name, partition))
    else {
        return false;
    };
    let mut plan = Plan::new(name, &facts, position.reset_count, partition);
    let court = Court {
        group: name,
        settings: facts.settings,
        partition,
        is_retry: partition != place.source,
    };
    for (offset, origin) in &part.records {
        add(turn, &court, &mut plan, (*offset, *origin, part.action));
    }
    let job = plan.copy_job(turn);
    let settling = Settling {
        ticket: turn.shared.next_ticket(),
        asked: None,
        operator: Some(part),
        unasked: Vec::new(),
        given: None,
        left: Vec::new(),
        tries,
        failed: 0,
        settle: plan.settle,
        lease: None,
        released: Vec::new(),
        answer: plan.counts,
        followers: Vec::new(),
    };
    begin(turn, groups.get_mut(name), settling, job);
    true
}

/// One of an operator's settlements is over; what others left of it is tried once more.
pub(super) fn operated<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    (mut part, settling): (Operated, &Settling),
    outcome: &Result<Outcome, Refusal>,
) {
    let (name, partition) = (settling.group(), settling.partition());
    let call = part.call;
    if is_overtaken(outcome, settling.tries) {
        part.records.retain(|at, _| {
            let done = turn.state.next_done(name, partition, *at);
            done.is_none_or(|run| run.0 > *at)
        });
        if !part.records.is_empty()
            && start(groups, turn, (name, partition), (part, settling.tries + 1))
        {
            return;
        }
    }
    let Some(operation) = turn.shared.operations.get_mut(&call) else {
        return;
    };
    operation.waiting -= 1;
    if let Ok(Outcome::Settled(settlement)) = outcome {
        let done = settlement.ranges.iter().map(|range| range.done);
        let is_noted = |at: Offset| {
            let next = turn.state.next_note(name, partition, at);
            next.is_some_and(|(found, _)| found == at)
        };
        let told = settling.settle.notes.iter();
        let told = told.filter(|(at, _)| is_noted(*at)).count();
        operation.settled += done.sum::<u64>() + u64::try_from(told).unwrap_or(u64::MAX);
    }
    if operation.waiting == 0 {
        let settled = operation.settled;
        turn.shared.operations.remove(&call);
        turn.reply(call, Ok(GroupReply::Operated { settled }));
    }
}

fn add<S: Durable>(
    turn: &mut Turn<'_, S>,
    court: &Court<'_>,
    plan: &mut Plan,
    (offset, origin, action): (Offset, Offset, OperatorAction),
) {
    match action {
        OperatorAction::Skip => plan.ended(offset, Ending::Skipped),
        OperatorAction::DeadLetter => {
            let record = Unprocessed {
                offset,
                origin,
                how: How::Condemned,
                releases: 0,
                consumer: String::new(),
            };
            court.decide(turn, plan, record);
        }
        OperatorAction::Retry => plan.settle.notes.push((offset, fresh_start(turn.wall))),
    }
}

/// What is noted of a record that an operator gives all its deliveries again.
fn fresh_start(now: WallMs) -> FailureNote {
    FailureNote {
        failures: 0,
        class: ErrorClass::Transient,
        wait: Wait::Ready,
        first_failure: now,
        text: FailureText::default(),
        consumer: String::new(),
        log: Vec::new(),
    }
}

/// Where records lie that are not done: in their source partition, or as copies in the retry
/// partition.
fn placed<S: Durable>(
    turn: &Turn<'_, S>,
    name: &GroupName,
    records: &[(PartitionId, Offset)],
) -> Placed {
    let mut wanted: BTreeMap<PartitionId, Vec<Offset>> = BTreeMap::new();
    for (source, offset) in records {
        wanted.entry(*source).or_default().push(*offset);
    }
    let mut placed = Placed::new();
    for (source, offsets) in wanted {
        let Some(place) = turn
            .state
            .place(name, source)
            .filter(|it| it.source == source)
        else {
            continue;
        };
        let end = turn
            .state
            .position(name, source)
            .map_or(Offset::ZERO, |it| it.end);
        let mut moved = BTreeSet::new();
        for origin in offsets {
            let done = turn.state.next_done(name, source, origin);
            if done.is_some_and(|run| run.0 <= origin) || origin >= end {
                moved.insert(origin);
            } else {
                placed.entry(source).or_default().insert(origin, origin);
            }
        }
        if !moved.is_empty() {
            let copies = copies_of(turn, name, (place.retry, &moved));
            if !copies.is_empty() {
                placed.insert(place.retry, copies);
            }
        }
    }
    placed
}

/// Copies in a retry partition of these first appends, by offset.
fn copies_of<S: Durable>(
    turn: &Turn<'_, S>,
    name: &GroupName,
    (retry, origins): (PartitionId, &BTreeSet<Offset>),
) -> BTreeMap<Offset, Offset> {
    let mut copies = BTreeMap::new();
    let mut from = Offset::ZERO;
    while let Some((at, entry)) = turn.state.next_retry(name, retry, from) {
        if origins.contains(&entry.origin) {
            copies.insert(at, entry.origin);
        }
        from = at.plus(1);
    }
    copies
}
