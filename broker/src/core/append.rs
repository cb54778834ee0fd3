//! Appends: checked, predicted and applied.
//!
//! An append is all or none. Its parts take effect in order, so that a later part sees what an
//! earlier one of the same producer did; a part that was appended before appends nothing and is
//! answered with where it lies. A request whose id is remembered appends nothing at all.

use std::collections::{BTreeSet, HashMap};

use varvelog_store::{Offset, PartitionId, WallMs};

use super::applied::{Effect, Outcome};
use super::command::{Append, AppendPart, RequestId, Stamp};
use super::delays::DELAYS_MAX;
use super::forecast::{AppendLimits, Histories, RoundForecast};
use super::message_ids::{MESSAGE_IDS_MAX, note_ids};
use super::producers::{BatchMark, Batches, PRODUCERS_PER_PARTITION_MAX, Verdict, note};
use super::refusal::{AppendRefusal, QuotaRefusal, Refusal};
use super::request::{Appended, PartAppended, Repeat};
use super::request_ids::{REQUEST_IDS_MAX, Remembered};
use super::state::State;

/// What apply itself enforces; what a broker is configured to is at most this.
const HARD_LIMITS: AppendLimits = AppendLimits {
    producers_per_partition: PRODUCERS_PER_PARTITION_MAX,
    request_ids: REQUEST_IDS_MAX,
    message_ids: MESSAGE_IDS_MAX,
    delays: DELAYS_MAX,
};

impl State {
    /// Predicts an append against state and the earlier appends of the round: fills in
    /// `predicted` of each part, or refuses and leaves `round` as it was.
    ///
    /// When no part has a prediction, all of the append was done before, by a committed command or
    /// by one of the round.
    pub fn predict(
        &self,
        round: &mut RoundForecast,
        append: &mut Append,
        stamp: Stamp,
    ) -> Result<(), Refusal> {
        assert!(
            append
                .parts
                .iter()
                .all(|part| { part.record_count > 0 || !part.ids.repeated.is_empty() }),
            "no batch is empty"
        );
        let stamp = self.broker.not_before(stamp);
        if self.check_append_in(round, append, stamp)? {
            append
                .parts
                .iter_mut()
                .for_each(|part| part.predicted = None);
            return Ok(());
        }
        for part in &mut append.parts {
            self.set_repeated_apart(round, part, stamp.wall);
            part.predicted = self.forecast_part(round, part, stamp.wall)?;
            if let Some(base) = part.predicted {
                note_ids(&mut round.ids, part, base);
            }
        }
        if let Some(request) = &append.request {
            round.remember(request.topic, &request.id, request.content_hash);
        }
        Ok(())
    }

    /// The answer to an append that committed state holds already, so that it need not be
    /// committed again; none if any of it is new or refused.
    pub fn find_duplicate(&self, append: &Append, stamp: Stamp) -> Option<Appended> {
        let stamp = self.broker.not_before(stamp);
        if let Some(request) = &append.request {
            let known = self
                .requests
                .get(request.topic, &request.id, stamp.running_ms)?;
            return (known.content_hash == request.content_hash).then(|| repeated(known));
        }
        let mut parts = Vec::with_capacity(append.parts.len());
        let mut repeats = Vec::new();
        for (index, part) in (0_u32..).zip(&append.parts) {
            if let Some(found) = self.all_repeated((part, index), stamp.wall) {
                parts.push(all_before(part.partition, &found)?);
                repeats.extend(found);
                continue;
            }
            let producer = part.producer?;
            let history = self.producers.history(part.partition, producer.id);
            match self
                .producers
                .judge(history, producer, part.record_count)
                .ok()?
            {
                Verdict::Duplicate(at) => parts.push(self.duplicate(part.partition, at)?),
                Verdict::New => return None,
            }
        }
        (!parts.is_empty()).then_some(Appended {
            parts,
            repeats,
            duplicate: true,
        })
    }

    pub(super) fn check_append(&self, append: &Append, stamp: Stamp) -> Result<(), Refusal> {
        self.check_append_in(&RoundForecast::with_limits(HARD_LIMITS), append, stamp)?;
        Ok(())
    }

