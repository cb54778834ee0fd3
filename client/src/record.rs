//! Records to append, and records read.

use bytes::Bytes;
use varvelog_proto::v1;

/// Bytes that a record is counted for beyond its contents, so that empty ones are bounded too.
const OVERHEAD_BYTES: usize = 96;

/// A record to append.
///
/// ```
/// use varvelog_client::Record;
///
/// let record = Record::new("paid").key("order-17").header("trace", "4bf92f35");
/// assert_eq!(record.key_bytes(), Some(&b"order-17"[..]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    pub(crate) key: Option<Bytes>,
    pub(crate) value: Option<Bytes>,
    pub(crate) headers: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) partition: Option<u32>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) message_id: Option<String>,
}

impl Record {
    /// A record with a value. Key, value and headers together: 1 MiB unless the topic takes more.
    pub fn new(value: impl Into<Bytes>) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::default()
        }
    }

    /// A record without a value: it says that what the key names is gone.
    pub fn tombstone(key: impl Into<Bytes>) -> Self {
        Self {
            key: Some(key.into()),
            ..Self::default()
        }
    }

    /// Records of one key keep their order. At most 64 KiB; empty is a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Add a header; at most 64. Names beginning with `varvelog-` are refused by the broker.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), Some(value.into())));
        self
    }

    /// Choose the partition, from 0, instead of leaving it to the key.
    #[must_use]
    pub fn partition(mut self, partition: u32) -> Self {
        self.partition = Some(partition);
        self
    }

    /// The producer's own time, Unix milliseconds, not negative and at most 1 h ahead of the
    /// broker. Without it: the time of the append.
    #[must_use]
    pub fn timestamp_ms(mut self, timestamp_ms: i64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// The record's identity, at most 128 bytes, for a producer opened with
    /// [`message_ids`](crate::ProducerConfig::message_ids): a second append of it to the topic
    /// within its message-id window appends nothing. It goes with the record through retries,
    /// dead letters and replays. Empty: as if it had none.
    #[must_use]
    pub fn message_id(mut self, id: impl Into<String>) -> Self {
        self.message_id = Some(id.into()).filter(|id| !id.is_empty());
        self
    }

    /// The key, if there is one.
    pub fn key_bytes(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    /// The value, if there is one.
    pub fn value_bytes(&self) -> Option<&[u8]> {
        self.value.as_deref()
    }

    /// What it takes of a producer's buffer: contents and a fixed share for bookkeeping.
    pub fn buffer_bytes(&self) -> usize {
        let length = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + length(value) + 16)
            .sum();
        let id = self.message_id.as_ref().map_or(0, String::len);
        length(&self.key) + length(&self.value) + headers + id + OVERHEAD_BYTES
    }
}

/// A record read from the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadRecord {
    /// In its partition; in a group that of the first append, also of a retry.
    pub offset: i64,
    /// None: no key. Empty is a key.
    pub key: Option<Bytes>,
    /// None: a tombstone, unless [`value_omitted_bytes`](Self::value_omitted_bytes) is set.
    pub value: Option<Bytes>,
    /// In no particular order; names may repeat where the producer repeated them.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// The producer's time, else that of the append. Unix milliseconds.
    pub timestamp_ms: i64,
    /// When the broker appended it. Unix milliseconds; never falls within a partition.
    pub append_time_ms: i64,
    /// In a group the number of this delivery, from 1; elsewhere 0.
    pub attempt: u32,
    /// Given by the producer or by the broker; stays through retries. Empty where the broker sent
    /// whole batches, in which no id is stored.
    pub message_id: String,
    /// Set when the value was too large for the answer: its size.
    pub value_omitted_bytes: Option<u64>,
}

impl ReadRecord {
    /// The last value of a header.
    pub fn header(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        let name = name.as_ref();
        let found = self
            .headers
            .iter()
            .rev()
            .find(|(given, _)| given.as_ref() == name);
        found.and_then(|(_, value)| value.as_deref())
    }
}

impl From<v1::Record> for ReadRecord {
    fn from(record: v1::Record) -> Self {
        let omitted = record
            .value_omitted
            .then(|| record.value_bytes.unsigned_abs());
        Self {
            offset: record.offset,
            key: record.key,
            value: record.value,
            headers: record
                .headers
                .into_iter()
                .map(|(name, value)| (Bytes::from(name), Some(value)))
                .collect(),
            timestamp_ms: record.timestamp_ms,
            append_time_ms: record.append_time_ms,
            attempt: u32::try_from(record.attempt).unwrap_or(0),
            message_id: record.message_id,
            value_omitted_bytes: omitted,
        }
    }
}

/// Where to begin reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The oldest record kept.
    Earliest,
    /// Behind the last record.
    Latest,
    /// An offset, brought between earliest and latest.
    Offset(i64),
    /// The first record appended at or after this time, Unix milliseconds.
    Timestamp(i64),
    /// So many records before the end of each partition.
    LastN(i64),
}

impl From<Position> for v1::Position {
    fn from(position: Position) -> Self {
        let at = match position {
            Position::Earliest => v1::position::At::Earliest(true),
            Position::Latest => v1::position::At::Latest(true),
            Position::Offset(offset) => v1::position::At::Offset(offset),
            Position::Timestamp(time) => v1::position::At::TimestampMs(time),
            Position::LastN(count) => v1::position::At::LastN(count),
        };
        Self { at: Some(at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_repeated_headers_is_shown() {
        let header = |value: &'static str| {
            (
                Bytes::from_static(b"h"),
                Some(Bytes::from_static(value.as_bytes())),
            )
        };
        let record = ReadRecord {
            headers: vec![header("a"), header("b")],
            ..Default::default()
        };
        assert_eq!(record.header("h"), Some(&b"b"[..]));
        assert_eq!(record.header("x"), None);
    }

    #[test]
    fn an_omitted_value_is_no_tombstone() {
        let wire = v1::Record {
            value_omitted: true,
            value_bytes: 9,
            ..Default::default()
        };
        let record = ReadRecord::from(wire);
        assert_eq!((record.value, record.value_omitted_bytes), (None, Some(9)));
    }

    #[test]
    fn empty_records_still_take_buffer() {
        assert!(Record::default().buffer_bytes() >= OVERHEAD_BYTES);
    }
}
