//! Settlements on their way: what is to be copied is read, then all of it is proposed as one
//! change, and who asked for it is answered when that was applied.

use std::time::Duration;

use varvelog_store::{Offset, PartitionId};

use super::action::CallId;
use super::copied::{bytes_of, rest_of, take_copies};
use super::durable::Durable;
use super::fates::{How, Unprocessed};
use super::feed::{Pause, Run};
use super::group::Group;
use super::operate::{Operated, operated};
use super::sessions::Groups;
use super::settle;
use super::timers::Timer;
use super::turn::{Proposal, Reading, Ticket, Turn};
use crate::clock::MonoMs;
use crate::core::applied::{Outcome, Settlement};
use crate::core::command::{Change, HandBack, SETTLE_BYTES_MAX, Settle};
use crate::core::copies::{CopyJob, ReadDone, ReadId, ReadJob, ReadResult};
use crate::core::refusal::{CallError, GroupRefusal, QuotaRefusal, Refusal};
use crate::core::request::{Conflict, GroupReply, LeaseId, SettleRequest, Settled};
use crate::names::GroupName;

/// How often a settlement is judged anew because others were faster.
const TRIES_MAX: u32 = 8;
/// Time after which something is read again that could not be read.
const REREAD: Duration = Duration::from_secs(1);

/// A settlement on its way.
#[derive(Debug)]
pub(super) struct Settling {
    pub(super) ticket: Ticket,
    /// None: nobody waits for the answer.
    pub(super) asked: Option<Asked>,
    /// The operator's call that it is a part of.
    pub(super) operator: Option<Operated>,
    /// What was decided on without a call, unless it is simply done.
    pub(super) unasked: Vec<Unprocessed>,
    /// Of these, what did not fit: decided on anew when the rest is settled. Rising.
    pub(super) left: Vec<Offset>,
    /// How often it was decided on before, because others were faster.
    pub(super) tries: u32,
    /// Records that failed in a way that may go away by itself.
    pub(super) failed: u32,
    /// What is proposed, once it has its copies.
    pub(super) settle: Settle,
    /// The hand-out that it settles, and the last record of it that it names.
    pub(super) lease: Option<(LeaseId, Offset)>,
    /// When that was made; none if it is over.
    pub(super) given: Option<MonoMs>,
    /// Given back uncounted, with how often they were by then.
    pub(super) released: Vec<(Run, u32)>,
    /// The answer, if it is carried out.
    pub(super) answer: Settled,
    /// Calls about the same records, which come after it.
    pub(super) followers: Vec<(CallId, SettleRequest)>,
}

/// A call that waits for its settlement.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) call: CallId,
    pub(super) request: SettleRequest,
}

impl Settling {
    pub(super) fn group(&self) -> &GroupName {
        &self.settle.group
    }

    pub(super) fn partition(&self) -> PartitionId {
        self.settle.partition
    }

    /// Records that nobody is given meanwhile.
    fn records(&self) -> Vec<Run> {
        let noted = self.settle.notes.iter().map(|(at, _)| (*at, *at));
        let released = self.released.iter().map(|(run, _)| *run);
        let mut runs: Vec<Run> = self.settle.ranges.clone();
        runs.extend(noted.chain(released));
        runs
    }

    fn is_empty(&self) -> bool {
        self.settle.ranges.is_empty()
            && self.settle.notes.is_empty()
            && self.settle.append.parts.is_empty()
    }
}

/// Sends a settlement on its way. `group` is the live side, if there is one.
pub(super) fn begin<S: Durable>(
    turn: &mut Turn<'_, S>,
    group: Option<&mut Group>,
    settling: Settling,
    copy: Option<CopyJob>,
) {
    if let Some(feed) = group.and_then(|group| group.feeds.get_mut(&settling.partition())) {
        let unasked = settling.asked.is_none() && settling.operator.is_none();
        let failing = unasked && !settling.settle.notes.is_empty();
        let records = settling.records();
        feed.underway.insert(settling.ticket, records, failing);
    }
    match copy {
        Some(job) => {
            let (id, job) = (job.id, ReadJob::Copy(job));
            turn.read(id, Reading::Copies(Box::new(settling), job.clone()), job);
        }
        None => propose(turn, settling),
    }
}

