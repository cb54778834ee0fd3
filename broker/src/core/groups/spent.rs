//! Records that a changed policy gives no more deliveries.

use varvelog_store::{Offset, PartitionId};

use super::durable::Durable;
use super::fates::{How, Unprocessed};
use super::group::Group;
use super::turn::Turn;
use crate::core::failure::Wait;

/// Records that are looked at in one command.
const SPENT_PER_COMMAND: usize = 1_000;

impl Group {
    /// The group's settings are others.
    pub(super) fn updated<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        self.take_settings(turn);
        self.sweep_spent(turn);
        let partitions: Vec<_> = self.feeds.keys().copied().collect();
        for partition in partitions {
            self.wake(partition);
        }
    }

    /// Dead-letters what failed as often as the policy allows by now, and is not out.
    fn sweep_spent<S: Durable>(&mut self, turn: &mut Turn<'_, S>) {
        for topic in turn.state.group_topics(&self.name) {
            for partition in 0..topic.partitions {
                let source = PartitionId {
                    topic: topic.id,
                    partition,
                };
                let Some(place) = turn.state.place(&self.name, source) else {
                    continue;
                };
                for id in [place.source, place.retry] {
                    self.sweep_partition(turn, id, source);
                }
                self.room_for_dead(turn, source);
                self.parked_changed(turn, source);
            }
        }
    }

    /// There may be room again for what is to be dead-lettered of a source partition.
    pub(super) fn room_for_dead<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        source: PartitionId,
    ) {
        self.take_settings(turn);
        let Some(place) = turn.state.place(&self.name, source) else {
            return;
        };
        for id in [place.source, place.retry] {
            let waiting = self.waiting_for_room(turn, id);
            if !waiting.is_empty() {
                self.open_feeds(turn, source);
                self.decide_unasked(turn, id, waiting);
            }
        }
    }

    fn waiting_for_room<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        id: PartitionId,
    ) -> Vec<Unprocessed> {
        let mut waiting = Vec::new();
        let mut from = Offset::ZERO;
        while let Some((at, note)) = turn.state.next_note(&self.name, id, from)
            && waiting.len() < SPENT_PER_COMMAND
        {
            from = at.plus(1);
            let entry = turn.state.next_retry(&self.name, id, at);
            let entry = entry.filter(|(found, _)| *found == at);
            if let Wait::Room(reason) = note.wait
                && !self.is_busy(id, at)
            {
                waiting.push(Unprocessed {
                    offset: at,
                    origin: entry.map_or(at, |(_, entry)| entry.origin),
                    how: How::Waited(reason),
                    releases: 0,
                    consumer: note.consumer.clone(),
                });
            }
        }
        waiting
    }

    /// Whether a record is out or being settled.
    fn is_busy(&self, id: PartitionId, at: Offset) -> bool {
        self.feeds.get(&id).is_some_and(|feed| {
            let leased = feed.leases.overlapping(at, at).next().is_some();
            leased || feed.is_settling((at, at))
        })
    }

    fn sweep_partition<S: Durable>(
        &mut self,
        turn: &mut Turn<'_, S>,
        id: PartitionId,
        source: PartitionId,
    ) {
        let mut spent = self.spent(turn, id);
        spent.dedup();
        if spent.is_empty() {
            return;
        }
        self.open_feeds(turn, source);
        for records in spent.chunks(SPENT_PER_COMMAND) {
            let records = records.iter().map(|(offset, origin)| Unprocessed {
                offset: *offset,
                origin: *origin,
                how: How::Spent,
                releases: 0,
                consumer: String::new(),
            });
            self.decide_unasked(turn, id, records.collect());
        }
    }

    /// By offset: records that are given out no more, with the offsets of their first appends.
    fn spent<S: Durable>(&self, turn: &Turn<'_, S>, id: PartitionId) -> Vec<(Offset, Offset)> {
        let Some(facts) = turn.state.group(&self.name) else {
            return Vec::new();
        };
        let policy = &facts.settings.retry;
        let is_busy = |at: Offset| self.is_busy(id, at);
        let mut found = Vec::new();
        let mut from = Offset::ZERO;
        while let Some((at, entry)) = turn.state.next_retry(&self.name, id, from) {
            from = at.plus(1);
            let note = turn.state.next_note(&self.name, id, at);
            let noted = note.filter(|(noted, _)| *noted == at);
            let failures = noted.map_or(entry.failures, |(_, note)| note.failures);
            let waits = noted.is_some_and(|(_, note)| is_over(note.wait));
            if !waits && policy.spent(failures, 0).is_some() && !is_busy(at) {
                found.push((at, entry.origin));
            }
        }
        if !found.is_empty()
            || turn
                .state
                .next_retry(&self.name, id, Offset::ZERO)
                .is_some()
        {
            return found;
        }
        let mut from = Offset::ZERO;
        while let Some((at, note)) = turn.state.next_note(&self.name, id, from) {
            from = at.plus(1);
            let is_spent = policy.spent(note.failures, 0).is_some();
            if !is_over(note.wait) && is_spent && !is_busy(at) {
                found.push((at, at));
            }
        }
        found
    }
}

/// Whether it was decided already that the record is given out no more.
pub(super) fn is_over(wait: Wait) -> bool {
    matches!(wait, Wait::Room(_) | Wait::Operator(_))
}
