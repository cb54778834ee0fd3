//! What becomes of records that were not processed.

use varvelog_store::{Offset, PartitionId, WallMs};

use super::durable::{Durable, GroupFacts};
use super::feed::Run;
use super::turn::Turn;
use crate::core::command::Settle;
use crate::core::copies::{Copy, CopyJob, CopyTo, Failed};
use crate::core::durable_groups::PARKED_KEYS_MAX;
use crate::core::failure::{DeadReason, Ending, ErrorClass, FailureNote, FailureText, Wait};
use crate::core::judgement::{Failing, History, Verdict};
use crate::core::request::{FailureAction, Settled};
use crate::core::retries::RetryEntry;
use crate::core::settings::{GroupSettings, OnFailure};
use crate::names::GroupName;

/// A record that was not processed.
#[derive(Debug, Clone)]
pub(super) struct Unprocessed {
    /// Where it lies in the feed's partition.
    pub(super) offset: Offset,
    /// Of its first append.
    pub(super) origin: Offset,
    pub(super) how: How,
    /// How often it was given back since it failed last.
    pub(super) releases: u32,
    /// Who had it, for people.
    pub(super) consumer: String,
}

/// How a record was not processed.
#[derive(Debug, Clone)]
pub(super) enum How {
    /// As its consumer says.
    Said {
        action: FailureAction,
        text: FailureText,
        retry_after_ms: Option<u64>,
    },
    /// Without a word from its consumer, or without reaching it.
    Unsaid(ErrorClass),
    /// It did not fail: it is to be given out later.
    Delayed(WallMs),
    /// An operator has it dead.
    Condemned,
    /// An earlier record of its key is dead.
    Parked,
    /// The policy gives it no more deliveries.
    Spent,
    /// It waited for room in the dead-letter topic.
    Waited(DeadReason),
}

/// What is to be committed for records, as it grows.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) settle: Settle,
    pub(super) copies: Vec<Copy>,
    pub(super) released: Vec<(Run, u32)>,
    pub(super) counts: Settled,
    /// Records that failed in a way that may go away by itself, those that are dead by it too.
    pub(super) failed: u32,
}

/// What is known of a record before it was given out last.
struct Before {
    failures: u32,
    has_expired: bool,
    note: Option<FailureNote>,
}

/// What fates are decided by.
pub(super) struct Court<'a> {
    pub(super) group: &'a GroupName,
    pub(super) settings: &'a GroupSettings,
    pub(super) partition: PartitionId,
    /// It is of the retry topic.
    pub(super) is_retry: bool,
}

impl Plan {
    pub(super) fn new(
        group: &GroupName,
        facts: &GroupFacts<'_>,
        reset_count: u64,
        partition: PartitionId,
    ) -> Self {
        Self {
            settle: Settle::of(group.clone(), facts.id, reset_count, partition),
            copies: Vec::new(),
            released: Vec::new(),
            counts: Settled::default(),
            failed: 0,
        }
    }

    /// These records are done. To be told in order of all.
    pub(super) fn done(&mut self, (first, last): Run) {
        match self.settle.ranges.last_mut() {
            Some(range) if range.1.plus(1) == first => range.1 = last,
            _ => self.settle.ranges.push((first, last)),
        }
    }

    pub(super) fn ended(&mut self, offset: Offset, ending: Ending) {
        self.done((offset, offset));
        self.settle.endings.push((offset, ending));
    }

    /// Whether a record stays in place, with a note.
    pub(super) fn is_noted(&self, offset: Offset) -> bool {
        self.settle
            .notes
            .last()
            .is_some_and(|(at, _)| *at == offset)
    }

    /// These records are given back uncounted, as if they had never been given out.
    pub(super) fn release_run(&mut self, (first, last): Run, releases: u32) {
        if first <= last {
            let count = u32::try_from(last.plus(1).since(first)).unwrap_or(u32::MAX);
            self.counts.released = self.counts.released.saturating_add(count);
            self.released.push(((first, last), releases));
        }
    }

    fn release(&mut self, offset: Offset, releases: u32) {
        self.counts.released += 1;
        match self.released.last_mut() {
            Some((run, same)) if run.1.plus(1) == offset && *same == releases => run.1 = offset,
            _ => self.released.push(((offset, offset), releases)),
        }
    }

