//! The gates of all topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::gate::Measure;
use super::ledger::Ledger;
use super::logs::Logs;
use super::watch::{Touch, Watch};
use super::{TurnedAway, delay};
use crate::core::applied::{Applied, Effect};
use crate::core::command::{Append, Change, Command, Stamp};
use crate::core::partitions::Partition;
use crate::core::state::State;
use crate::names::GroupName;
use crate::traffic::Traffic;

/// Records and bytes that were let in and are not applied yet, by topic.
#[derive(Debug, Default)]
pub struct Admitted(BTreeMap<TopicId, (u64, u64)>);

impl Admitted {
    /// What is new of an append was let in; its parts have their predictions.
    pub fn add(&mut self, append: &Append) {
        for part in append.parts.iter().filter(|it| it.predicted.is_some()) {
            let of_topic = self.0.entry(part.partition.topic).or_default();
            of_topic.0 += u64::from(part.record_count);
            of_topic.1 += part.body.len() as u64;
        }
    }

    fn of(&self, topic: TopicId) -> (u64, u64) {
        self.0.get(&topic).copied().unwrap_or_default()
    }
}

/// A place in a log of which the append time is to be looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unsure {
    /// Which log.
    pub partition: PartitionId,
    /// The first record that a group has not done.
    pub offset: Offset,
}

/// What people see of a group's gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdmissionView {
    /// What keeps one of them closed.
    pub closed_by: Option<Measure>,
    /// Requests turned away since the start; with `observe`, that would have been.
    pub turned_away: u64,
    /// While one is closed: when producers are told to come back, without jitter.
    pub retry_after: Option<Duration>,
}

/// What is applied: the durable state, and what only the logs know.
pub type Source<'a> = (&'a State, &'a dyn Logs);

/// A topic that at least one group watches.
#[derive(Debug, Default)]
struct Door {
    name: String,
    /// Counts what is only observed.
    traffic: Option<Arc<Traffic>>,
    /// By partition.
    ledgers: Vec<Ledger>,
    /// By name of the group; never empty.
    watches: Vec<Watch>,
}

/// The gates of all topics; see [the module](super).
#[derive(Debug, Default)]
pub struct Admission {
    doors: BTreeMap<TopicId, Door>,
}

impl Admission {
    /// The gates of a state, all open but those that its values close.
    pub fn of((state, logs): Source<'_>, now: Stamp) -> Self {
        let mut admission = Self::default();
        let watched = state.groups.iter().filter(|group| {
            let settings = group.settings.admission;
            settings.is_watched()
        });
        let topics: BTreeSet<TopicId> = watched
            .flat_map(|group| group.topics.keys().copied())
            .collect();
        for topic in topics {
            admission.renew(topic, (state, logs), now);
        }
        admission
    }

    /// A command was applied, and had this outcome.
    pub fn applied(
        &mut self,
        (command, applied): (&Command, &Applied),
        from: Source<'_>,
        now: Stamp,
    ) {
        if applied.outcome.is_err() {
            return;
        }
        for topic in self.renewed_by(&command.change, from.0) {
            self.renew(topic, from, now);
        }
        if self.doors.is_empty() {
            return;
        }
        for effect in &applied.effects {
            self.carried_out(effect, command, (from, now));
        }
        if let Change::Settle(settle) = &command.change {
            self.touch(settle.partition, from, (Touch::Settled, now));
        } else if let Change::CommitOffsets(commit) = &command.change {
            for wanted in &commit.offsets {
                self.touch(wanted.partition, from, (Touch::Settled, now));
            }
        } else if let Change::ResetOffsets { positions, .. } = &command.change {
            for (partition, _) in positions {
                self.touch(*partition, from, (Touch::Jumped, now));
            }
        }
    }

    /// Opens and closes gates by the time that passed.
    pub fn tick(&mut self, now: Stamp) {
        for watch in self.doors.values_mut().flat_map(|door| &mut door.watches) {
            watch.look(now);
        }
    }

    /// Whether an append may go on, on top of what is `admitted`, or why not. Asked before the
    /// append is predicted: one that is turned away uses up nothing.
    pub fn check(
        &mut self,
        append: &Append,
        (admitted, now): (&Admitted, Stamp),
        dice: &mut dyn FnMut() -> [u8; 16],
    ) -> Result<(), Box<TurnedAway>> {
        if self.doors.is_empty() {
            return Ok(());
        }
        let parts = append.parts.iter().filter(|part| part.record_count > 0);
        let topics: BTreeSet<TopicId> = parts.map(|part| part.partition.topic).collect();
        let mut turned = None;
        for topic in topics {
            if let Some(door) = self.doors.get_mut(&topic) {
                turned = turned.or(door.check(admitted.of(topic), now));
            }
        }
        let Some(mut turned) = turned else {
            return Ok(());
        };
        turned.retry_after = delay::with_jitter(turned.retry_after, dice());
        Err(Box::new(turned))
    }

