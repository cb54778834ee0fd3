//! What arrives at the core: appends and changes wait for a round, questions and the group
//! machine's calls are served at once.

use std::sync::atomic::Ordering;

use super::admission::Admission;
use super::decide::Live;
use super::groups::{CallId, Sessions};
use super::handle::{CoreView, Queued, Submission};
use super::pending::{Drafting, Pending, rehearse};
use super::refusal::CallError;
use super::request::GroupRequest;
use super::run::{Core, GroupCall};

/// Submissions taken up in one go.
const DRAIN_MAX: usize = 1024;

impl Core {
    /// Takes up a submission and whatever else waits.
    pub(super) fn take_up(&mut self, first: Option<Queued>) {
        let Some(first) = first else {
            self.stopping = true;
            return;
        };
        self.accept(first);
        for _ in 1..DRAIN_MAX {
            match self.queue.try_recv() {
                Ok(queued) => self.accept(queued),
                Err(_empty) => break,
            }
        }
    }

    fn accept(&mut self, queued: Queued) {
        let Queued { submission, room } = queued;
        match submission {
            Submission::Append(request, reply) => match self.refuse_append() {
                Some(error) => drop(reply.send(Err(error))),
                None => self
                    .pending
                    .push_back(Pending::Append(request, reply, room)),
            },
            Submission::Change(request, false, reply) => {
                self.pending.push_back(Pending::Change(request, reply));
            }
            Submission::Change(request, true, reply) => {
                let done = self.drafting(|with| rehearse(with, &request));
                drop(reply.send(done.map_err(CallError::Refused)));
            }
            Submission::Group(request, messages, reply) => {
                let call = reply.map(|reply| GroupCall {
                    reply: Some(reply),
                    messages,
                });
                self.ask_sessions(request, call);
            }
            Submission::Query(ask) => {
                let stamp = self.engine.stamp(self.clock.wall(), self.clock.mono());
                ask(&CoreView {
                    state: self.engine.applier.state(),
                    sessions: &self.sessions,
                    admission: &self.admission,
                    stamp,
                    now: self.clock.mono(),
                    wal_bytes: self.engine.wal_bytes(),
                    unflushed_bytes: self.engine.applier.unflushed_bytes(),
                });
            }
            Submission::AppendTimes(times) => {
                let stamp = self.engine.stamp(self.clock.wall(), self.clock.mono());
                let applier = &self.engine.applier;
                self.admission
                    .note(&times, (applier.state(), applier), stamp);
            }
            Submission::Internal(change) => self.pending.push_back(Pending::Internal(change)),
            Submission::Flusher(task) => self.engine.applier.push_task(task),
            Submission::Stop => self.stopping = true,
        }
    }

    /// Hands a call to the group machine.
    pub(super) fn ask_sessions(&mut self, request: GroupRequest, waiting: Option<GroupCall>) {
        let call = CallId(self.call_next);
        self.call_next += 1;
        if let Some(waiting) = waiting {
            self.calls.insert(call, waiting);
        }
        let actions =
            self.with_sessions(|sessions, state, now| sessions.handle(state, call, request, now));
        self.carry_out(actions);
    }

    /// Makes the soft state that follows from what the start found.
    pub(super) fn restore(&mut self) {
        let stamp = self.engine.stamp(self.clock.wall(), self.clock.mono());
        let applier = &self.engine.applier;
        self.admission = Admission::of((applier.state(), applier), stamp);
        let actions = self.with_sessions(Sessions::restore);
        self.carry_out(actions);
    }

    pub(super) fn refuse_append(&self) -> Option<CallError> {
        let free_bytes = self.disk.free_bytes.load(Ordering::Relaxed);
        let reserve_bytes = self.disk.reserve_bytes.load(Ordering::Relaxed);
        (free_bytes < reserve_bytes).then_some(CallError::DiskReserve {
            free_bytes,
            reserve_bytes,
        })
    }

    /// What a draft is made with, as of now.
    pub(super) fn drafting<T>(&mut self, act: impl FnOnce(&mut Drafting<'_>) -> T) -> T {
        let stamp = self.engine.stamp(self.clock.wall(), self.clock.mono());
        let sessions = &self.sessions;
        act(&mut Drafting {
            state: self.engine.applier.state(),
            stamp,
            limits: &self.options.limits,
            append_limits: self.options.append_limits,
            live: &|group| Live {
                members: sessions.live_members(group),
                leases: sessions.open_leases(group),
            },
            member: &|group, id, generation| sessions.is_member(group, id, generation),
            admission: &mut self.admission,
            dice: &mut *self.dice,
        })
    }
}
