//! What comes of the orders to copy records for a settlement.

use varvelog_store::Offset;

use super::settling::Settling;
use crate::core::command::Settle;
use crate::core::copies::{Copies, Copy, CopyJob, CopyTo, ReadId};
use crate::core::failure::{DeadReason, Ending, Wait};

impl Settling {
    /// Settles less than was decided on: nothing of these records, which have no copies.
    pub(super) fn leave(&mut self, left: Vec<Offset>) {
        let is_left = |at: &Offset| left.binary_search(at).is_ok();
        self.settle.endings.retain(|(at, _)| !is_left(at));
        self.settle.notes.retain(|(at, _)| !is_left(at));
        let mut ranges = Vec::new();
        for (first, last) in std::mem::take(&mut self.settle.ranges) {
            let mut from = first;
            let within = left.iter().skip(left.partition_point(|at| *at < first));
            for hole in within.take_while(|at| **at <= last) {
                if from < *hole {
                    ranges.push((from, hole.minus(1)));
                }
                from = hole.plus(1);
            }
            if from <= last {
                ranges.push((from, last));
            }
        }
        self.settle.ranges = ranges;
        self.left = left;
    }

    /// These records, which were to wait in place, are dead for their age.
    fn die_of_age(&mut self, job: &CopyJob, aged: &[Offset]) {
        let is_aged = |at: &Offset| aged.binary_search(at).is_ok();
        if job.halts {
            let notes = self.settle.notes.iter_mut();
            for (_, note) in notes.filter(|(at, _)| is_aged(at)) {
                note.wait = Wait::Operator(DeadReason::MaxAge);
                self.answer.dead_letters_waiting += 1;
            }
            return;
        }
        let (over, notes) = std::mem::take(&mut self.settle.notes)
            .into_iter()
            .partition::<Vec<_>, _>(|(at, _)| is_aged(at));
        self.settle.notes = notes;
        for (at, note) in over {
            let ending = if note.class.is_suspect() {
                Ending::Expired
            } else {
                Ending::DeadLettered
            };
            let place = self.settle.ranges.partition_point(|range| range.1 < at);
            self.settle.ranges.insert(place, (at, at));
            let place = self.settle.endings.partition_point(|ended| ended.0 < at);
            self.settle.endings.insert(place, (at, ending));
        }
    }
}

/// Bytes that a settlement appends, as far as they are read.
pub(super) fn bytes_of(settle: &Settle) -> u64 {
    let bytes = settle.append.parts.iter().map(|part| part.body.len());
    u64::try_from(bytes.sum::<usize>()).unwrap_or(u64::MAX)
}

/// What is left to be copied of an order.
pub(super) fn rest_of(job: CopyJob, left: &[Offset], id: ReadId) -> Option<CopyJob> {
    let mut copies = job.copies;
    copies.retain(|copy| left.binary_search(&copy.offset).is_ok());
    (!copies.is_empty()).then_some(CopyJob { id, copies, ..job })
}

/// Takes in copies, and returns what was not copied yet. What is missing is done without a copy:
/// there is nothing left to give out again.
pub(super) fn take_copies(settling: &mut Settling, job: &CopyJob, copies: Copies) -> Vec<Offset> {
    let Copies {
        parts,
        retries,
        deaths,
        missing,
        aged,
        dead_keys,
        left,
    } = copies;
    settling.settle.park(dead_keys);
    let count = u32::try_from(aged.len()).unwrap_or(u32::MAX);
    settling.answer.retried = settling.answer.retried.saturating_sub(count);
    settling.answer.dead_lettered += count;
    settling.die_of_age(job, &aged);
    for (offset, ending) in &mut settling.settle.endings {
        if *ending == Ending::Retried && aged.binary_search(offset).is_ok() {
            *ending = Ending::DeadLettered;
        }
    }
    let gone = |copy: &&Copy| missing.binary_search(&copy.offset).is_ok();
    for copy in job.copies.iter().filter(gone) {
        let counted = match copy.to {
            CopyTo::Retry(_) => &mut settling.answer.retried,
            CopyTo::DeadLetter(_) => &mut settling.answer.dead_lettered,
            // Its note says what becomes of it.
            CopyTo::InPlace => continue,
        };
        *counted = counted.saturating_sub(1);
        settling.answer.done += 1;
    }
    // Outputs come first: their parts keep their places.
    let had = u32::try_from(settling.settle.append.parts.len()).unwrap_or(u32::MAX);
    settling.settle.append.parts.extend(parts);
    let moved = retries
        .into_iter()
        .map(|(part, entries)| (part + had, entries));
    settling.settle.retries.extend(moved);
    let moved = deaths
        .into_iter()
        .map(|(part, deaths)| (part + had, deaths));
    settling.settle.deaths.extend(moved);
    left
}
