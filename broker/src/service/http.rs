//! The HTTP port: whether the broker lives (`/healthz`) and whether it serves (`/readyz`).

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;

use super::edge::{Phase, PhaseWatch};

/// Answers on `listener` until the edge drains.
pub(super) async fn serve(listener: std::net::TcpListener, phase: PhaseWatch) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the HTTP listener cannot be served");
            return;
        }
    };
    let served = axum::serve(listener, router(phase.clone()));
    tokio::select! {
        result = served.into_future() => {
            if let Err(error) = result {
                tracing::error!(%error, "the HTTP port is no longer served");
            }
        }
        () = phase.reached(Phase::Draining) => {}
    }
}

fn router(phase: PhaseWatch) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .with_state(phase)
}

async fn readyz(State(phase): State<PhaseWatch>) -> (StatusCode, &'static str) {
    match phase.now() {
        Phase::Serving => (StatusCode::OK, "ready\n"),
        Phase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        Phase::Draining | Phase::Over => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::edge::PhaseSender;
    use super::*;

    #[tokio::test]
    async fn the_broker_is_ready_only_while_it_serves() {
        let (sender, watch) = PhaseSender::new(Phase::Starting);
        let ready = || async { readyz(State(watch.clone())).await.0 };
        assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
        sender.advance(Phase::Serving);
        assert_eq!(ready().await, StatusCode::OK);
        sender.advance(Phase::Draining);
        assert_eq!(ready().await, StatusCode::SERVICE_UNAVAILABLE);
    }
}
