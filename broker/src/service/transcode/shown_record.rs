//! One record of a stored batch as its `Record` message.

use varvelog_store::Offset;
use varvelog_store::batch::{Headers, RecordRef};

use super::records_out::{RecordSource, RecordStyle};
use crate::core::reserved_headers::{ReservedHeader, is_reserved};
use crate::service::wire::{MessageWriter, bytes_field_len, int_field_len};

/// What of a record is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Show {
    pub(super) value: bool,
    pub(super) headers: bool,
}

/// A record as its message shows it.
pub(super) struct Shown<'a> {
    record: RecordRef<'a>,
    /// Of its first append, where that is how it is named.
    pub(super) offset: Offset,
    timestamp_ms: i64,
    append_time_ms: i64,
    attempt: i64,
    as_produced: bool,
    /// As given with the record; none: it is named by its place.
    message_id: Option<&'a [u8]>,
}

impl<'a> Shown<'a> {
    pub(super) fn new(
        record: &RecordRef<'a>,
        source: &RecordSource,
        offset: Offset,
        style: &RecordStyle,
    ) -> Self {
        let Reserved {
            message_id,
            origin_time_ms,
        } = Reserved::of(record.headers);
        // A copy says when the record was appended first.
        let origin_time_ms = origin_time_ms.filter(|_| style.origins.is_some());
        let append_time_ms = origin_time_ms.unwrap_or(source.append_time.0);
        Self {
            record: *record,
            offset,
            timestamp_ms: if record.timestamp_ms < 0 {
                append_time_ms
            } else {
                record.timestamp_ms
            },
            append_time_ms,
            attempt: i64::from(style.attempt),
            as_produced: style.as_produced,
            message_id,
        }
    }

    fn headers(&self, show: Show) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let hide = self.as_produced;
        let headers = if show.headers {
            self.record.headers
        } else {
            Headers::default()
        };
        headers
            .iter()
            .filter(move |(name, _)| !(hide && is_reserved(name)))
            .map(|(name, value)| (name, value.unwrap_or_default()))
    }

    pub(super) fn length(&self, show: Show, id_prefix: &str) -> usize {
        let bytes = |field, bytes: Option<&[u8]>| {
            bytes.map_or(0, |bytes| bytes_field_len(field, bytes.len()))
        };
        let headers = self
            .headers(show)
            .map(|(name, value)| bytes_field_len(4, header_len(name, value)));
        let id_bytes = self.message_id.map_or_else(
            || id_prefix.len() + decimal_len(self.offset.get()),
            <[u8]>::len,
        );
        let mut length = int_field_len(1, self.offset.as_i64())
            + bytes(2, self.record.key)
            + headers.sum::<usize>()
            + int_field_len(5, self.timestamp_ms)
            + int_field_len(6, self.append_time_ms)
            + int_field_len(7, self.attempt)
            + bytes_field_len(8, id_bytes);
        if show.value {
            length += bytes(3, self.record.value);
        } else {
            length += int_field_len(9, 1) + int_field_len(10, self.value_bytes());
        }
        length
    }

    pub(super) fn write(&self, show: Show, id_prefix: &str, writer: &mut MessageWriter<'_>) {
        writer.int(1, self.offset.as_i64());
        if let Some(key) = self.record.key {
            writer.present_bytes(2, key);
        }
        if let (true, Some(value)) = (show.value, self.record.value) {
            writer.present_bytes(3, value);
        }
        for (name, value) in self.headers(show) {
            writer.open(4, header_len(name, value));
            writer.present_bytes(1, name);
            writer.present_bytes(2, value);
        }
        writer.int(5, self.timestamp_ms);
        writer.int(6, self.append_time_ms);
        writer.int(7, self.attempt);
        if let Some(id) = self.message_id {
            writer.present_bytes(8, id);
        } else {
            let offset = self.offset.get();
            writer.open(8, id_prefix.len() + decimal_len(offset));
            writer.raw(id_prefix.as_bytes());
            write_decimal(offset, writer);
        }
        if !show.value {
            writer.int(9, 1);
            writer.int(10, self.value_bytes());
        }
    }

    fn value_bytes(&self) -> i64 {
        let bytes = self.record.value.map_or(0, <[u8]>::len);
        i64::try_from(bytes).unwrap_or(i64::MAX)
    }
}

/// What the broker's own headers say of a record.
#[derive(Default)]
struct Reserved<'a> {
    message_id: Option<&'a [u8]>,
    origin_time_ms: Option<i64>,
}

impl<'a> Reserved<'a> {
    fn of(headers: Headers<'a>) -> Self {
        let mut found = Self::default();
        for (name, value) in headers.iter().filter(|(name, _)| is_reserved(name)) {
            // Both are text: an id stands in a field that is.
            let text = value.and_then(|value| std::str::from_utf8(value).ok());
            if name == ReservedHeader::MessageId.name().as_bytes() {
                found.message_id = text.map(str::as_bytes);
            } else if name == ReservedHeader::OriginTime.name().as_bytes() {
                found.origin_time_ms = text.and_then(|text| text.parse().ok());
            }
        }
        found
    }
}

fn header_len(name: &[u8], value: &[u8]) -> usize {
    bytes_field_len(1, name.len()) + bytes_field_len(2, value.len())
}

fn decimal_len(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn write_decimal(value: u64, writer: &mut MessageWriter<'_>) {
    const DIGITS_MAX: usize = 20;
    let mut digits = [b'0'; DIGITS_MAX];
    let mut rest = value;
    for digit in digits.iter_mut().rev() {
        let [low, ..] = (rest % 10).to_le_bytes();
        *digit += low;
        rest /= 10;
    }
    writer.raw(
        digits
            .get(DIGITS_MAX - decimal_len(value)..)
            .unwrap_or_default(),
    );
}
