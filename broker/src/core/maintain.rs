//! What the core does by itself now and then: files of what was deleted go, producers and groups
//! that nobody used for long are forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use varvelog_store::{TopicId, WallMs};

use super::command::Change;
use super::flusher::Task;
use super::pending::Pending;
use super::run::Core;

/// Topics whose files the flusher was asked to remove.
pub(super) type Removing = BTreeSet<TopicId>;

impl Core {
    /// Looks once.
    pub(super) fn maintain(&mut self) {
        let stamp = self.engine.stamp(self.clock.wall(), self.clock.mono());
        self.admission.tick(stamp);
        let delay = millis(self.options.unlink_delay);
        if let Some(before) = stamp.running_ms.checked_sub(delay) {
            self.engine.applier.push_task(Task::RemoveRetired(before));
            self.remove_topics(before);
        }
        self.expire_groups(stamp.running_ms);
    }

    fn remove_topics(&mut self, before: u64) {
        let due: Vec<(TopicId, u32)> = self
            .engine
            .applier
            .state()
            .topics
            .deleted()
            .filter(|(_, deleted)| deleted.stamp.running_ms <= before)
            .map(|(topic, deleted)| (topic, deleted.partitions))
            .collect();
        for (topic, partitions) in due {
            if self.removing.insert(topic) {
                self.engine
                    .applier
                    .push_task(Task::RemoveTopic(topic, partitions));
            }
        }
    }

    /// Forgets groups that nobody was in, or committed for, in `groups.offset_retention` of the
    /// broker's running time: neither a stop nor a step of the wall clock takes an offset.
    fn expire_groups(&mut self, running_ms: u64) {
        let Some(active_since) = running_ms.checked_sub(millis(self.options.offset_retention))
        else {
            return;
        };
        let groups = self.engine.applier.state().groups.iter();
        let unused: Vec<_> = groups
            .filter(|group| group.last_active.running_ms < active_since)
            .map(|group| group.name.clone())
            .filter(|name| self.sessions.live_members(name) + self.sessions.open_leases(name) == 0)
            .collect();
        for group in unused {
            let change = Change::DeleteGroup {
                group,
                purge_dead_letters: false,
            };
            self.pending.push_back(Pending::Internal(change));
        }
    }

    /// Looks once for producers and message ids to forget.
    pub(super) fn expire_producers(&mut self) {
        let now = self.engine.stamp(self.clock.wall(), self.clock.mono()).wall;
        let WallMs(wall) = now;
        let expiry = i64::try_from(self.options.producer_expiry.as_millis()).unwrap_or(i64::MAX);
        let used_since = WallMs(wall.saturating_sub(expiry));
        let state = self.engine.applier.state();
        if state.has_expired_producers(used_since) || state.has_past_message_ids(now) {
            self.pending
                .push_back(Pending::Internal(Change::ExpireProducers { used_since }));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
