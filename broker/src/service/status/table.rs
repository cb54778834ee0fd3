//! The table itself. Every match is exhaustive: a new refusal does not compile until it has a
//! line.

use std::time::Duration;

use super::explanation::Explanation;
use super::failure::{
    CallFailure, EdgeRefusal, FieldViolation, LookupRefusal, ReadRefusal, RecordRefusal,
};
use super::reason::Reason;
use crate::core::admission::{Measure, TurnedAway};
use crate::core::refusal::{
    AppendRefusal, CallError, GroupRefusal, QuotaRefusal, Refusal, ReplayRefusal, TopicRefusal,
};

/// A full disk is looked at again so often.
const DISK_RETRY: Duration = Duration::from_secs(5);
/// A starting or stopping broker is replaced or back about so soon.
const RESTART_RETRY: Duration = Duration::from_secs(1);
/// Remembered ids go one by one.
const IDS_RETRY: Duration = Duration::from_secs(1);
/// Failed reads are tried again soon: a descriptor limit passes.
const READ_RETRY: Duration = Duration::from_secs(1);

impl From<&CallFailure> for Explanation {
    fn from(failure: &CallFailure) -> Self {
        let text = failure.to_string();
        match failure {
            CallFailure::Core(error) => core(error, text),
            CallFailure::Malformed(_) => Self::new(Reason::MalformedRequest, text),
            CallFailure::Field(violation) => field(violation, text),
            CallFailure::Fields(violations) => fields(violations, text),
            CallFailure::Record(refusal) => record(refusal, text),
            CallFailure::Lookup(refusal) => lookup(refusal, text),
            CallFailure::Read(refusal) => read(refusal, text),
            CallFailure::Edge(refusal) => edge(refusal, text),
        }
    }
}

fn core(error: &CallError, text: String) -> Explanation {
    match error {
        CallError::Refused(Refusal::Append(refusal)) => append(refusal, text),
        CallError::Refused(Refusal::Topic(refusal)) => topic(refusal, text),
        CallError::Refused(Refusal::Group(refusal)) => group(refusal, text),
        CallError::Refused(Refusal::Quota(refusal)) => quota(refusal, text),
        CallError::Refused(Refusal::Replay(refusal)) => replay(refusal, text),
        CallError::Busy {
            limit_bytes,
            retry_after,
        } => Explanation::new(Reason::BrokerBusy, text)
            .with("limit", limit_bytes)
            .retry(*retry_after),
        CallError::DiskReserve {
            free_bytes,
            reserve_bytes,
        } => Explanation::new(Reason::BackpressureDisk, text)
            .with("limit", reserve_bytes)
            .with("current", free_bytes)
            .exhausted("disk")
            .retry(DISK_RETRY),
        CallError::TurnedAway(turned) => turned_away(turned, text),
        CallError::Draining => Explanation::new(Reason::BrokerDraining, text).retry(RESTART_RETRY),
        CallError::Fenced => Explanation::new(Reason::BrokerFenced, text),
    }
}

fn turned_away(turned: &TurnedAway, text: String) -> Explanation {
    let subject = format!("topic/{}/group/{}", turned.topic, turned.group);
    Explanation::new(backpressure(turned.measure), text)
        .with("group", &turned.group)
        .with("topic", &turned.topic)
        .with("limit", turned.limit)
        .with("current", turned.current)
        .with("resume_at", turned.resume_at)
        .exhausted(subject)
        .retry(turned.retry_after)
}

/// The reason by which producers are turned away.
pub(in crate::service) fn backpressure(measure: Measure) -> Reason {
    match measure {
        Measure::Depth => Reason::BackpressureDepth,
        Measure::Age => Reason::BackpressureAge,
        Measure::Bytes => Reason::BackpressureBytes,
    }
}

fn append(refusal: &AppendRefusal, text: String) -> Explanation {
    match refusal {
        AppendRefusal::SequenceGap { expected, got } => Explanation::new(Reason::SequenceGap, text)
            .with("expected", expected)
            .with("got", got),
        AppendRefusal::SequenceTooOld { producer, got: _ } => {
            Explanation::new(Reason::SequenceTooOld, text).with("producer_id", producer)
        }
        AppendRefusal::ProducerUnknown { producer } => {
            Explanation::new(Reason::ProducerUnknown, text).with("producer_id", producer)
        }
        AppendRefusal::ProducerFenced { producer: _, epoch } => {
            Explanation::new(Reason::ProducerFenced, text).with("epoch", epoch)
        }
        AppendRefusal::RequestIdReused { id } => {
            Explanation::new(Reason::RequestIdReused, text).with("request_id", id)
        }
    }
}

