//! The HTTP port: whether the broker lives (`/healthz`), whether it serves (`/readyz`), and what
//! others add.
//!
//! It has its own count of connections, so that neither port can keep clients off the other.

use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;

use super::edge::{AcceptLimits, Peer, Phase, PhaseWatch, serve_aside};

/// Share of `limits.connections`, as a divisor.
const CONNECTIONS_SHARE: usize = 4;
const CONNECTIONS_MAX: usize = 256;
/// Largest head of a request, and what is buffered of a connection.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// What clients of the port may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpLimits {
    accept: AcceptLimits,
    /// Time from the end of one request, or from connecting, to the end of the next one's head.
    head_max: Duration,
    /// Age of a connection, in the middle of a reply too.
    age_max: Duration,
}

impl HttpLimits {
    /// The limits that hold for everybody, with those that follow from settings: connections to
    /// the other port, and from one address.
    pub(super) fn new(connections: usize, connections_per_address: usize) -> Self {
        Self {
            accept: AcceptLimits {
                connections_max: (connections / CONNECTIONS_SHARE).clamp(1, CONNECTIONS_MAX),
                connections_per_address_max: connections_per_address,
            },
            head_max: Duration::from_secs(30),
            age_max: Duration::from_hours(1),
        }
    }
}

/// Answers on `listener` until the edge drains, and lets replies in work finish.
pub(super) async fn serve(
    listener: std::net::TcpListener,
    limits: HttpLimits,
    (phase, router): (PhaseWatch, Router),
) {
    let watch = phase.clone();
    serve_aside(listener, limits.accept, phase, move |socket, peer| {
        serve_one(socket, peer, limits, router.clone(), watch.clone())
    })
    .await;
}

async fn serve_one(
    socket: TcpStream,
    peer: Peer,
    limits: HttpLimits,
    router: Router,
    phase: PhaseWatch,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_max)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let service = TowerToHyperService::new(router);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = tokio::time::sleep(limits.age_max) => Ok(()),
        () = phase.reached(Phase::Draining) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(peer = %peer.0, %error, "HTTP connection ended");
    }
}

/// Whether the broker lives, and whether it serves.
pub(super) fn router(phase: PhaseWatch) -> Router {
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
#[path = "http_tests.rs"]
mod tests;
