//! Hand-outs as far as they were noted: what a restart knows of leases.

use std::collections::BTreeMap;

use varvelog_store::Offset;

use super::fields::holds;
use super::request::LeaseId;

/// A hand-out that is neither settled nor given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOut {
    /// Last offset, included.
    pub last: Offset,
    /// From 1.
    pub attempt: u32,
    /// In ack tokens, with the run.
    pub lease: LeaseId,
    /// Of the broker that gave it out.
    pub run: u64,
    /// Id of the member that has it.
    pub member: String,
    /// Visibility timeout, ms.
    pub ack_timeout_ms: u64,
}

/// Hand-outs of one partition that do not overlap, by first offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandOuts {
    pub(super) by_first: BTreeMap<Offset, HandedOut>,
}

impl HandOuts {
    /// Each with its first offset, rising.
    pub fn iter(&self) -> impl Iterator<Item = (Offset, &HandedOut)> {
        self.by_first.iter().map(|(first, out)| (*first, out))
    }

    /// Whether somebody has the record at `offset`.
    pub fn has(&self, offset: Offset) -> bool {
        self.end_of(offset).is_some()
    }

    /// Where the hand-out ends, exclusively, that the record at `offset` is of.
    pub fn end_of(&self, offset: Offset) -> Option<Offset> {
        let (_, out) = self.by_first.range(..=offset).next_back()?;
        (out.last >= offset).then(|| out.last.plus(1))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.by_first.len()
    }

    /// Notes a hand-out; what it overlaps was given out before it.
    pub(super) fn note(&mut self, first: Offset, out: HandedOut) {
        self.settle(first, out.last.plus(1));
        self.by_first.insert(first, out);
    }

    /// Nobody has `first` up to, not including, `end` any more.
    pub(super) fn settle(&mut self, first: Offset, end: Offset) {
        if first >= end {
            return;
        }
        let before = self.by_first.range(..first).next_back();
        let before = before
            .filter(|(_, out)| out.last >= first)
            .map(|(at, _)| *at);
        let within = self.by_first.range(first..end).map(|(at, _)| *at);
        let touched: Vec<Offset> = before.into_iter().chain(within).collect();
        for at in touched {
            let Some(out) = self.by_first.remove(&at) else {
                continue;
            };
            if out.last >= end {
                self.by_first.insert(end, out.clone());
            }
            if at < first {
                let last = first.minus(1);
                self.by_first.insert(at, HandedOut { last, ..out });
            }
        }
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.by_first.clear();
    }

    pub(super) fn verify(&self) -> Result<(), &'static str> {
        let filled = self.by_first.iter().all(|(first, out)| *first <= out.last);
        let next = self.by_first.keys().skip(1);
        let mut pairs = self.by_first.values().zip(next);
        let apart = pairs.all(|(out, next)| out.last < *next);
        holds(filled && apart, "noted hand-outs overlap")
    }
}
