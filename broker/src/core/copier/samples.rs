//! Records, jobs and logs for tests.

use bytes::Bytes;
use proptest::prelude::*;
use varvelog_store::batch::{BatchBuilder, Codec, RecordRef, Records};
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::building::OpenBatch;
use crate::core::command::AppendPart;
use crate::core::copies::{Copy, CopyJob, CopyTo, Failed, ReadId};
use crate::core::failure::{DeadReason, ErrorClass, FailureText};
use crate::core::reserved_headers::is_reserved;
use crate::core::retries::RetryEntry;
use crate::names::{GroupName, TopicName};

pub(super) const SOURCE: PartitionId = partition(1);
pub(super) const RETRY: PartitionId = partition(2);
pub(super) const DEAD_LETTER: PartitionId = partition(3);
/// When the records of tests are appended first.
pub(super) const APPENDED: WallMs = WallMs(1_700_000_000_000);

const fn partition(topic: u8) -> PartitionId {
    PartitionId {
        topic: TopicId([topic; 16]),
        partition: 5,
    }
}

pub(super) fn at(offset: u64) -> Offset {
    Offset::new(offset).unwrap()
}

pub(super) type OwnedHeader = (Vec<u8>, Option<Vec<u8>>);

/// A record with bytes of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) timestamp_ms: i64,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<OwnedHeader>,
}

impl Sample {
    pub(super) fn of_value(value: &[u8]) -> Self {
        Self {
            timestamp_ms: 1_699_999_999_000,
            key: Some(b"key".to_vec()),
            value: Some(value.to_vec()),
            headers: Vec::new(),
        }
    }

    pub(super) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// What the producer gave.
    pub(super) fn without_reserved(mut self) -> Self {
        self.headers.retain(|(name, _)| !is_reserved(name));
        self
    }

    /// Names and values of the reserved headers, in their order.
    pub(super) fn reserved(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let reserved = self.headers.iter().filter(|(name, _)| is_reserved(name));
        reserved
            .map(|(name, value)| (text(name), text(value.as_deref().unwrap())))
            .collect()
    }

    /// The value of a reserved header, by its name without the prefix.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let name = format!("varvelog-{name}");
        let mut found = self.reserved().into_iter().filter(|(own, _)| *own == name);
        let value = found.next().map(|(_, value)| value);
        assert_eq!(found.next(), None, "{name} is there once at most");
        value
    }
}

impl From<RecordRef<'_>> for Sample {
    fn from(record: RecordRef<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        Self {
            timestamp_ms: record.timestamp_ms,
            key: owned(record.key),
            value: owned(record.value),
            headers: record
                .headers
                .iter()
                .map(|(name, value)| (name.to_vec(), owned(value)))
                .collect(),
        }
    }
}

pub(super) fn encode(samples: &[Sample], codec: Codec) -> Bytes {
    let mut batch = BatchBuilder::new(codec, 64);
    for sample in samples {
        let headers = sample.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_slice(), value.as_deref()));
        let (key, value) = (sample.key.as_deref(), sample.value.as_deref());
        batch
            .push(Some(sample.timestamp_ms), key, value, headers)
            .unwrap();
    }
    batch.finish().unwrap()
}

pub(super) fn decode(body: &Bytes) -> Vec<Sample> {
    let records = Records::open(body, 64 << 20).unwrap();
    records
        .iter()
        .map(|record| record.unwrap().into())
        .collect()
}

/// A batch as it is read from a log.
pub(super) fn opened(base: u64, append_time: WallMs, samples: &[Sample]) -> OpenBatch {
    OpenBatch {
        base_offset: at(base),
        append_time,
        records: Records::open(&encode(samples, Codec::None), 64 << 20).unwrap(),
    }
}

/// The records of the parts for `to`, in order.
pub(super) fn copied(parts: &[AppendPart], to: PartitionId) -> Vec<Sample> {
    let parts = parts.iter().filter(|part| part.partition == to);
    let records = parts.flat_map(|part| {
        let samples = decode(&part.body);
        assert_eq!(samples.len(), usize::try_from(part.record_count).unwrap());
        samples
    });
    records.collect()
}

pub(super) fn job(from: PartitionId, copies: Vec<Copy>) -> CopyJob {
    CopyJob {
        id: ReadId(1),
        group: GroupName::parse("email").unwrap(),
        topic: TopicName::parse("orders").unwrap(),
        from,
        retry: RETRY,
        dead_letter: DEAD_LETTER,
        at: WallMs(APPENDED.0 + 9_000),
        copies,
        dead_before: None,
        omit_error_message: false,
        omit_error_stack: false,
        tells_keys: false,
        halts: false,
    }
}

pub(super) fn failed(failures: u32, class: ErrorClass, text: FailureText) -> Failed {
    Failed {
        failures,
        class,
        text,
        at: WallMs(APPENDED.0 + 1_000 * i64::from(failures)),
        consumer: format!("worker-{failures}"),
        before: None,
    }
}

pub(super) fn text(code: &str, message: &str, stack: &str) -> FailureText {
    FailureText::cut(code, message, stack)
}

pub(super) fn retry(origin: u64, failures: u32) -> CopyTo {
    CopyTo::Retry(RetryEntry {
        due: WallMs(APPENDED.0 + 100_000 + i64::from(failures)),
        origin: at(origin),
        failures,
        suspect: false,
    })
}

/// A copy of a record that failed for the first time.
pub(super) fn failed_once(offset: u64) -> Copy {
    let text = text("E_IO", "no route to host 10.0.0.7", "");
    Copy {
        offset: at(offset),
        to: retry(offset, 1),
        failed: Some(failed(1, ErrorClass::Transient, text)),
    }
}

/// A copy of a record that is dead at once.
pub(super) fn dead_at_once(offset: u64) -> Copy {
    let text = text("VAL_7", "not a number", "at parse (order.js:12)");
    Copy {
        offset: at(offset),
        to: CopyTo::DeadLetter(DeadReason::Permanent),
        failed: Some(failed(1, ErrorClass::Permanent, text)),
    }
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Vec::new())),
        4 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
        1 => (any::<u8>(), 0..9_000_usize).prop_map(|(byte, length)| Some(vec![byte; length])),
    ]
}

pub(super) fn any_sample() -> impl Strategy<Value = Sample> {
    let timestamp_ms = prop_oneof![Just(-1), 0..APPENDED.0, Just(i64::MAX - 1)];
    let header = ("[a-z]{0,2}|[^v]{1,8}", any_bytes());
    let headers = prop::collection::vec(header, 0..5);
    (timestamp_ms, any_bytes(), any_bytes(), headers).prop_map(
        |(timestamp_ms, key, value, headers)| Sample {
            timestamp_ms,
            key,
            value,
            headers: headers
                .into_iter()
                .map(|(name, value)| (name.into_bytes(), value))
                .collect(),
        },
    )
}
