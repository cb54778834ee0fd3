//! The headers of a copy: those of the producer as they are, then the reserved ones.

use std::fmt::{Display, Write as _};
use std::ops::Range;

use varvelog_store::batch::RecordRef;
use varvelog_store::{Offset, WallMs};

use super::super::attempt_log;
use super::super::copies::{Copy, CopyJob, CopyTo, Failed};
use super::super::dead_letters::{Cause, JobNumber};
use super::super::failure::{ErrorClass, FailedAttempt};
use super::super::failure_text::{stack_kept, start_of};
use super::super::reserved_headers::{ReservedHeader, ReservedHeaders, is_reserved};

/// Reserved headers that say what a record is a copy of: written with the first copy, and then
/// kept.
const ORIGIN: [ReservedHeader; 5] = [
    ReservedHeader::OriginTopic,
    ReservedHeader::OriginPartition,
    ReservedHeader::OriginOffset,
    ReservedHeader::OriginTime,
    ReservedHeader::Queue,
];
/// Reserved headers that tell of the last failure: kept where a copy is made without another.
const LAST_FAILURE: [ReservedHeader; 7] = [
    ReservedHeader::LastAttempt,
    ReservedHeader::ErrorClass,
    ReservedHeader::ErrorCode,
    ReservedHeader::ErrorMessage,
    ReservedHeader::ErrorFingerprint,
    ReservedHeader::LastConsumer,
    ReservedHeader::AttemptLog,
];
/// Reserved headers that a replay wrote.
const REPLAY: [ReservedHeader; 3] = [
    ReservedHeader::ReplayCount,
    ReservedHeader::ReplayJob,
    ReservedHeader::ReplayedFrom,
];

/// A record in its partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<'a> {
    pub(super) record: RecordRef<'a>,
    pub(super) offset: Offset,
    pub(super) append_time: WallMs,
}

impl Placed<'_> {
    /// When it was appended first: what a copy in a retry topic says of itself.
    pub(super) fn first_append(&self, job: &CopyJob) -> WallMs {
        if job.from.topic != job.retry.topic {
            return self.append_time;
        }
        let said = ReservedHeaders::of(self.record.headers);
        let said = said.text(ReservedHeader::OriginTime);
        said.and_then(|time| time.parse().ok())
            .map_or(self.append_time, WallMs)
    }
}

/// The reserved headers of one copy, in a text that is used again for the next.
#[derive(Debug, Default)]
pub(super) struct HeaderSet {
    text: String,
    /// In the order of [`ReservedHeader`]; each at most once.
    spans: Vec<(ReservedHeader, Range<usize>)>,
    is_dead: bool,
}

impl HeaderSet {
    /// Makes the reserved headers of a copy.
    pub(super) fn set(&mut self, job: &CopyJob, copy: &Copy, placed: &Placed<'_>) {
        self.text.clear();
        self.spans.clear();
        self.is_dead = matches!(copy.to, CopyTo::DeadLetter(_));
        let old = ReservedHeaders::of(placed.record.headers);
        let is_moved = job.from.topic == job.retry.topic;
        let moved = if is_moved {
            old
        } else {
            ReservedHeaders::default()
        };
        self.set_origin(job, copy, placed, &old, &moved);
        self.set_failure(job, copy, &moved);
        match copy.to {
            CopyTo::Retry(entry) => self.put(ReservedHeader::Due, entry.due.0),
            CopyTo::DeadLetter(reason) => {
                self.put(ReservedHeader::DeadReason, reason.as_str());
                self.put(ReservedHeader::DeadTime, job.at.0);
            }
            CopyTo::InPlace => {}
        }
        self.keep(&old, &REPLAY);
        self.spans.sort_unstable_by_key(|(header, _)| *header);
        debug_assert!(
            self.spans.is_sorted_by(|(one, _), (next, _)| one < next),
            "each header is written once"
        );
    }

    /// The headers of the copy: first the producer's, in their order.
    pub(super) fn all<'a>(
        &'a self,
        record: &RecordRef<'a>,
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone {
        let own = record.headers.iter().filter(|(name, _)| !is_reserved(name));
        own.chain(self.spans.iter().map(|(header, span)| {
            let value = self.text.get(span.clone()).unwrap_or_default();
            (header.name().as_bytes(), Some(value.as_bytes()))
        }))
    }

    /// What they say of the last failure.
    pub(super) fn cause(&self) -> Cause {
        let class = self.text(ReservedHeader::ErrorClass);
        let fingerprint = self.text(ReservedHeader::ErrorFingerprint);
        Cause {
            class: class.and_then(ErrorClass::parse),
            code: self
                .text(ReservedHeader::ErrorCode)
                .unwrap_or_default()
                .to_owned(),
            fingerprint: fingerprint.and_then(|hex| u64::from_str_radix(hex, 16).ok()),
        }
    }

