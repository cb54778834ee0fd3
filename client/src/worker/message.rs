//! A record as a handler gets it.

use std::sync::Arc;

use bytes::Bytes;

use crate::record::ReadRecord;

/// One record of a group, for a handler. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub(super) topic: Arc<str>,
    pub(super) partition: u32,
    pub(super) fence: i64,
    pub(super) record: ReadRecord,
}

impl Message {
    /// One that did not come from a broker, to try a handler with.
    pub fn new(topic: impl Into<Arc<str>>, partition: u32, fence: i64, record: ReadRecord) -> Self {
        Self {
            topic: topic.into(),
            partition,
            fence,
            record,
        }
    }

    /// Where it was produced, also when it comes again.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// From 0; of the first append.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Of the first append.
    pub fn offset(&self) -> i64 {
        self.record.offset
    }

    /// The key, if there is one. Empty is a key.
    pub fn key(&self) -> Option<&[u8]> {
        self.record.key.as_deref()
    }

    /// The value. None: a tombstone, unless the record says that it was
    /// [left out](ReadRecord::value_omitted_bytes).
    pub fn value(&self) -> Option<&[u8]> {
        self.record.value.as_deref()
    }

    /// As they were produced, in no particular order.
    pub fn headers(&self) -> &[(Bytes, Option<Bytes>)] {
        &self.record.headers
    }

    /// The last value of a header.
    pub fn header(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.record.header(name)
    }

    /// Number of this delivery, from 1: failures so far, and one. Begins again after a replay.
    pub fn attempt(&self) -> u32 {
        self.record.attempt
    }

    /// Stays through retries, dead letters and replays: what a handler remembers to do nothing
    /// twice.
    pub fn message_id(&self) -> &str {
        &self.record.message_id
    }

    /// Rises each time the record is given out, so that a store can refuse a late writer by it.
    pub fn fence(&self) -> i64 {
        self.fence
    }

    /// Everything about it.
    pub fn record(&self) -> &ReadRecord {
        &self.record
    }

    /// Everything about it.
    pub fn into_record(self) -> ReadRecord {
        self.record
    }
}
