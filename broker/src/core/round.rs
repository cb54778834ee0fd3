//! One round: drafted from what waits, written, committed, applied, answered.

use std::sync::atomic::Ordering;
use std::time::Duration;

use varvelog_store::Sequence;

use super::answer;
use super::command::{Change, Command};
use super::engine::Round;
use super::pending::{Draft, Origin, Pending};
use super::refusal::CallError;
use super::run::{Core, CoreFailure};
use crate::config::SyncPolicy;

/// A round that is written and waits for its sync.
#[derive(Debug)]
pub(super) struct InFlight {
    round: Round,
    origins: Vec<Origin>,
}

/// Time after which a write is tried again on a full volume.
const FULL_RETRY: Duration = Duration::from_millis(200);

impl Core {
    /// Starts the next round if none is in flight and something waits.
    pub(super) fn start_round(&mut self) -> Result<(), CoreFailure> {
        while self.in_flight.is_none() && !self.pending.is_empty() {
            if self
                .full_until
                .is_some_and(|until| self.clock.mono() < until)
            {
                return Ok(());
            }
            if self.engine.applier.unflushed_bytes() > self.options.unflushed_bytes_max {
                self.hold_until_flushed();
                return Ok(());
            }
            let mut pending = std::mem::take(&mut self.pending);
            let draft = self.drafting(|with| Draft::gather(&mut pending, with));
            self.pending = pending;
            if draft.is_empty() {
                continue;
            }
            let round = match self.engine.write(draft.commands) {
                Ok(round) => round,
                Err((error, _)) if error.is_final() => return Err(error.into()),
                Err((_, commands)) => {
                    self.put_back(commands, draft.origins);
                    return Ok(());
                }
            };
            self.timers.wrote(self.clock.mono());
            self.prepare_wal();
            let written = InFlight {
                round,
                origins: draft.origins,
            };
            if self.options.sync == SyncPolicy::Always {
                self.syncer.begin(self.engine.sync_job());
                self.in_flight = Some(written);
            } else {
                self.apply(written);
            }
        }
        Ok(())
    }

    /// Too much waits for a flush. Whatever the flusher reports brings the core back here; on a
    /// full volume it is asked again now and then.
    fn hold_until_flushed(&mut self) {
        let now = self.clock.mono();
        if self
            .flush_asked
            .is_none_or(|asked| asked.plus(FULL_RETRY) <= now)
        {
            self.flush_asked = Some(now);
            self.engine.applier.request_flush_again();
            self.timers.wake(now.plus(FULL_RETRY));
        }
    }

    /// The volume has no room for the round: callers are told, the broker's own changes wait.
    fn put_back(&mut self, commands: Vec<Command>, origins: Vec<Origin>) {
        let until = self.clock.mono().plus(FULL_RETRY);
        self.full_until = Some(until);
        self.timers.wake(until);
        let full = || CallError::DiskReserve {
            free_bytes: self.disk.free_bytes.load(Ordering::Relaxed),
            reserve_bytes: self.disk.reserve_bytes.load(Ordering::Relaxed),
        };
        for (command, origin) in commands.into_iter().zip(origins).rev() {
            match origin {
                Origin::Append(reply, _room) => drop(reply.send(Err(full()))),
                Origin::Change(_, reply) => drop(reply.send(Err(full()))),
                // A broker that stops waits for no room.
                Origin::Proposal(_) | Origin::Internal if self.stopping => {}
                Origin::Proposal(id) => {
                    self.pending
                        .push_front(Pending::Proposal(id, command.change));
                }
                Origin::Internal => self.pending.push_front(Pending::Internal(command.change)),
                Origin::Part => {}
            }
        }
    }

    /// Has the next WAL file made ready beside the work.
    fn prepare_wal(&mut self) {
        if let Some(job) = self.engine.prepare_job() {
            let spawned = std::thread::Builder::new()
                .name("varvelog-wal-file".into())
                .spawn(|| {
                    if let Err(error) = job.run() {
                        tracing::warn!(%error, "cannot make the next write-ahead log file ready");
                    }
                });
            // Without a thread the append that needs the file makes it.
            drop(spawned);
        }
    }

    /// A sync ended: what was in flight is committed.
    pub(super) fn synced(&mut self, through: Sequence) {
        self.engine.note_durable(through);
        self.timers.synced();
        if let Some(round) = self.in_flight.take() {
            self.apply(round);
        }
    }

    fn apply(&mut self, in_flight: InFlight) {
        let InFlight { round, origins } = in_flight;
        let mut origins = origins.into_iter();
        let mut done = Vec::with_capacity(origins.len());
        let mut actions = Vec::new();
        let (now, wall) = (self.clock.mono(), self.clock.wall());
        let sessions = &mut self.sessions;
        let moved = self.engine.apply(&round, |_, command, applied, state| {
            let Some(origin) = origins.next() else {
                unreachable!("every command of a round has an origin");
            };
            let proposal = match &origin {
                Origin::Proposal(id) => Some(*id),
                Origin::Append(..) | Origin::Change(..) | Origin::Part | Origin::Internal => None,
            };
            if !matches!(command.change, Change::Append(_)) || proposal.is_some() {
                let told = (&command.change, &applied.outcome, proposal);
                actions.push(sessions.applied(state, told, (now, wall)));
            }
            done.push((origin, applied.outcome));
        });
        // Readers see the round by now: who is answered finds what it wrote.
        let mut outcomes = Vec::new();
        for (origin, outcome) in done {
            outcomes.push(outcome);
            answer::answer(origin, &mut outcomes);
        }
        for actions in actions {
            self.carry_out(actions);
        }
        if !moved.is_empty() {
            let woken = self
                .sessions
                .ends_moved(self.engine.applier.state(), &moved, now);
            self.carry_out(woken);
        }
        self.engine.applier.request_flush(false);
    }
}
