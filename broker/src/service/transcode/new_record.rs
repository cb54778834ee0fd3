//! One `NewRecord` on the wire.

use prost::Message;

use crate::service::wire::{Fields, Malformed};

/// A record to append, read where it lies. Of a field that comes twice the last counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewRecord<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) partition: Option<i32>,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) message_id: &'a str,
    pub(super) delay: Option<prost_types::Duration>,
    pub(super) headers: HeadersIn<'a>,
    /// At most one more than is allowed: then nothing behind that one was read.
    pub(super) header_count: usize,
    pub(super) header_bytes: usize,
}

impl<'a> NewRecord<'a> {
    /// Reads every field, headers included, but nothing behind a header more than `headers_max`.
    pub(super) fn read(wire: &'a [u8], headers_max: usize) -> Result<Self, Malformed> {
        let mut record = Self {
            key: None,
            value: None,
            partition: None,
            timestamp_ms: None,
            message_id: "",
            delay: None,
            headers: HeadersIn { wire },
            header_count: 0,
            header_bytes: 0,
        };
        let mut fields = Fields::new(wire);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => record.key = Some(field.bytes()?),
                2 => record.value = Some(field.bytes()?),
                HEADERS => {
                    let (name, value) = entry(field.bytes()?)?;
                    record.header_count += 1;
                    record.header_bytes += name.len() + value.len();
                    if record.header_count > headers_max {
                        return Ok(record);
                    }
                }
                4 => record.partition = Some(field.int32()?),
                5 => record.timestamp_ms = Some(field.int64()?),
                6 => record.delay = Some(duration(field.bytes()?)?),
                7 => record.message_id = field.text()?,
                _ => {}
            }
        }
        Ok(record)
    }

    /// What counts against the record limit.
    pub(super) fn content_bytes(&self) -> u64 {
        let bytes =
            self.key.map_or(0, <[u8]>::len) + self.value.map_or(0, <[u8]>::len) + self.header_bytes;
        bytes as u64
    }
}

const HEADERS: u32 = 3;

/// The headers of a record whose fields were all read once.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadersIn<'a> {
    wire: &'a [u8],
}

impl<'a> HeadersIn<'a> {
    /// Name and value of each, in the order of the wire.
    pub(super) fn iter(self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone {
        HeaderIter {
            fields: Fields::new(self.wire),
        }
    }
}

#[derive(Debug, Clone)]
struct HeaderIter<'a> {
    fields: Fields<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        while let Ok(Some(field)) = self.fields.next_field() {
            if field.number == HEADERS {
                let (name, value) = entry(field.bytes().ok()?).ok()?;
                return Some((name.as_bytes(), Some(value)));
            }
        }
        None
    }
}

/// An entry of a map: a part that is left out is empty.
fn entry(wire: &[u8]) -> Result<(&str, &[u8]), Malformed> {
    let (mut name, mut value) = ("", [].as_slice());
    let mut fields = Fields::new(wire);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => name = field.text()?,
            2 => value = field.bytes()?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// A `google.protobuf.Duration` as it stands on the wire.
pub(super) fn duration(wire: &[u8]) -> Result<prost_types::Duration, Malformed> {
    prost_types::Duration::decode(wire).map_err(|error| Malformed::new(error.to_string()))
}