    /// A record is done, and a copy of it goes elsewhere.
    fn copy(&mut self, offset: Offset, to: CopyTo, failed: Option<Failed>) {
        let expired = failed.as_ref().is_some_and(|it| it.class.is_suspect());
        let ending = match to {
            CopyTo::Retry(_) | CopyTo::DeadLetter(_) if expired => Ending::Expired,
            CopyTo::Retry(_) => Ending::Retried,
            CopyTo::DeadLetter(_) | CopyTo::InPlace => Ending::DeadLettered,
        };
        self.ended(offset, ending);
        self.copies.push(Copy { offset, to, failed });
    }

    /// Has looked at the age of a record that failed and stays in place.
    fn look_at_age(&mut self, offset: Offset, failed: Failed) {
        let (to, failed) = (CopyTo::InPlace, Some(failed));
        self.copies.push(Copy { offset, to, failed });
    }

    /// The order to make its copies, if it needs any.
    pub(super) fn copy_job<S: Durable>(&mut self, turn: &mut Turn<'_, S>) -> Option<CopyJob> {
        if self.copies.is_empty() {
            return None;
        }
        let (group, from) = (&self.settle.group, self.settle.partition);
        let settings = turn.state.group(group)?.settings;
        let dead_letter = settings.dead_letter;
        let age_max_ms = i64::try_from(settings.retry.age_max_ms).unwrap_or(i64::MAX);
        let is_limited = age_max_ms > 0 && !dead_letter.off;
        let dead_before = is_limited.then(|| WallMs(turn.wall.0.saturating_sub(age_max_ms)));
        let place = turn.state.place(group, from)?;
        Some(CopyJob {
            id: turn.shared.next_read(),
            group: group.clone(),
            topic: place.topic,
            from,
            retry: place.retry,
            dead_letter: place.dead_letter,
            at: turn.wall,
            copies: std::mem::take(&mut self.copies),
            dead_before,
            omit_error_message: dead_letter.omit_error_message,
            omit_error_stack: dead_letter.omit_error_stack,
            tells_keys: settings.parks(),
            halts: settings.halts(),
        })
    }
}

