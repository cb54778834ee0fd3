//! `RetryNow` and `SettleRecords`: an operator's hand on single records.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use varvelog_proto::v1;
use varvelog_store::{Offset, PartitionId, TopicId, WallMs};

use super::waiting::{Place, count_open, each_waiting, portions};
use crate::core::refusal::{GroupRefusal, Refusal};
use crate::core::request::{ChangeRequest, GroupReply, GroupRequest, OperatorAction};
use crate::names::GroupName;
use crate::service::ack::with_nearest;
use crate::service::context::Context;
use crate::service::edge::Peer;
use crate::service::status::{CallFailure, FieldViolation};
use crate::service::{checks, lookup};

/// Records that one call names, and that one command makes due.
const RECORDS_MAX: usize = 10_000;
const NOTE_BYTES_MAX: usize = 512;

/// Records by partition and offset of their first append.
type Named = BTreeMap<PartitionId, BTreeSet<Offset>>;

/// `RetryNow`.
pub(super) async fn retry_now(
    context: &Context,
    request: v1::RetryNowRequest,
) -> Result<v1::RetryNowResponse, CallFailure> {
    let group = lookup::group_name("group", &request.group)?;
    let topic = match request.topic.as_str() {
        "" => None,
        name => Some(lookup::topic(context.view(), "topic", name)?.id),
    };
    let named = named(context, &request.records, topic)?;
    let found = portions(context, (&group, topic)).await;
    let found = with_nearest(context, &group, found).await?;
    let named = (!named.is_empty()).then_some(named);
    check_topics(context, &group, named.as_ref()).await?;
    let mut matched = 0;
    let wanted = Wanted {
        group,
        named,
        now: context.wall(),
    };
    for portion in found {
        let is_named = |id: &PartitionId| match &wanted.named {
            Some(named) => named.contains_key(id),
            None => true,
        };
        for source in portion.into_iter().filter(is_named) {
            matched += make_due(context, &wanted, source, request.validate_only).await?;
        }
    }
    Ok(v1::RetryNowResponse {
        matched: i64::try_from(matched).unwrap_or(i64::MAX),
    })
}

#[derive(Debug, Clone)]
struct Wanted {
    group: GroupName,
    /// None: all that wait.
    named: Option<Named>,
    /// What is due by then does not wait.
    now: WallMs,
}

