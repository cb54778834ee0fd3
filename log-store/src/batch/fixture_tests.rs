//! Batches on file: what was written once is read for ever.

use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;

use crate::batch::samples::{RULES, decode, encode, small};
use crate::batch::{Codec, ProducerStamp, stamp, validate};
use crate::{Epoch, Offset};

const PRODUCER: ProducerStamp = ProducerStamp {
    id: 4711,
    epoch: 3,
    base_sequence: 42,
};

fn fixture(codec: Codec) -> Bytes {
    Bytes::from_static(match codec {
        Codec::None => include_bytes!("../../fixtures/batch-none.bin"),
        Codec::Gzip => include_bytes!("../../fixtures/batch-gzip.bin"),
        Codec::Snappy => include_bytes!("../../fixtures/batch-snappy.bin"),
        Codec::Lz4 => include_bytes!("../../fixtures/batch-lz4.bin"),
        Codec::Zstd => include_bytes!("../../fixtures/batch-zstd.bin"),
    })
}

#[test]
fn every_fixture_is_taken_and_holds_what_was_written() {
    for codec in Codec::ALL {
        let body = fixture(codec);
        let header = validate(&body, &RULES).unwrap();
        assert_eq!(header.codec, codec);
        assert_eq!((header.base_offset, header.leader_epoch), (1000, 5));
        assert_eq!(header.producer, Some(PRODUCER));
        assert_eq!(header.base_timestamp_ms, 1_700_000_000_000);
        assert_eq!(header.max_timestamp_ms, 1_700_000_000_000);
        assert_eq!((header.record_count, header.last_offset_delta), (3, 2));
        assert_eq!(decode(&body).unwrap(), small());
    }
}

#[test]
fn every_fixture_is_read_by_another_implementation() {
    for codec in Codec::ALL {
        let records = RecordBatchDecoder::decode(&mut fixture(codec))
            .unwrap()
            .records;
        let values: Vec<_> = records
            .iter()
            .map(|record| record.value.as_deref())
            .collect();
        assert_eq!(values, [Some(&b"value"[..]), None, Some(&[b'v'; 100])]);
        assert_eq!(records[2].offset, 1002);
    }
}

#[test]
fn the_uncompressed_fixture_is_written_the_same_today() {
    let mut body = encode(Codec::None, Some(PRODUCER), &small())
        .unwrap()
        .to_vec();
    stamp(&mut body, Offset::new(1000).unwrap(), Epoch(5));
    assert_eq!(body, fixture(Codec::None));
}
