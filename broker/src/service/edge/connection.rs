//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service;

use super::body::{FrameLimits, Framed};
use super::calls::{CallBody, Calls};
use super::counts::PortCounts;
use super::deadline::timeout_of;
use super::guard::{ConnectionEnd, ConnectionGuard, Guarded, Peer};
use super::methods::{MethodShape, Methods};
use super::phase::{Phase, PhaseWatch};
use crate::meters::Open;
use crate::service::status::CallFailure;
use crate::service::wire::Malformed;

/// HTTP/2 flow-control window of a stream.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// HTTP/2 flow-control window of a connection. Half of it is also what small unread frames may
/// use up before the connection is ended.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
const FRAME_BYTES_MAX: u32 = 1 << 20;
const SEND_BUFFER_BYTES_MAX: usize = 1 << 20;
const HEADER_LIST_BYTES_MAX: u32 = 16 * 1024;
const PENDING_RESETS_MAX: usize = 20;
const LOCAL_RESETS_MAX: usize = 256;
/// How long a connection that is asked to go may take, where no call is open.
const GOODBYE_MAX: Duration = Duration::from_secs(5);

/// What one connection may take.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Calls open at a time.
    pub streams_max: u32,
    /// Time to the first call.
    pub first_call_max: Duration,
    /// Time without a call.
    pub idle_max: Duration,
    /// Age at which new calls are sent to a new connection; open ones go on. Jittered by a tenth.
    pub age_max: Duration,
    /// A ping is sent so often, also while idle.
    pub ping_interval: Duration,
    /// And must be answered within this time.
    pub ping_timeout: Duration,
    /// Of request bodies.
    pub frames: FrameLimits,
}

impl ConnectionLimits {
    /// The limits that hold for everybody, with those that are settings.
    pub fn new(streams_max: u32, frames: FrameLimits) -> Self {
        Self {
            streams_max,
            first_call_max: Duration::from_secs(10),
            idle_max: Duration::from_mins(5),
            age_max: Duration::from_hours(1),
            ping_interval: Duration::from_secs(20),
            ping_timeout: Duration::from_secs(10),
            frames,
        }
    }
}

/// What all connections of one edge share.
#[derive(Debug, Clone)]
pub(super) struct ConnectionContext {
    pub(super) routes: Routes,
    pub(super) methods: Arc<Methods>,
    pub(super) limits: ConnectionLimits,
    pub(super) phase: PhaseWatch,
    pub(super) counts: PortCounts,
}

/// Serves a connection to its end.
pub(super) async fn serve(context: Arc<ConnectionContext>, socket: TcpStream, peer: Peer) {
    let _open = Open::in_gauge(&context.counts.connections);
    let guard = ConnectionGuard::default();
    let calls = Calls::default();
    let io = TokioIo::new(Guarded::new(socket, guard.clone()));
    let service = service_fn({
        let (context, guard, calls) = (Arc::clone(&context), guard.clone(), calls.clone());
        move |request| {
            answer(
                Arc::clone(&context),
                guard.clone(),
                peer,
                calls.clone(),
                request,
            )
        }
    });
    let mut connection = pin!(builder(&context.limits).serve_connection(io, service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = time_to_go(&context, &calls) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                result = connection.as_mut() => result,
                () = time_to_cut(&context.phase, &calls) => Ok(()),
            }
        }
    };
    // Before the socket is dropped: the guard keeps the first end that it is told.
    if let Err(error) = result {
        if error.is_timeout() {
            guard.note(ConnectionEnd::Silent);
        }
        tracing::debug!(peer = %peer.0, %error, "connection ended");
    }
}

fn builder(limits: &ConnectionLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_send_buf_size(SEND_BUFFER_BYTES_MAX)
        .max_header_list_size(HEADER_LIST_BYTES_MAX)
        .max_concurrent_streams(limits.streams_max)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(LOCAL_RESETS_MAX)
        .keep_alive_interval(limits.ping_interval)
        .keep_alive_timeout(limits.ping_timeout);
    builder
}

/// Returns when the connection should take no more calls.
async fn time_to_go(context: &ConnectionContext, calls: &Calls) {
    let limits = &context.limits;
    let age_max = limits.age_max.mul_f64(rand::random_range(0.9..1.1));
    tokio::select! {
        () = context.phase.reached(Phase::Draining) => {}
        () = tokio::time::sleep(age_max) => {}
        () = idle(limits, calls) => {}
    }
}

/// Returns when no call came in time, or none has been open for a while.
async fn idle(limits: &ConnectionLimits, calls: &Calls) {
    tokio::time::sleep(limits.first_call_max).await;
    let mut seen = calls.started();
    if seen == 0 {
        return;
    }
    loop {
        tokio::time::sleep(limits.idle_max).await;
        let started = calls.started();
        if calls.is_idle() && started == seen {
            return;
        }
        seen = started;
    }
}

/// Returns when a connection that was asked to go has had its time. Open calls may go on for as
/// long as the edge does.
async fn time_to_cut(phase: &PhaseWatch, calls: &Calls) {
    let goodbye = async {
        loop {
            tokio::time::sleep(GOODBYE_MAX).await;
            if calls.is_idle() {
                return;
            }
        }
    };
    tokio::select! {
        () = phase.reached(Phase::Over) => {}
        () = goodbye => {}
    }
}

/// Answers one call.
async fn answer(
    context: Arc<ConnectionContext>,
    guard: ConnectionGuard,
    peer: Peer,
    calls: Calls,
    request: Request<Incoming>,
) -> Result<Response<CallBody>, Infallible> {
    let call = calls.begin();
    let mut counted = context.counts.begin(request.uri().path());
    let shape = context.methods.shape(request.uri().path());
    let response = match timeout_of(request.headers()) {
        Ok(timeout) => {
            let limits = context.limits.frames.clone();
            let mut request = request.map(|body| Framed::new(Body::new(body), shape, limits));
            request.extensions_mut().insert(guard);
            request.extensions_mut().insert(peer);
            routed(context.routes.clone(), request, shape, timeout).await
        }
        Err(_unreadable) => {
            let bad = Malformed::new(String::from("grpc-timeout is no timeout"));
            Status::from(CallFailure::from(bad)).into_http()
        }
    };
    counted.look_at(response.headers());
    Ok(response.map(|body| CallBody::new(body, counted, call)))
}

async fn routed(
    mut routes: Routes,
    request: Request<Framed<Body>>,
    shape: MethodShape,
    timeout: Option<Duration>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let handled = AssertUnwindSafe(routes.call(request)).catch_unwind();
    let handled = match timeout {
        // A stream's client ends it by itself; here its timer would only end at the head.
        Some(timeout) if !shape.is_server_stream => {
            match tokio::time::timeout(timeout, handled).await {
                Ok(handled) => handled,
                Err(_elapsed) => {
                    return Status::deadline_exceeded("the call's deadline passed").into_http();
                }
            }
        }
        Some(_) | None => handled.await,
    };
    match handled {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_panic) => {
            tracing::error!(path, "a call panicked; this is a defect of the broker");
            Status::internal("the call failed by a defect of the broker").into_http()
        }
    }
}
