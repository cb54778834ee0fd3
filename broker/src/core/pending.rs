//! What waits to become commands, and how it is grouped into rounds: many appends and settlements
//! together, any other change alone, so that a round can be predicted from the applied state.

use std::collections::VecDeque;

use tokio::sync::OwnedSemaphorePermit;

use super::applied::Outcome;
use super::command::{Append, AppendPart, Change, Command, Stamp};
use super::decide::{self, CountLimits};
use super::forecast::{AppendLimits, RoundForecast};
use super::groups::ProposalId;
use super::handle::Reply;
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
    Change(ChangeRequest, Reply<ChangeDone>),
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
    /// Live members and open leases of a group.
    pub(super) live: &'a dyn Fn(&GroupName) -> u32,
    /// Whether a member of a group is of its present generation.
    pub(super) member: &'a dyn Fn(&GroupName, &str, u64) -> Result<(), GroupRefusal>,
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
    pub(super) fn gather(pending: &mut VecDeque<Pending>, with: &mut Drafting<'_>) -> Self {
        let mut draft = Self::default();
        let mut forecast = RoundForecast::with_limits(with.append_limits);
        while draft.bytes < ROUND_BYTES_MAX && draft.commands.len() < ROUND_COMMANDS_MAX {
            match pending.front() {
                None => break,
                Some(next) if !next.shares_a_round() && !draft.is_empty() => break,
                Some(_) => {}
            }
            match pending.pop_front() {
                Some(Pending::Append(request, reply, room)) => {
                    draft.add_append(request, (reply, room), &mut forecast, with);
                }
                Some(Pending::Proposal(id, change)) => {
                    let alone = !shares_a_round(&change);
                    draft.push(change, with.stamp, Origin::Proposal(id));
                    if alone {
                        break;
                    }
                }
                Some(Pending::Internal(change)) => {
                    draft.push(change, with.stamp, Origin::Internal);
                    break;
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

    fn add_append(
        &mut self,
        request: AppendRequest,
        (reply, room): (Reply<Appended>, Option<OwnedSemaphorePermit>),
        forecast: &mut RoundForecast,
        with: &Drafting<'_>,
    ) {
        let parts = request.parts.into_iter().map(|part| AppendPart {
            partition: part.partition,
            record_count: part.record_count,
            producer: part.producer,
            predicted: None,
            body: part.body,
        });
        let mut append = Append {
            request: request.request,
            parts: parts.collect(),
        };
        if let Some(appended) = with.state.find_duplicate(&append, with.stamp) {
            drop(reply.send(Ok(appended)));
            return;
        }
        match with.state.predict(forecast, &mut append, with.stamp) {
            Ok(()) => {
                self.bytes += append
                    .parts
                    .iter()
                    .map(|part| part.body.len() as u64)
                    .sum::<u64>();
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
                        Some((request, reply)) => Origin::Change(request, reply),
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

impl Pending {
    fn shares_a_round(&self) -> bool {
        match self {
            Self::Append(..) => true,
            Self::Proposal(_, change) => shares_a_round(change),
            Self::Change(..) | Self::Internal(_) => false,
        }
    }
}

/// Whether a change leaves alone what predictions of appends rest on.
fn shares_a_round(change: &Change) -> bool {
    matches!(
        change,
        Change::Append(_) | Change::Settle(_) | Change::CommitOffsets(_)
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
        .map(|change| decide::preview(with.state, change))
        .collect();
    Ok(decide::answer(request, &outcomes))
}
