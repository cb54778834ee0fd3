//! How far one group is behind in one topic, kept up to date partition by partition.

use std::collections::BTreeSet;
use std::time::Duration;

use varvelog_store::{Offset, WallMs};

use super::delay;
use super::gate::{Behind, Gate, Measure};
use super::ledger::Ledger;
use super::rate::Rate;
use crate::core::command::Stamp;
use crate::core::durable_groups::{DurableGroup, Progress};
use crate::core::settings::AdmissionSettings;
use crate::names::GroupName;

/// A group's share of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Part {
    low: Offset,
    records: u64,
    bytes: u64,
    /// Append time of the oldest that is not done.
    since: Option<WallMs>,
}

/// Why a partition is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// Records came, or the log starts later.
    Moved,
    /// Records were settled: they count for the rate.
    Settled,
    /// The group stands somewhere else.
    Jumped,
}

/// See the module.
///
/// Invariant: `records`, `bytes` and `oldest` are those of `parts` together.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) group: GroupName,
    pub(super) group_id: u64,
    pub(super) settings: AdmissionSettings,
    /// Requests that were turned away, or with `observe` would have been.
    pub(super) turned_away: u64,
    gate: Gate,
    rate: Rate,
    parts: Vec<Part>,
    records: u64,
    bytes: u64,
    oldest: BTreeSet<(WallMs, usize)>,
}

impl Watch {
    pub(super) fn new(group: &DurableGroup) -> Self {
        Self {
            group: group.name.clone(),
            group_id: group.id,
            settings: group.settings.admission,
            turned_away: 0,
            gate: Gate::default(),
            rate: Rate::default(),
            parts: Vec::new(),
            records: 0,
            bytes: 0,
            oldest: BTreeSet::new(),
        }
    }

    /// Looks at one partition again; costs the same whatever waits in it.
    pub(super) fn touch(
        &mut self,
        number: usize,
        (progress, end): (&Progress, Offset),
        ledger: &Ledger,
        (touch, now): (Touch, Stamp),
    ) {
        if self.parts.len() <= number {
            self.parts.resize(number + 1, Part::default());
        }
        let now_part = part_of(progress, end, ledger);
        let Some(part) = self.parts.get_mut(number) else {
            return;
        };
        let before = std::mem::replace(part, now_part);
        let settled = before.records.saturating_sub(now_part.records);
        if touch == Touch::Settled && settled > 0 {
            self.rate.add(now.running_ms, settled);
        }
        self.records = self.records - before.records + now_part.records;
        self.bytes = self.bytes - before.bytes + now_part.bytes;
        if before.since != now_part.since {
            if let Some(since) = before.since {
                self.oldest.remove(&(since, number));
            }
            if let Some(since) = now_part.since {
                self.oldest.insert((since, number));
            }
        }
    }

    /// Where the group stands in a partition.
    pub(super) fn low(&self, number: usize) -> Offset {
        self.parts.get(number).map_or(Offset::ZERO, |part| part.low)
    }

    /// Whether something in the partition is not done.
    pub(super) fn is_behind_in(&self, number: usize) -> bool {
        self.parts.get(number).is_some_and(|part| part.records > 0)
    }

    /// Now.
    pub(super) fn behind(&self, now: Stamp) -> Behind {
        let oldest = self.oldest.first().map(|(since, _)| *since);
        let age = oldest.map_or(0, |since| now.wall.0.saturating_sub(since.0));
        Behind {
            records: self.records,
            bytes: self.bytes,
            age_ms: u64::try_from(age).unwrap_or(0),
        }
    }

    /// Opens or closes the gate.
    pub(super) fn look(&mut self, now: Stamp) -> Option<Measure> {
        let behind = self.behind(now);
        self.gate.look(&self.settings, &behind)
    }

    /// What keeps the gate closed once so many more records and bytes are there, and how far the
    /// group is behind then.
    pub(super) fn judge(
        &self,
        (records, bytes): (u64, u64),
        now: Stamp,
    ) -> Option<(Measure, Behind)> {
        let mut behind = self.behind(now);
        behind.records = behind.records.saturating_add(records);
        behind.bytes = behind.bytes.saturating_add(bytes);
        Some((self.gate.judge(&self.settings, &behind)?, behind))
    }

    /// Until the group is back at its resume levels, about.
    pub(super) fn drain_time(&self, behind: &Behind, now: Stamp) -> Duration {
        delay::to_drain(&self.settings, behind, &self.rate, now.running_ms)
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        let sum = |of: fn(&Part) -> u64| self.parts.iter().map(of).sum::<u64>();
        assert_eq!(self.records, sum(|part| part.records));
        assert_eq!(self.bytes, sum(|part| part.bytes));
        let since = (0..).zip(&self.parts);
        let oldest: BTreeSet<(WallMs, usize)> = since
            .filter_map(|(number, part)| Some((part.since?, number)))
            .collect();
        assert_eq!(self.oldest, oldest);
    }
}

/// Where records are done in front of others that are not, bytes are taken at the mean from the
/// lowest that is not.
fn part_of(progress: &Progress, end: Offset, ledger: &Ledger) -> Part {
    let low = progress.low();
    let records = progress.not_done(end);
    let from_low = ledger.bytes_from(low);
    let share = u128::from(from_low) * u128::from(records);
    let bytes = share
        .checked_div(u128::from(end.since(low)))
        .unwrap_or_default();
    Part {
        low,
        records,
        bytes: u64::try_from(bytes).unwrap_or(from_low),
        since: (records > 0).then(|| ledger.time_at(low)).flatten(),
    }
}
