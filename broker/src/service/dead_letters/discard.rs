//! `DiscardDeadLetters`.

use varvelog_proto::v1;

use super::filter::Filter;
use super::plans::{Plan, Purpose};
use super::queues::{self, count};
use super::select::{Rules, select};
use crate::core::replay_command::{Discard, NOTE_BYTES_MAX};
use crate::core::request::{ChangeDone, ChangeRequest};
use crate::service::checks;
use crate::service::context::Context;
use crate::service::status::{CallFailure, EdgeRefusal};
use crate::view::TopicView;

/// `DiscardDeadLetters`.
pub(super) async fn discard(
    context: &Context,
    request: v1::DiscardDeadLettersRequest,
) -> Result<v1::DiscardDeadLettersResponse, CallFailure> {
    let topic = queues::find(context, &request.queue)?;
    checks::text("note", &request.note, NOTE_BYTES_MAX)?;
    let filter = Filter::read(request.filter.as_ref())?;
    if request.validate_only {
        return plan(context, &topic, &filter).await;
    }
    if request.plan_id.is_empty() {
        return Err(EdgeRefusal::PlanRequired.into());
    }
    let expired = || EdgeRefusal::PlanExpired {
        plan: request.plan_id.clone(),
    };
    let now = context.services.clock.mono();
    let shared = context
        .plans
        .get(&request.plan_id, now)
        .ok_or_else(expired)?;
    let mut kept = shared.lock().await;
    if kept.plan.purpose != Purpose::Discard || kept.plan.queue != topic.id {
        return Err(expired().into());
    }
    if let Some(answer) = &kept.answer {
        return Ok(answer.clone());
    }
    let done = carry_out(context, &kept.plan, &request.note).await?;
    kept.answer = Some(done.clone());
    Ok(done)
}

async fn plan(
    context: &Context,
    topic: &TopicView,
    filter: &Filter,
) -> Result<v1::DiscardDeadLettersResponse, CallFailure> {
    let rules = Rules {
        replays_max: None,
        limit: 0,
    };
    let selection = select(context, topic, filter, rules).await?;
    let plan = Plan::of(Purpose::Discard, topic, &selection, filter);
    let plan_id = context.plans.keep(plan, context.services.clock.mono());
    Ok(v1::DiscardDeadLettersResponse {
        matched: count(selection.matched),
        discarded: 0,
        plan_id,
        skipped: count(selection.skipped),
    })
}

async fn carry_out(
    context: &Context,
    plan: &Plan,
    note: &str,
) -> Result<v1::DiscardDeadLettersResponse, CallFailure> {
    let request = ChangeRequest::Discard(Discard {
        queue: plan.queue,
        claims: plan.claims.clone(),
        selected: plan.matched,
        note: note.to_owned(),
        detail: plan.detail.clone(),
    });
    let done = context.core().change(request, false).await?;
    let ChangeDone::Discarded { discarded, skipped } = done else {
        unreachable!("a discard was answered by {done:?}");
    };
    Ok(v1::DiscardDeadLettersResponse {
        matched: count(plan.matched),
        discarded: count(discarded),
        plan_id: String::new(),
        skipped: count(plan.skipped.saturating_add(skipped)),
    })
}
