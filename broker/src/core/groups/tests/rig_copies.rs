//! The thread that reads logs, reduced to counting: a copy is what is known of it.

use bytes::Bytes;
use varvelog_store::{Offset, PartitionId, WallMs};

use super::rig::{Rig, group};
use crate::core::applied::Settlement;
use crate::core::command::AppendPart;
use crate::core::copies::{
    Copies, Copy, CopyJob, CopyTo, Keys, KeysJob, ReadDone, ReadJob, ReadResult, ReadTrouble,
};
use crate::core::dead_letters::{Cause, Death};
use crate::core::failure::{DeadReason, ErrorClass};
use crate::core::groups::{Durable, Sessions};
use crate::core::message_ids::PartIds;

/// A copy in a retry or dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Copied {
    /// Of the first append.
    pub(super) origin: u64,
    /// Counted so far.
    pub(super) failures: u32,
    /// Of the last failure.
    pub(super) class: Option<ErrorClass>,
    /// In a retry topic.
    pub(super) due: Option<WallMs>,
    /// In a dead-letter topic.
    pub(super) reason: Option<DeadReason>,
}

fn death(job: &CopyJob, copy: &Copy) -> Death {
    let class = copy.failed.as_ref().map(|failed| failed.class);
    Death {
        at: job.at,
        bytes: 1,
        cause: Cause {
            class,
            ..Cause::default()
        },
        replays: 0,
        replayed_by: None,
        parked_key: None,
    }
}

impl Rig {
    /// Carries out the orders to read.
    pub(super) fn read_all(&mut self) {
        while let Some(job) = self.reads.pop_front() {
            let done = self.read_of(job);
            let actions = self.turn(|sessions, state, now| sessions.read(state, done, now));
            self.carry_out(actions);
        }
    }

    fn read_of(&mut self, job: ReadJob) -> ReadDone {
        let id = match &job {
            ReadJob::Copy(job) => job.id,
            ReadJob::Keys(job) => job.id,
            ReadJob::Replay(job) => job.id,
        };
        let result = match job {
            _ if self.reads_fail => Err(ReadTrouble {
                reason: "as told".to_owned(),
            }),
            ReadJob::Copy(job) => Ok(ReadResult::Copies(self.copy(&job))),
            ReadJob::Keys(job) => Ok(ReadResult::Keys(self.look(&job))),
            ReadJob::Replay(_) => unreachable!("the group machine replays nothing"),
        };
        ReadDone { id, result }
    }

    fn look(&self, job: &KeysJob) -> Keys {
        let key = |at: u64| (Offset::new(at).unwrap(), self.keys.get(&at).copied());
        Keys {
            until: job.until,
            keys: (job.from.get()..job.until.get()).map(key).collect(),
        }
    }

    /// Batches with as many records as there are copies of each kind.
    fn copy(&mut self, job: &CopyJob) -> Copies {
        let mut copies = Copies::default();
        let start = self
            .state
            .topics
            .partition(job.from)
            .map(crate::core::partitions::Partition::start);
        let is_there = |copy: &&Copy| start.is_some_and(|start| copy.offset >= start);
        let (there, missing): (Vec<_>, Vec<_>) = job.copies.iter().partition(is_there);
        copies.missing = missing.iter().map(|copy| copy.offset).collect();
        let (mut entries, mut retried) = (Vec::new(), Vec::new());
        let (mut deaths, mut dead) = (Vec::new(), Vec::new());
        for (number, copy) in there.into_iter().enumerate() {
            if number >= self.copies_max {
                copies.left.push(copy.offset);
                continue;
            }
            let mut copied = self.copied(job.from, copy);
            let is_aged = job.dead_before.is_some() && self.aged.contains(&copied.origin);
            let mut to = copy.to;
            if is_aged && !matches!(to, CopyTo::DeadLetter(_)) {
                copies.aged.push(copy.offset);
                let is_kept = to == CopyTo::InPlace && job.halts;
                to = if is_kept {
                    to
                } else {
                    CopyTo::DeadLetter(DeadReason::MaxAge)
                };
                (copied.due, copied.reason) = (None, Some(DeadReason::MaxAge));
            }
            match to {
                CopyTo::InPlace => {}
                CopyTo::Retry(entry) => {
                    entries.push(entry);
                    retried.push(copied);
                }
                CopyTo::DeadLetter(reason) => {
                    let key = self.keys.get(&copied.origin).copied();
                    let parks = job.tells_keys && reason != DeadReason::Operator;
                    copies.dead_keys.extend(key.filter(|_| parks));
                    deaths.push(death(job, copy));
                    dead.push(copied);
                }
            }
        }
        copies.dead_keys.sort_unstable();
        copies.dead_keys.dedup();
        if !retried.is_empty() {
            copies.retries.push((0, entries));
            copies.parts.push(self.part(job.retry, retried));
        }
        if !dead.is_empty() {
            let index = u32::try_from(copies.parts.len()).unwrap();
            copies.deaths.push((index, deaths));
            copies.parts.push(self.part(job.dead_letter, dead));
        }
        copies
    }

