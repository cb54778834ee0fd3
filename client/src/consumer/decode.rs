//! Stored batches to records.

use bytes::Bytes;
use varvelog_proto::v1;
use varvelog_store::batch::{BatchError, Headers, Records};

use crate::connection::MESSAGE_BYTES_MAX;
use crate::record::ReadRecord;

/// Header names that begin so are the broker's own.
const RESERVED_PREFIX: &[u8] = b"varvelog-";

/// Which of a batch's records are wanted, and how they are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    /// Offsets that are wanted, rising; empty: all.
    pub(super) leased: &'a [v1::OffsetRange],
    /// Only offsets from here on.
    pub(super) from: i64,
    /// Only offsets below this.
    pub(super) until: i64,
    /// Number of this delivery, 0 outside of a group. In a group reserved headers are left out.
    pub(super) attempt: u32,
}

impl View<'_> {
    fn shows(&self, offset: i64) -> bool {
        if !(self.from..self.until).contains(&offset) {
            return false;
        }
        let range = self.leased.partition_point(|range| range.last < offset);
        self.leased.is_empty()
            || self
                .leased
                .get(range)
                .is_some_and(|range| range.first <= offset)
    }
}

/// Appends the wanted records of a batch. Keys, values and headers share the batch's memory.
pub(super) fn read_batch(
    batch: &v1::StoredBatch,
    view: View<'_>,
    into: &mut Vec<ReadRecord>,
) -> Result<(), BatchError> {
    let records = Records::open(&batch.batch, MESSAGE_BYTES_MAX as u64)?;
    for record in &records {
        let record = record?;
        let offset = batch
            .base_offset
            .saturating_add(i64::from(record.offset_delta));
        if !view.shows(offset) {
            continue;
        }
        let own = |part: Option<&[u8]>| part.map(|part| records.slice_of(part));
        let timestamp_ms = match record.timestamp_ms {
            -1 => batch.append_time_ms,
            given => given,
        };
        into.push(ReadRecord {
            offset,
            key: own(record.key),
            value: own(record.value),
            headers: headers(&records, record.headers, view.attempt > 0),
            timestamp_ms,
            append_time_ms: batch.append_time_ms,
            attempt: view.attempt,
            message_id: String::new(),
            value_omitted_bytes: None,
        });
    }
    Ok(())
}

fn headers(
    records: &Records,
    headers: Headers<'_>,
    as_produced: bool,
) -> Vec<(Bytes, Option<Bytes>)> {
    let shown = |name: &[u8]| !as_produced || !name.starts_with(RESERVED_PREFIX);
    headers
        .iter()
        .filter(|(name, _)| shown(name))
        .map(|(name, value)| {
            (
                records.slice_of(name),
                value.map(|value| records.slice_of(value)),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use varvelog_store::batch::{BatchBuilder, Codec};

    use super::*;

    fn stored(codec: Codec) -> v1::StoredBatch {
        let mut builder = BatchBuilder::new(codec, 100);
        for number in 0..5_i64 {
            let value = format!("v{number}");
            let headers: [(&[u8], Option<&[u8]>); 2] =
                [(b"varvelog-x", Some(b"1")), (b"h", Some(b"2"))];
            let time = (number > 0).then_some(number);
            builder
                .push(
                    time,
                    Some(b"k"),
                    Some(value.as_bytes()),
                    headers.iter().copied(),
                )
                .expect("fits");
        }
        v1::StoredBatch {
            base_offset: 10,
            append_time_ms: 77,
            record_count: 5,
            batch: builder.finish().expect("has records"),
        }
    }

    const ALL: View<'static> = View {
        leased: &[],
        from: 0,
        until: i64::MAX,
        attempt: 0,
    };

    fn offsets(batch: &v1::StoredBatch, view: View<'_>) -> Vec<i64> {
        let mut records = Vec::new();
        read_batch(batch, view, &mut records).expect("readable");
        records.iter().map(|record| record.offset).collect()
    }

    #[test]
    fn a_batch_reads_the_same_under_every_codec() {
        let read = |codec| {
            let mut records = Vec::new();
            read_batch(&stored(codec), ALL, &mut records).expect("readable");
            records
        };
        let plain = read(Codec::None);
        assert_eq!(plain.len(), 5);
        assert_eq!(plain[0].timestamp_ms, 77, "append time stands in");
        assert_eq!((plain[4].timestamp_ms, plain[4].offset), (4, 14));
        assert_eq!(plain[3].value.as_deref(), Some(&b"v3"[..]));
        for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            assert_eq!(read(codec), plain, "{codec:?}");
        }
    }

    #[test]
    fn records_outside_of_what_was_asked_for_are_passed_over() {
        let batch = stored(Codec::None);
        assert_eq!(offsets(&batch, View { from: 12, ..ALL }), [12, 13, 14]);
        assert_eq!(offsets(&batch, View { until: 12, ..ALL }), [10, 11]);
        let leased = [
            v1::OffsetRange {
                first: 10,
                last: 10,
            },
            v1::OffsetRange {
                first: 13,
                last: 99,
            },
        ];
        assert_eq!(
            offsets(
                &batch,
                View {
                    leased: &leased,
                    ..ALL
                }
            ),
            [10, 13, 14]
        );
    }

    #[test]
    fn a_group_sees_headers_as_produced() {
        let names = |attempt| {
            let mut records = Vec::new();
            let view = View { attempt, ..ALL };
            read_batch(&stored(Codec::None), view, &mut records).expect("readable");
            records[0]
                .headers
                .iter()
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["h"]);
        assert_eq!(names(0), ["varvelog-x", "h"]);
    }

    #[test]
    fn a_damaged_batch_is_an_error() {
        let mut batch = stored(Codec::None);
        let mut bytes = batch.batch.to_vec();
        *bytes.last_mut().expect("not empty") ^= 1;
        batch.batch = bytes.into();
        let error = read_batch(&batch, ALL, &mut Vec::new()).expect_err("damaged");
        assert!(matches!(error, BatchError::Checksum { .. }), "{error}");
    }
}
