//! One dead letter, from its record.

use varvelog_proto::v1;
use varvelog_store::batch::RecordRef;
use varvelog_store::{Offset, WallMs};

use crate::core::attempt_log;
use crate::core::dead_letters::JobNumber;
use crate::core::failure::FailedAttempt;
use crate::core::reserved_headers::{ReservedHeader, ReservedHeaders, is_reserved};
use crate::service::topics::timestamp;

/// What is shown beside the headers of a failure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show {
    pub(super) value: bool,
    pub(super) stack: bool,
}

/// An entry whose record was read.
pub(super) struct Letter<'a> {
    pub(super) group: &'a str,
    pub(super) partition: u32,
    pub(super) offset: Offset,
    pub(super) append_time: WallMs,
    pub(super) record: RecordRef<'a>,
    pub(super) said: ReservedHeaders<'a>,
    /// That has claimed it.
    pub(super) job: Option<JobNumber>,
}

impl Letter<'_> {
    pub(super) fn shown(&self, show: Show) -> v1::DeadLetter {
        let text = |header| self.said.text(header).unwrap_or_default().to_owned();
        let time = |header| self.said.time(header).map(|time| timestamp(time.0));
        let count = |header| number(self.said.count(header).unwrap_or(0));
        let attempts = attempt_log::parse(&text(ReservedHeader::AttemptLog));
        v1::DeadLetter {
            id: Some(v1::DeadLetterId {
                partition: number(self.partition),
                offset: self.offset.as_i64(),
            }),
            record: Some(self.record(show)),
            source_topic: text(ReservedHeader::OriginTopic),
            source_partition: count(ReservedHeader::OriginPartition),
            source_offset: self.origin_offset(),
            group: self.group.to_owned(),
            deliveries: count(ReservedHeader::Attempt),
            reason: text(ReservedHeader::DeadReason),
            error_code: text(ReservedHeader::ErrorCode),
            error_message: text(ReservedHeader::ErrorMessage),
            error_stack: if show.stack {
                text(ReservedHeader::ErrorStack)
            } else {
                String::new()
            },
            first_failure_time: time(ReservedHeader::FirstFailure),
            last_attempt_time: time(ReservedHeader::LastAttempt),
            death_time: time(ReservedHeader::DeadTime),
            last_member: text(ReservedHeader::LastConsumer),
            replay_count: count(ReservedHeader::ReplayCount),
            error_class: text(ReservedHeader::ErrorClass),
            error_fingerprint: text(ReservedHeader::ErrorFingerprint),
            attempts: attempts.iter().map(attempt).collect(),
            replay_job: self.job.map(JobNumber::id).unwrap_or_default(),
        }
    }

    /// As it was produced, with its first offset and time.
    fn record(&self, show: Show) -> v1::Record {
        let record = &self.record;
        let origin_time = self.said.time(ReservedHeader::OriginTime);
        let append_time_ms = origin_time.unwrap_or(self.append_time).0;
        let own = record.headers.iter().filter(|(name, _)| !is_reserved(name));
        let headers = own.map(|(name, value)| {
            let name = String::from_utf8_lossy(name).into_owned();
            (name, value.unwrap_or_default().to_vec().into())
        });
        let bytes = record.value.map_or(0, <[u8]>::len);
        v1::Record {
            offset: self.origin_offset(),
            key: record.key.map(|key| key.to_vec().into()),
            value: record
                .value
                .filter(|_| show.value)
                .map(|value| value.to_vec().into()),
            headers: headers.collect(),
            timestamp_ms: if record.timestamp_ms < 0 {
                append_time_ms
            } else {
                record.timestamp_ms
            },
            append_time_ms,
            attempt: 0,
            message_id: self
                .said
                .text(ReservedHeader::MessageId)
                .unwrap_or_default()
                .to_owned(),
            value_omitted: !show.value,
            value_bytes: if show.value {
                0
            } else {
                i64::try_from(bytes).unwrap_or(i64::MAX)
            },
        }
    }

    fn origin_offset(&self) -> i64 {
        let offset = self.said.text(ReservedHeader::OriginOffset);
        offset.and_then(|text| text.parse().ok()).unwrap_or(-1)
    }
}

fn attempt(failed: &FailedAttempt) -> v1::Attempt {
    v1::Attempt {
        attempt: number(failed.attempt),
        time: Some(timestamp(failed.at.0)),
        error_class: failed.class.as_str().to_owned(),
        error_code: failed.code.clone(),
    }
}

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
