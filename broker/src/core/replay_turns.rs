//! The core's part in replays: what they want read is read, and what they propose committed.

use super::copies::ReadDone;
use super::replays::Moment;
use super::run::Core;
use crate::names::GroupName;

impl Core {
    pub(super) fn moment(&self) -> Moment {
        Moment {
            mono: self.clock.mono(),
            wall: self.clock.wall(),
        }
    }

    /// Begins what is due, unless the broker stops.
    pub(super) fn tick_replays(&mut self) {
        let jobs = self.engine.applier.state().dead_letters.jobs();
        let has_jobs = self.replays.is_at_work() || jobs.active().next().is_some();
        if self.stopping || !has_jobs {
            return;
        }
        let now = self.moment();
        let stamp = self.engine.stamp(now.wall, now.mono);
        let admission = &self.admission;
        let over = |group: &GroupName, topic| admission.over_limit(group, topic, stamp).is_some();
        let state = self.engine.applier.state();
        let actions = self.replays.tick(state, &over, now);
        self.carry_out(actions);
        if let Some(next) = self.replays.next_deadline(self.engine.applier.state()) {
            self.timers.wake(next);
        }
    }

    /// Something is read, for the group machine or for a replay.
    pub(super) fn was_read(&mut self, done: ReadDone) {
        let actions = if self.replays.asked(done.id) {
            let now = self.moment();
            self.replays.read(done, now)
        } else {
            self.with_sessions(|sessions, state, now| sessions.read(state, done, now))
        };
        self.carry_out(actions);
    }
}