fn topic(refusal: &TopicRefusal, text: String) -> Explanation {
    match refusal {
        TopicRefusal::NotFound { topic } => {
            Explanation::new(Reason::TopicNotFound, text).about("topic", topic)
        }
        TopicRefusal::PartitionNotFound {
            topic,
            partition,
            partitions,
        } => Explanation::new(Reason::PartitionNotFound, text)
            .with("topic", topic)
            .with("partition", partition)
            .with("partitions", partitions),
        TopicRefusal::Exists { topic } => {
            Explanation::new(Reason::TopicExists, text).about("topic", topic)
        }
        TopicRefusal::Derived { topic, group } => Explanation::new(Reason::DerivedTopic, text)
            .with("topic", topic)
            .with("group", group),
        TopicRefusal::OffsetOutOfRange {
            offset: _,
            earliest,
            latest,
        } => Explanation::new(Reason::OffsetOutOfRange, text)
            .with("earliest", earliest)
            .with("latest", latest),
        TopicRefusal::PartitionsFewer { topic: _, current } => {
            let violation = FieldViolation::bound("total", current, "", text.clone());
            field(&violation, text)
        }
        TopicRefusal::DeadLettersNotEmpty { queue, depth } => {
            Explanation::new(Reason::DeadLettersNotEmpty, text)
                .with("queue", queue)
                .with("depth", depth)
        }
    }
}

fn group(refusal: &GroupRefusal, text: String) -> Explanation {
    match refusal {
        GroupRefusal::NotFound { group } => {
            Explanation::new(Reason::GroupNotFound, text).about("group", group)
        }
        GroupRefusal::Exists { group } => {
            Explanation::new(Reason::GroupExists, text).about("group", group)
        }
        GroupRefusal::NotEmpty {
            group: _,
            members,
            leases,
        } => Explanation::new(Reason::GroupNotEmpty, text)
            .with("members", members)
            .with("leases", leases),
        GroupRefusal::Mode { group } => {
            Explanation::new(Reason::GroupMode, text).with("group", group)
        }
        GroupRefusal::MemberFenced { generation } => {
            Explanation::new(Reason::MemberFenced, text).with("generation", generation)
        }
        GroupRefusal::OffsetMovesBack { committed, got } => {
            Explanation::new(Reason::OffsetMovesBack, text)
                .with("committed", committed)
                .with("got", got)
        }
        GroupRefusal::TopicsMissing { group: _ } => {
            field(&FieldViolation::new("topics", text.clone()), text)
        }
        GroupRefusal::DerivedNameTooLong { name, limit } => {
            let violation = FieldViolation::bound("group", limit, name, text.clone());
            field(&violation, text)
        }
        GroupRefusal::TopicNotOfGroup { group: _, topic } => {
            let violation = FieldViolation::bound("topic", "", topic, text.clone());
            field(&violation, text)
        }
        GroupRefusal::LeaseLost { offset } => {
            Explanation::new(Reason::LeaseLost, text).with("offset", offset)
        }
    }
}

fn replay(refusal: &ReplayRefusal, text: String) -> Explanation {
    match refusal {
        ReplayRefusal::NotFound { id } => {
            Explanation::new(Reason::JobNotFound, text).about("job", id)
        }
        ReplayRefusal::Ended { id: _, state } => {
            Explanation::new(Reason::JobEnded, text).with("state", state)
        }
        // Of steps, which no caller sends.
        ReplayRefusal::Overtaken { id: _ } => {
            Explanation::new(Reason::BrokerBusy, text).retry(RESTART_RETRY)
        }
    }
}

