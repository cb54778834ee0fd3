//! A batch without some of its records.

use bytes::Bytes;
use varvelog_store::batch::{BatchBuilder, BatchError, Codec, Records};
use varvelog_store::limits::BATCH_BYTES_MAX;

/// The records of `body` but those whose numbers `gone` lists, rising. Not all of them.
pub(super) fn without(body: &Bytes, gone: &[u32]) -> Result<Bytes, BatchError> {
    let records = Records::open(body, BATCH_BYTES_MAX.into())?;
    let mut builder = BatchBuilder::new(Codec::None, records.plain_bytes());
    let mut gone = gone.iter().copied().peekable();
    for (number, record) in (0_u32..).zip(&records) {
        let record = record?;
        if gone.next_if_eq(&number).is_none() {
            let timestamp_ms = Some(record.timestamp_ms);
            builder.push(
                timestamp_ms,
                record.key,
                record.value,
                record.headers.iter(),
            )?;
        }
    }
    builder.finish()
}
