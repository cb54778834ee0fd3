//! Records of a request that were appended before are set apart from those that are new.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::id_hash::IdHash;
use super::ids::MESSAGE_IDS_ALL_MAX;
use super::window::FirstAppend;
use super::without::without;
use crate::core::command::{AppendPart, Settle};
use crate::core::forecast::RoundForecast;
use crate::core::refusal::{QuotaRefusal, Refusal};
use crate::core::request::Repeat;
use crate::core::state::State;

/// The message ids of a part's records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartIds {
    /// Of records in the batch, by their number in it, rising.
    pub fresh: Vec<(u32, IdHash)>,
    /// Records that are not in the batch because they were appended before.
    pub repeated: Vec<Repeated>,
}

/// A record that was appended before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated {
    /// Its number in the batch as it was sent; these rise.
    pub number: u32,
    /// Of its id.
    pub hash: IdHash,
    /// Where the first one lies.
    pub first: FirstAppend,
}

/// Ids that the round under construction appends. Never iterated.
pub(in crate::core) type RoundIds = HashMap<TopicId, HashMap<IdHash, FirstAppend>>;

impl State {
    /// The window of a topic and the time, if it has one.
    fn id_window(&self, topic: TopicId, now: WallMs) -> Option<(u64, WallMs)> {
        let window_ms = self.topics.by_id(topic)?.settings.message_id_window_ms;
        (window_ms > 0).then_some((window_ms, now))
    }

    fn first_append(
        &self,
        round: &RoundForecast,
        (topic, hash): (TopicId, IdHash),
        window: (u64, WallMs),
    ) -> Option<FirstAppend> {
        let committed = self.message_ids.get(topic, hash, window);
        committed.or_else(|| round.ids.get(&topic)?.get(&hash).copied())
    }

    /// Refuses ids beyond what may be remembered. `earlier` has those of parts before this one.
    pub(in crate::core) fn check_ids(
        &self,
        round: &RoundForecast,
        earlier: &mut BTreeSet<(TopicId, IdHash)>,
        part: &AppendPart,
        now: WallMs,
    ) -> Result<(), Refusal> {
        let topic = part.partition.topic;
        if part.ids.fresh.is_empty() {
            return Ok(());
        }
        let Some(window) = self.id_window(topic, now) else {
            return Ok(());
        };
        let (kept, all_kept) = (self.message_ids.kept(topic), self.message_ids.all_kept());
        let ahead = wide(round.ids.get(&topic).map_or(0, HashMap::len));
        let all_ahead = wide(round.ids.values().map(HashMap::len).sum());
        let limit = round.limits.message_ids;
        // Each id is looked for only where the limit is near.
        let bound = wide(earlier.len()) + wide(part.ids.fresh.len());
        if kept + ahead + bound <= limit && all_kept + all_ahead + bound <= MESSAGE_IDS_ALL_MAX {
            earlier.extend(part.ids.fresh.iter().map(|(_, hash)| (topic, *hash)));
            return Ok(());
        }
        for (_, hash) in &part.ids.fresh {
            if self.first_append(round, (topic, *hash), window).is_none() {
                earlier.insert((topic, *hash));
            }
        }
        let current = self.message_ids.count(topic, window) + ahead;
        let is_new = |it: &&(TopicId, IdHash)| {
            it.0 == topic && self.first_append(round, **it, window).is_none()
        };
        let more = wide(earlier.iter().filter(is_new).count());
        check_room(current, more, limit)?;
        let more = wide(earlier.len());
        check_room(all_kept + all_ahead, more, MESSAGE_IDS_ALL_MAX)
    }

    /// Takes out of the part what was appended before, by a committed command or by one of the
    /// round.
    pub(in crate::core) fn set_repeated_apart(
        &self,
        round: &RoundForecast,
        part: &mut AppendPart,
        now: WallMs,
    ) {
        let topic = part.partition.topic;
        if part.ids.fresh.is_empty() && part.ids.repeated.is_empty() {
            return;
        }
        let Some(window) = self.id_window(topic, now) else {
            part.ids.fresh.clear();
            return;
        };
        let first_of = |hash| self.first_append(round, (topic, hash), window);
        // A part that is predicted once more: the first may lie elsewhere than it would have.
        for repeated in &mut part.ids.repeated {
            repeated.first = first_of(repeated.hash).unwrap_or(repeated.first);
        }
        let mut found = Vec::new();
        for (number, hash) in &part.ids.fresh {
            if let Some(first) = first_of(*hash) {
                found.push((*number, *hash, first));
            }
        }
        if !found.is_empty() {
            take_out(part, &found);
        }
    }

