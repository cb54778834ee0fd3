//! What waits to become commands, and how it is grouped into rounds: many appends and settlements
//! together, any other change alone, so that a round can be predicted from the applied state.
//!
//! A settlement that appends is predicted like an append, so its outcome must be sure: it shares a
//! round only with commands before it that decide nothing about its records, and one that would be
//! refused never gets into a round.

use tokio::sync::OwnedSemaphorePermit;

use super::admission::{Admission, Admitted};
use super::applied::Outcome;
use super::backlog::Backlog;
use super::command::{Append, Change, Command, Stamp};
use super::decide::{self, CountLimits, Live};
use super::forecast::{AppendLimits, RoundForecast};
use super::groups::ProposalId;
use super::handle::Reply;
use super::preview::preview;
use super::refusal::{CallError, GroupRefusal, Refusal};
use super::request::{AppendRequest, Appended, ChangeDone, ChangeRequest};
use super::state::State;
use crate::names::GroupName;

/// Something that waits to become a command.
#[derive(Debug)]
pub(super) enum Pending {
    /// A producer's.
    Append(AppendRequest, Reply<Appended>, Option<OwnedSemaphorePermit>),
    /// A caller's.
    Change(ChangeRequest, Reply<ChangeDone>),
    /// The group machine's.
    Proposal(ProposalId, Change),
    /// The broker's own.
    Internal(Change),
}

/// Who waits for the outcome of a command.
#[derive(Debug)]
pub(super) enum Origin {
    /// A producer; its room is free again when it is answered.
    Append(Reply<Appended>, Option<OwnedSemaphorePermit>),
    /// A caller, with the outcome of the last of these commands.
    Change(Box<ChangeRequest>, Reply<ChangeDone>),
    /// The first commands of a change that takes several.
    Part,
    /// The group machine.
    Proposal(ProposalId),
    /// Nobody.
    Internal,
}

/// Commands of one round and who waits for each.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) commands: Vec<Command>,
    pub(super) origins: Vec<Origin>,
    /// Proposals that would be refused, for the group machine to know.
    pub(super) refused: Vec<(ProposalId, Change, Refusal)>,
    admitted: Admitted,
    bytes: u64,
}

/// Bytes of batches in one round: enough that a sync is spread over many, little enough that its
/// latency stays that of one large write.
const ROUND_BYTES_MAX: u64 = 8 << 20;
/// Commands in one round.
const ROUND_COMMANDS_MAX: usize = 4096;

/// What a draft is made with.
pub(super) struct Drafting<'a> {
    pub(super) state: &'a State,
    pub(super) stamp: Stamp,
    pub(super) limits: &'a CountLimits,
    pub(super) append_limits: AppendLimits,
    /// What keeps a group in use.
    pub(super) live: &'a dyn Fn(&GroupName) -> Live,
    /// Whether a member of a group is of its present generation.
    pub(super) member: &'a dyn Fn(&GroupName, &str, u64) -> Result<(), GroupRefusal>,
    /// Who lets producers in.
    pub(super) admission: &'a mut Admission,
    /// Fresh random ids.
    pub(super) dice: &'a mut dyn FnMut() -> [u8; 16],
}

impl Drafting<'_> {
    fn decide(&mut self, request: &ChangeRequest) -> Result<Vec<Change>, Refusal> {
        if let ChangeRequest::CommitOffsets {
            group,
            member: Some((id, generation)),
            ..
        } = request
        {
            (self.member)(group, id, *generation)?;
        }
        decide::decide(self.state, request, self.live, self.dice, self.limits)
    }
}

impl Draft {
    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Takes from `pending`, in order, what may share a round. What is refused is answered here.
    pub(super) fn gather(pending: &mut Backlog, with: &mut Drafting<'_>) -> Self {
        let mut draft = Self::default();
        let mut forecast = RoundForecast::with_limits(with.append_limits);
        while draft.bytes < ROUND_BYTES_MAX && draft.commands.len() < ROUND_COMMANDS_MAX {
            match pending.front() {
                None => break,
                Some(next) if !draft.is_empty() && !next.fits(with.state, &forecast) => break,
                Some(_) => {}
            }
            match pending.pop_front() {
                Some(Pending::Append(request, reply, room)) => {
                    draft.add_append(request, (reply, room), &mut forecast, with);
                }
                Some(Pending::Proposal(id, change)) => {
                    let alone = !shares_a_round(&change);
                    draft.add_proposal(id, change, &mut forecast, with);
                    if alone {
                        break;
                    }
                }
                Some(Pending::Internal(change)) if is_overtaken(with.state, &change) => {}
                Some(Pending::Internal(change)) => {
                    let alone = !shares_a_round(&change);
                    draft.push(change, with.stamp, Origin::Internal);
                    if alone {
                        break;
                    }
                }
                Some(Pending::Change(request, reply)) => {
                    draft.add_change(request, reply, with);
                    if !draft.is_empty() {
                        break;
                    }
                }
                None => break,
            }
        }
        draft
    }

