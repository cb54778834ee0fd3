//! One record and its headers, read where they lie.

use crate::batch::{RecordFault, varint};

/// How a failure to take a record is told. The quick way, that all good records go, does not say
/// why it failed, so that nothing but the record travels through it; then the same code runs once
/// more and names the fault.
pub(super) trait Blame: Sized {
    /// Tells this fault.
    fn of(fault: impl FnOnce() -> RecordFault) -> Self;
}

impl Blame for RecordFault {
    #[cold]
    fn of(fault: impl FnOnce() -> RecordFault) -> Self {
        fault()
    }
}

/// Something is wrong, no matter what.
struct Unnamed;

impl Blame for Unnamed {
    #[inline]
    fn of(_: impl FnOnce() -> RecordFault) -> Self {
        Self
    }
}

/// One record of a batch. All it refers to lies in the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Its offset, counted from the batch's first record.
    pub offset_delta: u32,
    /// Unix milliseconds; -1 where none is given, and then the append time stands for it.
    pub timestamp_ms: i64,
    /// `None` is no key, which is not an empty one.
    pub key: Option<&'a [u8]>,
    /// `None` is no value, which is not an empty one.
    pub value: Option<&'a [u8]>,
    /// In the order in which they were given.
    pub headers: Headers<'a>,
}

impl<'a> RecordRef<'a> {
    /// What counts against a record's limit: key, value, header names and header values.
    pub fn content_bytes(&self) -> u64 {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| bytes_of(Some(name), value));
        bytes_of(self.key, self.value) + headers.sum::<u64>()
    }

    /// Takes the record at the front of `from`, all of whose fields are checked but the offset
    /// delta's place in the batch. On a fault `from` stays as it is.
    #[inline]
    pub(super) fn take(from: &mut &'a [u8], base_timestamp_ms: i64) -> Result<Self, RecordFault> {
        let mut rest = *from;
        let record = if let Ok(record) = Self::parse::<Unnamed>(&mut rest, base_timestamp_ms) {
            record
        } else {
            rest = *from;
            Self::parse::<RecordFault>(&mut rest, base_timestamp_ms)?
        };
        *from = rest;
        Ok(record)
    }

    #[inline]
    fn parse<E: Blame>(from: &mut &'a [u8], base_timestamp_ms: i64) -> Result<Self, E> {
        let wrong = |field, value, rule| E::of(|| RecordFault::Field { field, value, rule });
        let mut fields = take_bytes(from, "length")?
            .ok_or_else(|| wrong("length", -1, "must not be negative"))?;
        let fields = &mut fields;
        let (&attributes, rest) = fields.split_first().ok_or_else(|| {
            E::of(|| RecordFault::Cut {
                field: "attributes",
            })
        })?;
        *fields = rest;
        if attributes != 0 {
            let rule = "must be 0, since no bit has a meaning";
            return Err(wrong("attributes", attributes.into(), rule));
        }
        let timestamp_delta = varint::take64(fields, "timestamp delta")?;
        let timestamp_ms = base_timestamp_ms
            .checked_add(timestamp_delta)
            .filter(|timestamp_ms| *timestamp_ms >= -1)
            .ok_or_else(|| {
                let rule = "must lead to a timestamp of -1 (none) or more";
                wrong("timestamp delta", timestamp_delta, rule)
            })?;
        let stated = varint::take32(fields, "offset delta")?;
        let Ok(offset_delta) = u32::try_from(stated) else {
            return Err(wrong("offset delta", stated.into(), "must not be negative"));
        };
        let key = take_bytes(fields, "key")?;
        let value = take_bytes(fields, "value")?;
        let headers = Headers::take(fields)?;
        if fields.is_empty() {
            Ok(Self {
                offset_delta,
                timestamp_ms,
                key,
                value,
                headers,
            })
        } else {
            Err(E::of(|| RecordFault::Trailing {
                bytes: fields.len(),
            }))
        }
    }
}

/// The headers of one record: names in the order given, some perhaps twice, some perhaps empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: usize,
    /// `count` names and values, walked once when they were taken.
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Name and value of each; a value may be none.
    pub const fn iter(&self) -> HeaderIter<'a> {
        HeaderIter {
            left: self.count,
            rest: self.bytes,
        }
    }

    /// Takes the count at the front of `from` and the headers behind it.
    #[inline]
    fn take<E: Blame>(from: &mut &'a [u8]) -> Result<Self, E> {
        let stated = varint::take32(from, "header count")?;
        if stated == 0 {
            return Ok(Self::default());
        }
        // Two bytes is the least that a header takes.
        let room = from.len() / 2;
        let count = usize::try_from(stated).ok().filter(|count| *count <= room);
        let count = count.ok_or_else(|| {
            let rule = "must not be negative, nor more than the record has room for";
            let (field, value) = ("header count", stated.into());
            E::of(|| RecordFault::Field { field, value, rule })
        })?;
        let bytes = *from;
        for _ in 0..count {
            take_header(from)?;
        }
        let walked = bytes.len() - from.len();
        Ok(Self {
            count,
            bytes: bytes.get(..walked).unwrap_or_default(),
        })
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a> IntoIterator for &Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Gives name and value of each header.
#[derive(Debug, Clone)]
pub struct HeaderIter<'a> {
    left: usize,
    rest: &'a [u8],
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        take_header::<Unnamed>(&mut self.rest).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for HeaderIter<'_> {}

type Header<'a> = (&'a [u8], Option<&'a [u8]>);

#[inline]
fn take_header<'a, E: Blame>(from: &mut &'a [u8]) -> Result<Header<'a>, E> {
    let name = take_bytes(from, "header name")?.ok_or_else(|| {
        let (field, rule) = ("header name", "its length must not be negative");
        E::of(|| RecordFault::Field {
            field,
            value: -1,
            rule,
        })
    })?;
    let value = take_bytes(from, "header value")?;
    Ok((name, value))
}

/// Takes a length and so many bytes; none where the length is -1.
#[inline]
fn take_bytes<'a, E: Blame>(
    from: &mut &'a [u8],
    field: &'static str,
) -> Result<Option<&'a [u8]>, E> {
    let length = varint::take32(from, field)?;
    match usize::try_from(length) {
        Ok(length) => {
            let cut = || E::of(|| RecordFault::Cut { field });
            let (taken, rest) = from.split_at_checked(length).ok_or_else(cut)?;
            *from = rest;
            Ok(Some(taken))
        }
        Err(_) if length == -1 => Ok(None),
        Err(_) => {
            let (value, rule) = (length.into(), "its length must be -1 (none) or more");
            Err(E::of(|| RecordFault::Field { field, value, rule }))
        }
    }
}

fn bytes_of(one: Option<&[u8]>, other: Option<&[u8]>) -> u64 {
    let bytes = one.map_or(0, <[u8]>::len) + other.map_or(0, <[u8]>::len);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
