//! Batches for tests.

use bytes::Bytes;
use proptest::prelude::*;

use crate::batch::{
    BatchBuilder, BatchError, BatchRules, Codec, HEADER_BYTES, ProducerStamp, RecordRef, Records,
};

/// More than any batch of these tests expands to.
pub(super) const PLAIN_MAX: u64 = 1 << 20;

/// Rules that every sample keeps.
pub(super) const RULES: BatchRules = BatchRules {
    record_bytes_max: 1 << 20,
    key_bytes_max: 1 << 16,
    headers_max: 64,
    records_max: 10_000,
    decompressed_bytes_max: PLAIN_MAX,
    timestamp_ms_max: i64::MAX,
    reserved_header_prefix: "varvelog-",
};

pub(super) type OwnedHeader = (String, Option<Vec<u8>>);

/// A record with bytes of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sample {
    pub(super) timestamp_ms: Option<i64>,
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<OwnedHeader>,
}

impl Sample {
    pub(super) fn of_value(value: &[u8]) -> Self {
        Self {
            value: Some(value.to_vec()),
            ..Self::default()
        }
    }

    pub(super) fn push(&self, batch: &mut BatchBuilder) -> Result<(), BatchError> {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_deref()));
        batch.push(
            self.timestamp_ms,
            self.key.as_deref(),
            self.value.as_deref(),
            headers,
        )
    }
}

impl From<RecordRef<'_>> for Sample {
    fn from(record: RecordRef<'_>) -> Self {
        let owned = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
        let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
        Self {
            timestamp_ms: (record.timestamp_ms != -1).then_some(record.timestamp_ms),
            key: owned(record.key),
            value: owned(record.value),
            headers: record
                .headers
                .iter()
                .map(|(n, v)| (name(n), owned(v)))
                .collect(),
        }
    }
}

pub(super) fn encode(
    codec: Codec,
    producer: Option<ProducerStamp>,
    samples: &[Sample],
) -> Result<Bytes, BatchError> {
    let mut batch = BatchBuilder::new(codec, 64);
    if let Some(stamp) = producer {
        batch.set_producer(stamp);
    }
    for sample in samples {
        sample.push(&mut batch)?;
    }
    batch.finish()
}

pub(super) fn decode(body: &Bytes) -> Result<Vec<Sample>, BatchError> {
    let records = Records::open(body, PLAIN_MAX)?;
    records
        .iter()
        .map(|record| record.map(Sample::from))
        .collect()
}

/// A batch of three small records with all that a record can have.
pub(super) fn small() -> Vec<Sample> {
    vec![
        Sample {
            timestamp_ms: Some(1_700_000_000_000),
            key: Some(b"key".to_vec()),
            value: Some(b"value".to_vec()),
            headers: vec![
                ("trace".into(), Some(b"1".to_vec())),
                (String::new(), None),
                ("trace".into(), Some(Vec::new())),
            ],
        },
        Sample {
            timestamp_ms: Some(1_699_999_999_000),
            ..Sample::default()
        },
        Sample {
            key: Some(Vec::new()),
            ..Sample::of_value(&[b'v'; 100])
        },
    ]
}

/// Makes the checksum right again after a test changed what it covers, and the length after it
/// changed the size.
pub(super) fn reseal(body: &mut [u8]) {
    let length = u32::try_from(body.len() - 12).unwrap();
    body[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&body[21..]);
    body[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// An uncompressed batch of `count` records whose bytes are `records`, sealed.
pub(super) fn raw(count: u32, records: &[u8]) -> Bytes {
    let header = encode(Codec::None, None, &[Sample::default()]).unwrap();
    let mut body = [&header[..HEADER_BYTES], records].concat();
    body[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    body[57..61].copy_from_slice(&count.to_be_bytes());
    reseal(&mut body);
    body.into()
}

pub(super) fn any_codec() -> impl Strategy<Value = Codec> {
    prop::sample::select(&Codec::ALL[..])
}

pub(super) fn any_producer() -> impl Strategy<Value = Option<ProducerStamp>> {
    prop::option::of((0..=i64::MAX, 0..=i16::MAX, 0..=i32::MAX - 64).prop_map(
        |(id, epoch, base_sequence)| ProducerStamp {
            id,
            epoch,
            base_sequence,
        },
    ))
}

fn any_bytes() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        4 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Some),
        1 => (any::<u8>(), 0..20_000_usize).prop_map(|(byte, length)| Some(vec![byte; length])),
    ]
}

fn any_timestamp() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![
        1 => Just(None),
        4 => (1_700_000_000_000..1_700_000_100_000_i64).prop_map(Some),
        1 => (0..i64::MAX / 2).prop_map(Some),
    ]
}

pub(super) fn any_sample() -> impl Strategy<Value = Sample> {
    let header = ("[a-z]{0,3}|[^v]{1,8}", any_bytes());
    (
        any_timestamp(),
        any_bytes(),
        any_bytes(),
        prop::collection::vec(header, 0..4),
    )
        .prop_map(|(timestamp_ms, key, value, headers)| Sample {
            timestamp_ms,
            key,
            value,
            headers,
        })
}

pub(super) fn any_samples() -> impl Strategy<Value = Vec<Sample>> {
    prop::collection::vec(any_sample(), 1..24)
}
