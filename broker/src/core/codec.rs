//! Commands as bytes; the layout is in `log-store/FORMAT.md`, "Commands".
//!
//! The head goes into the frame of the write-ahead log; record batches go beside it as bulk, one
//! for each part of an append, in order.

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;

use super::codec_settings::{
    group_settings, put_group_settings, put_topic_settings, topic_settings,
};
use super::command::{
    Append, AppendPart, Change, Command, CommitOffsets, CreateGroup, CreateTopic, GroupTopic,
    OffsetCommit, RequestId, Settle, Stamp,
};
use super::fields::{FieldError, FieldReader, FieldWriter};

/// Version of the layout.
pub const COMMAND_VERSION: u8 = 1;

/// Why bytes are no command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// Written by another release.
    #[error("command version {0} is unknown, this release knows {COMMAND_VERSION}")]
    Version(u8),
    /// There is no such kind.
    #[error("command kind {0} is unknown")]
    Kind(u8),
    /// The head ends early.
    #[error("the command ends early")]
    Truncated,
    /// Bytes follow the last field.
    #[error("bytes follow the command")]
    Trailing,
    /// A value that no encoder writes.
    #[error("a command cannot hold this: {0}")]
    Value(&'static str),
    /// Bulk that does not fit the head.
    #[error("{got} record batches came with a command that has {expected}")]
    Bulk {
        /// Parts in the head.
        expected: usize,
        /// What came.
        got: usize,
    },
}

impl From<FieldError> for CommandError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Truncated => Self::Truncated,
            FieldError::Value(what) => Self::Value(what),
        }
    }
}

const APPEND: u8 = 1;
const CREATE_TOPIC: u8 = 2;
const UPDATE_TOPIC: u8 = 3;
const ADD_PARTITIONS: u8 = 4;
const DELETE_TOPIC: u8 = 5;
const FORGET_TOPIC: u8 = 6;
const MOVE_LOG_START: u8 = 7;
const INIT_PRODUCER: u8 = 8;
const EXPIRE_PRODUCERS: u8 = 9;
const CREATE_GROUP: u8 = 10;
const ADD_GROUP_TOPICS: u8 = 11;
const UPDATE_GROUP: u8 = 12;
const DELETE_GROUP: u8 = 13;
const NEXT_GENERATION: u8 = 14;
const COMMIT_OFFSETS: u8 = 15;
const SETTLE: u8 = 16;
const RESET_OFFSETS: u8 = 17;
const BROKER_STARTED: u8 = 18;

impl Command {
    /// The head, and a record batch for each part of an append, in order.
    pub fn encode(&self) -> (Bytes, Vec<Bytes>) {
        let mut out = FieldWriter::default();
        out.u8(COMMAND_VERSION);
        out.u8(kind_of(&self.change));
        out.wall(self.stamp.wall);
        out.u64(self.stamp.running_ms);
        put_change(&mut out, &self.change);
        let mut bulk = Vec::new();
        if let Change::Append(append) = &self.change {
            bulk.extend(append.parts.iter().map(|part| part.body.clone()));
        }
        (out.finish().into(), bulk)
    }

    /// What [`Self::encode`] encoded. Bodies are taken as they are.
    pub fn decode(head: impl AsRef<[u8]>, bulk: Vec<Bytes>) -> Result<Self, CommandError> {
        let mut fields = FieldReader::new(head.as_ref());
        let version = fields.u8()?;
        if version != COMMAND_VERSION {
            return Err(CommandError::Version(version));
        }
        let kind = fields.u8()?;
        let stamp = Stamp {
            wall: fields.wall()?,
            running_ms: fields.u64()?,
        };
        let mut change = change(&mut fields, kind)?;
        if !fields.is_at_end() {
            return Err(CommandError::Trailing);
        }
        fill_bodies(&mut change, bulk)?;
        Ok(Self { stamp, change })
    }
}

fn kind_of(change: &Change) -> u8 {
    match change {
        Change::Append(_) => APPEND,
        Change::CreateTopic(_) => CREATE_TOPIC,
        Change::UpdateTopic { .. } => UPDATE_TOPIC,
        Change::AddPartitions { .. } => ADD_PARTITIONS,
        Change::DeleteTopic { .. } => DELETE_TOPIC,
        Change::ForgetTopic { .. } => FORGET_TOPIC,
        Change::MoveLogStart { .. } => MOVE_LOG_START,
        Change::InitProducer { .. } => INIT_PRODUCER,
        Change::ExpireProducers { .. } => EXPIRE_PRODUCERS,
        Change::CreateGroup(_) => CREATE_GROUP,
        Change::AddGroupTopics { .. } => ADD_GROUP_TOPICS,
        Change::UpdateGroup { .. } => UPDATE_GROUP,
        Change::DeleteGroup { .. } => DELETE_GROUP,
        Change::NextGeneration { .. } => NEXT_GENERATION,
        Change::CommitOffsets(_) => COMMIT_OFFSETS,
        Change::Settle(_) => SETTLE,
        Change::ResetOffsets { .. } => RESET_OFFSETS,
        Change::BrokerStarted { .. } => BROKER_STARTED,
    }
}

