//! Which records of a feed settlements on their way are about.

use std::collections::{BTreeMap, BTreeSet};

use varvelog_store::Offset;

use super::feed::Run;
use super::turn::Ticket;

/// Settlements on their way. What they are about is given to nobody meanwhile.
#[derive(Debug, Default)]
pub(super) struct Underway {
    runs: BTreeMap<Ticket, Vec<Run>>,
    /// Those that note failures which nobody reported.
    failing: BTreeSet<Ticket>,
    /// By first offset: the last one, and how many settlements are about them. They are apart, and
    /// at most twice as many as runs.
    covered: BTreeMap<Offset, (Offset, u32)>,
}

impl Underway {
    /// A settlement is on its way. With `failing` it notes failures which nobody reported.
    pub(super) fn insert(&mut self, ticket: Ticket, runs: Vec<Run>, failing: bool) {
        for run in &runs {
            self.cover(*run);
        }
        self.runs.insert(ticket, runs);
        if failing {
            self.failing.insert(ticket);
        }
    }

    /// A settlement is over; what it was about.
    pub(super) fn remove(&mut self, ticket: Ticket) -> Vec<Run> {
        self.failing.remove(&ticket);
        let runs = self.runs.remove(&ticket).unwrap_or_default();
        for run in &runs {
            self.uncover(*run);
        }
        runs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Whether failures which nobody reported are being noted: they may be next.
    pub(super) fn is_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// The first run that ends at or after an offset.
    pub(super) fn next(&self, from: Offset) -> Option<Run> {
        let before = self.covered.range(..=from).next_back();
        let before = before.filter(|(_, (last, _))| *last >= from);
        let next = before.or_else(|| self.covered.range(from..).next());
        next.map(|(first, (last, _))| (*first, *last))
    }

    /// The first settlement that is about some of a run.
    pub(super) fn ticket_of(&self, (first, last): Run) -> Option<Ticket> {
        self.next(first).filter(|run| run.0 <= last)?;
        let touches = |runs: &Vec<Run>| runs.iter().any(|run| run.0 <= last && run.1 >= first);
        let mut found = self.runs.iter().filter(|(_, runs)| touches(runs));
        found.next().map(|(ticket, _)| *ticket)
    }

    fn cover(&mut self, (first, last): Run) {
        self.split(first);
        self.split(last.plus(1));
        let mut from = first;
        let mut gaps = Vec::new();
        for (at, (end, count)) in self.covered.range_mut(first..=last) {
            if from < *at {
                gaps.push((from, at.minus(1)));
            }
            *count += 1;
            from = end.plus(1);
        }
        if from <= last {
            gaps.push((from, last));
        }
        let gaps = gaps.into_iter().map(|(first, last)| (first, (last, 1)));
        self.covered.extend(gaps);
    }

    fn uncover(&mut self, (first, last): Run) {
        self.split(first);
        self.split(last.plus(1));
        let mut over = Vec::new();
        for (at, (_, count)) in self.covered.range_mut(first..=last) {
            *count -= 1;
            if *count == 0 {
                over.push(*at);
            }
        }
        for at in over {
            self.covered.remove(&at);
        }
    }

    /// No run goes across the border before an offset.
    fn split(&mut self, at: Offset) {
        let before = self.covered.range_mut(..at).next_back();
        if let Some((_, (last, count))) = before
            && *last >= at
        {
            let rest = (*last, *count);
            *last = at.minus(1);
            self.covered.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(offset: u64) -> Offset {
        Offset::new(offset).unwrap()
    }

    proptest! {
        #[test]
        fn a_record_is_covered_as_long_as_any_settlement_is_about_it(
            steps in prop::collection::vec((0..40_u64, 1..12_u64, any::<bool>()), 1..60),
        ) {
            let mut underway = Underway::default();
            let mut open: Vec<(Ticket, Run)> = Vec::new();
            for (number, (first, records, ends)) in (0..).zip(steps) {
                if ends && !open.is_empty() {
                    let (ticket, run) = open.remove(usize::try_from(first).unwrap() % open.len());
                    prop_assert_eq!(underway.remove(ticket), vec![run]);
                } else {
                    let run = (at(first), at(first + records - 1));
                    open.push((Ticket::numbered(number), run));
                    underway.insert(Ticket::numbered(number), vec![run], false);
                }
                for offset in (0..60).map(at) {
                    let covers = |run: &Run| run.0 <= offset && offset <= run.1;
                    let expected = open.iter().any(|(_, run)| covers(run));
                    let found = underway.next(offset).is_some_and(|run| covers(&run));
                    prop_assert_eq!(found, expected);
                    let ticket = underway.ticket_of((offset, offset));
                    prop_assert_eq!(ticket.is_some(), expected);
                }
            }
            for (ticket, _) in open {
                underway.remove(ticket);
            }
            prop_assert!(underway.is_empty() && underway.covered.is_empty());
        }
    }
}
