//! Settlements applied, with the copies and outputs that are appended in the same command.

use varvelog_store::{Offset, PartitionId};

use super::applied::{Outcome, RangeSettled, Settlement};
use super::command::{Settle, Stamp};
use super::durable_groups::DurableGroup;
use super::failure::{Ending, FailureNote};
use super::refusal::Refusal;
use super::request::Appended;
use super::settle_check::Place;
use super::state::{Carried, State};
use super::topics::DerivedKind;

impl State {
    pub(super) fn apply_settle(
        &mut self,
        settle: &Settle,
        stamp: Stamp,
    ) -> Result<Carried, Refusal> {
        self.check_settle(settle, stamp)?;
        let is_repeated = self.is_repeated(settle, stamp);
        let mut settlement = Settlement::default();
        let mut effects = Vec::new();
        if settle.appends() {
            let (outcome, appends) = self.apply_append(&settle.append, stamp)?;
            if let Outcome::Appended(appended) = outcome {
                settlement.appended = appended;
            }
            effects = appends;
        }
        if !is_repeated {
            let place = self
                .find_place((&settle.group, settle.group_id), settle.partition)?
                .place;
            self.bury(settle, &settlement.appended, stamp);
            self.settle_canaries(settle, place, stamp);
            let group = self
                .groups
                .get_mut(&settle.group)
                .expect("the group was checked");
            group.last_active = stamp;
            schedule(group, settle, place, &settlement.appended);
            park(group, settle, place, &settlement.appended);
            settlement.ranges = settle_in(group, settle, place);
        }
        Ok((Outcome::Settled(settlement), effects))
    }

    /// The log of a dead-letter partition starts later now: keys of which nothing is left there
    /// are parked no more.
    pub(super) fn dead_letters_start_at(&mut self, partition: PartitionId, start: Offset) {
        let derived = self.topics.by_id(partition.topic);
        let Some(derived) = derived.and_then(|topic| topic.derived.as_ref()) else {
            return;
        };
        let number = usize::try_from(partition.partition).unwrap_or(usize::MAX);
        if derived.kind == DerivedKind::DeadLetter
            && let Some(group) = self.groups.by_name.get_mut(&derived.group)
            && let Some(reads) = group.topics.get_mut(&derived.source)
            && reads.dead_letter == partition.topic
            && let Some(progress) = reads.partitions.get_mut(number)
        {
            progress.parked.retain(|_, until| *until > start);
        }
    }

    /// Notes how each record died whose copy went to the dead-letter topic.
    fn bury(&mut self, settle: &Settle, appended: &Appended, stamp: Stamp) {
        for (index, deaths) in &settle.deaths {
            let index = usize::try_from(*index).ok();
            if let Some(part) = index.and_then(|index| appended.parts.get(index)) {
                let (at, base) = (part.partition, part.base_offset);
                self.dead_letters.bury(at, base, deaths, stamp.wall);
            }
        }
    }

    /// The log of a retry partition starts later now: what lay below is gone.
    pub(super) fn retries_start_at(&mut self, partition: PartitionId, start: Offset) {
        let derived = self.topics.by_id(partition.topic);
        let Some(derived) = derived.and_then(|topic| topic.derived.as_ref()) else {
            return;
        };
        if let Some(group) = self.groups.by_name.get_mut(&derived.group)
            && let Some(source) = group.retry_source(partition.topic, &self.topics)
            && let Some(retries) = group.retry_mut(source, partition.partition)
        {
            retries.settle(Offset::ZERO, start);
        }
    }
}

/// Notes what becomes of each copy in the retry topic.
fn schedule(group: &mut DurableGroup, settle: &Settle, place: Place, appended: &Appended) {
    let source = match place {
        Place::Source => settle.partition.topic,
        Place::Retry(source) => source,
    };
    let Some(retries) = group.retry_mut(source, settle.partition.partition) else {
        return;
    };
    for (index, entries) in &settle.retries {
        let part = usize::try_from(*index)
            .ok()
            .and_then(|index| appended.parts.get(index));
        let Some(part) = part else { continue };
        for (delta, entry) in (0_u64..).zip(entries) {
            retries.add(part.base_offset.plus(delta), *entry);
        }
    }
}

/// Later records of the keys follow into the dead-letter topic, until all that is there by now is
/// gone from it.
fn park(group: &mut DurableGroup, settle: &Settle, place: Place, appended: &Appended) {
    let Some(reads) = group.topics.get_mut(&settle.partition.topic) else {
        return;
    };
    if !group.settings.parks() {
        return;
    }
    let number = usize::try_from(settle.partition.partition).ok();
    let progress = number.and_then(|number| reads.partitions.get_mut(number));
    let parts = settle.append.parts.iter().zip(&appended.parts);
    let dead = parts.filter(|(part, _)| part.partition.topic == reads.dead_letter);
    let ends = dead.map(|(part, to)| to.base_offset.plus(part.record_count.into()));
    if let (Place::Source, Some(progress), Some(end)) = (place, progress, ends.max()) {
        let parked = settle.parked.iter().map(|key| (*key, end));
        progress.parked.extend(parked);
    }
}

fn settle_in(group: &mut DurableGroup, settle: &Settle, place: Place) -> Vec<RangeSettled> {
    let mut settled = Vec::with_capacity(settle.ranges.len());
    let number = settle.partition.partition;
    match place {
        Place::Source => {
            let Some(progress) = group.progress_mut(settle.partition) else {
                return settled;
            };
            let fresh = open_of(settle, |at| !progress.is_done(at));
            for (first, last) in settle.ranges.iter().copied() {
                let end = last.plus(1);
                settled.push(counted(end.since(first), progress.settle(first, end)));
            }
            for (at, ending) in fresh {
                progress.endings.insert(at, ending);
            }
            for (at, note) in open_notes(settle, |at| !progress.is_done(at)) {
                progress.out.settle(at, at.plus(1));
                progress.notes.insert(at, note);
            }
        }
        Place::Retry(source) => {
            let Some(retries) = group.retry_mut(source, number) else {
                return settled;
            };
            let fresh = open_of(settle, |at| retries.pending.contains_key(&at));
            for (first, last) in settle.ranges.iter().copied() {
                let end = last.plus(1);
                settled.push(counted(end.since(first), retries.settle(first, end)));
            }
            for (at, ending) in fresh {
                retries.endings.insert(at, ending);
            }
            for (at, note) in open_notes(settle, |at| retries.pending.contains_key(&at)) {
                retries.out.settle(at, at.plus(1));
                retries.notes.insert(at, note);
            }
        }
    }
    settled
}

/// Endings of records that are still open: of others it is known how they ended.
fn open_of(settle: &Settle, is_open: impl Fn(Offset) -> bool) -> Vec<(Offset, Ending)> {
    let endings = settle.endings.iter().copied();
    endings.filter(|(at, _)| is_open(*at)).collect()
}

/// Notes of records that are open: of those that are done by now nothing is noted.
fn open_notes(settle: &Settle, is_open: impl Fn(Offset) -> bool) -> Vec<(Offset, FailureNote)> {
    let notes = settle.notes.iter().filter(|(at, _)| is_open(*at));
    notes.cloned().collect()
}

fn counted(records: u64, done: u64) -> RangeSettled {
    RangeSettled {
        done,
        already: records - done,
    }
}