fn put_change(out: &mut FieldWriter, change: &Change) {
    match change {
        Change::Append(append) => put_append(out, append),
        Change::CreateTopic(create) => {
            out.topic(create.topic);
            out.text(create.name.as_str());
            out.u32(create.partitions);
            put_topic_settings(out, &create.settings);
        }
        Change::UpdateTopic { topic, settings } => {
            out.topic(*topic);
            put_topic_settings(out, settings);
        }
        Change::AddPartitions { topic, total } => {
            out.topic(*topic);
            out.u32(*total);
        }
        Change::DeleteTopic { topic, force } => {
            out.topic(*topic);
            out.bool(*force);
        }
        Change::ForgetTopic { topic } => out.topic(*topic),
        Change::MoveLogStart { partition, start } => {
            out.partition(*partition);
            out.offset(*start);
        }
        Change::InitProducer { name } => out.text(name),
        Change::ExpireProducers { used_since } => out.wall(*used_since),
        Change::CreateGroup(create) => {
            out.text(create.group.as_str());
            put_group_settings(out, &create.settings);
            put_group_topics(out, &create.topics);
        }
        Change::AddGroupTopics { group, topics } => {
            out.text(group.as_str());
            put_group_topics(out, topics);
        }
        Change::UpdateGroup { group, settings } => {
            out.text(group.as_str());
            put_group_settings(out, settings);
        }
        Change::DeleteGroup {
            group,
            purge_dead_letters,
        } => {
            out.text(group.as_str());
            out.bool(*purge_dead_letters);
        }
        Change::NextGeneration { group } => out.text(group.as_str()),
        Change::CommitOffsets(commit) => put_commit(out, commit),
        Change::Settle(settle) => put_settle(out, settle),
        Change::ResetOffsets { group, positions } => {
            out.text(group.as_str());
            out.count(positions.len());
            for (partition, offset) in positions {
                out.partition(*partition);
                out.offset(*offset);
            }
        }
        Change::BrokerStarted { clean } => out.bool(*clean),
    }
}

fn put_append(out: &mut FieldWriter, append: &Append) {
    out.bool(append.request.is_some());
    if let Some(request) = &append.request {
        out.topic(request.topic);
        out.text(&request.id);
        out.u64(request.content_hash);
    }
    out.count(append.parts.len());
    for part in &append.parts {
        out.partition(part.partition);
        out.u32(part.record_count);
        out.bool(part.producer.is_some());
        if let Some(producer) = part.producer {
            out.i64(producer.id);
            out.i16(producer.epoch);
            out.i32(producer.base_sequence);
        }
        out.bool(part.predicted.is_some());
        if let Some(predicted) = part.predicted {
            out.offset(predicted);
        }
    }
}

fn put_group_topics(out: &mut FieldWriter, topics: &[GroupTopic]) {
    out.count(topics.len());
    for topic in topics {
        out.topic(topic.topic);
        out.topic(topic.retry);
        out.topic(topic.dead_letter);
        out.count(topic.start.len());
        topic.start.iter().for_each(|start| out.offset(*start));
    }
}

fn put_commit(out: &mut FieldWriter, commit: &CommitOffsets) {
    out.text(commit.group.as_str());
    out.bool(commit.may_move_back);
    out.count(commit.offsets.len());
    for offset in &commit.offsets {
        out.partition(offset.partition);
        out.offset(offset.offset);
        out.text(&offset.metadata);
    }
}

fn put_settle(out: &mut FieldWriter, settle: &Settle) {
    out.text(settle.group.as_str());
    out.u64(settle.group_id);
    out.u64(settle.reset_count);
    out.partition(settle.partition);
    out.count(settle.ranges.len());
    for (first, last) in &settle.ranges {
        out.offset(*first);
        out.offset(*last);
    }
}