fn quota(refusal: &QuotaRefusal, text: String) -> Explanation {
    let QuotaRefusal {
        what,
        limit,
        current,
    } = refusal;
    let explanation = Explanation::new(Reason::QuotaExceeded, text)
        .with("limit", limit)
        .with("current", current)
        .exhausted(*what);
    if what.ends_with("_ids") {
        explanation.retry(IDS_RETRY)
    } else {
        explanation
    }
}

fn field(violation: &FieldViolation, text: String) -> Explanation {
    let mut explanation = Explanation::new(Reason::InvalidField, text)
        .with("field", &violation.field)
        .at(&violation.field, &violation.what);
    if !violation.limit.is_empty() {
        explanation = explanation.with("limit", &violation.limit);
    }
    if !violation.value.is_empty() {
        explanation = explanation.with("value", &violation.value);
    }
    explanation
}

/// The metadata is of the first.
fn fields(violations: &[FieldViolation], text: String) -> Explanation {
    let Some((first, others)) = violations.split_first() else {
        return Explanation::new(Reason::InvalidField, text);
    };
    let mut explanation = field(first, text);
    let told = |wrong: &FieldViolation| (wrong.field.clone(), wrong.what.clone());
    explanation.further_fields = others.iter().map(told).collect();
    explanation
}

fn record(refusal: &RecordRefusal, text: String) -> Explanation {
    match refusal {
        RecordRefusal::TooLarge { field, limit, size } => {
            Explanation::new(Reason::RecordTooLarge, text.clone())
                .with("limit", limit)
                .with("size", size)
                .at(field, text)
        }
        RecordRefusal::ReservedHeader { field } => {
            Explanation::new(Reason::ReservedHeader, text.clone()).at(field, text)
        }
        RecordRefusal::BatchInvalid { field, what: _ } => {
            Explanation::new(Reason::BatchInvalid, text.clone()).at(field, text)
        }
    }
}

fn lookup(refusal: &LookupRefusal, text: String) -> Explanation {
    match refusal {
        LookupRefusal::Topic { name, nearest: _ } => {
            Explanation::new(Reason::TopicNotFound, text).about("topic", name)
        }
        LookupRefusal::Group { name, nearest: _ } => {
            Explanation::new(Reason::GroupNotFound, text).about("group", name)
        }
        LookupRefusal::Queue { name, nearest: _ } => {
            Explanation::new(Reason::QueueNotFound, text).about("queue", name)
        }
    }
}

fn read(refusal: &ReadRefusal, text: String) -> Explanation {
    match refusal {
        ReadRefusal::Truncated { safe_offset, epoch } => {
            Explanation::new(Reason::OffsetTruncated, text)
                .with("safe_offset", safe_offset)
                .with("epoch", epoch)
        }
        ReadRefusal::Corrupt {
            topic,
            partition,
            first,
            last,
        } => Explanation::new(Reason::SegmentCorrupt, text)
            .with("topic", topic)
            .with("partition", partition)
            .with("first_offset", first)
            .with("last_offset", last),
        ReadRefusal::Unreadable { what: _ } => {
            Explanation::new(Reason::BrokerBusy, text).retry(READ_RETRY)
        }
    }
}

fn edge(refusal: &EdgeRefusal, text: String) -> Explanation {
    match refusal {
        EdgeRefusal::RequestTooLarge { limit, size } => {
            Explanation::new(Reason::RequestTooLarge, text)
                .with("limit", limit)
                .with("size", size)
        }
        EdgeRefusal::AckTokenInvalid => Explanation::new(Reason::AckTokenInvalid, text),
        EdgeRefusal::PlanRequired => Explanation::new(Reason::PlanRequired, text),
        EdgeRefusal::PlanExpired { .. } => Explanation::new(Reason::PlanExpired, text),
        EdgeRefusal::WouldReorder { group } => {
            Explanation::new(Reason::WouldReorder, text).with("group", group)
        }
        EdgeRefusal::NotImplemented { feature } => {
            Explanation::new(Reason::NotImplemented, text).with("feature", feature)
        }
        EdgeRefusal::BuffersFull {
            limit_bytes,
            retry_after,
        } => Explanation::new(Reason::BrokerBusy, text)
            .with("limit", limit_bytes)
            .retry(*retry_after),
        EdgeRefusal::Starting => {
            Explanation::new(Reason::BrokerStarting, text).retry(RESTART_RETRY)
        }
    }
}