fn propose<S: Durable>(turn: &mut Turn<'_, S>, settling: Settling) {
    let change = if settling.is_empty() {
        Change::HandBack(hand_back(&settling))
    } else {
        Change::Settle(settling.settle.clone())
    };
    turn.propose(Proposal::Settle(Box::new(settling)), change);
}

fn hand_back(settling: &Settling) -> HandBack {
    HandBack {
        group: settling.settle.group.clone(),
        group_id: settling.settle.group_id,
        partition: settling.settle.partition,
        ranges: settling.released.iter().map(|(run, _)| *run).collect(),
    }
}

/// Something was read, or could not be.
pub(super) fn read<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, done: ReadDone) {
    let Some(reading) = turn.shared.reading.remove(&done.id) else {
        return;
    };
    match (reading, done.result) {
        (Reading::Copies(mut settling, ReadJob::Copy(job)), Ok(ReadResult::Copies(copies))) => {
            let left = take_copies(&mut settling, &job, copies);
            if !left.is_empty() && settling.asked.is_none() && settling.operator.is_none() {
                settling.leave(left);
                propose(turn, *settling);
                return;
            }
            let bytes = bytes_of(&settling.settle);
            if !left.is_empty() && bytes >= SETTLE_BYTES_MAX {
                let refused = QuotaRefusal {
                    what: "settle_bytes",
                    limit: SETTLE_BYTES_MAX,
                    current: bytes,
                };
                resume(groups, turn, *settling, &Err(refused.into()));
                return;
            }
            match rest_of(job, &left, turn.shared.next_read()) {
                Some(job) => {
                    let (id, job) = (job.id, ReadJob::Copy(job));
                    turn.read(id, Reading::Copies(settling, job.clone()), job);
                }
                None => propose(turn, *settling),
            }
        }
        (Reading::Copies(settling, ReadJob::Copy(job)), _)
            if turn.state.place(&job.group, job.from).is_none() =>
        {
            let gone = GroupRefusal::NotFound {
                group: job.group.to_string(),
            };
            resume(groups, turn, *settling, &Err(gone.into()));
        }
        (Reading::Copies(settling, _), _) if settling.asked.is_some() => {
            settlement_over(groups, turn, (&settling, false));
            let retry_after = REREAD;
            let busy = CallError::Busy {
                limit_bytes: 0,
                retry_after,
            };
            if let Some(asked) = &settling.asked {
                turn.reply(asked.call, Err(busy));
            }
            follow(groups, turn, settling.followers);
        }
        (reading @ Reading::Copies(..), _) => {
            let later = turn.now.plus(REREAD);
            turn.shared.timers.set(later, Timer::Reread(done.id));
            turn.shared.reading.insert(done.id, reading);
        }
        (Reading::Keys(name, partition), result) => {
            if let Some(group) = groups.get_mut(&name) {
                let keys = match result {
                    Ok(ReadResult::Keys(keys)) => Some(keys),
                    Ok(ReadResult::Copies(_) | ReadResult::Replay(_)) | Err(_) => None,
                };
                group.looked(turn, partition, (done.id, keys));
            }
        }
    }
}

/// An order that could not be carried out is given once more.
pub(super) fn reread<S: Durable>(turn: &mut Turn<'_, S>, id: ReadId) {
    if let Some(Reading::Copies(_, job)) = turn.shared.reading.get(&id) {
        let job = job.clone();
        turn.actions.push(super::action::Action::Read(job));
    }
}

