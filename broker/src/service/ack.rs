//! `ExtendAck`, `Leave`, `CommitOffsets`, `GetOffsets`.

use std::collections::BTreeSet;

use varvelog_proto::v1;
use varvelog_store::TopicId;

use super::consume::ACK_TIMEOUT;
use super::context::Context;
use super::status::{CallFailure, FieldViolation};
use super::{checks, lookup, token};
use crate::core::handle::CoreView;
use crate::core::refusal::{CallError, GroupRefusal, Refusal, TopicRefusal};
use crate::core::request::{ChangeRequest, CommitRequest, GroupReply, GroupRequest};
use crate::names::{GroupName, TopicName};

/// Positions of one commit.
const COMMITS_MAX: usize = 10_000;
const METADATA_BYTES_MAX: usize = 4096;
const MEMBER_ID_BYTES_MAX: usize = 128;

/// `ExtendAck`.
pub(super) async fn extend(
    context: &Context,
    request: &v1::ExtendAckRequest,
) -> Result<v1::ExtendAckResponse, CallFailure> {
    let token = token::decode(&request.ack_token)?;
    let topic = token.partition.topic;
    let ack_timeout_ms =
        checks::duration_ms("ack_timeout", request.ack_timeout.as_ref(), ACK_TIMEOUT)?;
    let extend = GroupRequest::Extend {
        token,
        ack_timeout_ms,
    };
    let extended = context.core().group(extend).await;
    let reply = extended.map_err(|error| named(context, topic, error))?;
    let GroupReply::Extended { deadline, capped } = reply else {
        unreachable!("an extension was answered by {reply:?}")
    };
    Ok(v1::ExtendAckResponse {
        ack_deadline_ms: deadline.0,
        capped,
    })
}

/// Tells of a topic that is gone by its name: a token has only its id.
fn named(context: &Context, topic: TopicId, error: CallError) -> CallError {
    match (&error, context.view().name_of(topic)) {
        (CallError::Refused(Refusal::Topic(TopicRefusal::NotFound { .. })), Some(name)) => {
            let topic = name.to_string();
            CallError::Refused(TopicRefusal::NotFound { topic }.into())
        }
        _ => error,
    }
}

/// `Leave`.
pub(super) async fn leave(
    context: &Context,
    request: v1::LeaveRequest,
) -> Result<v1::LeaveResponse, CallFailure> {
    let group = lookup::group_name("group", &request.group)?;
    checks::text("member_id", &request.member_id, MEMBER_ID_BYTES_MAX)?;
    let member_id = request.member_id;
    let leave = GroupRequest::Leave {
        group: group.clone(),
        member_id,
    };
    let left = context.core().group(leave).await.map_err(CallFailure::from);
    with_nearest(context, &group, left).await?;
    Ok(v1::LeaveResponse {})
}

/// `CommitOffsets`.
pub(super) async fn commit(
    context: &Context,
    request: v1::CommitOffsetsRequest,
) -> Result<v1::CommitOffsetsResponse, CallFailure> {
    let group = lookup::group_name("group", &request.group)?;
    let offsets = commits(context, request.offsets)?;
    checks::text("member_id", &request.member_id, MEMBER_ID_BYTES_MAX)?;
    let generation = checks::not_negative("generation", request.generation)?;
    let member = match (request.member_id.is_empty(), generation) {
        (true, 0) => None,
        (false, 1..) => Some((request.member_id, generation)),
        (true, _) => {
            return Err(FieldViolation::new("member_id", "must be set with generation").into());
        }
        (false, _) => {
            return Err(FieldViolation::new("generation", "must be set with member_id").into());
        }
    };
    let change = ChangeRequest::CommitOffsets {
        group,
        offsets,
        member,
    };
    context.core().change(change, false).await?;
    Ok(v1::CommitOffsetsResponse {})
}

fn commits(
    context: &Context,
    offsets: Vec<v1::OffsetCommit>,
) -> Result<Vec<CommitRequest>, CallFailure> {
    if offsets.is_empty() {
        return Err(FieldViolation::new("offsets", "at least one is needed").into());
    }
    if offsets.len() > COMMITS_MAX {
        let what = format!("at most {COMMITS_MAX} are allowed");
        return Err(FieldViolation::bound("offsets", COMMITS_MAX, offsets.len(), what).into());
    }
    let mut named = BTreeSet::new();
    let mut commits = Vec::with_capacity(offsets.len());
    for (index, commit) in offsets.into_iter().enumerate() {
        let path = |field: &str| format!("offsets[{index}].{field}");
        let topic = lookup::own_topic(context.view(), &path("topic"), &commit.topic)?;
        let partition = lookup::partition(&topic, &path("partition"), commit.partition)?.id;
        if !named.insert(partition) {
            return Err(FieldViolation::new(path("partition"), "is named twice").into());
        }
        checks::text(&path("metadata"), &commit.metadata, METADATA_BYTES_MAX)?;
        commits.push(CommitRequest {
            topic: topic.name.clone(),
            partition: partition.partition,
            offset: checks::offset(&path("offset"), commit.offset)?,
            metadata: commit.metadata,
        });
    }
    Ok(commits)
}

/// `GetOffsets`.
pub(super) async fn get_offsets(
    context: &Context,
    request: v1::GetOffsetsRequest,
) -> Result<v1::GetOffsetsResponse, CallFailure> {
    let group = lookup::group_name("group", &request.group)?;
    let topic = match request.topic.as_str() {
        "" => None,
        name => Some(lookup::topic(context.view(), "topic", name)?.name.clone()),
    };
    let wanted = group.clone();
    let found = context
        .core()
        .query(move |view| positions(view, &wanted, topic.as_ref()))
        .await?
        .map_err(CallFailure::from);
    let offsets = with_nearest(context, &group, found).await?;
    Ok(v1::GetOffsetsResponse { offsets })
}

fn positions(
    view: &CoreView<'_>,
    group: &GroupName,
    topic: Option<&TopicName>,
) -> Result<Vec<v1::OffsetCommit>, Refusal> {
    let found = view.state.groups.find(group)?;
    let mut offsets = Vec::new();
    let mut is_found = topic.is_none();
    for (read, progress) in found.topics_by_name(&view.state.topics) {
        if topic.is_some_and(|topic| *topic != read.name) {
            continue;
        }
        is_found = true;
        offsets.extend(
            (0..)
                .zip(&progress.partitions)
                .map(|(partition, progress)| v1::OffsetCommit {
                    topic: read.name.to_string(),
                    partition,
                    offset: progress.low().as_i64(),
                    metadata: progress.metadata().to_owned(),
                }),
        );
    }
    match topic {
        Some(topic) if !is_found => {
            let (group, topic) = (group.to_string(), topic.to_string());
            Err(GroupRefusal::TopicNotOfGroup { group, topic }.into())
        }
        Some(_) | None => Ok(offsets),
    }
}

/// Adds the nearest name to the refusal of a group that is not there.
pub(super) async fn with_nearest<T>(
    context: &Context,
    group: &GroupName,
    result: Result<T, CallFailure>,
) -> Result<T, CallFailure> {
    let is_missing = matches!(
        &result,
        Err(CallFailure::Core(CallError::Refused(Refusal::Group(
            GroupRefusal::NotFound { .. }
        ))))
    );
    if !is_missing {
        return result;
    }
    let wanted = group.clone();
    let refusal = context.core().query(move |view| {
        let names = view.state.groups.iter().map(|group| group.name.as_str());
        lookup::missing_group(&wanted, names)
    });
    Err(refusal.await?.into())
}