    fn push(&mut self, change: Change, stamp: Stamp, origin: Origin) {
        self.commands.push(Command { stamp, change });
        self.origins.push(origin);
    }

    fn add_proposal(
        &mut self,
        id: ProposalId,
        mut change: Change,
        forecast: &mut RoundForecast,
        with: &Drafting<'_>,
    ) {
        if let Change::Settle(settle) = &mut change
            && settle.appends()
        {
            if let Err(refusal) = with.state.predict_settle(forecast, settle, with.stamp) {
                self.refused.push((id, change, refusal));
                return;
            }
            self.bytes += bytes_of(&settle.append);
        }
        if let Change::Replay(step) = &mut change
            && let Err(refusal) = with.state.predict_replay(forecast, step, with.stamp)
        {
            self.refused.push((id, change, refusal));
            return;
        }
        forecast.touched.add(&change);
        self.push(change, with.stamp, Origin::Proposal(id));
    }

    fn add_append(
        &mut self,
        request: AppendRequest,
        (reply, room): (Reply<Appended>, Option<OwnedSemaphorePermit>),
        forecast: &mut RoundForecast,
        with: &mut Drafting<'_>,
    ) {
        let now = with.stamp.wall;
        let parts = request.parts.into_iter().map(|part| part.into_command(now));
        let mut append = Append {
            request: request.request,
            parts: parts.collect(),
        };
        if let Some(appended) = with.state.find_duplicate(&append, with.stamp) {
            drop(reply.send(Ok(appended)));
            return;
        }
        let asked = (&self.admitted, with.stamp);
        if let Err(turned) = with.admission.check(&append, asked, with.dice) {
            drop(reply.send(Err(CallError::TurnedAway(turned))));
            return;
        }
        match with.state.predict(forecast, &mut append, with.stamp) {
            Ok(()) => {
                self.admitted.add(&append);
                self.bytes += bytes_of(&append);
                self.push(
                    Change::Append(append),
                    with.stamp,
                    Origin::Append(reply, room),
                );
            }
            Err(refusal) => drop(reply.send(Err(CallError::Refused(refusal)))),
        }
    }

    fn add_change(
        &mut self,
        request: ChangeRequest,
        reply: Reply<ChangeDone>,
        with: &mut Drafting<'_>,
    ) {
        match with.decide(&request) {
            Ok(changes) => {
                let last = changes.len().saturating_sub(1);
                let mut waiting = Some((request, reply));
                for (index, change) in changes.into_iter().enumerate() {
                    let origin = match waiting.take_if(|_| index == last) {
                        Some((request, reply)) => Origin::Change(Box::new(request), reply),
                        None => Origin::Part,
                    };
                    self.push(change, with.stamp, origin);
                }
                assert!(waiting.is_none(), "a change takes at least one command");
            }
            Err(refusal) => drop(reply.send(Err(CallError::Refused(refusal)))),
        }
    }
}

fn bytes_of(append: &Append) -> u64 {
    let bytes = append.parts.iter().map(|part| part.body.len());
    u64::try_from(bytes.sum::<usize>()).unwrap_or(u64::MAX)
}

/// Whether retention was decided on positions that have moved back since.
fn is_overtaken(state: &State, change: &Change) -> bool {
    let Change::MoveLogStart { partition, start } = change else {
        return false;
    };
    state
        .retention_floor(*partition)
        .is_some_and(|floor| floor < *start)
}

impl Pending {
    /// Whether nobody waits for it and it may be lost.
    pub(super) fn is_lazy(&self) -> bool {
        matches!(self, Self::Proposal(_, change) | Self::Internal(change) if change.is_lazy())
    }

    /// Whether it can join a round that has something in it.
    fn fits(&self, state: &State, forecast: &RoundForecast) -> bool {
        match self {
            Self::Append(..) => true,
            Self::Proposal(_, Change::Settle(settle)) => !state.collides(forecast, settle),
            Self::Proposal(_, change) | Self::Internal(change) => shares_a_round(change),
            Self::Change(..) => false,
        }
    }
}

/// Whether a change leaves alone what predictions of appends rest on.
fn shares_a_round(change: &Change) -> bool {
    matches!(
        change,
        Change::Append(_)
            | Change::Settle(_)
            | Change::CommitOffsets(_)
            | Change::HandOut(_)
            | Change::HandBack(_)
            | Change::MakeDue(_)
    )
}

/// What a change would answer if it were done now.
pub(super) fn rehearse(
    with: &mut Drafting<'_>,
    request: &ChangeRequest,
) -> Result<ChangeDone, Refusal> {
    let changes = with.decide(request)?;
    let outcomes: Vec<Outcome> = changes
        .iter()
        .map(|change| preview(with.state, change))
        .collect();
    Ok(decide::answer(request, &outcomes))
}