    /// How often the record was replayed.
    pub(super) fn replays(&self) -> u32 {
        let count = self.text(ReservedHeader::ReplayCount);
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// The job that replayed it last.
    pub(super) fn replayed_by(&self) -> Option<JobNumber> {
        JobNumber::parse(self.text(ReservedHeader::ReplayJob)?)
    }

    fn text(&self, header: ReservedHeader) -> Option<&str> {
        let (_, span) = self.spans.iter().find(|(it, _)| *it == header)?;
        self.text.get(span.clone())
    }

    fn set_origin(
        &mut self,
        job: &CopyJob,
        copy: &Copy,
        placed: &Placed<'_>,
        old: &ReservedHeaders<'_>,
        moved: &ReservedHeaders<'_>,
    ) {
        let id = old.text(ReservedHeader::MessageId).unwrap_or_default();
        let partition = job.from.partition;
        let offset = match copy.to {
            CopyTo::Retry(entry) if job.from.topic == job.retry.topic => entry.origin,
            CopyTo::Retry(_) | CopyTo::DeadLetter(_) | CopyTo::InPlace => placed.offset,
        };
        if id.is_empty() {
            let topic = job.from.topic;
            self.put(
                ReservedHeader::MessageId,
                format_args!("{topic}/{partition}/{offset}"),
            );
        } else {
            self.put(ReservedHeader::MessageId, id);
        }
        if moved.origin().is_some() {
            self.keep(moved, &ORIGIN);
            return;
        }
        self.put(ReservedHeader::OriginTopic, &job.topic);
        self.put(ReservedHeader::OriginPartition, partition);
        self.put(ReservedHeader::OriginOffset, offset);
        self.put(ReservedHeader::OriginTime, placed.append_time.0);
        let (topic, group) = (&job.topic, &job.group);
        self.put(ReservedHeader::Queue, format_args!("{topic}.{group}"));
    }

    fn set_failure(&mut self, job: &CopyJob, copy: &Copy, moved: &ReservedHeaders<'_>) {
        let before = moved.count(ReservedHeader::Attempt).unwrap_or(0);
        let attempt = match (&copy.failed, copy.to) {
            (Some(failed), _) => failed.failures,
            (None, CopyTo::Retry(entry)) => entry.failures,
            (None, CopyTo::DeadLetter(_) | CopyTo::InPlace) => before,
        };
        self.put(ReservedHeader::Attempt, attempt);
        let Some(failed) = &copy.failed else {
            self.keep(moved, &[ReservedHeader::FirstFailure]);
            for header in LAST_FAILURE {
                if !(header == ReservedHeader::ErrorMessage && job.omit_error_message) {
                    self.keep(moved, &[header]);
                }
            }
            return;
        };
        match moved.text(ReservedHeader::FirstFailure) {
            Some(first) => self.put(ReservedHeader::FirstFailure, first),
            None => self.put(ReservedHeader::FirstFailure, first_failure(failed).0),
        }
        self.put(ReservedHeader::LastAttempt, failed.at.0);
        self.put(ReservedHeader::ErrorClass, failed.class.as_str());
        self.put(ReservedHeader::ErrorCode, &failed.text.code);
        if !job.omit_error_message {
            self.put(ReservedHeader::ErrorMessage, &failed.text.message);
        }
        if self.is_dead && !job.omit_error_stack && !failed.text.stack.is_empty() {
            self.put(ReservedHeader::ErrorStack, stack_kept(&failed.text.stack));
        }
        let fingerprint = failed.text.fingerprint(failed.class);
        self.put(
            ReservedHeader::ErrorFingerprint,
            format_args!("{fingerprint:016x}"),
        );
        self.put(ReservedHeader::LastConsumer, &failed.consumer);
        let log = attempts(failed, moved.text(ReservedHeader::AttemptLog));
        let start = self.text.len();
        attempt_log::write(&log, &mut self.text);
        self.close(ReservedHeader::AttemptLog, start);
    }

    fn keep(&mut self, from: &ReservedHeaders<'_>, headers: &[ReservedHeader]) {
        for header in headers {
            if let Some(value) = from.text(*header) {
                self.put(*header, value);
            }
        }
    }

    /// Adds a header; what is longer than it may be is cut.
    fn put(&mut self, header: ReservedHeader, value: impl Display) {
        let start = self.text.len();
        let written = write!(self.text, "{value}");
        debug_assert!(written.is_ok(), "a text takes all");
        self.close(header, start);
    }

    fn close(&mut self, header: ReservedHeader, start: usize) {
        let written = self.text.get(start..).unwrap_or_default();
        let kept = start_of(written, header.bytes_max(self.is_dead)).len();
        self.text.truncate(start + kept);
        self.spans.push((header, start..start + kept));
    }
}

fn first_failure(failed: &Failed) -> WallMs {
    let before = failed.before.as_ref();
    before.map_or(failed.at, |note| note.first_failure)
}

/// All that is remembered: from before the record came here, from here, and the last.
fn attempts(failed: &Failed, moved: Option<&str>) -> Vec<FailedAttempt> {
    let mut log = moved.map(attempt_log::parse).unwrap_or_default();
    let noted = failed.before.iter().flat_map(|note| &note.log);
    for attempt in noted.cloned().chain([FailedAttempt::of(failed)]) {
        attempt.add_to(&mut log);
    }
    log
}