    fn copied(&self, from: PartitionId, copy: &Copy) -> Copied {
        let before = self.copies.get(&from);
        let before = before.and_then(|copies| copies.get(&copy.offset.get()));
        let failed = copy.failed.as_ref();
        let (due, reason) = match copy.to {
            CopyTo::Retry(entry) => (Some(entry.due), None),
            CopyTo::DeadLetter(reason) => (None, Some(reason)),
            CopyTo::InPlace => (None, None),
        };
        let failures = failed.map(|failed| failed.failures);
        Copied {
            origin: before.map_or(copy.offset.get(), |before| before.origin),
            failures: failures.or(before.map(|it| it.failures)).unwrap_or(0),
            class: failed
                .map(|failed| failed.class)
                .or(before.and_then(|it| it.class)),
            due,
            reason,
        }
    }

    fn part(&mut self, partition: PartitionId, records: Vec<Copied>) -> AppendPart {
        let record_count = u32::try_from(records.len()).unwrap();
        self.made.push(records);
        AppendPart {
            partition,
            record_count,
            producer: None,
            predicted: None,
            delays: Vec::new(),
            ids: PartIds::default(),
            body: Bytes::from((self.made.len() - 1).to_string()),
        }
    }

    /// Takes down what copies a settlement appended.
    pub(super) fn appended(&mut self, parts: &[AppendPart], settlement: &Settlement) {
        for (part, appended) in parts.iter().zip(&settlement.appended.parts) {
            let number = std::str::from_utf8(&part.body).unwrap().parse::<usize>();
            let Ok(number) = number else { continue };
            let copies = self.copies.entry(part.partition).or_default();
            let offsets = appended.base_offset.get()..;
            copies.extend(offsets.zip(self.made[number].iter().cloned()));
        }
    }

    /// Dead letters of partition 0 of `orders`: origins, reasons and counted failures.
    pub(super) fn dead(&self) -> Vec<(u64, DeadReason, u32)> {
        let place = self.state.place(&group("g"), self.partition("orders", 0));
        let copies = self.copies.get(&place.unwrap().dead_letter);
        let copies = copies.into_iter().flatten();
        copies
            .map(|(_, it)| (it.origin, it.reason.unwrap(), it.failures))
            .collect()
    }

    /// What is open in the retry topic of partition 0 of `orders`: origins, failures, and ms from
    /// now until they are due.
    pub(super) fn retries(&self) -> Vec<(u64, u32, i64)> {
        let place = self.state.place(&group("g"), self.partition("orders", 0));
        let retry = place.unwrap().retry;
        let mut found = Vec::new();
        let mut from = Offset::ZERO;
        while let Some((at, entry)) = self.state.next_retry(&group("g"), retry, from) {
            found.push((entry.origin.get(), entry.failures, entry.due.0 - self.wall));
            from = at.plus(1);
        }
        found
    }

    /// Lets the machine do what is due now.
    pub(super) fn tick(&mut self) {
        let actions = self.turn(Sessions::tick);
        self.carry_out(actions);
    }
}
