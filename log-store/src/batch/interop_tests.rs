//! Against an implementation of the format that is not ours.

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchDecoder, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use proptest::prelude::*;

use crate::batch::samples::{RULES, Sample, any_codec, any_producer, any_samples, decode, encode};
use crate::batch::{Codec, ProducerStamp, stamp, validate, verify_crc};
use crate::{Epoch, Offset};

const fn compression(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

/// The names of a record's headers once only, since the other implementation keeps a map.
fn with_distinct_names(mut samples: Vec<Sample>) -> Vec<Sample> {
    for sample in &mut samples {
        let mut seen = std::collections::BTreeSet::new();
        sample.headers.retain(|(name, _)| seen.insert(name.clone()));
    }
    samples
}

/// What the other implementation makes of `samples`.
fn theirs(samples: &[Sample], producer: Option<ProducerStamp>, base_offset: i64) -> Vec<Record> {
    let stamp = producer.unwrap_or(ProducerStamp {
        id: -1,
        epoch: -1,
        base_sequence: -1,
    });
    let record = |(place, sample): (usize, &Sample)| {
        let place = i32::try_from(place).unwrap();
        let header = |(name, value): &(String, Option<Vec<u8>>)| {
            (
                StrBytes::from_string(name.clone()),
                value.clone().map(Bytes::from),
            )
        };
        Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: 7,
            producer_id: stamp.id,
            producer_epoch: stamp.epoch,
            timestamp_type: TimestampType::Creation,
            offset: base_offset + i64::from(place),
            sequence: stamp.base_sequence.wrapping_add(place),
            timestamp: sample.timestamp_ms.unwrap_or(-1),
            key: sample.key.clone().map(Bytes::from),
            value: sample.value.clone().map(Bytes::from),
            headers: sample.headers.iter().map(header).collect(),
        }
    };
    samples.iter().enumerate().map(record).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn what_we_encode_they_decode_equally(
        samples in any_samples().prop_map(with_distinct_names),
        codec in any_codec(),
        producer in any_producer(),
        offset in 0_u64..1 << 40,
    ) {
        let mut body = encode(codec, producer, &samples).unwrap().to_vec();
        let base = Offset::new(offset).unwrap();
        stamp(&mut body, base, Epoch(7));
        let mut body = Bytes::from(body);
        let set = RecordBatchDecoder::decode(&mut body).unwrap();
        prop_assert!(body.is_empty());
        prop_assert_eq!(set.compression, compression(codec));
        prop_assert_eq!(set.records, theirs(&samples, producer, base.as_i64()));
    }

    #[test]
    fn what_they_encode_we_decode_and_take_equally(
        samples in any_samples().prop_map(with_distinct_names),
        codec in any_codec(),
        producer in any_producer(),
        base_offset in 0_i64..1 << 40,
    ) {
        let records = theirs(&samples, producer, base_offset);
        let options = RecordEncodeOptions { version: 2, compression: compression(codec) };
        let mut body = BytesMut::new();
        RecordBatchEncoder::encode(&mut body, &records, &options).unwrap();
        let body = body.freeze();

        let header = validate(&body, &RULES).unwrap();
        prop_assert_eq!(header, verify_crc(&body).unwrap());
        prop_assert_eq!(header.codec, codec);
        prop_assert_eq!(header.producer, producer);
        prop_assert_eq!(header.base_offset, base_offset);
        prop_assert_eq!(header.leader_epoch, 7);
        let timestamps = || samples.iter().map(|sample| sample.timestamp_ms.unwrap_or(-1));
        prop_assert_eq!(Some(header.base_timestamp_ms), timestamps().min());
        prop_assert_eq!(Some(header.max_timestamp_ms), timestamps().max());
        prop_assert_eq!(decode(&body).unwrap(), samples);
    }

    #[test]
    fn what_we_encode_we_decode_and_take_equally(
        samples in any_samples(),
        codec in any_codec(),
        producer in any_producer(),
    ) {
        let body = encode(codec, producer, &samples).unwrap();
        let header = validate(&body, &RULES).unwrap();
        prop_assert_eq!(header.producer, producer);
        prop_assert_eq!(header.batch_bytes, u32::try_from(body.len()).unwrap());
        let last = samples.iter().map(|sample| sample.timestamp_ms.unwrap_or(-1)).max();
        prop_assert_eq!(Some(header.max_timestamp_ms), last);
        prop_assert_eq!(decode(&body).unwrap(), samples);
    }
}
