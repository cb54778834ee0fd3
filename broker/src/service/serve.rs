//! Puts the services behind the ports.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::service::RoutesBuilder;
use varvelog_proto::FILE_DESCRIPTOR_SET;

use super::cluster::Cluster;
use super::context::{Context, Services};
use super::dead_letters::DeadLetters;
use super::edge::{
    AcceptLimits, Budget, ConnectionLimits, EdgeHandle, EdgeParts, FrameLimits, Methods, Phase,
    PhaseSender, PhaseWatch, PortCounts, open_edges,
};
use super::generated::alert_service_server::AlertServiceServer;
use super::generated::cluster_service_server::ClusterServiceServer;
use super::generated::dead_letter_service_server::DeadLetterServiceServer;
use super::generated::group_admin_service_server::GroupAdminServiceServer;
use super::generated::group_service_server::GroupServiceServer;
use super::generated::health::health_server::HealthServer;
use super::generated::log_service_server::LogServiceServer;
use super::generated::scaler::external_scaler_server::ExternalScalerServer;
use super::generated::topic_service_server::TopicServiceServer;
use super::group_service::Members;
use super::groups::{GroupAdmin, watch_trends};
use super::health::HealthChecks;
use super::http::{self, HttpLimits};
use super::log_service::Log;
use super::metrics;
use super::not_implemented::Alerts;
use super::scaler::Scaler;
use super::topics::Topics;

/// Share of `limits.memory` for requests that are coming in, as a divisor.
const FRAMES_SHARE: u64 = 8;
/// And for replies that are going out; half of it to tails.
const REPLIES_SHARE: u64 = 4;
/// How long a large request waits for room.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long the rest of a message may be missing.
const STALL_MAX: Duration = Duration::from_secs(30);

/// Serves gRPC and HTTP on listeners that are bound already, from now on.
pub fn serve(
    services: Services,
    grpc: TcpListener,
    http_listener: TcpListener,
) -> io::Result<EdgeHandle> {
    http_listener.set_nonblocking(true)?;
    let (phase, watch) = PhaseSender::new(Phase::Serving);
    let config = Arc::clone(&services.config);
    let memory_bytes = config.limits.memory_bytes;
    let frames = FrameLimits {
        budget: Budget::new(memory_bytes / FRAMES_SHARE),
        room_wait_max: ROOM_WAIT_MAX,
        stall_max: STALL_MAX,
    };
    let replies = || Budget::new(memory_bytes / REPLIES_SHARE / 2);
    let sets = [FILE_DESCRIPTOR_SET, tonic_health::pb::FILE_DESCRIPTOR_SET];
    let methods = Methods::of(&sets, config.limits.request_bytes).map_err(io::Error::other)?;
    let counts = PortCounts::of(&methods);
    let context = Arc::new(Context::new(
        services,
        (replies(), replies()),
        (watch.clone(), counts.clone()),
    ));
    let per_address = config.limits.connections_per_address;
    let parts = EdgeParts {
        edges: edge_count(config.edges),
        routes: routes(&context, &watch)?,
        methods,
        accept: AcceptLimits {
            connections_max: config.limits.connections,
            connections_per_address_max: per_address,
        },
        limits: ConnectionLimits::new(config.limits.streams_per_connection, frames),
        counts,
    };
    let mut edges = open_edges(parts, grpc, (phase, watch.clone()))?;
    let http_limits = HttpLimits::new(config.limits.connections, per_address);
    let router = http::router(watch.clone()).merge(metrics::router(Arc::clone(&context)));
    let aside = async move {
        tokio::join!(
            http::serve(http_listener, http_limits, (watch, router)),
            watch_trends(context)
        );
    };
    edges.spawn(String::from("edge-http"), aside)?;
    Ok(edges)
}

fn edge_count(setting: usize) -> usize {
    if setting > 0 {
        return setting;
    }
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Adds a server and its name. Framing is checked in front of it, so it sets no limit of its own.
macro_rules! add {
    ($routes:ident, $names:ident, $server:ident, $service:expr) => {
        let server = $server::new($service).max_decoding_message_size(usize::MAX);
        $names.push(name_of(&server));
        $routes.add_service(server);
    };
}

fn name_of<S: NamedService>(_server: &S) -> &'static str {
    S::NAME
}

fn routes(context: &Arc<Context>, phase: &PhaseWatch) -> io::Result<Routes> {
    let mut routes = RoutesBuilder::default();
    let mut names = Vec::new();
    add!(
        routes,
        names,
        LogServiceServer,
        Log::new(Arc::clone(context))
    );
    add!(
        routes,
        names,
        GroupServiceServer,
        Members::new(Arc::clone(context))
    );
    add!(
        routes,
        names,
        TopicServiceServer,
        Topics::new(Arc::clone(context))
    );
    add!(
        routes,
        names,
        GroupAdminServiceServer,
        GroupAdmin::new(Arc::clone(context))
    );
    add!(
        routes,
        names,
        ClusterServiceServer,
        Cluster::new(Arc::clone(context))
    );
    add!(
        routes,
        names,
        DeadLetterServiceServer,
        DeadLetters::new(Arc::clone(context))
    );
    add!(
        routes,
        names,
        ExternalScalerServer,
        Scaler::new(Arc::clone(context))
    );
    add!(routes, names, AlertServiceServer, Alerts);
    let checks = HealthChecks::new(&names, phase.clone());
    routes.add_service(HealthServer::new(checks).max_decoding_message_size(usize::MAX));
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    routes.add_service(reflection().build_v1().map_err(io::Error::other)?);
    routes.add_service(reflection().build_v1alpha().map_err(io::Error::other)?);
    Ok(routes.routes())
}
