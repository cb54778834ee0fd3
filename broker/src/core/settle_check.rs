//! What a settlement must be like to be carried out.

use varvelog_store::{Offset, PartitionId, TopicId};

use super::command::{AppendPart, SETTLE_BYTES_MAX, SETTLE_PARTS_MAX, Settle, Stamp};
use super::durable_groups::{ACK_WINDOW, DurableGroup, GroupReads};
use super::forecast::RoundForecast;
use super::partitions::Partition;
use super::refusal::{GroupRefusal, QuotaRefusal, Refusal, TopicRefusal};
use super::state::State;
use super::topics::derived_refusal;

/// Which of a group's two kinds of partitions one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Of a topic that it reads.
    Source,
    /// Of the retry topic of this topic.
    Retry(TopicId),
}

/// How many of its records come with an entry of each kind; none: not one that should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct With {
    retries: Option<usize>,
    deaths: Option<usize>,
}

/// Where a settlement takes effect.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) group: &'a DurableGroup,
    pub(super) place: Place,
    partition: &'a Partition,
}

impl State {
    /// The group of that name and id, and the partition as one of its own.
    pub(super) fn find_place(
        &self,
        (name, id): (&crate::names::GroupName, u64),
        at: PartitionId,
    ) -> Result<Found<'_>, Refusal> {
        let group = self.groups.find(name)?;
        if group.id != id {
            return Err(GroupRefusal::NotFound {
                group: name.to_string(),
            }
            .into());
        }
        let place = if let Some(source) = group.retry_source(at.topic, &self.topics) {
            Place::Retry(source)
        } else {
            group.find(at, &self.topics)?;
            Place::Source
        };
        Ok(Found {
            group,
            place,
            partition: self.topics.find_partition(at)?,
        })
    }

    pub(super) fn check_settle(&self, settle: &Settle, stamp: Stamp) -> Result<(), Refusal> {
        let found = self.find_place((&settle.group, settle.group_id), settle.partition)?;
        if self.is_repeated(settle, stamp) {
            return self.check_append(&settle.append, stamp);
        }
        let (resets, low) = found.position(settle.partition);
        if settle.reset_count != resets || !has_order(settle) {
            return Err(lost(settle));
        }
        let lasts = settle.ranges.iter().map(|range| range.1);
        for at in lasts.chain(settle.notes.iter().map(|note| note.0)) {
            check_there(found.partition, at)?;
            if found.place == Place::Source && at >= low.plus(ACK_WINDOW) {
                return Err(quota("ack_window", ACK_WINDOW, at.since(low)));
            }
        }
        if settle.appends() {
            check_open(settle, found)?;
            self.check_parts(settle, found)?;
            self.check_append(&settle.append, stamp)?;
        }
        Ok(())
    }

    /// Whether the settlement was carried out before.
    pub(super) fn is_repeated(&self, settle: &Settle, stamp: Stamp) -> bool {
        let known = settle.append.request.as_ref().and_then(|request| {
            self.requests
                .get(request.topic, &request.id, stamp.running_ms)
        });
        known.is_some()
    }

    /// Predicts what a settlement appends against state and the earlier commands of the round,
    /// none of which it may [collide](State::collides) with. It is refused, and the round left as
    /// it was, or it will be carried out for sure.
    pub fn predict_settle(
        &self,
        round: &mut RoundForecast,
        settle: &mut Settle,
        stamp: Stamp,
    ) -> Result<(), Refusal> {
        self.check_settle(settle, self.broker.not_before(stamp))?;
        self.predict(round, &mut settle.append, stamp)
    }

    /// Whether the outcome of a settlement that appends hangs on an earlier command of the round.
    pub fn collides(&self, round: &RoundForecast, settle: &Settle) -> bool {
        let request = settle.append.request.as_ref();
        let asked = request.and_then(|request| round.request(request.topic, &request.id));
        settle.appends()
            && (asked.is_some()
                || round.touched.overlaps(settle)
                || Self::shares_ids(round, settle))
    }

    /// Copies go to the partition of the same number, and each of their records comes with what
    /// becomes of it, or how it died; anything else goes to topics that are not derived.
    fn check_parts(&self, settle: &Settle, found: Found<'_>) -> Result<(), Refusal> {
        let parts = &settle.append.parts;
        let bytes = parts.iter().map(|part| part.body.len()).sum::<usize>();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if bytes > SETTLE_BYTES_MAX {
            return Err(quota("settle_bytes", SETTLE_BYTES_MAX, bytes));
        }
        let count = u64::try_from(parts.len()).unwrap_or(u64::MAX);
        if count > SETTLE_PARTS_MAX {
            return Err(quota("settle_parts", SETTLE_PARTS_MAX, count));
        }
        let reads = found.reads(settle.partition);
        let mut entries = settle.retries.iter().peekable();
        let mut deaths = settle.deaths.iter().peekable();
        for (index, part) in (0_u32..).zip(parts) {
            let with = With {
                retries: entries
                    .next_if(|(at, _)| *at == index)
                    .map(|(_, entries)| entries.len()),
                deaths: deaths
                    .next_if(|(at, _)| *at == index)
                    .map(|(_, deaths)| deaths.len()),
            };
            self.check_part(settle, (found.group, reads), (part, with))?;
        }
        if entries.next().is_some() || deaths.next().is_some() {
            return Err(lost(settle));
        }
        Ok(())
    }

    fn check_part(
        &self,
        settle: &Settle,
        (group, reads): (&DurableGroup, Option<&GroupReads>),
        (part, with): (&AppendPart, With),
    ) -> Result<(), Refusal> {
        let topic = self.topics.find(part.partition.topic)?;
        let is_retry = reads.is_some_and(|reads| reads.retry == topic.id);
        let is_dead = reads.is_some_and(|reads| reads.dead_letter == topic.id);
        let is_own = is_retry || is_dead;
        if topic.derived.is_some() && !is_own {
            return Err(derived_refusal(&topic.name, group.name.as_str()));
        }
        let count = usize::try_from(part.record_count).unwrap_or(usize::MAX);
        let wanted = With {
            retries: is_retry.then_some(count),
            deaths: is_dead.then_some(count),
        };
        let is_there = !is_own || part.partition.partition == settle.partition.partition;
        if with != wanted || !is_there || part.producer.is_some() {
            return Err(lost(settle));
        }
        Ok(())
    }
}

