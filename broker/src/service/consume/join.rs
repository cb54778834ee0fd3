//! `ConsumeRequest`, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use varvelog_proto::v1;

use super::delivery::DeliveryRules;
use crate::core::request::{Credit, JoinRequest, StartAt};
use crate::names::TopicName;
use crate::service::context::Context;
use crate::service::edge::Peer;
use crate::service::fetch::{REPLY_RECORDS, reply_bytes};
use crate::service::positions::Position;
use crate::service::read;
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::transcode::ReplyLimit;
use crate::service::{checks, lookup};
use crate::view::TopicView;

/// Responses that may be out unsettled.
const UNACKED: (u32, u32) = (2, 1000);
/// Most topics that one call names.
const TOPICS_MAX: usize = 1000;
const MEMBER_BYTES_MAX: usize = 128;
/// Bounds of a visibility timeout.
pub(in crate::service) const ACK_TIMEOUT: (Duration, Duration) =
    (Duration::from_secs(1), Duration::from_hours(12));

/// A join, and how its member wants its records.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) request: JoinRequest,
    pub(super) rules: DeliveryRules,
}

/// Which call the member joins by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Door {
    Consume,
    Session,
}

impl Joining {
    pub(super) async fn read(
        context: &Context,
        request: v1::ConsumeRequest,
        (door, peer): (Door, Peer),
    ) -> Result<Self, CallFailure> {
        let group = lookup::group_name("group", &request.group)?;
        let topics = named_topics(context, &request.topics)?;
        checks::text("member_name", &request.member_name, MEMBER_BYTES_MAX)?;
        checks::text("member_id", &request.member_id, MEMBER_BYTES_MAX)?;
        let records = checks::count("max_records", request.max_records, REPLY_RECORDS)?;
        let mut limit = ReplyLimit::new(records, reply_bytes(context, request.max_bytes)?);
        limit.may_omit = request.accept_omitted;
        let window = checks::count(
            "max_unacked_responses",
            request.max_unacked_responses,
            UNACKED,
        )?;
        let ack_timeout_ms =
            checks::duration_ms("ack_timeout", request.ack_timeout.as_ref(), ACK_TIMEOUT)?;
        let start = Position::read("start", request.start.as_ref(), Position::Earliest)?;
        let names: Vec<TopicName> = topics.iter().map(|topic| topic.name.clone()).collect();
        let given = |text: String| (!text.is_empty()).then_some(text);
        Ok(Self {
            request: JoinRequest {
                group: group.clone(),
                topics: names,
                start: start_at(start, &topics).await?,
                member_name: given(request.member_name),
                member_id: given(request.member_id),
                address: peer.0.to_string(),
                ack_timeout_ms,
                auto_ack: request.auto_ack,
                records_max: records,
                credit: match door {
                    Door::Consume => Credit::Window(window),
                    Door::Session => Credit::Explicit,
                },
            },
            rules: DeliveryRules {
                group,
                limit,
                as_batches: request.as_batches,
                auto_ack: request.auto_ack,
            },
        })
    }
}

/// Topics that a group may read, each named once.
pub(in crate::service) fn named_topics(
    context: &Context,
    names: &[String],
) -> Result<Vec<std::sync::Arc<TopicView>>, CallFailure> {
    if names.len() > TOPICS_MAX {
        let what = format!("at most {TOPICS_MAX} are allowed");
        return Err(FieldViolation::bound("topics", TOPICS_MAX, names.len(), what).into());
    }
    let mut topics = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        let field = format!("topics[{index}]");
        let topic = lookup::own_topic(context.view(), &field, name)?;
        topics.insert(topic.name.clone(), topic);
    }
    Ok(topics.into_values().collect())
}

/// Where a group begins in topics that are new to it.
pub(in crate::service) async fn start_at(
    position: Position,
    topics: &[std::sync::Arc<TopicView>],
) -> Result<StartAt, CallFailure> {
    if position == Position::Earliest {
        return Ok(StartAt::Earliest);
    }
    let mut offsets = BTreeMap::new();
    for topic in topics {
        for partition in &topic.partitions {
            let start = partition.reader.start();
            let offset = position.resolve(partition).await;
            let offset =
                offset.map_err(|error| read::failure(&topic.name, partition, start, &error))?;
            offsets.insert(partition.id, offset);
        }
    }
    Ok(StartAt::Offsets(offsets))
}
