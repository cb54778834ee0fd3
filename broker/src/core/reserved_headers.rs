//! Reserved headers: those that the broker alone writes, when it moves a record into a retry or
//! dead-letter topic.
//!
//! Values are text; integers are decimal, times are Unix milliseconds. Each name is there at most
//! once. A record is shown to consumers without them.

use varvelog_store::batch::Headers;
use varvelog_store::{Offset, WallMs};

use super::failure::{
    CONSUMER_BYTES_MAX, ERROR_CODE_BYTES_MAX, ERROR_MESSAGE_BYTES_MAX, ERROR_STACK_BYTES_MAX,
    RETRY_MESSAGE_BYTES_MAX,
};
use crate::names::TOPIC_NAME_BYTES_MAX;

/// How the names of reserved headers begin. Producers may not use it.
pub const RESERVED_PREFIX: &str = "varvelog-";
/// Most bytes that reserved headers add to a record in a retry topic, names included.
pub const RETRY_HEADERS_BYTES_MAX: usize = 3 * 1024;
/// Most bytes that reserved headers add to a record in a dead-letter topic, names included.
pub const DEAD_LETTER_HEADERS_BYTES_MAX: usize = 12 * 1024;
/// Most bytes of a message id.
pub const MESSAGE_ID_BYTES_MAX: usize = 128;
/// Most bytes of the attempt log as it is written.
pub const ATTEMPT_LOG_BYTES_MAX: usize = 512;

const QUEUE_BYTES_MAX: usize = 320;
const COUNT_BYTES_MAX: usize = 10;
const NUMBER_BYTES_MAX: usize = 20;
const WORD_BYTES_MAX: usize = 16;

/// Whether only the broker may write a header of this name.
pub fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(RESERVED_PREFIX.as_bytes())
}

/// A reserved header. In the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservedHeader {
    /// Of the record, for good.
    MessageId,
    /// Topic of the first append. This and the next four never change after the first move.
    OriginTopic,
    /// Partition of the first append.
    OriginPartition,
    /// Offset of the first append.
    OriginOffset,
    /// When it was appended first.
    OriginTime,
    /// `<topic>.<group>`.
    Queue,
    /// Counted failures so far.
    Attempt,
    /// When it failed first.
    FirstFailure,
    /// When it failed last.
    LastAttempt,
    /// When it is given out again.
    Due,
    /// Class of the last failure.
    ErrorClass,
    /// Code of the last failure.
    ErrorCode,
    /// Message of the last failure.
    ErrorMessage,
    /// Stack of the last failure.
    ErrorStack,
    /// 16 hex digits, alike for failures of one cause.
    ErrorFingerprint,
    /// Name, else id, of who had it last.
    LastConsumer,
    /// The newest failures.
    AttemptLog,
    /// Why it is dead.
    DeadReason,
    /// Since when it is dead.
    DeadTime,
    /// How often it was replayed. This and the next two are written by a replay.
    ReplayCount,
    /// The job that replayed it last.
    ReplayJob,
    /// The dead letter that was replayed.
    ReplayedFrom,
}

impl ReservedHeader {
    /// All there are, in their order.
    pub const ALL: [Self; 22] = [
        Self::MessageId,
        Self::OriginTopic,
        Self::OriginPartition,
        Self::OriginOffset,
        Self::OriginTime,
        Self::Queue,
        Self::Attempt,
        Self::FirstFailure,
        Self::LastAttempt,
        Self::Due,
        Self::ErrorClass,
        Self::ErrorCode,
        Self::ErrorMessage,
        Self::ErrorStack,
        Self::ErrorFingerprint,
        Self::LastConsumer,
        Self::AttemptLog,
        Self::DeadReason,
        Self::DeadTime,
        Self::ReplayCount,
        Self::ReplayJob,
        Self::ReplayedFrom,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MessageId => "varvelog-message-id",
            Self::OriginTopic => "varvelog-origin-topic",
            Self::OriginPartition => "varvelog-origin-partition",
            Self::OriginOffset => "varvelog-origin-offset",
            Self::OriginTime => "varvelog-origin-timestamp-ms",
            Self::Queue => "varvelog-queue",
            Self::Attempt => "varvelog-attempt",
            Self::FirstFailure => "varvelog-first-failure-ms",
            Self::LastAttempt => "varvelog-last-attempt-ms",
            Self::Due => "varvelog-due-ms",
            Self::ErrorClass => "varvelog-error-class",
            Self::ErrorCode => "varvelog-error-code",
            Self::ErrorMessage => "varvelog-error-message",
            Self::ErrorStack => "varvelog-error-stack",
            Self::ErrorFingerprint => "varvelog-error-fingerprint",
            Self::LastConsumer => "varvelog-last-consumer",
            Self::AttemptLog => "varvelog-attempt-log",
            Self::DeadReason => "varvelog-dead-reason",
            Self::DeadTime => "varvelog-dead-ms",
            Self::ReplayCount => "varvelog-replay-count",
            Self::ReplayJob => "varvelog-replay-job",
            Self::ReplayedFrom => "varvelog-replayed-from",
        }
    }

    /// The header of this name.
    pub fn of_name(name: &[u8]) -> Option<Self> {
        let is_named = |header: &Self| header.name().as_bytes() == name;
        is_reserved(name)
            .then(|| Self::ALL.into_iter().find(is_named))
            .flatten()
    }

    /// Most bytes of its value in a retry topic, or in a dead-letter topic; 0 where it is never
    /// written.
    pub const fn bytes_max(self, is_dead: bool) -> usize {
        match self {
            Self::MessageId => MESSAGE_ID_BYTES_MAX,
            Self::OriginTopic => TOPIC_NAME_BYTES_MAX,
            Self::Queue => QUEUE_BYTES_MAX,
            Self::OriginPartition | Self::Attempt | Self::ReplayCount => COUNT_BYTES_MAX,
            Self::OriginOffset | Self::OriginTime | Self::FirstFailure | Self::LastAttempt => {
                NUMBER_BYTES_MAX
            }
            Self::Due if !is_dead => NUMBER_BYTES_MAX,
            Self::ErrorClass | Self::ErrorFingerprint => WORD_BYTES_MAX,
            Self::ErrorCode => ERROR_CODE_BYTES_MAX,
            Self::ErrorMessage if is_dead => ERROR_MESSAGE_BYTES_MAX,
            Self::ErrorMessage => RETRY_MESSAGE_BYTES_MAX,
            Self::ErrorStack if is_dead => ERROR_STACK_BYTES_MAX,
            Self::LastConsumer => CONSUMER_BYTES_MAX,
            Self::AttemptLog => ATTEMPT_LOG_BYTES_MAX,
            Self::DeadReason if is_dead => WORD_BYTES_MAX,
            Self::DeadTime if is_dead => NUMBER_BYTES_MAX,
            Self::ReplayJob => 40,
            Self::ReplayedFrom => 300,
            Self::Due | Self::ErrorStack | Self::DeadReason | Self::DeadTime => 0,
        }
    }
}