    /// What keeps the gate of a group in one of its topics closed to producers; none while it is
    /// open, observes only or is not there.
    pub fn over_limit(&self, group: &GroupName, topic: TopicId, now: Stamp) -> Option<Measure> {
        let watches = &self.doors.get(&topic)?.watches;
        let watch = watches.iter().find(|watch| watch.group == *group)?;
        if watch.settings.observe {
            return None;
        }
        Some(watch.judge((0, 0), now)?.0)
    }

    /// The gates of a group; none if it watches nothing.
    pub fn view(&self, group: &GroupName, now: Stamp) -> Option<AdmissionView> {
        let watches = self.doors.values().flat_map(|door| &door.watches);
        let mut of_group = watches.filter(|watch| watch.group == *group).peekable();
        of_group.peek()?;
        let mut view = AdmissionView::default();
        for watch in of_group {
            view.turned_away += watch.turned_away;
            if let Some((measure, behind)) = watch.judge((0, 0), now) {
                view.closed_by = view.closed_by.or(Some(measure));
                view.retry_after = view.retry_after.max(Some(watch.drain_time(&behind, now)));
            }
        }
        Some(view)
    }

    /// Where append times are to be looked up, behind `after` and then from the beginning, at most
    /// `max`.
    pub fn unsure(&self, after: Option<Unsure>, max: usize) -> Vec<Unsure> {
        let mut all = BTreeSet::new();
        for (topic, door) in &self.doors {
            let aged = |watch: &&Watch| watch.settings.age_max_ms > 0;
            for watch in door.watches.iter().filter(aged) {
                for (number, ledger) in door.ledgers.iter().enumerate() {
                    let offset = watch.low(number);
                    if watch.is_behind_in(number) && ledger.is_unsure(offset) {
                        let partition = PartitionId {
                            topic: *topic,
                            partition: u32::try_from(number).unwrap_or(u32::MAX),
                        };
                        all.insert(Unsure { partition, offset });
                    }
                }
            }
        }
        let is_behind = |at: &&Unsure| after.is_none_or(|after| **at > after);
        let behind = all.iter().filter(is_behind);
        let rest = all.iter().filter(|at| !is_behind(at));
        behind.chain(rest).take(max).copied().collect()
    }

    /// Append times that were looked up.
    pub fn note(&mut self, times: &[(Unsure, WallMs)], from: Source<'_>, now: Stamp) {
        for (at, time) in times {
            let number = usize::try_from(at.partition.partition).unwrap_or(usize::MAX);
            if let Some(door) = self.doors.get_mut(&at.partition.topic) {
                let floor = door.floor(number);
                if let Some(ledger) = door.ledgers.get_mut(number) {
                    ledger.note(at.offset, *time, floor);
                }
            }
            self.touch(at.partition, from, (Touch::Moved, now));
        }
    }

    /// Topics of which the watches are others now.
    fn renewed_by(&self, change: &Change, state: &State) -> Vec<TopicId> {
        if let Change::AddPartitions { topic, .. } | Change::DeleteTopic { topic, .. } = change {
            return vec![*topic];
        }
        let group = if let Change::CreateGroup(create) = change {
            &create.group
        } else if let Change::AddGroupTopics { group, .. }
        | Change::UpdateGroup { group, .. }
        | Change::DeleteGroup { group, .. } = change
        {
            group
        } else {
            return Vec::new();
        };
        let is_watching = |door: &Door| door.watches.iter().any(|watch| watch.group == *group);
        let doors = self.doors.iter().filter(|(_, door)| is_watching(door));
        let mut topics: Vec<TopicId> = doors.map(|(topic, _)| *topic).collect();
        let group = state.groups.get(group);
        if let Some(group) = group.filter(|group| group.settings.admission.is_watched()) {
            topics.extend(group.topics.keys());
        }
        topics.sort_unstable();
        topics.dedup();
        topics
    }

