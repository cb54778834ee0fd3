//! Which entries a replay or a discard is about, decided once.

use std::collections::BTreeMap;

use varvelog_store::{Offset, WallMs};

use super::entries;
use super::filter::{Filter, Judged};
use super::stats::{Tallies, Tally};
use crate::core::dead_letters::{Cause, Claims, Queue};
use crate::core::refusal::QuotaRefusal;
use crate::core::replay_command::CLAIM_RUNS_MAX;
use crate::core::reserved_headers::ReservedHeaders;
use crate::service::context::Context;
use crate::service::read::{OpenBatch, record_at};
use crate::service::status::CallFailure;
use crate::view::TopicView;

/// Entries that were chosen, and what is told of them.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    pub(super) claims: Claims,
    pub(super) matched: u64,
    /// Of those, before compression.
    pub(super) bytes: u64,
    /// Wanted, but claimed by a replay or replayed too often.
    pub(super) skipped: u64,
    /// Of those that are matched, whose keys are not parked.
    pub(super) unparked: u64,
    /// What died of what.
    pub(super) tallies: Tallies,
}

/// What is passed over though the filter takes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Entries that were replayed so often.
    pub(super) replays_max: Option<u32>,
    /// How many, oldest first; 0: all.
    pub(super) limit: u64,
}

/// An entry that may be wanted.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    died: WallMs,
    partition: u32,
    offset: Offset,
    bytes: u32,
    /// Index into the causes that were found.
    cause: usize,
    /// Of all entries of its partition.
    ordinal: usize,
    is_claimed: bool,
    is_parked: bool,
    replays: u32,
}

/// What was found in the partitions looked at.
#[derive(Debug, Default)]
struct Found {
    all: Vec<Candidate>,
    /// None: not told apart.
    causes: Vec<Option<Cause>>,
}

/// Chooses what a filter takes. Records are read only where entries do not tell enough.
pub(super) async fn select(
    context: &Context,
    topic: &TopicView,
    filter: &Filter,
    rules: Rules,
) -> Result<Selection, CallFailure> {
    let wanted = filter.clone();
    let look = move |queue: &Queue, partition: u32, made: &mut Found| {
        if !wanted.passes_over(partition) {
            gather(queue, partition, &wanted, made);
        }
    };
    let mut found = entries::fold(context, topic.id, Found::default(), look).await?;
    read_doubtful(topic, filter, &mut found).await;
    let selection = choose(found, rules);
    let current = selection.claims.run_count();
    if current <= CLAIM_RUNS_MAX {
        return Ok(selection);
    }
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Err(QuotaRefusal {
        what: "dead_letter_runs",
        limit: count(CLAIM_RUNS_MAX),
        current: count(current),
    }
    .into())
}

fn gather(queue: &Queue, partition: u32, filter: &Filter, made: &mut Found) {
    let mut judged = Judged::new(filter, queue);
    let mut indexes = BTreeMap::<u32, usize>::new();
    for (ordinal, (offset, entry)) in queue.entries(partition).enumerate() {
        if !filter.may_take((partition, offset), entry, &mut judged) {
            continue;
        }
        let causes = &mut made.causes;
        let cause = *indexes.entry(entry.cause).or_insert_with(|| {
            causes.push(queue.causes().get(entry.cause).cloned());
            causes.len() - 1
        });
        made.all.push(Candidate {
            died: entry.died,
            partition,
            offset,
            bytes: entry.bytes,
            cause,
            ordinal,
            is_claimed: entry.job.is_some(),
            is_parked: queue.is_parked(partition, offset),
            replays: entry.replays,
        });
    }
}

/// Leaves out what a look at the record shows not to be wanted, or what cannot be read.
async fn read_doubtful(topic: &TopicView, filter: &Filter, found: &mut Found) {
    let Found { all, causes } = found;
    let mut kept = Vec::with_capacity(all.len());
    let mut open: Option<(u32, OpenBatch)> = None;
    for candidate in std::mem::take(all) {
        let is_told = causes.get(candidate.cause).is_some_and(Option::is_some);
        if !filter.needs_record(is_told) || takes(topic, filter, candidate, &mut open).await {
            kept.push(candidate);
        }
    }
    *all = kept;
}

async fn takes(
    topic: &TopicView,
    filter: &Filter,
    candidate: Candidate,
    open: &mut Option<(u32, OpenBatch)>,
) -> bool {
    let Candidate {
        partition, offset, ..
    } = candidate;
    let number = usize::try_from(partition).unwrap_or(usize::MAX);
    let Some(view) = topic.partitions.get(number) else {
        return false;
    };
    let has = |(of, batch): &(u32, OpenBatch)| *of == partition && batch.holds(offset);
    if !open.as_ref().is_some_and(has) {
        *open = match record_at(view, offset).await {
            Ok(batch) => batch.map(|batch| (partition, batch)),
            Err(error) => {
                tracing::warn!(%error, partition = %view.id, %offset,
                    "a dead letter cannot be read");
                None
            }
        };
    }
    let record = open.as_ref().and_then(|(_, batch)| batch.find(offset));
    record.is_some_and(|record| filter.takes(record.key, &ReservedHeaders::of(record.headers)))
}

fn choose(found: Found, rules: Rules) -> Selection {
    let Found { mut all, causes } = found;
    let mut selection = Selection::default();
    all.retain(|it| {
        let is_spent = rules.replays_max.is_some_and(|most| it.replays >= most);
        let is_free = !it.is_claimed && !is_spent;
        selection.skipped += u64::from(!is_free);
        is_free
    });
    let limit = usize::try_from(rules.limit).unwrap_or(usize::MAX);
    if rules.limit > 0 && all.len() > limit {
        all.sort_unstable_by_key(|it| (it.died, it.partition, it.offset));
        all.truncate(limit);
    }
    all.sort_unstable_by_key(|it| (it.partition, it.offset));
    let mut before: Option<(u32, usize)> = None;
    for it in &all {
        let next = before.map(|(partition, ordinal)| (partition, ordinal + 1));
        let joins = next == Some((it.partition, it.ordinal));
        selection.claims.add(it.partition, it.offset, joins);
        before = Some((it.partition, it.ordinal));
        selection.bytes += u64::from(it.bytes);
        selection.unparked += u64::from(!it.is_parked);
        let one = Tally::of(it.died, it.partition, it.offset);
        let cause = causes.get(it.cause).cloned().flatten();
        super::stats::add(&mut selection.tallies, cause, one);
    }
    selection.matched = u64::try_from(all.len()).unwrap_or(u64::MAX);
    selection
}