/// All of them at their longest, names included.
const fn bytes_of_all(is_dead: bool) -> usize {
    let mut sum = 0;
    let mut rest: &[ReservedHeader] = &ReservedHeader::ALL;
    while let [first, others @ ..] = rest {
        let value = first.bytes_max(is_dead);
        if value > 0 {
            sum += first.name().len() + value;
        }
        rest = others;
    }
    sum
}

const _: () = {
    assert!(bytes_of_all(false) <= RETRY_HEADERS_BYTES_MAX);
    assert!(bytes_of_all(true) <= DEAD_LETTER_HEADERS_BYTES_MAX);
};

/// The reserved headers of a record, as they lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReservedHeaders<'a> {
    by_header: [Option<&'a str>; ReservedHeader::ALL.len()],
}

impl<'a> ReservedHeaders<'a> {
    /// Those of a record. What is not text is left out.
    pub fn of(headers: Headers<'a>) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let text = value.and_then(|value| std::str::from_utf8(value).ok());
            let header = ReservedHeader::of_name(name);
            if let Some(slot) = header.and_then(|header| found.by_header.get_mut(header as usize)) {
                *slot = slot.or(text);
            }
        }
        found
    }

    /// As it was written; none where it was not.
    pub fn text(&self, header: ReservedHeader) -> Option<&'a str> {
        self.by_header.get(header as usize).copied().flatten()
    }

    /// One that is a count.
    pub fn count(&self, header: ReservedHeader) -> Option<u32> {
        self.text(header)?.parse().ok()
    }

    /// One that is a time.
    pub fn time(&self, header: ReservedHeader) -> Option<WallMs> {
        self.text(header)?.parse().ok().map(WallMs)
    }

    /// Where the record was appended first; none unless all of it is there.
    pub fn origin(&self) -> Option<Origin<'a>> {
        let offset = self.text(ReservedHeader::OriginOffset)?.parse().ok()?;
        Some(Origin {
            topic: self.text(ReservedHeader::OriginTopic)?,
            partition: self.count(ReservedHeader::OriginPartition)?,
            offset: Offset::new(offset)?,
            append_time: self.time(ReservedHeader::OriginTime)?,
            queue: self.text(ReservedHeader::Queue)?,
            message_id: self.text(ReservedHeader::MessageId)?,
            attempt: self.count(ReservedHeader::Attempt)?,
        })
    }
}

/// What a record in a retry or dead-letter topic is a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// Topic of the first append.
    pub topic: &'a str,
    /// From 0.
    pub partition: u32,
    /// Of the first append.
    pub offset: Offset,
    /// Of the first append, by the broker's clock.
    pub append_time: WallMs,
    /// `<topic>.<group>`.
    pub queue: &'a str,
    /// Of the record, for good.
    pub message_id: &'a str,
    /// Counted failures so far.
    pub attempt: u32,
}

/// What the record is a copy of that has these headers; none if it is no copy.
pub fn origin_of(headers: Headers<'_>) -> Option<Origin<'_>> {
    ReservedHeaders::of(headers).origin()
}

#[cfg(test)]
#[path = "reserved_headers_tests.rs"]
mod tests;
