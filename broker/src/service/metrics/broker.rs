//! The broker as a whole.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::registry::Registry;

use super::family::{Family, Kind};
use crate::core::refusal::CallError;
use crate::meters::Meters;
use crate::service::context::Context;

/// Registers how long things took.
pub(super) fn register_times(registry: &mut Registry, meters: &Meters) {
    let times = [
        (
            "varvelog_commit_seconds",
            "From a submission to the answer that it is committed",
            &meters.commit,
        ),
        (
            "varvelog_wal_sync_seconds",
            "Syncs of the write-ahead log",
            &meters.wal_sync,
        ),
        (
            "varvelog_apply_seconds",
            "Applying a committed round",
            &meters.apply,
        ),
        (
            "varvelog_fetch_seconds",
            "Fetches, without the wait for records",
            &meters.fetch,
        ),
        (
            "varvelog_ack_seconds",
            "Acks, from their arrival to their answer",
            &meters.ack,
        ),
        (
            "varvelog_checkpoint_seconds",
            "Making a checkpoint",
            &meters.checkpoint,
        ),
    ];
    for (name, help, histogram) in times {
        registry.register(name, help, histogram.clone());
    }
}

/// What is looked at, and how calls ended.
pub(super) async fn families(context: &Context) -> Result<Vec<Family>, CallError> {
    let inside = context
        .core()
        .query(|view| (view.wal_bytes, view.unflushed_bytes))
        .await?;
    let gauge = |name, help, value| Family::single(Kind::Gauge, (name, help), value);
    let disk = &context.services.disk;
    let of_disk = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let start_seconds = count(context.services.identity.start.0 / 1_000);
    let mut families = vec![
        gauge(
            "varvelog_wal_bytes",
            "Bytes of the write-ahead log since this start's checkpoint",
            inside.0,
        ),
        gauge(
            "varvelog_unflushed_bytes",
            "Committed bytes that are not in segments yet",
            inside.1,
        ),
        gauge(
            "varvelog_core_queued_bytes",
            "Bytes of requests that wait for the core",
            context.core().queued_bytes(),
        ),
        gauge(
            "varvelog_disk_free_bytes",
            "Free on the data volume",
            of_disk(&disk.free_bytes),
        ),
        gauge(
            "varvelog_disk_size_bytes",
            "Of the data volume",
            of_disk(&disk.size_bytes),
        ),
        gauge(
            "varvelog_disk_reserve_bytes",
            "Kept free: below it produce is refused",
            of_disk(&disk.reserve_bytes),
        ),
        gauge(
            "varvelog_connections",
            "Connections to the gRPC port",
            count(context.counts.connections.get()),
        ),
        gauge(
            "varvelog_streams",
            "Calls that are open",
            count(context.counts.streams.get()),
        ),
        gauge(
            "varvelog_insecure",
            "1 if others than this machine are served without TLS",
            u64::from(is_insecure(context)),
        ),
        gauge(
            "varvelog_start_time_seconds",
            "When this process began to serve, as Unix time",
            start_seconds,
        ),
    ];
    families.extend([recovery(context), build(context), requests(context)]);
    Ok(families)
}

fn recovery(context: &Context) -> Family {
    let mut family = Family::new(
        Kind::Gauge,
        "varvelog_recovery_seconds",
        "How long the recovery of this start took",
    );
    family.add_real(Vec::new(), context.services.recovery.as_secs_f64());
    family
}

fn build(context: &Context) -> Family {
    let mut family = Family::new(
        Kind::Gauge,
        "varvelog_build_info",
        "1, with the version of the program",
    );
    let version = context.services.identity.version.to_owned();
    family.add(vec![("version", version)], 1);
    family
}

/// Whether `insecure` has an effect.
fn is_insecure(context: &Context) -> bool {
    let config = context.config();
    config.insecure && !(config.listen.ip().is_loopback() && config.http_listen.ip().is_loopback())
}

fn requests(context: &Context) -> Family {
    let mut family = Family::new(
        Kind::Counter,
        "varvelog_requests",
        "Calls that ended, by method and gRPC code",
    );
    for (path, code, count) in context.counts.calls() {
        let call = path.trim_start_matches('/').to_owned();
        family.add(vec![("call", call), ("code", name(code).to_owned())], count);
    }
    family
}

/// As the specification of gRPC spells it.
fn name(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Ok => "OK",
        tonic::Code::Cancelled => "CANCELLED",
        tonic::Code::Unknown => "UNKNOWN",
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        tonic::Code::NotFound => "NOT_FOUND",
        tonic::Code::AlreadyExists => "ALREADY_EXISTS",
        tonic::Code::PermissionDenied => "PERMISSION_DENIED",
        tonic::Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        tonic::Code::FailedPrecondition => "FAILED_PRECONDITION",
        tonic::Code::Aborted => "ABORTED",
        tonic::Code::OutOfRange => "OUT_OF_RANGE",
        tonic::Code::Unimplemented => "UNIMPLEMENTED",
        tonic::Code::Internal => "INTERNAL",
        tonic::Code::Unavailable => "UNAVAILABLE",
        tonic::Code::DataLoss => "DATA_LOSS",
        tonic::Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