fn change(fields: &mut FieldReader<'_>, kind: u8) -> Result<Change, CommandError> {
    Ok(match kind {
        APPEND => Change::Append(append(fields)?),
        CREATE_TOPIC => Change::CreateTopic(CreateTopic {
            topic: fields.topic()?,
            name: fields.topic_name()?,
            partitions: partition_count(fields)?,
            settings: topic_settings(fields)?,
        }),
        UPDATE_TOPIC => Change::UpdateTopic {
            topic: fields.topic()?,
            settings: topic_settings(fields)?,
        },
        ADD_PARTITIONS => Change::AddPartitions {
            topic: fields.topic()?,
            total: partition_count(fields)?,
        },
        DELETE_TOPIC => Change::DeleteTopic {
            topic: fields.topic()?,
            force: fields.bool()?,
        },
        FORGET_TOPIC => Change::ForgetTopic {
            topic: fields.topic()?,
        },
        MOVE_LOG_START => Change::MoveLogStart {
            partition: fields.partition()?,
            start: fields.offset()?,
        },
        INIT_PRODUCER => Change::InitProducer {
            name: fields.text()?.to_owned(),
        },
        EXPIRE_PRODUCERS => Change::ExpireProducers {
            used_since: fields.wall()?,
        },
        CREATE_GROUP => Change::CreateGroup(CreateGroup {
            group: fields.group_name()?,
            settings: group_settings(fields)?,
            topics: group_topics(fields)?,
        }),
        ADD_GROUP_TOPICS => Change::AddGroupTopics {
            group: fields.group_name()?,
            topics: group_topics(fields)?,
        },
        UPDATE_GROUP => Change::UpdateGroup {
            group: fields.group_name()?,
            settings: group_settings(fields)?,
        },
        DELETE_GROUP => Change::DeleteGroup {
            group: fields.group_name()?,
            purge_dead_letters: fields.bool()?,
        },
        NEXT_GENERATION => Change::NextGeneration {
            group: fields.group_name()?,
        },
        COMMIT_OFFSETS => Change::CommitOffsets(commit(fields)?),
        SETTLE => Change::Settle(settle(fields)?),
        RESET_OFFSETS => {
            let group = fields.group_name()?;
            let positions = fields.list(28, |each| Ok((each.partition()?, each.offset()?)))?;
            Change::ResetOffsets { group, positions }
        }
        BROKER_STARTED => Change::BrokerStarted {
            clean: fields.bool()?,
        },
        other => return Err(CommandError::Kind(other)),
    })
}

fn partition_count(fields: &mut FieldReader<'_>) -> Result<u32, FieldError> {
    match fields.u32()? {
        count @ 1..=super::topic_changes::TOPIC_PARTITIONS_MAX => Ok(count),
        _ => Err(FieldError::Value("a topic has 1 to 10,000 partitions")),
    }
}

fn append(fields: &mut FieldReader<'_>) -> Result<Append, FieldError> {
    let mut request = None;
    if fields.bool()? {
        let topic = fields.topic()?;
        let id = fields.text()?.to_owned();
        request = Some(RequestId {
            topic,
            id,
            content_hash: fields.u64()?,
        });
    }
    Ok(Append {
        request,
        parts: fields.list(26, append_part)?,
    })
}

fn append_part(fields: &mut FieldReader<'_>) -> Result<AppendPart, FieldError> {
    let partition = fields.partition()?;
    let record_count = fields.u32()?;
    if record_count == 0 {
        return Err(FieldError::Value("a batch has a record"));
    }
    let mut producer = None;
    if fields.bool()? {
        let (id, epoch) = (fields.i64()?, fields.i16()?);
        producer = Some(ProducerStamp {
            id,
            epoch,
            base_sequence: fields.i32()?,
        });
    }
    let predicted = if fields.bool()? {
        Some(fields.offset()?)
    } else {
        None
    };
    Ok(AppendPart {
        partition,
        record_count,
        producer,
        predicted,
        body: Bytes::new(),
    })
}

fn fill_bodies(change: &mut Change, bulk: Vec<Bytes>) -> Result<(), CommandError> {
    let mut parts: &mut [AppendPart] = &mut [];
    if let Change::Append(append) = change {
        parts = &mut append.parts;
    }
    if parts.len() != bulk.len() {
        return Err(CommandError::Bulk {
            expected: parts.len(),
            got: bulk.len(),
        });
    }
    for (part, body) in parts.iter_mut().zip(bulk) {
        part.body = body;
    }
    Ok(())
}

fn group_topics(fields: &mut FieldReader<'_>) -> Result<Vec<GroupTopic>, FieldError> {
    fields.list(52, |each| {
        Ok(GroupTopic {
            topic: each.topic()?,
            retry: each.topic()?,
            dead_letter: each.topic()?,
            start: each.list(8, FieldReader::offset)?,
        })
    })
}

fn commit(fields: &mut FieldReader<'_>) -> Result<CommitOffsets, FieldError> {
    let group = fields.group_name()?;
    let may_move_back = fields.bool()?;
    let offsets = fields.list(32, |each| {
        Ok(OffsetCommit {
            partition: each.partition()?,
            offset: each.offset()?,
            metadata: each.text()?.to_owned(),
        })
    })?;
    Ok(CommitOffsets {
        group,
        offsets,
        may_move_back,
    })
}

fn settle(fields: &mut FieldReader<'_>) -> Result<Settle, FieldError> {
    Ok(Settle {
        group: fields.group_name()?,
        group_id: fields.u64()?,
        reset_count: fields.u64()?,
        partition: fields.partition()?,
        ranges: fields.list(16, |each| Ok((each.offset()?, each.offset()?)))?,
    })
}