    pub(super) fn apply_append(
        &mut self,
        append: &Append,
        stamp: Stamp,
    ) -> Result<(Outcome, Vec<Effect>), Refusal> {
        self.check_append(append, stamp)?;
        if let Some(known) = self.remembered(append.request.as_ref(), stamp) {
            return Ok((Outcome::Appended(repeated(known)), Vec::new()));
        }
        let mut parts = Vec::with_capacity(append.parts.len());
        let mut effects = Vec::with_capacity(append.parts.len());
        let mut repeats = Vec::new();
        for (index, part) in append.parts.iter().enumerate() {
            repeats.extend(self.repeats(part, index));
            let (appended, effect) = self.apply_part(part, index, stamp)?;
            parts.push(appended);
            effects.extend(effect);
        }
        if let Some(request) = &append.request {
            let remembered = Remembered {
                content_hash: request.content_hash,
                running_ms: stamp.running_ms,
                parts: parts.as_slice().into(),
                repeats: repeats.as_slice().into(),
            };
            self.requests.insert(request.topic, &request.id, remembered);
        }
        let duplicate = !parts.is_empty() && effects.is_empty();
        let appended = Appended {
            parts,
            repeats,
            duplicate,
        };
        Ok((Outcome::Appended(appended), effects))
    }

    /// Whether the whole append is a request that was carried out before, or why it is refused.
    fn check_append_in(
        &self,
        round: &RoundForecast,
        append: &Append,
        stamp: Stamp,
    ) -> Result<bool, Refusal> {
        if let Some(request) = &append.request
            && self.check_request(round, request, stamp)?
        {
            return Ok(true);
        }
        // Later parts see what earlier ones of the same producer do. Offsets do not matter here.
        let mut earlier = Histories::default();
        let mut delayed = HashMap::new();
        let mut ids = BTreeSet::new();
        for part in &append.parts {
            self.topics.find_partition(part.partition)?;
            self.check_delays(round, &mut delayed, part, stamp.wall)?;
            self.check_ids(round, &mut ids, part, stamp.wall)?;
            let Some(producer) = part.producer else {
                continue;
            };
            let at = part.partition;
            let history = (earlier.get(at, producer.id))
                .or_else(|| round.histories.get(at, producer.id))
                .or_else(|| self.producers.history(at, producer.id));
            let verdict = self.producers.judge(history, producer, part.record_count)?;
            if verdict != Verdict::New {
                continue;
            }
            if history.is_none() {
                let more = round.histories.fresh(at) + earlier.fresh(at);
                self.check_producer_room(at, more, round.limits.producers_per_partition)?;
            }
            if append.parts.len() > 1 {
                let next = followed(history, part, Offset::ZERO);
                earlier.set(at, producer.id, next, history.is_none());
            }
        }
        Ok(false)
    }

    /// Whether the request was carried out before or will be by the round.
    fn check_request(
        &self,
        round: &RoundForecast,
        request: &RequestId,
        stamp: Stamp,
    ) -> Result<bool, Refusal> {
        self.topics.find(request.topic)?;
        let committed = self
            .requests
            .get(request.topic, &request.id, stamp.running_ms);
        let known = committed.map(|known| known.content_hash);
        match known.or_else(|| round.request(request.topic, &request.id)) {
            Some(hash) if hash == request.content_hash => return Ok(true),
            Some(_) => {
                return Err(AppendRefusal::RequestIdReused {
                    id: request.id.clone(),
                }
                .into());
            }
            None => {}
        }
        let current = self.requests.count(request.topic, stamp.running_ms)
            + round.request_count(request.topic);
        let limit = round.limits.request_ids;
        if current >= limit {
            return Err(QuotaRefusal {
                what: "request_ids",
                limit,
                current,
            }
            .into());
        }
        Ok(false)
    }

    /// `earlier` counts what parts before this one of the same append delay.
    fn check_delays(
        &self,
        round: &RoundForecast,
        earlier: &mut HashMap<PartitionId, u64>,
        part: &AppendPart,
        wall: WallMs,
    ) -> Result<(), Refusal> {
        let more = part.delays_after(wall);
        if more == 0 {
            return Ok(());
        }
        let delayed = self.topics.find_partition(part.partition)?.delayed();
        let ahead = earlier.entry(part.partition).or_default();
        *ahead += more;
        let more = *ahead + round.delays(part.partition);
        let limit = round.limits.delays;
        // Those that came due are counted out only where it matters.
        if delayed.count() + more <= limit || delayed.count_after(wall) + more <= limit {
            return Ok(());
        }
        Err(QuotaRefusal {
            what: "delays",
            limit,
            current: delayed.count_after(wall),
        }
        .into())
    }

    fn check_producer_room(
        &self,
        partition: PartitionId,
        more: u64,
        limit: u64,
    ) -> Result<(), Refusal> {
        let current = self.producers.count_on(partition) + more;
        if current < limit {
            return Ok(());
        }
        Err(QuotaRefusal {
            what: "producers_per_partition",
            limit,
            current,
        }
        .into())
    }

