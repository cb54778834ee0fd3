//! Records of a group that wait for their next delivery, as the core has them: copies in its retry
//! topics, and records that wait in place.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use crate::core::durable_groups::DurableGroup;
use crate::core::failure::{FailureNote, Wait};
use crate::core::handed_out::HandOuts;
use crate::core::handle::CoreView;
use crate::core::partitions::Partition;
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::names::GroupName;
use crate::service::context::Context;
use crate::service::status::CallFailure;

/// Records that are looked at in one question: the core does nothing else meanwhile.
const LOOKED_AT_MAX: usize = 100_000;

/// A record that waits for its time and is given out to nobody.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waiting<'a> {
    pub(super) due: WallMs,
    /// Of the first append.
    pub(super) source: PartitionId,
    /// Of the first append.
    pub(super) origin: Offset,
    /// Where it lies now.
    pub(super) place: Place,
    /// Counted failures so far.
    pub(super) failures: u32,
    /// What is noted of it; none: its headers tell.
    pub(super) note: Option<&'a FailureNote>,
}

/// Where a record lies: in its source partition or, behind all those of it, in the retry partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) is_retry: bool,
    pub(super) partition: PartitionId,
    pub(super) offset: Offset,
}

/// Partitions that a group reads, in portions of which each can be looked at in one question.
pub(super) async fn portions(
    context: &Context,
    (group, topic): (&GroupName, Option<TopicId>),
) -> Result<Vec<Vec<PartitionId>>, CallFailure> {
    let wanted = group.clone();
    let ask = move |view: &CoreView<'_>| -> Result<_, Refusal> {
        let found = view.state.groups.find(&wanted)?;
        if let Some(topic) = topic
            && !found.topics.contains_key(&topic)
        {
            return Err(GroupRefusal::TopicNotOfGroup {
                group: found.name.to_string(),
                topic: view.state.topics.find(topic)?.name.to_string(),
            }
            .into());
        }
        let mut all = Vec::new();
        for (id, reads) in &found.topics {
            if topic.is_some_and(|topic| topic != *id) {
                continue;
            }
            let each = reads.partitions.iter().zip(&reads.retries);
            for (number, (progress, retries)) in (0..).zip(each) {
                let count = progress.notes().len() + retries.pending().len();
                let partition = PartitionId {
                    topic: *id,
                    partition: number,
                };
                if count > 0 {
                    all.push((partition, count));
                }
            }
        }
        Ok(all)
    };
    let counted = context.core().query(ask).await?;
    Ok(portioned(counted?))
}

fn portioned(counted: Vec<(PartitionId, usize)>) -> Vec<Vec<PartitionId>> {
    let mut portions: Vec<Vec<PartitionId>> = Vec::new();
    let mut room = 0;
    for (partition, count) in counted {
        match portions.last_mut() {
            Some(portion) if count <= room => portion.push(partition),
            Some(_) | None => {
                portions.push(vec![partition]);
                room = LOOKED_AT_MAX;
            }
        }
        room = room.saturating_sub(count);
    }
    portions
}

/// Looks at what waits in these partitions of a group, each by rising place, until `act` breaks.
/// With a group that is gone, or partitions that it reads no more, there is nothing to look at.
pub(super) fn each_waiting<'v>(
    view: &CoreView<'v>,
    group: &GroupName,
    partitions: &[PartitionId],
    mut act: impl FnMut(Waiting<'v>) -> ControlFlow<()>,
) {
    let Some(group) = view.state.groups.get(group) else {
        return;
    };
    for source in partitions {
        if each_of_source(group, *source, &mut act).is_break() {
            return;
        }
    }
}

fn each_of_source<'v>(
    group: &'v DurableGroup,
    source: PartitionId,
    act: &mut impl FnMut(Waiting<'v>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let Some(reads) = group.topics.get(&source.topic) else {
        return ControlFlow::Continue(());
    };
    let Ok(number) = usize::try_from(source.partition) else {
        return ControlFlow::Continue(());
    };
    if let Some(progress) = reads.partitions.get(number) {
        for (offset, note) in progress.notes() {
            if let Some(due) = due_of(note, *offset, progress.out()) {
                act(Waiting {
                    due,
                    source,
                    origin: *offset,
                    place: Place {
                        is_retry: false,
                        partition: source,
                        offset: *offset,
                    },
                    failures: note.failures,
                    note: Some(note),
                })?;
            }
        }
    }
    let Some(retries) = reads.retries.get(number) else {
        return ControlFlow::Continue(());
    };
    let partition = PartitionId {
        topic: reads.retry,
        partition: source.partition,
    };
    for (offset, entry) in retries.pending() {
        let note = retries.notes().get(offset);
        let due = match note {
            Some(note) => due_of(note, *offset, retries.out()),
            None => (!retries.out().has(*offset)).then_some(entry.due),
        };
        if let Some(due) = due {
            act(Waiting {
                due,
                source,
                origin: entry.origin,
                place: Place {
                    is_retry: true,
                    partition,
                    offset: *offset,
                },
                failures: note.map_or(entry.failures, |note| note.failures),
                note,
            })?;
        }
    }
    ControlFlow::Continue(())
}

/// When a record is due that waits for a time and that nobody has.
fn due_of(note: &FailureNote, offset: Offset, out: &HandOuts) -> Option<WallMs> {
    match note.wait {
        Wait::Until(due) if !out.has(offset) => Some(due),
        Wait::Until(_) | Wait::Ready | Wait::Room(_) | Wait::Operator(_) => None,
    }
}

/// How many of `wanted`, by source partition, are not done: neither in place nor as a copy.
pub(super) fn count_open(
    view: &CoreView<'_>,
    group: &GroupName,
    (source, wanted): (PartitionId, &BTreeSet<Offset>),
) -> u64 {
    let group = view.state.groups.get(group);
    let Some(reads) = group.and_then(|group| group.topics.get(&source.topic)) else {
        return 0;
    };
    let end = view.state.topics.partition(source).map(Partition::next);
    let (Ok(number), Some(end)) = (usize::try_from(source.partition), end) else {
        return 0;
    };
    let mut open: BTreeSet<Offset> = BTreeSet::new();
    if let Some(progress) = reads.partitions.get(number) {
        let is_open = |at: &Offset| *at < end && !progress.is_done(*at);
        open.extend(wanted.iter().copied().filter(is_open));
    }
    if let Some(retries) = reads.retries.get(number) {
        let origins = retries.pending().values().map(|entry| entry.origin);
        open.extend(origins.filter(|origin| wanted.contains(origin)));
    }
    u64::try_from(open.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_looked_at_together_as_long_as_they_are_small() {
        let id = |partition| PartitionId {
            topic: TopicId([1; 16]),
            partition,
        };
        let counts = [60_000, 40_000, 1, 1_000_000, 99_999, 2];
        let counted = (0..).map(id).zip(counts).collect();
        let portions: Vec<Vec<u32>> = portioned(counted)
            .into_iter()
            .map(|portion| portion.iter().map(|id| id.partition).collect())
            .collect();
        assert_eq!(portions, [vec![0, 1], vec![2], vec![3], vec![4], vec![5]]);
    }
}