impl<'a> Found<'a> {
    /// Resets and low watermark of the partition; a retry partition has neither.
    fn position(&self, at: PartitionId) -> (u64, Offset) {
        let progress = match self.place {
            Place::Source => self.group.progress(at),
            Place::Retry(_) => None,
        };
        progress.map_or((0, Offset::ZERO), |it| (it.reset_count(), it.low()))
    }

    /// Whether `at`, one of its partitions, was reset since a token was given out.
    pub(super) fn is_void(&self, at: PartitionId, reset_count: u64) -> bool {
        self.position(at).0 != reset_count
    }

    /// Whether the record at `last` is there.
    pub(super) fn check_there(&self, last: Offset) -> Result<(), Refusal> {
        check_there(self.partition, last)
    }

    fn reads(&self, at: PartitionId) -> Option<&'a GroupReads> {
        let source = match self.place {
            Place::Source => at.topic,
            Place::Retry(source) => source,
        };
        self.group.topics.get(&source)
    }
}

/// Ranges, endings and notes rise; endings lie in ranges, notes do not.
fn has_order(settle: &Settle) -> bool {
    let filled = settle.ranges.iter().all(|(first, last)| first <= last);
    let apart = settle.ranges.is_sorted_by(|a, b| a.1 < b.0);
    let rising = settle.endings.is_sorted_by(|a, b| a.0 < b.0)
        && settle.notes.is_sorted_by(|a, b| a.0 < b.0)
        && settle.parked.is_sorted_by(|a, b| a < b);
    let in_range = |at: Offset| {
        let next = settle.ranges.partition_point(|range| range.1 < at);
        settle.ranges.get(next).is_some_and(|range| range.0 <= at)
    };
    filled
        && apart
        && rising
        && settle.endings.iter().all(|(at, _)| in_range(*at))
        && !settle.notes.iter().any(|(at, _)| in_range(*at))
}

/// What appends is all or none: none of its records may be done.
fn check_open(settle: &Settle, found: Found<'_>) -> Result<(), Refusal> {
    let notes = settle.notes.iter().map(|(at, _)| (*at, *at));
    for (first, last) in settle.ranges.iter().copied().chain(notes) {
        let end = last.plus(1);
        let open = match (found.place, found.reads(settle.partition)) {
            (_, None) => 0,
            (Place::Source, Some(_)) => {
                let progress = found.group.progress(settle.partition);
                let done = |progress: &super::durable_groups::Progress| {
                    let below = progress.low().min(end).since(first);
                    below + progress.done().count_in(first, end)
                };
                end.since(first) - progress.map_or(end.since(first), done)
            }
            (Place::Retry(_), Some(reads)) => {
                let number = usize::try_from(settle.partition.partition).ok();
                let retries = number.and_then(|number| reads.retries.get(number));
                let open = retries.map_or(0, |it| it.pending().range(first..end).count());
                u64::try_from(open).unwrap_or(0)
            }
        };
        if open != end.since(first) {
            return Err(GroupRefusal::LeaseLost { offset: first }.into());
        }
    }
    Ok(())
}

fn check_there(partition: &Partition, at: Offset) -> Result<(), Refusal> {
    if at < partition.next() {
        return Ok(());
    }
    Err(TopicRefusal::OffsetOutOfRange {
        offset: at.as_i64(),
        earliest: partition.start(),
        latest: partition.next(),
    }
    .into())
}

/// The first record named was lost.
fn lost(settle: &Settle) -> Refusal {
    let first = settle.ranges.first().map(|range| range.0);
    let first = first.or_else(|| settle.notes.first().map(|note| note.0));
    let offset = first.unwrap_or_default();
    GroupRefusal::LeaseLost { offset }.into()
}

fn quota(what: &'static str, limit: u64, current: u64) -> Refusal {
    QuotaRefusal {
        what,
        limit,
        current,
    }
    .into()
}
