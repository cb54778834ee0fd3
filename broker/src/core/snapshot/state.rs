//! The snapshot as a whole, and the broker's own record.

use bytes::Bytes;
use varvelog_store::Sequence;

use super::error::SnapshotError;
use super::groups::{groups, put_groups};
use super::producers::{producers, put_producers};
use super::requests::{put_requests, requests};
use super::topics::{put_topics, topics};
use crate::core::command::Stamp;
use crate::core::fields::{FieldError, FieldReader, FieldWriter};
use crate::core::state::{BrokerRecord, State};

/// Version of the layout.
pub const SNAPSHOT_VERSION: u8 = 1;

impl State {
    /// The state as bytes; the same for the same state.
    pub fn encode(&self) -> Bytes {
        let mut out = FieldWriter::default();
        out.u8(SNAPSHOT_VERSION);
        put_broker(&mut out, &self.broker);
        put_topics(&mut out, &self.topics);
        put_producers(&mut out, &self.producers);
        put_requests(&mut out, &self.requests);
        put_groups(&mut out, &self.groups);
        out.finish().into()
    }

    /// What [`Self::encode`] encoded.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut fields = FieldReader::new(bytes);
        let version = fields.u8()?;
        if version != SNAPSHOT_VERSION {
            return Err(SnapshotError::Version(version));
        }
        let state = Self {
            broker: broker(&mut fields)?,
            topics: topics(&mut fields)?,
            producers: producers(&mut fields)?,
            requests: requests(&mut fields)?,
            groups: groups(&mut fields)?,
        };
        if !fields.is_at_end() {
            return Err(SnapshotError::Trailing);
        }
        state.verify().map_err(SnapshotError::Invalid)?;
        Ok(state)
    }
}

pub(super) fn put_stamp(out: &mut FieldWriter, stamp: Stamp) {
    out.wall(stamp.wall);
    out.u64(stamp.running_ms);
}

pub(super) fn stamp(fields: &mut FieldReader<'_>) -> Result<Stamp, FieldError> {
    Ok(Stamp {
        wall: fields.wall()?,
        running_ms: fields.u64()?,
    })
}

fn put_broker(out: &mut FieldWriter, broker: &BrokerRecord) {
    let BrokerRecord {
        applied,
        stamp,
        producer_ids,
        group_ids,
        starts,
    } = broker;
    out.u64(applied.get());
    put_stamp(out, *stamp);
    out.i64(*producer_ids);
    out.u64(*group_ids);
    out.u64(*starts);
}

fn broker(fields: &mut FieldReader<'_>) -> Result<BrokerRecord, FieldError> {
    Ok(BrokerRecord {
        applied: Sequence::new(fields.u64()?),
        stamp: stamp(fields)?,
        producer_ids: fields.i64()?,
        group_ids: fields.u64()?,
        starts: fields.u64()?,
    })
}
