//! `externalscaler.ExternalScaler`: KEDA asks how many workers a group could use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use varvelog_proto::externalscaler as wire;

use super::context::Context;
use super::edge::Phase;
use super::generated::scaler::external_scaler_server::ExternalScaler;
use super::groups::load;
use super::lookup;
use super::status::{CallFailure, FieldViolation};
use crate::names::GroupName;

/// Records for each worker where no target is given.
const TARGET_DEPTH: u64 = 100;
/// Time between two looks at a group that a stream tells about.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const DEPTH: &str = "depth";
const AGE: &str = "age";

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Scaler {
    context: Arc<Context>,
}

/// The metadata of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trigger {
    group: GroupName,
    target_depth: Option<u64>,
    target_age: Option<Duration>,
    activation_depth: u64,
}

impl Trigger {
    fn read(of: Option<&wire::ScaledObjectRef>) -> Result<Self, CallFailure> {
        let empty = HashMap::new();
        let metadata = of.map_or(&empty, |of| &of.scaler_metadata);
        let text = |key: &str| metadata.get(key).map(String::as_str);
        let group = text("group").unwrap_or_default();
        let group = lookup::group_name("scalerMetadata.group", group)?;
        let target_depth = text("targetDepth").map(|it| count("targetDepth", it, 1));
        let activation = text("activationDepth").map(|it| count("activationDepth", it, 0));
        let target_age = text("targetAge").map(age).transpose()?;
        let target_depth = match target_depth.transpose()? {
            None if target_age.is_none() => Some(TARGET_DEPTH),
            given => given,
        };
        Ok(Self {
            group,
            target_depth,
            target_age,
            activation_depth: activation.transpose()?.unwrap_or(0),
        })
    }
}

fn count(key: &str, text: &str, least: u64) -> Result<u64, FieldViolation> {
    let field = format!("scalerMetadata.{key}");
    let what = format!("must be a whole number from {least}");
    let refused = FieldViolation::bound(field, least, text, what);
    let value: Option<u64> = text.trim().parse().ok();
    value.filter(|value| *value >= least).ok_or(refused)
}

fn age(text: &str) -> Result<Duration, FieldViolation> {
    let what = "must be a duration of at least 1ms, such as 30s";
    let refused = FieldViolation::bound("scalerMetadata.targetAge", "1ms", text, what);
    let age = humantime::parse_duration(text.trim()).ok();
    age.filter(|age| *age >= Duration::from_millis(1))
        .ok_or(refused)
}

impl Scaler {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

async fn is_active(context: &Context, trigger: &Trigger) -> Result<bool, CallFailure> {
    let load = load(context, &trigger.group).await?;
    Ok(load.depth > trigger.activation_depth)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is larger than the largest number becomes that"
)]
fn spec(name: &str, target: f64) -> wire::MetricSpec {
    wire::MetricSpec {
        metric_name: name.to_owned(),
        target_size: target.ceil() as i64,
        target_size_float: target,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "what is larger than the largest number becomes that"
)]
fn value(name: &str, value: f64) -> wire::MetricValue {
    wire::MetricValue {
        metric_name: name.to_owned(),
        metric_value: value.ceil() as i64,
        metric_value_float: value,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "so many records are not told apart"
)]
fn number(count: u64) -> f64 {
    count as f64
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    async fn is_active(
        &self,
        request: Request<wire::ScaledObjectRef>,
    ) -> Result<Response<wire::IsActiveResponse>, Status> {
        let trigger = Trigger::read(Some(request.get_ref()))?;
        let result = is_active(&self.context, &trigger).await?;
        Ok(Response::new(wire::IsActiveResponse { result }))
    }

    async fn stream_is_active(
        &self,
        request: Request<wire::ScaledObjectRef>,
    ) -> Result<Response<BoxStream<wire::IsActiveResponse>>, Status> {
        let trigger = Trigger::read(Some(request.get_ref()))?;
        let first = is_active(&self.context, &trigger).await?;
        Ok(Response::new(changes(
            Arc::clone(&self.context),
            trigger,
            first,
        )))
    }

    async fn get_metric_spec(
        &self,
        request: Request<wire::ScaledObjectRef>,
    ) -> Result<Response<wire::GetMetricSpecResponse>, Status> {
        let trigger = Trigger::read(Some(request.get_ref()))?;
        let depth = trigger.target_depth.map(|it| spec(DEPTH, number(it)));
        let age = trigger.target_age.map(|it| spec(AGE, it.as_secs_f64()));
        let metric_specs = depth.into_iter().chain(age).collect();
        Ok(Response::new(wire::GetMetricSpecResponse { metric_specs }))
    }

    async fn get_metrics(
        &self,
        request: Request<wire::GetMetricsRequest>,
    ) -> Result<Response<wire::GetMetricsResponse>, Status> {
        let request = request.get_ref();
        let trigger = Trigger::read(request.scaled_object_ref.as_ref())?;
        let name = request.metric_name.as_str();
        if name != DEPTH && name != AGE {
            let what = format!("must be {DEPTH} or {AGE}");
            let unknown = FieldViolation::bound("metricName", "", name, what);
            return Err(CallFailure::from(unknown).into());
        }
        let load = load(&self.context, &trigger.group).await?;
        let measured = if name == DEPTH {
            number(load.depth)
        } else {
            load.age.as_secs_f64()
        };
        let metric_values = vec![value(name, measured)];
        Ok(Response::new(wire::GetMetricsResponse { metric_values }))
    }
}

/// Whether the group is active: now, and whenever that changes.
fn changes(
    context: Arc<Context>,
    trigger: Trigger,
    first: bool,
) -> BoxStream<wire::IsActiveResponse> {
    enum Next {
        First(bool),
        After(bool),
        End,
    }
    let stream = futures_util::stream::unfold(Next::First(first), move |next| {
        let (context, trigger) = (Arc::clone(&context), trigger.clone());
        async move {
            let told = match next {
                Next::First(result) => {
                    let answer = Ok(wire::IsActiveResponse { result });
                    return Some((answer, Next::After(result)));
                }
                Next::After(told) => told,
                Next::End => return None,
            };
            loop {
                tokio::select! {
                    () = tokio::time::sleep(LOOK_INTERVAL) => {}
                    () = context.phase.reached(Phase::Draining) => return None,
                }
                match is_active(&context, &trigger).await {
                    Ok(result) if result == told => {}
                    Ok(result) => {
                        let answer = Ok(wire::IsActiveResponse { result });
                        return Some((answer, Next::After(result)));
                    }
                    Err(failure) => return Some((Err(failure.into()), Next::End)),
                }
            }
        }
    });
    Box::pin(stream)
}