    /// Makes the watches of a topic those that its groups ask for; what goes on keeps its gate.
    fn renew(&mut self, topic: TopicId, from: Source<'_>, now: Stamp) {
        let (state, logs) = from;
        let readers = state.groups.readers_of(topic);
        let watching: Vec<_> = readers
            .filter(|group| group.settings.admission.is_watched())
            .collect();
        let Some(found) = state.topics.by_id(topic).filter(|_| !watching.is_empty()) else {
            self.doors.remove(&topic);
            return;
        };
        let door = self.doors.entry(topic).or_default();
        door.name = found.name.to_string();
        door.traffic = logs.traffic(topic);
        for partition in found.partition_ids().skip(door.ledgers.len()) {
            door.ledgers.push(logs.ledger(partition));
        }
        let mut before = std::mem::take(&mut door.watches);
        for group in watching {
            let same = |watch: &Watch| watch.group_id == group.id;
            let mut watch = match before.iter().position(same) {
                Some(at) => before.swap_remove(at),
                None => Watch::new(group),
            };
            watch.settings = group.settings.admission;
            door.watches.push(watch);
        }
        for partition in found.partition_ids() {
            self.touch(partition, from, (Touch::Jumped, now));
        }
    }

    fn carried_out(
        &mut self,
        effect: &Effect,
        command: &Command,
        (from, now): (Source<'_>, Stamp),
    ) {
        if let Effect::LogStartMoved { partition, .. } = effect {
            self.touch(*partition, from, (Touch::Jumped, now));
        }
        let Effect::Append {
            partition,
            base_offset,
            record_count,
            append_time,
            part,
            ..
        } = effect
        else {
            return;
        };
        let Some(door) = self.doors.get_mut(&partition.topic) else {
            return;
        };
        let number = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        let floor = door.floor(number);
        let parts = command.change.append().map(|append| &append.parts);
        let body = parts.and_then(|parts| parts.get(*part)).map(|it| &it.body);
        let bytes = body.map_or(0, |body| body.len() as u64);
        if let Some(ledger) = door.ledgers.get_mut(number) {
            let range = (*base_offset, base_offset.plus(u64::from(*record_count)));
            ledger.add(range, (*append_time, *append_time), bytes, floor);
        }
        self.touch(*partition, from, (Touch::Moved, now));
    }

    fn touch(
        &mut self,
        partition: PartitionId,
        (state, logs): Source<'_>,
        (touch, now): (Touch, Stamp),
    ) {
        let Some(door) = self.doors.get_mut(&partition.topic) else {
            return;
        };
        let number = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        let end = state.topics.partition(partition).map(Partition::next);
        let floor = door.floor(number);
        let (Some(ledger), Some(end)) = (door.ledgers.get_mut(number), end) else {
            return;
        };
        for watch in &mut door.watches {
            let group = state.groups.get(&watch.group);
            if let Some(progress) = group.and_then(|group| group.progress(partition)) {
                let low = progress.low();
                let is_back = low < watch.low(number);
                if is_back && ledger.begins_behind(low) {
                    *ledger = logs.ledger(partition);
                }
                if touch == Touch::Jumped || is_back {
                    ledger.place(low, floor.min(low));
                }
                watch.touch(number, (progress, end), ledger, (touch, now));
            }
            watch.look(now);
        }
    }

    #[cfg(test)]
    pub(in crate::core) fn check_invariants(&self) {
        let watches = self.doors.values().flat_map(|door| &door.watches);
        watches.for_each(Watch::check);
    }
}

impl Door {
    /// The lowest place where a group stands in a partition.
    fn floor(&self, number: usize) -> Offset {
        let lows = self.watches.iter().map(|watch| watch.low(number));
        lows.min().unwrap_or(Offset::ZERO)
    }

    /// Counts with every group whose gate is closed; the first that refuses is told.
    fn check(&mut self, admitted: (u64, u64), now: Stamp) -> Option<TurnedAway> {
        let (mut turned, mut observed) = (None, None);
        for watch in &mut self.watches {
            watch.look(now);
            let Some((measure, behind)) = watch.judge(admitted, now) else {
                continue;
            };
            watch.turned_away += 1;
            let settings = &watch.settings;
            if settings.observe {
                observed = observed.or(Some(measure));
            } else if turned.is_none() {
                turned = Some(TurnedAway {
                    group: watch.group.clone(),
                    topic: self.name.clone(),
                    measure,
                    limit: settings.limit(measure).unwrap_or_default(),
                    current: behind.by(measure),
                    resume_at: settings.resume_at(measure).unwrap_or_default(),
                    retry_after: watch.drain_time(&behind, now),
                });
            }
        }
        if let (None, Some(measure), Some(traffic)) = (&turned, observed, &self.traffic) {
            traffic.observe(measure.reason());
        }
        turned
    }
}