/// A settlement was applied, or refused.
pub(super) fn resume<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    mut settling: Settling,
    outcome: &Result<Outcome, Refusal>,
) {
    settlement_over(groups, turn, (&settling, outcome.is_ok()));
    if outcome.is_ok() {
        came_back(groups, turn, &settling);
    }
    if let Ok(Outcome::Settled(settlement)) = outcome {
        tally(turn, &settling, settlement);
    }
    let followers = std::mem::take(&mut settling.followers);
    let records = std::mem::take(&mut settling.unasked);
    if let Some(operator) = settling.operator.take() {
        operated(groups, turn, (operator, &settling), outcome);
    } else if !records.is_empty() {
        unasked_over(groups, turn, (records, &settling), outcome);
    }
    answer(groups, turn, settling, outcome);
    follow(groups, turn, followers);
}

/// Counts what was carried out.
fn tally<S: Durable>(turn: &mut Turn<'_, S>, settling: &Settling, settlement: &Settlement) {
    let released = settling.released.iter();
    let released = released.map(|((first, last), _)| last.plus(1).since(*first));
    let released = released.fold(0, u64::saturating_add);
    let wall = turn.wall;
    if let Some(tally) = turn.tally(settling.group(), settling.partition()) {
        tally.settled(&settling.settle, settlement, wall);
        tally.released.inc_by(released);
    }
}

/// Whether a settlement was refused only because others settled some of its records.
pub(super) fn is_overtaken(outcome: &Result<Outcome, Refusal>, tries: u32) -> bool {
    let lost = matches!(outcome, Err(Refusal::Group(GroupRefusal::LeaseLost { .. })));
    lost && tries < TRIES_MAX
}

/// What nobody asked for was settled, or is decided on once more.
fn unasked_over<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    (mut records, settling): (Vec<Unprocessed>, &Settling),
    outcome: &Result<Outcome, Refusal>,
) {
    let partition = settling.partition();
    let position = turn.state.position(settling.group(), partition);
    let (Some(group), Some(position)) = (groups.get_mut(settling.group()), position) else {
        return;
    };
    let parks = records.iter().any(|it| matches!(it.how, How::Parked));
    if parks && let Some(feed) = group.feeds.get_mut(&partition) {
        feed.is_parking = false;
    }
    if outcome.is_ok() {
        let waited = |record: &Unprocessed| matches!(record.how, How::Waited(_));
        let place = turn.state.place(settling.group(), partition);
        if let Some(place) = place
            && !settling.settle.ranges.is_empty()
            && records.iter().any(waited)
        {
            group.room_for_dead(turn, place.source);
        }
        let is_left = |record: &Unprocessed| settling.left.binary_search(&record.offset).is_ok();
        records.retain(is_left);
        group.decide_unasked(turn, partition, records);
        group.sweep_parked(turn, partition);
    } else if is_overtaken(outcome, settling.tries)
        && position.reset_count == settling.settle.reset_count
    {
        let name = settling.group();
        records.retain(|record| {
            let done = turn.state.next_done(name, partition, record.offset);
            done.is_none_or(|run| run.0 > record.offset)
        });
        group.decide_again(turn, partition, (records, settling.tries + 1));
    } else if records
        .iter()
        .any(|record| matches!(record.how, How::Parked))
    {
        // Tried once more when it is looked at again.
        let pause = Pause::Unreadable(turn.now.plus(REREAD));
        group.pause(turn, partition, Some(pause));
    }
}

fn follow<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    followers: Vec<(CallId, SettleRequest)>,
) {
    for (call, request) in followers {
        let group = groups.get_mut(&request.token.group);
        settle::settle(turn, group, (call, request, 0));
    }
}

