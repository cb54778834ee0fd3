//! What a token may do with records.

use varvelog_store::Offset;

use super::durable::Durable;
use super::feed::{Feed, Run};
use super::turn::Turn;
use crate::core::failure::Ending;
use crate::core::request::{AckToken, Conflict, FailureAction, RecordFailure};

/// What may be done with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Settle it.
    Open,
    /// It was settled before, as it would be now.
    Settled,
    /// It cannot be settled.
    Conflict(Conflict),
}

/// What a token may do with the records of a run.
///
/// A token settles what it holds; what nobody was given since it may still acknowledge, but not
/// fail once more. A token of an earlier run of the broker whose hand-out was not noted is known to
/// nobody: it settles whatever is not held by another.
pub(super) struct Judge {
    pub(super) token: AckToken,
    /// What others hold or were given since; rising and apart.
    others: Vec<Run>,
    /// What the token holds itself.
    held: Option<Run>,
    /// One past the last record that is there.
    end: Offset,
    /// The hand-out is one of this run, or known from before.
    is_known: bool,
}

impl Judge {
    pub(super) fn new<S: Durable>(
        turn: &Turn<'_, S>,
        feed: Option<&Feed>,
        token: &AckToken,
        (first, last): Run,
    ) -> Self {
        let own = turn.shared.own_lease(token);
        let mut others: Vec<Run> = Vec::new();
        let mut held = None;
        if let Some(feed) = feed {
            let leases = feed.leases.overlapping(first, last);
            let leases = leases.filter(|lease| Some(lease.id) != own);
            others.extend(leases.map(|lease| (lease.first.max(first), lease.last.min(last))));
            if let Some(own) = own {
                let since = feed.given_since(own, first, last);
                others.extend(since.map(|run| (run.0.max(first), run.1.min(last))));
                let lease = feed.leases.get(own).filter(|lease| !lease.is_granted());
                held = lease.map(|lease| (lease.first, lease.last));
            }
        }
        others.sort_unstable();
        let position = turn.state.position(&token.group, token.partition);
        Self {
            token: token.clone(),
            others,
            held,
            end: position.map_or(Offset::ZERO, |position| position.end),
            is_known: own.is_some(),
        }
    }

    /// The standing of processed records from `from` on, and the last of them up to `last` that
    /// shares it.
    pub(super) fn processed<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        from: Offset,
        last: Offset,
    ) -> (Standing, Offset) {
        let token = &self.token;
        if from >= self.end {
            return (Standing::Conflict(Conflict::Unknown), last);
        }
        let last = last.min(self.end.minus(1));
        if let Some(run) = turn.state.next_done(&token.group, token.partition, from) {
            if run.0 <= from {
                return self.processed_before(turn, from, last.min(run.1));
            }
            return self.latest(turn, self.open(from, last.min(run.0.minus(1))), from);
        }
        self.latest(turn, self.open(from, last), from)
    }

    /// A hand-out before the one that failed last has nothing to say any more.
    fn latest<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        (standing, until): (Standing, Offset),
        from: Offset,
    ) -> (Standing, Offset) {
        let token = &self.token;
        let note = turn.state.next_note(&token.group, token.partition, from);
        match note.filter(|(at, _)| *at <= until) {
            _ if standing != Standing::Open => (standing, until),
            Some((at, _)) if at > from => (standing, at.minus(1)),
            Some((_, note)) if note.failures > token.attempt => {
                (Standing::Conflict(Conflict::LeaseLost), from)
            }
            Some(_) => (standing, from),
            None => (standing, until),
        }
    }

    /// Of records that are done.
    fn processed_before<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        from: Offset,
        last: Offset,
    ) -> (Standing, Offset) {
        let token = &self.token;
        let ending = |at| turn.state.ending(&token.group, token.partition, at);
        let standing = |ending| match ending {
            None => Standing::Settled,
            Some(Ending::Expired) => Standing::Conflict(Conflict::LeaseLost),
            Some(Ending::Retried | Ending::DeadLettered | Ending::Skipped) => {
                Standing::Conflict(Conflict::SettledOtherwise)
            }
        };
        let first = standing(ending(from));
        let mut until = from;
        while until < last && standing(ending(until.plus(1))) == first {
            until = until.plus(1);
        }
        (first, until)
    }

    /// Of records that are not done.
    fn open(&self, from: Offset, last: Offset) -> (Standing, Offset) {
        let next = self.others.partition_point(|run| run.1 < from);
        match self.others.get(next) {
            Some(run) if run.0 <= from => {
                (Standing::Conflict(Conflict::LeaseLost), last.min(run.1))
            }
            Some(run) => (Standing::Open, last.min(run.0.minus(1))),
            None => (Standing::Open, last),
        }
    }

    /// The standing of a record that failed, or was given back.
    pub(super) fn standing<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        at: Offset,
        failure: &RecordFailure,
    ) -> Standing {
        let token = &self.token;
        if at >= self.end {
            return Standing::Conflict(Conflict::Unknown);
        }
        let done = turn.state.next_done(&token.group, token.partition, at);
        if done.is_some_and(|run| run.0 <= at) {
            return match turn.state.ending(&token.group, token.partition, at) {
                Some(Ending::Retried | Ending::DeadLettered) => Standing::Settled,
                Some(Ending::Expired) => Standing::Conflict(Conflict::LeaseLost),
                Some(Ending::Skipped) | None => Standing::Conflict(Conflict::SettledOtherwise),
            };
        }
        let held = self.held.is_some_and(|run| run.0 <= at && at <= run.1);
        if held {
            return Standing::Open;
        }
        let is_release = failure.action == FailureAction::Release;
        let (standing, _) = self.open(at, at);
        if standing != Standing::Open || (is_release && self.is_known) {
            // What is given back and is nobody's already was given back before.
            let is_open = standing == Standing::Open;
            return if is_open { Standing::Settled } else { standing };
        }
        self.unheld(turn, at)
    }

    /// Of a record that failed and that nobody holds: its failure counts if it is not counted.
    fn unheld<S: Durable>(&self, turn: &Turn<'_, S>, at: Offset) -> Standing {
        let token = &self.token;
        let note = turn.state.next_note(&token.group, token.partition, at);
        let note = note.filter(|(noted, _)| *noted == at).map(|(_, note)| note);
        match note {
            Some(note) if note.failures >= token.attempt => {
                let same = note.failures == token.attempt && !note.class.is_suspect();
                if same {
                    Standing::Settled
                } else {
                    Standing::Conflict(Conflict::LeaseLost)
                }
            }
            _ if self.is_known => Standing::Conflict(Conflict::LeaseLost),
            _ => Standing::Open,
        }
    }
}
