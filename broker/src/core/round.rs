//! One round: drafted from what waits, written, committed, applied, answered.

use std::sync::atomic::Ordering;
use std::time::Duration;

use varvelog_store::Sequence;
use varvelog_store::wal::WalError;

use super::answer;
use super::command::{Change, Command};
use super::engine::Round;
use super::groups::{Now, ProposalId};
use super::pending::{Draft, Origin, Pending};
use super::refusal::{CallError, Refusal};
use super::replays::Moment;
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
        while self.in_flight.is_none() {
            self.hold_appends()?;
            if self.pending.is_empty() || self.may_wait() {
                return Ok(());
            }
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
            let mut draft = self.drafting(|with| Draft::gather(&mut pending, with));
            self.pending = pending;
            self.timers.took_lazy();
            let any_refused = !draft.refused.is_empty();
            self.tell_refused(std::mem::take(&mut draft.refused));
            if draft.is_empty() {
                if any_refused {
                    // What comes of the refusals is taken up when other work has had its turn.
                    self.timers.wake(self.clock.mono());
                    return Ok(());
                }
                continue;
            }
            let is_lazy = draft.commands.iter().all(|it| it.change.is_lazy());
            let round = match self.engine.write(draft.commands) {
                Ok(round) => round,
                Err((error, _)) if error.is_final() => return Err(error.into()),
                Err((error, commands)) => {
                    self.put_back(&error, commands, draft.origins);
                    return Ok(());
                }
            };
            self.prepare_wal();
            let written = InFlight {
                round,
                origins: draft.origins,
            };
            if is_lazy {
                self.timers.wrote_lazy(self.clock.mono());
                self.unsynced_lazy = true;
                self.apply(written);
                continue;
            }
            self.timers.wrote(self.clock.mono());
            if self.options.sync == SyncPolicy::Always {
                self.syncer.begin(self.engine.sync_job());
                self.in_flight = Some(written);
            } else {
                self.apply(written);
            }
        }
        Ok(())
    }

    /// Whether all that waits is lazy and has time: it goes with the next round, or by itself when
    /// none comes.
    fn may_wait(&mut self) -> bool {
        let now = self.clock.mono();
        !self.stopping && self.pending.may_wait() && self.timers.hold_lazy(now)
    }

    /// Tells the group machine of proposals that would be refused.
    fn tell_refused(&mut self, refused: Vec<(ProposalId, Change, Refusal)>) {
        for (id, change, refusal) in refused {
            let outcome = Err(refusal);
            let now = self.moment();
            let refused = (id, &change, outcome.as_ref().map(drop));
            self.replays
                .applied(self.engine.applier.state(), refused, now);
            let told = (&change, &outcome, Some(id));
            let actions =
                self.with_sessions(|sessions, state, now| sessions.applied(state, told, now));
            self.carry_out(actions);
        }
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

    /// There is no room, or no file descriptor, for the round: callers are told, the broker's own
    /// changes wait.
    fn put_back(&mut self, error: &WalError, commands: Vec<Command>, origins: Vec<Origin>) {
        let until = self.clock.mono().plus(FULL_RETRY);
        self.full_until = Some(until);
        self.timers.wake(until);
        let refused = if matches!(error, WalError::NoDescriptor { .. }) {
            CallError::Busy {
                limit_bytes: self.options.unflushed_bytes_max,
                retry_after: FULL_RETRY,
            }
        } else {
            CallError::DiskReserve {
                free_bytes: self.disk.free_bytes.load(Ordering::Relaxed),
                reserve_bytes: self.disk.reserve_bytes.load(Ordering::Relaxed),
            }
        };
        for (command, origin) in commands.into_iter().zip(origins).rev() {
            match origin {
                Origin::Append(reply, _room) => drop(reply.send(Err(refused.clone()))),
                Origin::Change(_, reply) => drop(reply.send(Err(refused.clone()))),
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
        if self.in_flight.is_some() {
            // Lazy rounds are written only while none is in flight.
            self.unsynced_lazy = false;
        }
        if let Some(round) = self.in_flight.take() {
            self.apply(round);
        }
    }

    fn apply(&mut self, in_flight: InFlight) {
        let meters = self.options.meters.clone();
        let began = meters.start();
        let InFlight { round, origins } = in_flight;
        let mut origins = origins.into_iter();
        let mut done = Vec::with_capacity(origins.len());
        let mut actions = Vec::new();
        let (now, wall) = (self.clock.mono(), self.clock.wall());
        let stamp = self.engine.stamp(wall, now);
        let (sessions, dice) = (&mut self.sessions, &mut *self.dice);
        let admission = &mut self.admission;
        let replays = &mut self.replays;
        let moved = self.engine.apply(&round, |_, command, applied, state| {
            let Some(origin) = origins.next() else {
                unreachable!("every command of a round has an origin");
            };
            let proposal = match &origin {
                Origin::Proposal(id) => Some(*id),
                Origin::Append(..) | Origin::Change(..) | Origin::Part | Origin::Internal => None,
            };
            admission.applied((command, &applied), (state.state(), state), stamp);
            if let Some(id) = proposal {
                let now = Moment { mono: now, wall };
                let told = (id, &command.change, applied.outcome.as_ref().map(drop));
                replays.applied(state.state(), told, now);
            }
            if !matches!(command.change, Change::Append(_)) || proposal.is_some() {
                let told = (&command.change, &applied.outcome, proposal);
                let now = Now {
                    mono: now,
                    wall,
                    dice: &mut *dice,
                };
                actions.push(sessions.applied(state, told, now));
            }
            done.push((origin, applied.outcome));
        });
        meters.took(&meters.apply, began);
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
            let woken =
                self.with_sessions(|sessions, state, now| sessions.ends_moved(state, &moved, now));
            self.carry_out(woken);
        }
        self.engine.applier.request_flush(false);
    }
}
