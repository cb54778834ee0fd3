//! The page as a whole.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::{broker, dead_letters, family, process, topics};
use crate::core::refusal::CallError;
use crate::service::context::Context;
use crate::service::groups;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The page.
pub(in crate::service) fn router(context: Arc<Context>) -> Router {
    Router::new()
        .route("/metrics", get(answer))
        .with_state(context)
}

async fn answer(State(context): State<Arc<Context>>) -> Response {
    match page(&context).await {
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
        Err(error) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the metrics cannot be gathered now: {error}\n"),
        )
            .into_response(),
    }
}

async fn page(context: &Arc<Context>) -> Result<String, CallError> {
    let mut families = groups::metrics(context).await?;
    families.extend(dead_letters::families(context).await?);
    families.extend(topics::families(context));
    families.extend(broker::families(context).await?);
    families.extend(process::families());
    let mut registry = Registry::default();
    broker::register_times(&mut registry, context.meters());
    registry.register_collector(Box::new(family::Families(families)));
    let mut page = String::new();
    match encode(&mut page, &registry) {
        Ok(()) => Ok(page),
        Err(_) => unreachable!("a text takes all that is written to it"),
    }
}