    fn remembered(&self, request: Option<&RequestId>, stamp: Stamp) -> Option<&Remembered> {
        let request = request?;
        self.requests
            .get(request.topic, &request.id, stamp.running_ms)
    }

    /// The offset that a part will get, noted in `round`; none if it appends nothing.
    fn forecast_part(
        &self,
        round: &mut RoundForecast,
        part: &AppendPart,
        wall: WallMs,
    ) -> Result<Option<Offset>, Refusal> {
        let at = part.partition;
        let committed = self.topics.find_partition(at)?.next();
        if part.record_count == 0 {
            return Ok(None);
        }
        let base = round.ends.get(&at).copied().unwrap_or(committed);
        if let Some(producer) = part.producer {
            let history = (round.histories.get(at, producer.id))
                .or_else(|| self.producers.history(at, producer.id));
            match self.producers.judge(history, producer, part.record_count)? {
                Verdict::Duplicate(_) => return Ok(None),
                Verdict::New => {
                    let next = followed(history, part, base);
                    round
                        .histories
                        .set(at, producer.id, next, history.is_none());
                }
            }
        }
        round
            .ends
            .insert(at, base.plus(u64::from(part.record_count)));
        round.add_delays(at, part.delays_after(wall));
        Ok(Some(base))
    }

    fn apply_part(
        &mut self,
        part: &AppendPart,
        index: usize,
        stamp: Stamp,
    ) -> Result<(PartAppended, Option<Effect>), Refusal> {
        let at = part.partition;
        if part.record_count == 0 {
            let repeats = self.repeats(part, index);
            let before =
                all_before(at, &repeats).expect("a part without records has repeated ones");
            return Ok((before, None));
        }
        if let Some(producer) = part.producer {
            let history = self.producers.history(at, producer.id);
            let verdict = self.producers.judge(history, producer, part.record_count)?;
            if let Verdict::Duplicate(offset) = verdict {
                assert_eq!(part.predicted, None, "the prediction for {at} was wrong");
                let duplicate = self
                    .duplicate(at, offset)
                    .expect("the partition was checked");
                return Ok((duplicate, None));
            }
        }
        let partition = self
            .topics
            .partition_mut(at)
            .expect("the partition was checked");
        let (base_offset, append_time) =
            partition.append(part.record_count, &part.delays, stamp.wall);
        assert_eq!(
            part.predicted,
            Some(base_offset),
            "the prediction for {at} was wrong"
        );
        let epoch = partition.epoch();
        if let Some(producer) = part.producer {
            self.producers
                .record(at, producer, mark(part, base_offset), stamp.wall);
        }
        self.remember_ids(part, base_offset, stamp.wall);
        let effect = Effect::Append {
            partition: at,
            base_offset,
            record_count: part.record_count,
            epoch,
            append_time,
            part: index,
        };
        let appended = PartAppended {
            partition: at,
            base_offset,
            epoch,
            duplicate: false,
        };
        Ok((appended, Some(effect)))
    }

    fn duplicate(&self, partition: PartitionId, base_offset: Offset) -> Option<PartAppended> {
        let epoch = self.topics.partition(partition)?.epoch_of(base_offset);
        Some(PartAppended {
            partition,
            base_offset,
            epoch,
            duplicate: true,
        })
    }
}

/// The history of a part's producer with the part behind it.
fn followed(history: Option<Batches>, part: &AppendPart, base_offset: Offset) -> Batches {
    let epoch = part.producer.map_or(0, |producer| producer.epoch);
    let mark = mark(part, base_offset);
    match history {
        None => Batches::first(epoch, mark),
        Some(mut history) => {
            note(&mut history, epoch, mark);
            history
        }
    }
}

fn mark(part: &AppendPart, base_offset: Offset) -> BatchMark {
    let base = part.producer.map_or(0, |producer| producer.base_sequence);
    let base_sequence = u32::try_from(base).expect("a negative sequence is a gap");
    BatchMark {
        base_sequence,
        record_count: part.record_count,
        base_offset,
    }
}

/// The answer for a part each record of which was appended before by its message id.
fn all_before(partition: PartitionId, repeats: &[Repeat]) -> Option<PartAppended> {
    let first = repeats.first()?;
    Some(PartAppended {
        partition,
        base_offset: first.offset,
        epoch: first.epoch,
        duplicate: true,
    })
}

/// The first answer again.
fn repeated(known: &Remembered) -> Appended {
    let again = |part: &PartAppended| PartAppended {
        duplicate: true,
        ..*part
    };
    Appended {
        parts: known.parts.iter().map(again).collect(),
        repeats: known.repeats.to_vec(),
        duplicate: true,
    }
}
