//! Judges a batch that a producer sent, in one walk.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, RecordFault, RecordRef, Records, header};

/// The limits that a broker sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchRules {
    /// Most bytes of one record: key, value, header names and header values.
    pub record_bytes_max: u32,
    /// Most bytes of a key.
    pub key_bytes_max: u32,
    /// Most headers of one record.
    pub headers_max: u32,
    /// Most records.
    pub records_max: u32,
    /// Most bytes that compressed records may expand to.
    pub decompressed_bytes_max: u64,
    /// Latest timestamp, Unix milliseconds.
    pub timestamp_ms_max: i64,
    /// Header names that begin so are the broker's own; where it is empty none are.
    pub reserved_header_prefix: &'static str,
}

/// Attribute bits that no batch of a producer may have, with the sentence that says so.
const BITS_REFUSED: [(u16, &str); 5] = [
    (1 << 3, "the log-append-time bit is not a producer's"),
    (1 << 4, "transactional batches are not taken"),
    (1 << 5, "control batches are not a producer's"),
    (1 << 6, "the delete-horizon bit is not a producer's"),
    (u16::MAX << 7, "unused bits must be 0"),
];

/// Checks that `body` is exactly one batch, sealed by its checksum, and that its header and every
/// record keep the format and the `rules`. Nothing of it is changed.
pub fn validate(body: &Bytes, rules: &BatchRules) -> Result<BatchHeader, BatchError> {
    validate_sized(body, rules).map(|(header, _)| header)
}

/// [`validate`], and how many bytes the records have when they are decompressed.
pub fn validate_sized(
    body: &Bytes,
    rules: &BatchRules,
) -> Result<(BatchHeader, usize), BatchError> {
    let header = header::verify_crc(body)?;
    check_header(&header, rules)?;
    let records = Records::open_verified(header, body, rules.decompressed_bytes_max)?;
    for (place, record) in (0..).zip(&records) {
        check_record(place, &record?, rules)?;
    }
    Ok((header, records.plain_bytes()))
}

fn check_header(header: &BatchHeader, rules: &BatchRules) -> Result<(), BatchError> {
    let refused = |field, value, rule| Err(BatchError::Header { field, value, rule });
    let bits = BITS_REFUSED
        .iter()
        .find(|(bits, _)| header.attributes & bits != 0);
    if let Some((_, rule)) = bits {
        return refused("attributes", header.attributes.into(), rule);
    }
    let count = header.record_count;
    check_limit(None, "record count", count.into(), rules.records_max)?;
    if header.last_offset_delta != count - 1 {
        let rule = "must be the record count less one";
        return refused("last offset delta", header.last_offset_delta.into(), rule);
    }
    let timestamps = [
        ("base timestamp", header.base_timestamp_ms),
        ("max timestamp", header.max_timestamp_ms),
    ];
    for (field, timestamp_ms) in timestamps {
        if timestamp_ms < -1 {
            return refused(field, timestamp_ms, "must be -1 (none) or more");
        }
        if timestamp_ms > rules.timestamp_ms_max {
            return refused(field, timestamp_ms, "lies too far ahead of now");
        }
    }
    Ok(())
}

fn check_record(place: u32, record: &RecordRef<'_>, rules: &BatchRules) -> Result<(), BatchError> {
    let fault = |fault| {
        Err(BatchError::Record {
            record: place,
            fault,
        })
    };
    if record.offset_delta != place {
        let (field, rule) = ("offset delta", "must be its place in the batch");
        return fault(RecordFault::Field {
            field,
            value: record.offset_delta.into(),
            rule,
        });
    }
    if record.timestamp_ms > rules.timestamp_ms_max {
        let (field, rule) = ("timestamp", "lies too far ahead of now");
        return fault(RecordFault::Field {
            field,
            value: record.timestamp_ms,
            rule,
        });
    }
    let bytes = |of: Option<&[u8]>| u64::try_from(of.map_or(0, <[u8]>::len)).unwrap_or(u64::MAX);
    let mut record_bytes = bytes(record.key).saturating_add(bytes(record.value));
    check_limit(
        Some(place),
        "key size in bytes",
        bytes(record.key),
        rules.key_bytes_max,
    )?;
    if !record.headers.is_empty() {
        let headers = u64::try_from(record.headers.len()).unwrap_or(u64::MAX);
        check_limit(Some(place), "header count", headers, rules.headers_max)?;
        for (header, (name, value)) in record.headers.iter().enumerate() {
            if std::str::from_utf8(name).is_err() {
                return fault(RecordFault::HeaderName { header });
            }
            check_reserved(place, name, rules.reserved_header_prefix)?;
            record_bytes += bytes(Some(name)) + bytes(value);
        }
    }
    check_limit(
        Some(place),
        "record size in bytes",
        record_bytes,
        rules.record_bytes_max,
    )
}

fn check_reserved(record: u32, name: &[u8], prefix: &str) -> Result<(), BatchError> {
    if prefix.is_empty() || !name.starts_with(prefix.as_bytes()) {
        return Ok(());
    }
    let name = String::from_utf8_lossy(name).chars().take(64).collect();
    Err(BatchError::ReservedHeader { record, name })
}

#[inline]
fn check_limit(
    record: Option<u32>,
    what: &'static str,
    value: u64,
    max: u32,
) -> Result<(), BatchError> {
    let max = u64::from(max);
    if value <= max {
        Ok(())
    } else {
        Err(BatchError::Limit {
            record,
            what,
            value,
            max,
        })
    }
}
