//! `Ack`.

use std::sync::Arc;

use bytes::Bytes;
use varvelog_proto::v1;
use varvelog_store::Offset;

use super::context::Context;
use super::produce::{AHEAD_MS_MAX, ASIDE_BYTES};
use super::results::{self, Places};
use super::status::{CallFailure, FieldViolation};
use super::transcode::{AckIn, OutputIn, RecordTarget, RecordsIn, outputs_hash};
use super::{lookup, wire};
use crate::core::refusal::CallError;
use crate::core::request::{
    AppendRequestPart, Conflict, GroupReply, GroupRequest, Outputs, SettleRequest, Settled,
};
use crate::view::TopicView;

/// A settlement, and for each record of its outputs the part and the place in it.
struct Prepared {
    settle: SettleRequest,
    places: Places,
    /// Records and bytes of the outputs, by topic.
    sizes: Sizes,
}

/// Records and bytes by topic.
type Sizes = Vec<(Arc<TopicView>, u64, usize)>;

/// `Ack`.
pub(super) async fn ack(
    context: &Arc<Context>,
    request: wire::AckRequest,
) -> Result<v1::AckResponse, CallFailure> {
    let began = context.meters().start();
    let Prepared {
        settle,
        places,
        sizes,
    } = prepare_aside(context, request.0).await?;
    let reply = context.core().group(GroupRequest::Settle(settle)).await?;
    let GroupReply::Settled(settled) = reply else {
        unreachable!("a settlement was answered by {reply:?}")
    };
    let appended = settled.outputs.as_ref();
    if appended.is_some_and(|appended| !appended.duplicate) {
        for (topic, records, bytes) in &sizes {
            context.came_in(topic, *records, *bytes);
        }
    }
    context.meters().took(&context.meters().ack, began);
    Ok(response(&settled, &places))
}

/// What is long is walked off the edge's own thread.
async fn prepare_aside(context: &Arc<Context>, wire: Bytes) -> Result<Prepared, CallFailure> {
    if wire.len() < ASIDE_BYTES {
        return prepare(context, &wire);
    }
    let context = Arc::clone(context);
    let prepared = tokio::task::spawn_blocking(move || prepare(&context, &wire)).await;
    // Only a runtime that goes down gives no result.
    prepared.unwrap_or(Err(CallError::Draining.into()))
}

fn prepare(context: &Context, wire: &[u8]) -> Result<Prepared, CallFailure> {
    let ack = AckIn::read(wire)?;
    let mut places = Places::default();
    let mut sizes = Vec::with_capacity(ack.outputs.len());
    let outputs = outputs(context, &ack, (&mut places, &mut sizes))?;
    let settle = SettleRequest {
        token: ack.token,
        up_to: ack.up_to,
        failures: ack.failures,
        outputs,
    };
    Ok(Prepared {
        settle,
        places,
        sizes,
    })
}

fn outputs(
    context: &Context,
    ack: &AckIn<'_>,
    (places, sizes): (&mut Places, &mut Sizes),
) -> Result<Option<Outputs>, CallFailure> {
    if ack.outputs.is_empty() {
        return Ok(None);
    }
    let mut parts: Vec<AppendRequestPart> = Vec::new();
    let mut contents = Vec::with_capacity(ack.outputs.len());
    for (index, output) in ack.outputs.iter().enumerate() {
        let topic = output_topic(context, index, output)?;
        // Records without a key go the same way again when the call is repeated.
        let (low, high) = (ack.hash & u64::from(u32::MAX), ack.hash >> 32);
        let sticky = u32::try_from(low ^ high).unwrap_or_default();
        let made = records_of(context, output, &topic, (index, sticky))?;
        places.add(&made, parts.len());
        let made_parts = made.parts.into_iter();
        parts.extend(made_parts.map(|part| part.to_append(topic.id)));
        let partitions = lookup::partition_count(&topic);
        contents.push((output.topic, partitions, made.content_hash));
        sizes.push((topic, u64::from(output.records), output.wire.len()));
    }
    Ok(Some(Outputs {
        parts,
        content_hash: outputs_hash(ack.hash, contents.into_iter()),
    }))
}

/// A topic that records may be appended to in a settlement.
fn output_topic(
    context: &Context,
    index: usize,
    output: &OutputIn<'_>,
) -> Result<Arc<TopicView>, CallFailure> {
    let field = format!("outputs[{index}].topic");
    let topic = lookup::topic(context.view(), &field, output.topic)?;
    if topic.derived.is_some() {
        let what = format!("{} is a retry or dead-letter topic", topic.name);
        return Err(FieldViolation::new(field, what).into());
    }
    Ok(topic)
}

fn records_of(
    context: &Context,
    output: &OutputIn<'_>,
    topic: &TopicView,
    (index, sticky): (usize, u32),
) -> Result<RecordsIn, CallFailure> {
    let now_ms = context.wall().0;
    let target = RecordTarget {
        topic: topic.name.as_str(),
        partitions: lookup::partition_count(topic),
        sticky,
        record_bytes_max: topic.settings.record_bytes_max,
        now_ms,
        timestamp_ms_max: now_ms.saturating_add(AHEAD_MS_MAX),
        is_hashed: true,
        has_id_window: topic.settings.message_id_window_ms > 0,
        path: &format!("outputs[{index}]."),
    };
    RecordsIn::read(output.wire, output.records, &target)
}

fn response(settled: &Settled, places: &Places) -> v1::AckResponse {
    let count = |records: u32| i32::try_from(records).unwrap_or(i32::MAX);
    let conflict = |(offset, why): &(Offset, Conflict)| v1::SettlementConflict {
        offset: offset.as_i64(),
        reason: match why {
            Conflict::LeaseLost => v1::ConflictReason::LeaseLost.into(),
            Conflict::SettledOtherwise => v1::ConflictReason::SettledOtherwise.into(),
            Conflict::Unknown => v1::ConflictReason::Unknown.into(),
        },
    };
    let outputs = settled.outputs.as_ref();
    v1::AckResponse {
        done: count(settled.done),
        retried: count(settled.retried),
        dead_lettered: count(settled.dead_lettered),
        released: count(settled.released),
        already_settled: count(settled.already_settled),
        outputs: outputs.map_or_else(Vec::new, |appended| results::of_records(places, appended)),
        conflicts: settled.conflicts.iter().map(conflict).collect(),
        dead_letters_waiting: count(settled.dead_letters_waiting),
    }
}