    /// The answer for a part of which every record is in committed state already; none if one is
    /// new.
    pub(in crate::core) fn all_repeated(
        &self,
        (part, index): (&AppendPart, u32),
        now: WallMs,
    ) -> Option<Vec<Repeat>> {
        let topic = part.partition.topic;
        let window = self.id_window(topic, now)?;
        if part.ids.fresh.len() != usize::try_from(part.record_count).ok()? {
            return None;
        }
        let of_record = |(number, hash): &(u32, IdHash)| {
            let first = self.message_ids.get(topic, *hash, window)?;
            self.repeat((index, *number), topic, first)
        };
        part.ids.fresh.iter().map(of_record).collect()
    }

    /// The answers for records of a part that it says were appended before.
    pub(in crate::core) fn repeats(&self, part: &AppendPart, index: usize) -> Vec<Repeat> {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let of_record = |it: &Repeated| {
            self.repeat((index, it.number), part.partition.topic, it.first)
                .expect("the first one was appended to a partition of the topic")
        };
        part.ids.repeated.iter().map(of_record).collect()
    }

    fn repeat(&self, place: (u32, u32), topic: TopicId, first: FirstAppend) -> Option<Repeat> {
        let partition = PartitionId {
            topic,
            partition: first.partition,
        };
        let epoch = self.topics.partition(partition)?.epoch_of(first.offset);
        Some(Repeat {
            part: place.0,
            number: place.1,
            partition: first.partition,
            offset: first.offset,
            epoch,
        })
    }

    /// Remembers the ids of a part that was appended at `base`.
    pub(in crate::core) fn remember_ids(&mut self, part: &AppendPart, base: Offset, now: WallMs) {
        let at = part.partition;
        let Some(window) = self.id_window(at.topic, now) else {
            return;
        };
        for (number, hash) in &part.ids.fresh {
            let known = self.message_ids.get(at.topic, *hash, window);
            assert_eq!(known, None, "the prediction for {at} was wrong");
            let first = place_of(at, base, *number);
            self.message_ids.insert((at.topic, *hash), first, window);
        }
    }

    /// Whether a settlement appends an id that an earlier command of the round appends: it waits
    /// for that one to be committed, since it may be predicted again when that one is not.
    pub(in crate::core) fn shares_ids(round: &RoundForecast, settle: &Settle) -> bool {
        settle.append.parts.iter().any(|part| {
            let ahead = round.ids.get(&part.partition.topic);
            let mut ids = part.ids.fresh.iter();
            ahead.is_some_and(|ahead| ids.any(|(_, hash)| ahead.contains_key(hash)))
        })
    }
}

/// Notes the ids of a part that will be appended at `base`.
pub(in crate::core) fn note_ids(round: &mut RoundIds, part: &AppendPart, base: Offset) {
    if part.ids.fresh.is_empty() {
        return;
    }
    let ids = round.entry(part.partition.topic).or_default();
    let placed = part.ids.fresh.iter();
    ids.extend(placed.map(|(number, hash)| (*hash, place_of(part.partition, base, *number))));
}

fn place_of(at: PartitionId, base: Offset, number: u32) -> FirstAppend {
    FirstAppend {
        partition: at.partition,
        offset: base.plus(number.into()),
    }
}

fn check_room(current: u64, more: u64, limit: u64) -> Result<(), Refusal> {
    if more == 0 || current + more <= limit {
        return Ok(());
    }
    Err(QuotaRefusal {
        what: "message_ids",
        limit,
        current,
    }
    .into())
}

/// Takes records of these numbers, rising, out of the batch and of what is said about it.
fn take_out(part: &mut AppendPart, found: &[(u32, IdHash, FirstAppend)]) {
    let gone: Vec<u32> = found.iter().map(|it| it.0).collect();
    let left = |number: u32| {
        let below = gone.partition_point(|it| *it < number);
        let is_gone = gone.get(below) == Some(&number);
        (!is_gone).then(|| number - u32::try_from(below).unwrap_or(u32::MAX))
    };
    let ids = std::mem::take(&mut part.ids);
    let as_sent = |number: u32| as_sent(&ids.repeated, number);
    let more = found.iter().map(|(number, hash, first)| Repeated {
        number: as_sent(*number),
        hash: *hash,
        first: *first,
    });
    let mut repeated: Vec<Repeated> = ids.repeated.iter().copied().chain(more).collect();
    repeated.sort_unstable_by_key(|it| it.number);
    let fresh = ids.fresh.iter();
    part.ids = PartIds {
        fresh: fresh
            .filter_map(|(number, hash)| Some((left(*number)?, *hash)))
            .collect(),
        repeated,
    };
    let delays = part.delays.iter();
    part.delays = delays
        .filter_map(|(number, due)| Some((left(*number)?, *due)))
        .collect();
    part.record_count -= u32::try_from(gone.len()).unwrap_or(u32::MAX);
    part.body = if part.record_count == 0 {
        Bytes::new()
    } else {
        without(&part.body, &gone).expect("the edge made this batch of records it had checked")
    };
}

/// The number that a record of the batch had when the batch was sent.
fn as_sent(repeated: &[Repeated], number: u32) -> u32 {
    let mut number = number;
    for it in repeated {
        if it.number <= number {
            number += 1;
        }
    }
    number
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