impl Court<'_> {
    /// Decides on one record and adds what follows to the plan. To be called in order of offsets,
    /// with [`Plan::done`] in between.
    pub(super) fn decide<S: Durable>(
        &self,
        turn: &mut Turn<'_, S>,
        plan: &mut Plan,
        record: Unprocessed,
    ) {
        let before = self.before(turn, record.offset);
        let policy = &self.settings.retry;
        let (class, text, retry_after_ms) = match &record.how {
            How::Delayed(_) | How::Condemned | How::Parked | How::Waited(_) | How::Spent => {
                self.move_on(turn, plan, (&record, &before));
                return;
            }
            How::Unsaid(class) => (*class, FailureText::default(), None),
            How::Said {
                action,
                text,
                retry_after_ms,
            } => match policy.class_said(*action, &text.code) {
                Some(class) => (class, text.clone(), *retry_after_ms),
                None if record.releases < self.settings.releases_max => {
                    plan.release(record.offset, record.releases + 1);
                    return;
                }
                None => (ErrorClass::ReleaseLoop, text.clone(), None),
            },
        };
        let failing = Failing {
            class,
            retry_after_ms,
        };
        let history = History {
            failures: before.failures,
            has_expired: before.has_expired,
            age_ms: 0,
        };
        let verdict = policy.judge(failing, history, turn.draw());
        if !matches!(class, ErrorClass::Permanent | ErrorClass::Undeliverable) {
            plan.failed += 1;
        }
        let failed = Failed {
            failures: before.failures.saturating_add(1),
            class,
            text,
            at: turn.wall,
            consumer: record.consumer,
            before: before.note,
        };
        self.carry_out(
            turn,
            plan,
            (record.offset, record.origin),
            (verdict, failed),
        );
    }

    /// Decides on a record that did not fail now.
    fn move_on<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        plan: &mut Plan,
        (record, before): (&Unprocessed, &Before),
    ) {
        let failed = before.note.as_ref().map(FailureNote::last);
        let offset = record.offset;
        match record.how {
            How::Delayed(due) => {
                let entry = RetryEntry {
                    due,
                    origin: record.origin,
                    failures: before.failures,
                    suspect: before.has_expired,
                };
                plan.copy(offset, CopyTo::Retry(entry), None);
            }
            How::Condemned => self.dead(turn, plan, offset, (DeadReason::Operator, failed)),
            How::Parked => self.dead(turn, plan, offset, (DeadReason::ParkedKey, failed)),
            How::Waited(reason) => self.dead(turn, plan, offset, (reason, failed)),
            How::Spent => {
                let reason = self.settings.retry.spent(before.failures, 0);
                let reason = reason.unwrap_or(DeadReason::MaxDeliveries);
                match failed {
                    Some(failed) if self.settings.halts() => {
                        self.note(plan, offset, &failed, Wait::Operator(reason));
                    }
                    failed => self.dead(turn, plan, offset, (reason, failed)),
                }
            }
            How::Unsaid(_) | How::Said { .. } => unreachable!("what failed is judged"),
        }
    }

    fn carry_out<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        plan: &mut Plan,
        (offset, origin): (Offset, Offset),
        (verdict, failed): (Verdict, Failed),
    ) {
        let holds = self.settings.on_failure == OnFailure::Hold;
        match verdict {
            Verdict::AtOnce => {
                plan.counts.retried += 1;
                self.wait_in_place(plan, offset, (failed, Wait::Ready));
            }
            Verdict::Retry { delay_ms } => {
                let delay_ms = i64::try_from(delay_ms).unwrap_or(i64::MAX);
                let due = WallMs(turn.wall.0.saturating_add(delay_ms));
                plan.counts.retried += 1;
                if holds {
                    self.wait_in_place(plan, offset, (failed, Wait::Until(due)));
                    return;
                }
                let entry = RetryEntry {
                    due,
                    origin,
                    failures: failed.failures,
                    suspect: failed.class.is_suspect(),
                };
                plan.copy(offset, CopyTo::Retry(entry), Some(failed));
            }
            Verdict::Dead(reason) if self.settings.halts() => {
                plan.counts.dead_lettered += 1;
                plan.counts.dead_letters_waiting += 1;
                self.note(plan, offset, &failed, Wait::Operator(reason));
            }
            Verdict::Dead(reason) => self.dead(turn, plan, offset, (reason, Some(failed))),
        }
    }

    /// A record stays for its next delivery, unless it is too old for one.
    fn wait_in_place(&self, plan: &mut Plan, offset: Offset, (failed, wait): (Failed, Wait)) {
        self.note(plan, offset, &failed, wait);
        if self.settings.retry.age_max_ms > 0 && !self.settings.dead_letter.off {
            plan.look_at_age(offset, failed);
        }
    }

    fn dead<S: Durable>(
        &self,
        turn: &Turn<'_, S>,
        plan: &mut Plan,
        offset: Offset,
        (reason, failed): (DeadReason, Option<Failed>),
    ) {
        plan.counts.dead_lettered += 1;
        if self.settings.dead_letter.off {
            plan.ended(offset, Ending::DeadLettered);
            return;
        }
        match failed {
            Some(failed) if self.is_full(turn) || self.is_parked_full(turn) => {
                plan.counts.dead_letters_waiting += 1;
                self.note(plan, offset, &failed, Wait::Room(reason));
            }
            failed => plan.copy(offset, CopyTo::DeadLetter(reason), failed),
        }
    }

    /// Whether no more keys may be parked. By whole commands, too.
    fn is_parked_full<S: Durable>(&self, turn: &Turn<'_, S>) -> bool {
        let parked = turn.state.parked(self.group, self.partition);
        self.settings.parks() && parked.is_some_and(|keys| keys.len() >= PARKED_KEYS_MAX)
    }

    /// Whether there is no room in the dead-letter partition. By whole commands: what is on its
    /// way does not count yet.
    pub(super) fn is_full<S: Durable>(&self, turn: &Turn<'_, S>) -> bool {
        let kept = self.settings.dead_letter;
        let place = turn.state.place(self.group, self.partition);
        let bytes = place.map_or(0, |place| turn.state.log_bytes(place.dead_letter));
        !kept.drop_oldest_when_full && bytes >= kept.bytes_max
    }

    fn note(&self, plan: &mut Plan, offset: Offset, failed: &Failed, wait: Wait) {
        let note = FailureNote::after(failed, wait, &self.settings.dead_letter);
        plan.settle.notes.push((offset, note));
    }

    fn before<S: Durable>(&self, turn: &Turn<'_, S>, offset: Offset) -> Before {
        let note = turn.state.next_note(self.group, self.partition, offset);
        if let Some((at, note)) = note
            && at == offset
        {
            return Before {
                failures: note.failures,
                has_expired: note.has_expired(),
                note: Some(note.clone()),
            };
        }
        let entry = turn.state.next_retry(self.group, self.partition, offset);
        let entry = entry.filter(|(at, _)| self.is_retry && *at == offset);
        Before {
            failures: entry.map_or(0, |(_, entry)| entry.failures),
            has_expired: entry.is_some_and(|(_, entry)| entry.suspect),
            note: None,
        }
    }
}
