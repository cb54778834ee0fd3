//! From the outcome of a command to the answer of who waits for it.

use super::applied::Outcome;
use super::decide;
use super::pending::Origin;
use super::refusal::{CallError, Refusal};

/// Answers the origin of the command whose outcome is the last of `outcomes`. A change that takes
/// several commands is answered with the last; until then its outcomes stay in the list.
pub(super) fn answer(origin: Origin, outcomes: &mut Vec<Result<Outcome, Refusal>>) {
    // A caller that is gone needs no answer: what it asked for is done all the same.
    match origin {
        Origin::Part => return,
        Origin::Append(reply, room) => {
            let appended = match outcomes.pop() {
                Some(Ok(Outcome::Appended(appended))) => Ok(appended),
                Some(Err(refusal)) => Err(CallError::Refused(refusal)),
                other => unreachable!("an append came out as {other:?}"),
            };
            drop(reply.send(appended));
            drop(room);
        }
        Origin::Change(request, reply) => {
            let outcomes: Result<Vec<Outcome>, Refusal> = outcomes.drain(..).collect();
            let done = outcomes.map(|outcomes| decide::answer(&request, &outcomes));
            drop(reply.send(done.map_err(CallError::Refused)));
        }
        Origin::Proposal(_) | Origin::Internal => {}
    }
    outcomes.clear();
}