/// Makes due what waits in a partition, in as many commands as it takes; returns how many.
async fn make_due(
    context: &Context,
    wanted: &Wanted,
    source: PartitionId,
    validate_only: bool,
) -> Result<u64, CallFailure> {
    let mut matched = 0;
    let mut after: Option<Place> = None;
    loop {
        let wanted = wanted.clone();
        let group = wanted.group.clone();
        let found: Vec<Place> = context
            .core()
            .query(move |view| {
                let mut found = Vec::new();
                each_waiting(view, &wanted.group, &[source], |waiting| {
                    let named = wanted.named.as_ref().and_then(|named| named.get(&source));
                    let is_meant = waiting.due > wanted.now
                        && after.is_none_or(|after| waiting.place > after)
                        && named.is_none_or(|named| named.contains(&waiting.origin));
                    if is_meant {
                        found.push(waiting.place);
                    }
                    if found.len() == RECORDS_MAX {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                found
            })
            .await?;
        let Some(last) = found.last().copied() else {
            return Ok(matched);
        };
        matched += u64::try_from(found.len()).unwrap_or(u64::MAX);
        if !validate_only {
            let places = found.iter();
            let records = places
                .map(|place| (place.partition, place.offset))
                .collect();
            let change = ChangeRequest::MakeDue { group, records };
            context.core().change(change, false).await?;
        }
        if found.len() < RECORDS_MAX {
            return Ok(matched);
        }
        after = Some(last);
    }
}

/// `SettleRecords`.
pub(super) async fn settle_records(
    context: &Context,
    request: v1::SettleRecordsRequest,
    peer: Option<Peer>,
) -> Result<v1::SettleRecordsResponse, CallFailure> {
    let group = lookup::group_name("group", &request.group)?;
    let action = match checks::known("action", request.action)? {
        v1::OperatorAction::Unspecified => {
            return Err(FieldViolation::new("action", "must be given").into());
        }
        v1::OperatorAction::Skip => OperatorAction::Skip,
        v1::OperatorAction::DeadLetter => OperatorAction::DeadLetter,
        v1::OperatorAction::Retry => OperatorAction::Retry,
    };
    checks::text("note", &request.note, NOTE_BYTES_MAX)?;
    if request.records.is_empty() {
        return Err(FieldViolation::new("records", "at least one is needed").into());
    }
    let named = named(context, &request.records, None)?;
    check_topics(context, &group, Some(&named)).await?;
    let settled = if request.validate_only {
        open_of(context, &group, named).await?
    } else {
        let mut records = Vec::new();
        for (source, offsets) in &named {
            records.extend(offsets.iter().map(|offset| (*source, *offset)));
        }
        let note = request.note;
        tracing::info!(target: "varvelog::audit", call = "SettleRecords", %group, ?action,
            records = records.len(), first = ?records.first(), note,
            peer = %peer.map(|peer| peer.0.to_string()).unwrap_or_default(),
            "an operator settles records");
        let settle = GroupRequest::SettleRecords {
            group: group.clone(),
            records,
            action,
            note,
        };
        let reply = context.core().group(settle).await;
        let reply = with_nearest(context, &group, reply.map_err(Into::into)).await?;
        let GroupReply::Operated { settled } = reply else {
            unreachable!("an operator's settlement was answered by {reply:?}")
        };
        settled
    };
    Ok(v1::SettleRecordsResponse {
        settled: i64::try_from(settled).unwrap_or(i64::MAX),
    })
}

/// How many of the records are not done.
async fn open_of(context: &Context, group: &GroupName, named: Named) -> Result<u64, CallFailure> {
    let mut open = 0;
    for (source, wanted) in named {
        let group = group.clone();
        open += context
            .core()
            .query(move |view| count_open(view, &group, (source, &wanted)))
            .await?;
    }
    Ok(open)
}

/// Records as a request names them, each once.
fn named(
    context: &Context,
    records: &[v1::TopicPartitionOffset],
    topic: Option<TopicId>,
) -> Result<Named, CallFailure> {
    if records.len() > RECORDS_MAX {
        let what = format!("at most {RECORDS_MAX} are allowed");
        return Err(FieldViolation::bound("records", RECORDS_MAX, records.len(), what).into());
    }
    let mut named = Named::new();
    for (index, record) in records.iter().enumerate() {
        let path = |field: &str| format!("records[{index}].{field}");
        let found = lookup::own_topic(context.view(), &path("topic"), &record.topic)?;
        if topic.is_some_and(|topic| topic != found.id) {
            let what = "must be the topic of the request, if there is one";
            return Err(FieldViolation::new(path("topic"), what).into());
        }
        let partition = lookup::partition(&found, &path("partition"), record.partition)?;
        let offset = checks::offset(&path("offset"), record.offset)?;
        named.entry(partition.id).or_default().insert(offset);
    }
    Ok(named)
}

/// Every topic that is named must be one of the group's.
async fn check_topics(
    context: &Context,
    group: &GroupName,
    named: Option<&Named>,
) -> Result<(), CallFailure> {
    let ids = named.into_iter().flat_map(BTreeMap::keys);
    let topics: BTreeSet<TopicId> = ids.map(|id| id.topic).collect();
    let wanted = group.clone();
    let checked = context.core().query(move |view| -> Result<(), Refusal> {
        let found = view.state.groups.find(&wanted)?;
        match topics.iter().find(|id| !found.topics.contains_key(id)) {
            None => Ok(()),
            Some(id) => Err(GroupRefusal::TopicNotOfGroup {
                group: wanted.to_string(),
                topic: view.state.topics.find(*id)?.name.to_string(),
            }
            .into()),
        }
    });
    let checked = checked.await?.map_err(CallFailure::from);
    with_nearest(context, group, checked).await
}
