//! Commands as bytes; the layout is in `log-store/FORMAT.md`, "Commands".
//!
//! The head goes into the frame of the write-ahead log; record batches go beside it as bulk, one
//! for each part of an append, in order.

use bytes::Bytes;
use varvelog_store::batch::ProducerStamp;

use super::codec_delivery::{
    hand_back, hand_out, make_due, put_hand_back, put_hand_out, put_make_due, put_settle, settle,
};
use super::codec_ids::{part_ids, put_part_ids};
use super::codec_replay::{
    CONTROL_REPLAY, DISCARD, REPLAY, START_REPLAY, put_control, put_discard, put_start, put_step,
    replay_change,
};
use super::codec_settings::{
    group_settings, group_topics, put_group_settings, put_group_topics, put_topic_settings,
    topic_settings,
};
use super::command::{
    Append, AppendPart, Change, Command, CommitOffsets, CreateGroup, CreateTopic, OffsetCommit,
    RequestId, Stamp,
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
const HAND_OUT: u8 = 19;
const HAND_BACK: u8 = 20;
const MAKE_DUE: u8 = 21;

impl Command {
    /// The head, and a record batch for each part of an append that has one, in order.
    pub fn encode(&self) -> (Bytes, Vec<Bytes>) {
        let mut out = FieldWriter::default();
        out.u8(COMMAND_VERSION);
        out.u8(kind_of(&self.change));
        out.wall(self.stamp.wall);
        out.u64(self.stamp.running_ms);
        put_change(&mut out, &self.change);
        let mut bulk = Vec::new();
        if let Some(append) = self.change.append() {
            let parts = append.parts.iter().filter(|part| part.record_count > 0);
            bulk.extend(parts.map(|part| part.body.clone()));
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
        Change::HandOut(_) => HAND_OUT,
        Change::HandBack(_) => HAND_BACK,
        Change::MakeDue(_) => MAKE_DUE,
        Change::StartReplay(_) => START_REPLAY,
        Change::Replay(_) => REPLAY,
        Change::ControlReplay { .. } => CONTROL_REPLAY,
        Change::Discard(_) => DISCARD,
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
        Change::HandOut(hand_out) => put_hand_out(out, hand_out),
        Change::HandBack(back) => put_hand_back(out, back),
        Change::MakeDue(due) => put_make_due(out, due),
        Change::StartReplay(start) => put_start(out, start),
        Change::Replay(step) => put_step(out, step),
        Change::ControlReplay { job, control } => put_control(out, *job, *control),
        Change::Discard(discard) => put_discard(out, discard),
    }
}

pub(super) fn put_append(out: &mut FieldWriter, append: &Append) {
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
        out.count(part.delays.len());
        for (delta, until) in &part.delays {
            out.u32(*delta);
            out.wall(*until);
        }
        put_part_ids(out, &part.ids);
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
        RESET_OFFSETS => Change::ResetOffsets {
            group: fields.group_name()?,
            positions: fields.list(28, |each| Ok((each.partition()?, each.offset()?)))?,
        },
        BROKER_STARTED => Change::BrokerStarted {
            clean: fields.bool()?,
        },
        HAND_OUT => Change::HandOut(hand_out(fields)?),
        HAND_BACK => Change::HandBack(hand_back(fields)?),
        MAKE_DUE => Change::MakeDue(make_due(fields)?),
        other => replay_change(fields, other)?.ok_or(CommandError::Kind(other))?,
    })
}

fn partition_count(fields: &mut FieldReader<'_>) -> Result<u32, FieldError> {
    match fields.u32()? {
        count @ 1..=super::topic_changes::TOPIC_PARTITIONS_MAX => Ok(count),
        _ => Err(FieldError::Value("a topic has 1 to 10,000 partitions")),
    }
}

pub(super) fn append(fields: &mut FieldReader<'_>) -> Result<Append, FieldError> {
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
        parts: fields.list(38, append_part)?,
    })
}

fn append_part(fields: &mut FieldReader<'_>) -> Result<AppendPart, FieldError> {
    let partition = fields.partition()?;
    let record_count = fields.u32()?;
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
    let delays = fields.list(12, |each| Ok((each.u32()?, each.wall()?)))?;
    let within = delays.last().is_none_or(|last| last.0 < record_count);
    if !within || !delays.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(FieldError::Value("delays are not of rising records"));
    }
    let ids = part_ids(fields, record_count)?;
    if record_count == 0 && (ids.repeated.is_empty() || predicted.is_some()) {
        return Err(FieldError::Value("a batch has a record"));
    }
    Ok(AppendPart {
        partition,
        record_count,
        producer,
        predicted,
        delays,
        ids,
        body: Bytes::new(),
    })
}

fn fill_bodies(change: &mut Change, bulk: Vec<Bytes>) -> Result<(), CommandError> {
    let append = change.append_mut();
    let parts: &mut [AppendPart] = append.map_or(&mut [], |append| &mut append.parts);
    let filled = parts.iter_mut().filter(|part| part.record_count > 0);
    let parts: Vec<&mut AppendPart> = filled.collect();
    if parts.len() != bulk.len() {
        return Err(CommandError::Bulk {
            expected: parts.len(),
            got: bulk.len(),
        });
    }
    for (part, body) in parts.into_iter().zip(bulk) {
        part.body = body;
    }
    Ok(())
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
