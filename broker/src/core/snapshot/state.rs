//! The snapshot as a whole, and the broker's own record.

use bytes::Bytes;
use varvelog_store::Sequence;

use super::dead_letters::{dead_letters, put_dead_letters};
use super::error::SnapshotError;
use super::groups::{groups, put_groups};
use super::message_ids::message_ids;
use super::producers::{producers, put_producers};
use super::replays::{audit, jobs, put_audit, put_jobs};
use super::requests::{put_requests, requests};
use super::topics::{put_topics, topics};
use crate::core::command::Stamp;
use crate::core::fields::{FieldError, FieldReader, FieldWriter};
use crate::core::message_ids::IdsSnapshot;
use crate::core::state::{BrokerRecord, State};

/// Version of the layout.
pub const SNAPSHOT_VERSION: u8 = 1;

/// The state as of one command. The bulk of it is shared with the state that it was taken of, and
/// becomes bytes only when it is written.
#[derive(Debug)]
pub struct Snapshot {
    head: Vec<u8>,
    ids: IdsSnapshot,
}

impl Snapshot {
    /// As bytes; the same for the same state.
    pub fn encode(self) -> Bytes {
        let mut out = FieldWriter::behind(self.head, self.ids.bytes());
        self.ids.put(&mut out);
        out.finish().into()
    }
}

impl State {
    /// The state as bytes; the same for the same state.
    pub fn encode(&self) -> Bytes {
        self.snapshot().encode()
    }

    /// The state as it is now, to be encoded elsewhere.
    pub fn snapshot(&self) -> Snapshot {
        let mut out = FieldWriter::default();
        out.u8(SNAPSHOT_VERSION);
        put_broker(&mut out, &self.broker);
        put_topics(&mut out, &self.topics);
        put_producers(&mut out, &self.producers);
        put_requests(&mut out, &self.requests);
        put_groups(&mut out, &self.groups);
        put_dead_letters(&mut out, &self.dead_letters);
        put_jobs(&mut out, self.dead_letters.jobs());
        put_audit(&mut out, self.dead_letters.audit());
        Snapshot {
            head: out.finish(),
            ids: self.message_ids.snapshot(),
        }
    }

    /// What [`Self::encode`] encoded.
    pub fn decode(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut fields = FieldReader::new(bytes);
        let version = fields.u8()?;
        if version != SNAPSHOT_VERSION {
            return Err(SnapshotError::Version(version));
        }
        let mut state = Self {
            broker: broker(&mut fields)?,
            topics: topics(&mut fields)?,
            producers: producers(&mut fields)?,
            requests: requests(&mut fields)?,
            groups: groups(&mut fields)?,
            dead_letters: dead_letters(&mut fields)?,
            ..Self::default()
        };
        state.dead_letters.jobs = jobs(&mut fields)?;
        state.dead_letters.audit = audit(&mut fields)?;
        state.message_ids = message_ids(&mut fields)?;
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
