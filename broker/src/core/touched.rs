//! Which records the commands of a round make done, so that what appends is sure of its outcome.

use std::collections::HashMap;

use varvelog_store::{Offset, PartitionId};

use super::ack_set::AckSet;
use super::command::{Change, Settle};
use crate::names::GroupName;

/// What settlements and commits of a round touch. Its map is never iterated.
#[derive(Debug, Default)]
pub(super) struct Touched {
    by_place: HashMap<(GroupName, PartitionId), Spans>,
}

#[derive(Debug, Default)]
struct Spans {
    /// A commit moves the low watermark either way.
    all: bool,
    settled: AckSet,
}

impl Touched {
    /// Notes what a change of the round makes done.
    pub(super) fn add(&mut self, change: &Change) {
        if let Change::Settle(settle) = change {
            let key = (settle.group.clone(), settle.partition);
            let spans = self.by_place.entry(key).or_default();
            for (first, last) in settle.ranges.iter().copied() {
                spans.settled.insert(first, last.plus(1));
            }
        } else if let Change::CommitOffsets(commit) = change {
            for one in &commit.offsets {
                let key = (commit.group.clone(), one.partition);
                self.by_place.entry(key).or_default().all = true;
            }
        }
    }

    /// Whether something before it in the round may decide about a record that it names.
    pub(super) fn overlaps(&self, settle: &Settle) -> bool {
        let key = (settle.group.clone(), settle.partition);
        let Some(spans) = self.by_place.get(&key) else {
            return false;
        };
        let is_settled = |first: Offset, last: Offset| {
            let end = last.plus(1);
            spans.settled.count_in(first, end) > 0
        };
        let mut notes = settle.notes.iter();
        spans.all
            || (settle.ranges.iter()).any(|(first, last)| is_settled(*first, *last))
            || notes.any(|(at, _)| is_settled(*at, *at))
    }
}
