//! `ReplayDeadLetters`.

use std::sync::Arc;

use prost::Message as _;
use varvelog_proto::v1;

use super::filter::Filter;
use super::jobs;
use super::plans::{Plan, Purpose, Shared};
use super::queues::{self, count};
use super::select::{Rules, Selection, select};
use super::{stats, texts};
use crate::core::dead_letters::ReplayOrder;
use crate::core::durable_groups::DurableGroup;
use crate::core::handle::CoreView;
use crate::core::refusal::{AppendRefusal, GroupRefusal};
use crate::core::replay_command::{CANARY_MAX, NOTE_BYTES_MAX, REQUEST_ID_BYTES_MAX, StartReplay};
use crate::core::request::{ChangeDone, ChangeRequest};
use crate::core::settings::{GroupSettings, OnFailure};
use crate::names::GroupName;
use crate::service::checks;
use crate::service::context::Context;
use crate::service::lookup;
use crate::service::status::{CallFailure, EdgeRefusal, FieldViolation};
use crate::service::transcode::ContentHash;
use crate::view::TopicView;

const PER_SECOND_DEFAULT: f64 = 50.0;
const PER_SECOND: (f64, f64) = (1.0, 10_000.0);

/// What a request asks for, beside which entries.
struct Asked {
    order: ReplayOrder,
    target: Option<Arc<TopicView>>,
    limit: u64,
    /// Also what was replayed as often as the group allows.
    force: bool,
    accepts_reordering: bool,
}

/// What the group says about replays; without it, what groups say unless they are told otherwise.
struct Ruling {
    /// Its name, if it holds order and its records go back to it.
    holding: Option<GroupName>,
    replays_max: u32,
}

/// `ReplayDeadLetters`.
pub(super) async fn replay(
    context: &Context,
    request: v1::ReplayDeadLettersRequest,
) -> Result<v1::ReplayDeadLettersResponse, CallFailure> {
    let topic = queues::find(context, &request.queue)?;
    let filter = Filter::read(request.filter.as_ref())?;
    let asked = Asked::read(context, &request)?;
    if !request.validate_only
        && let Some(response) = known(context, &asked.order).await?
    {
        return Ok(response);
    }
    let ruling = ruling(context, &topic, asked.target.is_some()).await?;
    let rules = Rules {
        replays_max: (!asked.force).then_some(ruling.replays_max),
        limit: asked.limit,
    };
    let holding = ruling.holding;
    if request.validate_only {
        let selection = select(context, &topic, &filter, rules).await?;
        return plan(context, &topic, (&asked, selection), (&filter, holding)).await;
    }
    if request.plan_id.is_empty() {
        let selection = select(context, &topic, &filter, rules).await?;
        let plan = Plan::of(Purpose::Replay, &topic, &selection, &filter);
        return start(context, (&topic, &plan), asked, holding).await;
    }
    let expired = || EdgeRefusal::PlanExpired {
        plan: request.plan_id.clone(),
    };
    let shared: Shared = context
        .plans
        .get(&request.plan_id, context.services.clock.mono())
        .ok_or_else(expired)?;
    let mut kept = shared.lock().await;
    let is_ours = kept.plan.purpose == Purpose::Replay && kept.plan.queue == topic.id;
    if kept.is_used || !is_ours {
        return Err(expired().into());
    }
    let started = start(context, (&topic, &kept.plan), asked, holding).await?;
    kept.is_used = true;
    Ok(started)
}

impl Asked {
    fn read(
        context: &Context,
        request: &v1::ReplayDeadLettersRequest,
    ) -> Result<Self, CallFailure> {
        checks::text("request_id", &request.request_id, REQUEST_ID_BYTES_MAX)?;
        checks::text("note", &request.note, NOTE_BYTES_MAX)?;
        let limit = checks::not_negative("limit", request.limit)?;
        let canary = checks::count("canary", request.canary, (0, CANARY_MAX))?;
        let target = match request.target_topic.as_str() {
            "" => None,
            name => Some(lookup::own_topic(context.view(), "target_topic", name)?),
        };
        if canary > 0 && target.is_some() {
            let why = "has an outcome only in the group itself: not with target_topic";
            return Err(FieldViolation::new("canary", why).into());
        }
        let order = ReplayOrder {
            request_id: request.request_id.clone(),
            content_hash: content_hash(request),
            target: target.as_ref().map(|it| (it.id, it.name.to_string())),
            millis_per_second: millis_per_second(request.max_per_second)?,
            canary,
            keep_on_refail: request.keep_on_refail,
            note: request.note.clone(),
            detail: String::new(),
        };
        Ok(Self {
            order,
            target,
            limit,
            force: request.force,
            accepts_reordering: request.accept_reordering,
        })
    }
}

fn millis_per_second(value: f64) -> Result<u32, FieldViolation> {
    let (least, most) = PER_SECOND;
    let value = if value == 0.0 {
        PER_SECOND_DEFAULT
    } else {
        value
    };
    if !(least..=most).contains(&value) {
        let what = "must be 1 to 10,000";
        return Err(FieldViolation::bound("max_per_second", most, value, what));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1,000 to 10,000,000, as was checked"
    )]
    let millis = (value * 1_000.0).round() as u32;
    Ok(millis)
}

