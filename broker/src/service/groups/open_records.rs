//! What a group has not done of a partition, looked at within a budget: the core does nothing else
//! meanwhile.

use varvelog_store::{Offset, WallMs};

use crate::core::durable_groups::{DurableGroup, Progress};
use crate::core::failure::Wait;
use crate::core::retries::RetryProgress;
use crate::core::settings::{GroupMode, OnFailure};

/// Steps of one question, whatever the number of groups.
const STEPS_MAX: usize = 100_000;
/// Steps to find what could be given out: what lies behind so many runs is not looked for.
const RUNS_MAX: usize = 1_000;

/// How much may be looked at, and when that is.
#[derive(Debug)]
pub(super) struct Budget {
    now: WallMs,
    steps: usize,
}

impl Budget {
    pub(super) fn new(now: WallMs) -> Self {
        Self {
            now,
            steps: STEPS_MAX,
        }
    }

    /// Whether a record that waits for this cannot be given out yet.
    pub(super) fn is_waiting(&self, wait: Wait) -> bool {
        match wait {
            Wait::Ready => false,
            Wait::Until(due) => due > self.now,
            Wait::Room(_) | Wait::Operator(_) => true,
        }
    }

    /// Takes steps, if so many are left.
    fn take(&mut self, steps: usize) -> bool {
        let left = self.steps.checked_sub(steps);
        self.steps = left.unwrap_or(self.steps);
        left.is_some()
    }
}

/// What a group has not done of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OpenRecords {
    /// Not yet due. Where there are too many to look at, all that are in the retry topic.
    pub(super) scheduled: u64,
    /// In the retry topic, due or not.
    pub(super) retries: u64,
    /// In the retry topic and due. Where there are too many to look at, none.
    pub(super) due_count: u64,
    /// The lowest record in place that could be given out.
    pub(super) ready: Option<Offset>,
    /// When the soonest retry was due that could be given out.
    pub(super) due: Option<WallMs>,
    /// The lowest first append of what is in the retry topic. Where there are too many to look at,
    /// that of the one that came first.
    pub(super) origin: Option<Offset>,
}

impl OpenRecords {
    pub(super) fn of(
        group: &DurableGroup,
        (progress, retries): (&Progress, &RetryProgress),
        end: Offset,
        budget: &mut Budget,
    ) -> Self {
        let mut open = Self::default();
        if budget.take(progress.notes().len()) {
            for note in progress.notes().values() {
                let is_later = matches!(note.wait, Wait::Until(due) if due > budget.now);
                open.scheduled += u64::from(is_later);
            }
        }
        open.look_at_retries(retries, budget);
        if group.settings.paused {
            open.due = None;
        } else {
            open.ready = ready(group, progress, end, budget);
        }
        open
    }

    fn look_at_retries(&mut self, retries: &RetryProgress, budget: &mut Budget) {
        let pending = retries.pending();
        let count = u64::try_from(pending.len()).unwrap_or(u64::MAX);
        self.retries = count;
        if !budget.take(pending.len()) {
            self.scheduled = self.scheduled.saturating_add(count);
            self.origin = pending.first_key_value().map(|(_, entry)| entry.origin);
            return;
        }
        for (offset, entry) in pending {
            let origin = self
                .origin
                .map_or(entry.origin, |low| low.min(entry.origin));
            self.origin = Some(origin);
            let due = match retries.notes().get(offset).map(|note| note.wait) {
                None | Some(Wait::Ready) => Some(entry.due),
                Some(Wait::Until(due)) => Some(due),
                Some(Wait::Room(_) | Wait::Operator(_)) => None,
            };
            let Some(due) = due else { continue };
            if due > budget.now {
                self.scheduled += 1;
                continue;
            }
            self.due_count += 1;
            if !retries.out().has(*offset) {
                self.due = Some(self.due.map_or(due, |soonest| soonest.min(due)));
            }
        }
    }
}

/// The lowest record that is neither done nor held, and waits for nothing.
fn ready(
    group: &DurableGroup,
    progress: &Progress,
    end: Offset,
    budget: &Budget,
) -> Option<Offset> {
    let settings = &group.settings;
    let is_held = settings.on_failure == OnFailure::Hold && settings.mode == GroupMode::Stream;
    let mut at = progress.low();
    for _ in 0..RUNS_MAX {
        at = progress.first_not_done(at);
        if at >= end {
            return None;
        }
        if let Some(next) = progress.out().end_of(at) {
            at = next;
            continue;
        }
        match progress.notes().get(&at) {
            Some(note) if budget.is_waiting(note.wait) && is_held => return None,
            Some(note) if budget.is_waiting(note.wait) => at = at.plus(1),
            Some(_) | None => return Some(at),
        }
    }
    None
}
