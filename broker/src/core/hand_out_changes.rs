//! Hand-outs as they are noted, and waiting records that are due at once: checks and effects.

use super::applied::Outcome;
use super::command::{HandBack, HandOut, MakeDue, Stamp};
use super::failure::Wait;
use super::refusal::{GroupRefusal, Refusal};
use super::state::{Carried, State};

impl State {
    pub(super) fn check_hand_out(&self, hand_out: &HandOut) -> Result<(), Refusal> {
        let at = hand_out.partition;
        let found = self.find_place((&hand_out.group, hand_out.group_id), at)?;
        let is_empty = hand_out.out.last < hand_out.first;
        if is_empty || found.is_void(at, hand_out.reset_count) {
            let offset = hand_out.first;
            return Err(GroupRefusal::LeaseLost { offset }.into());
        }
        found.check_there(hand_out.out.last)
    }

    /// What is done of it meanwhile is nobody's any more.
    pub(super) fn hand_out(&mut self, hand_out: &HandOut, stamp: Stamp) -> Carried {
        let group = self
            .groups
            .by_name
            .get_mut(&hand_out.group)
            .expect("the group was checked");
        group.last_active = stamp;
        let (at, first, out) = (hand_out.partition, hand_out.first, hand_out.out.clone());
        match group.retry_source(at.topic, &self.topics) {
            None => {
                if let Some(progress) = group.progress_mut(at) {
                    progress.hand_out(first, out);
                }
            }
            Some(source) => {
                if let Some(retries) = group.retry_mut(source, at.partition) {
                    retries.hand_out(first, out);
                }
            }
        }
        (Outcome::Done, Vec::new())
    }

    pub(super) fn check_hand_back(&self, back: &HandBack) -> Result<(), Refusal> {
        self.find_place((&back.group, back.group_id), back.partition)
            .map(drop)
    }

    pub(super) fn hand_back(&mut self, back: &HandBack) -> Carried {
        let group = self
            .groups
            .by_name
            .get_mut(&back.group)
            .expect("the group was checked");
        let out = match group.retry_source(back.partition.topic, &self.topics) {
            None => group.progress_mut(back.partition).map(|it| &mut it.out),
            Some(source) => group
                .retry_mut(source, back.partition.partition)
                .map(|it| &mut it.out),
        };
        if let Some(out) = out {
            for (first, last) in &back.ranges {
                out.settle(*first, last.plus(1));
            }
        }
        (Outcome::Done, Vec::new())
    }

    pub(super) fn make_due(&mut self, due: &MakeDue, stamp: Stamp) -> Carried {
        let group = self
            .groups
            .by_name
            .get_mut(&due.group)
            .expect("the group was checked");
        group.last_active = stamp;
        for (partition, offset) in &due.records {
            let notes = match group.retry_source(partition.topic, &self.topics) {
                None => group.progress_mut(*partition).map(|it| &mut it.notes),
                Some(source) => {
                    let retries = group.retry_mut(source, partition.partition);
                    retries.map(|retries| {
                        if let Some(entry) = retries.pending.get_mut(offset) {
                            entry.due = entry.due.min(stamp.wall);
                        }
                        &mut retries.notes
                    })
                }
            };
            if let Some(note) = notes.and_then(|notes| notes.get_mut(offset))
                && let Wait::Until(until) = &mut note.wait
            {
                *until = (*until).min(stamp.wall);
            }
        }
        (Outcome::Done, Vec::new())
    }
}