fn answer<S: Durable>(
    groups: &mut Groups,
    turn: &mut Turn<'_, S>,
    settling: Settling,
    outcome: &Result<Outcome, Refusal>,
) {
    let Settling {
        asked,
        settle,
        mut answer,
        tries,
        failed,
        given,
        ..
    } = settling;
    let Some(Asked { call, request }) = asked else {
        return;
    };
    let reply = match outcome {
        Ok(Outcome::Settled(settlement)) => {
            count(&mut answer, &request, settlement);
            if let Some(group) = groups.get_mut(&settle.group) {
                group.breaker.settled(answer.done, failed);
            }
            let (done, now) = ((answer.done, request.token.attempt), turn.now);
            let conflicts = u64::try_from(answer.conflicts.len()).unwrap_or(u64::MAX);
            if let Some(tally) = turn.tally(&settle.group, settle.partition) {
                tally.acknowledged(given, done, now);
                tally.conflicts.inc_by(conflicts);
            }
            Ok(answer)
        }
        Ok(_) => Ok(answer),
        Err(_) if turn.state.group(&settle.group).is_none() => Err(group_gone(&settle.group)),
        // Others were faster: what is left of it is judged once more.
        Err(_) if is_overtaken(outcome, tries) => {
            let group = groups.get_mut(&settle.group);
            settle::settle(turn, group, (call, request, tries + 1));
            return;
        }
        Err(refusal @ (Refusal::Quota(_) | Refusal::Append(_))) => Err(refusal.clone().into()),
        Err(refusal) if request.outputs.is_some() => Err(refusal.clone().into()),
        // It was reset, or the topic was deleted, while the settlement was on its way.
        Err(_) => Ok(Settled {
            conflicts: unknown(&request),
            ..Settled::default()
        }),
    };
    turn.reply(call, reply.map(GroupReply::Settled));
}

/// Fills in what only applying it told.
fn count(answer: &mut Settled, request: &SettleRequest, settlement: &Settlement) {
    let already: u64 = settlement.ranges.iter().map(|range| range.already).sum();
    let already = u32::try_from(already).unwrap_or(u32::MAX).min(answer.done);
    answer.done -= already;
    answer.already_settled += already;
    if let Some(outputs) = &request.outputs {
        let mut appended = settlement.appended.clone();
        appended.parts.truncate(outputs.parts.len());
        answer.outputs = Some(appended);
    }
}

fn unknown(request: &SettleRequest) -> Vec<(Offset, Conflict)> {
    let token = &request.token;
    let up_to = request.up_to.unwrap_or(Offset::MAX);
    let all = (0..token.last.plus(1).since(token.first)).map(|at| token.first.plus(at));
    let named: Vec<Offset> = if token.origins.is_empty() {
        all.collect()
    } else {
        token.origins.clone()
    };
    let named = named.into_iter().filter(|offset| *offset <= up_to);
    named.map(|offset| (offset, Conflict::Unknown)).collect()
}

/// Nothing is held back for a settlement any more.
fn settlement_over<S: Durable>(
    groups: &mut Groups,
    turn: &Turn<'_, S>,
    (settling, is_done): (&Settling, bool),
) {
    let partition = settling.partition();
    let Some(group) = groups.get_mut(settling.group()) else {
        return;
    };
    let feed = group.feeds.get_mut(&partition);
    let runs = feed.map(|feed| feed.underway.remove(settling.ticket));
    for run in runs.unwrap_or_default() {
        if !is_done && let Some(feed) = group.feeds.get_mut(&partition) {
            // Passed over meanwhile, and to be given out after all.
            feed.search_from(run.0);
            group.make_ready(turn, partition, run);
        }
    }
    group.wake(partition);
}

/// What a carried out settlement gives back, and what of a hand-out is over by it.
fn came_back<S: Durable>(groups: &mut Groups, turn: &mut Turn<'_, S>, settling: &Settling) {
    let partition = settling.partition();
    let Some(group) = groups.get_mut(settling.group()) else {
        return;
    };
    if let Some((lease, last)) = settling.lease {
        group.hand_out_over(turn, (partition, lease), last);
    }
    for (run, releases) in &settling.released {
        let lease = settling.lease.map(|(lease, _)| lease);
        group.came_back(turn, (partition, *run), (lease, *releases));
    }
    if !settling.released.is_empty() && !settling.is_empty() {
        turn.note(Change::HandBack(hand_back(settling)));
    }
}

pub(super) fn group_gone(group: &GroupName) -> CallError {
    Refusal::from(GroupRefusal::NotFound {
        group: group.to_string(),
    })
    .into()
}