/// Of all arguments but the id.
fn content_hash(request: &v1::ReplayDeadLettersRequest) -> u64 {
    let mut arguments = request.clone();
    arguments.request_id.clear();
    let mut hash = ContentHash::new();
    hash.bytes(&arguments.encode_to_vec());
    hash.finish()
}

/// The answer to a request that started a job before.
async fn known(
    context: &Context,
    order: &ReplayOrder,
) -> Result<Option<v1::ReplayDeadLettersResponse>, CallFailure> {
    if order.request_id.is_empty() {
        return Ok(None);
    }
    let (id, hash) = (order.request_id.clone(), order.content_hash);
    let now = context.wall();
    let ask = move |view: &CoreView<'_>| {
        let job = view.state.dead_letters.jobs().of_request(&id, now)?;
        let same = job.order.content_hash == hash;
        Some((same.then(|| jobs::shown(view, job)), id))
    };
    match context.core().query(ask).await? {
        None => Ok(None),
        Some((Some(job), _)) => Ok(Some(answer(job))),
        Some((None, id)) => Err(AppendRefusal::RequestIdReused { id }.into()),
    }
}

/// Without a target there must be a group.
async fn ruling(
    context: &Context,
    topic: &TopicView,
    has_target: bool,
) -> Result<Ruling, CallFailure> {
    let id = topic.id;
    let name = topic.derived.clone();
    let ask = move |view: &CoreView<'_>| {
        let group = name.as_ref().and_then(|name| view.state.groups.get(name));
        let reads = |group: &&DurableGroup| {
            let mut reads = group.topics.values();
            reads.any(|reads| reads.dead_letter == id)
        };
        let settings = group.filter(reads).map(|group| &group.settings);
        let holds = settings.map(|settings| settings.on_failure == OnFailure::Hold);
        let default = GroupSettings::default().dead_letter.replays_max;
        let replays_max = settings.map_or(default, |it| it.dead_letter.replays_max);
        match holds {
            None if !has_target => Err(name.map(|name| name.to_string()).unwrap_or_default()),
            holds => Ok(Ruling {
                holding: name.filter(|_| holds == Some(true) && !has_target),
                replays_max,
            }),
        }
    };
    let ruled = context.core().query(ask).await?;
    ruled.map_err(|group| GroupRefusal::NotFound { group }.into())
}

async fn plan(
    context: &Context,
    topic: &TopicView,
    (asked, selection): (&Asked, Selection),
    (filter, holding): (&Filter, Option<GroupName>),
) -> Result<v1::ReplayDeadLettersResponse, CallFailure> {
    let plan = Plan::of(Purpose::Replay, topic, &selection, filter);
    let plan_id = context.plans.keep(plan, context.services.clock.mono());
    let seconds = seconds_of(selection.matched, asked.order.millis_per_second);
    let mut warning = Vec::new();
    if let Some(group) = holding.filter(|_| selection.unparked > 0) {
        warning.push(format!(
            "group {group} holds order: accept_reordering is needed"
        ));
    }
    if let Some(target) = &asked.target {
        warning.push(texts::readers_of(context, target).await?);
    }
    Ok(v1::ReplayDeadLettersResponse {
        job: None,
        matched: count(selection.matched),
        plan_id,
        matched_bytes: count(selection.bytes),
        estimated_duration: Some(seconds),
        errors: stats::shown(context, topic.id, selection.tallies).await,
        skipped: count(selection.skipped),
        warning: warning.join("; "),
    })
}

async fn start(
    context: &Context,
    (topic, plan): (&TopicView, &Plan),
    asked: Asked,
    holding: Option<GroupName>,
) -> Result<v1::ReplayDeadLettersResponse, CallFailure> {
    if let Some(group) = holding
        && plan.unparked > 0
        && !asked.accepts_reordering
    {
        let group = group.to_string();
        return Err(EdgeRefusal::WouldReorder { group }.into());
    }
    let order = ReplayOrder {
        detail: plan.detail.clone(),
        ..asked.order
    };
    let request = ChangeRequest::StartReplay(StartReplay {
        queue: topic.id,
        claims: plan.claims.clone(),
        selected: plan.matched,
        skipped: plan.skipped,
        order,
    });
    let done = context.core().change(request, false).await?;
    let ChangeDone::Replay(number) = done else {
        unreachable!("a replay was answered by {done:?}");
    };
    Ok(answer(jobs::find(context, number).await?))
}

fn answer(job: v1::ReplayJob) -> v1::ReplayDeadLettersResponse {
    v1::ReplayDeadLettersResponse {
        matched: job.matched,
        skipped: job.skipped,
        job: Some(job),
        ..v1::ReplayDeadLettersResponse::default()
    }
}

/// How long so many entries take.
pub(super) fn seconds_of(entries: u64, millis_per_second: u32) -> prost_types::Duration {
    let ms = u128::from(entries) * 1_000_000 / u128::from(millis_per_second.max(1));
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    prost_types::Duration {
        seconds: ms / 1_000,
        nanos: i32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000,
    }
}

impl Plan {
    pub(super) fn of(
        purpose: Purpose,
        topic: &TopicView,
        selection: &Selection,
        filter: &Filter,
    ) -> Self {
        Self {
            purpose,
            queue: topic.id,
            claims: selection.claims.clone(),
            matched: selection.matched,
            skipped: selection.skipped,
            unparked: selection.unparked,
            detail: texts::detail_of(filter),
        }
    }
}
