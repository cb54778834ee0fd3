//! Copies against an implementation of the record batch that is not ours.

use std::collections::BTreeSet;

use kafka_protocol::records::{Record, RecordBatchDecoder};
use proptest::prelude::*;

use super::building::build;
use super::samples::{
    APPENDED, DEAD_LETTER, RETRY, SOURCE, Sample, any_sample, copied, dead_at_once, failed_once,
    job, opened,
};
use crate::core::command::AppendPart;

fn theirs(parts: &[AppendPart]) -> Vec<Record> {
    let records = parts.iter().flat_map(|part| {
        let mut body = part.body.clone();
        let set = RecordBatchDecoder::decode(&mut body).unwrap();
        assert!(body.is_empty(), "one batch, whole");
        set.records
    });
    records.collect()
}

/// What the other implementation makes of a record: it keeps headers in a map.
fn seen(record: &Record) -> Sample {
    let owned = |bytes: &Option<bytes::Bytes>| bytes.as_ref().map(|bytes| bytes.to_vec());
    Sample {
        timestamp_ms: record.timestamp,
        key: owned(&record.key),
        value: owned(&record.value),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), owned(value)))
            .collect(),
    }
}

fn with_distinct_names(mut sample: Sample) -> Sample {
    let mut names = BTreeSet::new();
    sample
        .headers
        .retain(|(name, _)| names.insert(name.clone()));
    sample
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn copies_are_decoded_equally_and_hold_what_the_producer_gave(
        samples in prop::collection::vec(any_sample().prop_map(with_distinct_names), 1..12),
    ) {
        let copies = (0..).zip(&samples).map(|(offset, _)| match offset % 2 {
            0 => failed_once(offset),
            _ => dead_at_once(offset),
        });
        let job = job(SOURCE, copies.collect());
        let built = build(&job, [&opened(0, APPENDED, &samples)]).unwrap();
        let ours = [RETRY, DEAD_LETTER].map(|to| copied(&built.parts, to)).concat();
        let seen: Vec<Sample> = theirs(&built.parts).iter().map(seen).collect();
        prop_assert_eq!(&seen, &ours);
        let given = |parity| samples.iter().skip(parity).step_by(2).cloned();
        let expected: Vec<Sample> = given(0).chain(given(1)).collect();
        let kept: Vec<Sample> = seen.into_iter().map(Sample::without_reserved).collect();
        prop_assert_eq!(kept, expected);
    }
}
