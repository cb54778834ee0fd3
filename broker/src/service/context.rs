//! What all services share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use varvelog_proto::v1;
use varvelog_store::WallMs;
use varvelog_store::identity::Identity;

use super::edge::{Budget, PhaseWatch};
use super::groups::Trends;
use crate::clock::Clock;
use crate::config::{Config, SyncPolicy};
use crate::core::handle::CoreHandle;
use crate::view::View;

/// Appends that nobody waits for (`ACKS_NONE`), at a time.
const UNWATCHED_APPENDS_MAX: usize = 1024;

/// What the services of a broker work with.
#[derive(Debug, Clone)]
pub struct Services {
    /// The way into the core.
    pub core: CoreHandle,
    /// Topics and logs, without the core.
    pub view: View,
    /// In force.
    pub config: Arc<Config>,
    /// Who this broker is.
    pub identity: Arc<BrokerIdentity>,
    /// Both clocks.
    pub clock: Arc<dyn Clock>,
}

/// Who a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerIdentity {
    /// Of the data folder, or the cluster: a UUID.
    pub cluster_id: String,
    /// Of this broker: a UUID.
    pub node_id: String,
    /// Of the program.
    pub version: &'static str,
    /// When this process began to serve.
    pub start: WallMs,
    /// Where gRPC is served.
    pub grpc: SocketAddr,
}

impl BrokerIdentity {
    /// Of a broker on the data folder that carries `ids`.
    pub fn new(ids: &Identity, start: WallMs, grpc: SocketAddr) -> Self {
        let text = |id: [u8; 16]| uuid::Uuid::from_bytes(id).hyphenated().to_string();
        Self {
            cluster_id: text(ids.cluster),
            node_id: text(ids.node),
            version: env!("CARGO_PKG_VERSION"),
            start,
            grpc,
        }
    }
}

/// [`Services`] and what the edge adds to them.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) services: Services,
    /// Room for replies that are being made.
    pub(super) replies: Budget,
    /// And for those of tails: one that nobody reads must not hold up members and fetches.
    pub(super) tails: Budget,
    pub(super) phase: PhaseWatch,
    pub(super) unwatched: Arc<Semaphore>,
    pub(super) traffic: Traffic,
    /// Of the lags of all groups.
    pub(super) trends: Trends,
}

impl Context {
    pub(super) fn new(
        services: Services,
        (replies, tails): (Budget, Budget),
        phase: PhaseWatch,
    ) -> Self {
        let unwatched = Arc::new(Semaphore::new(UNWATCHED_APPENDS_MAX));
        Self {
            services,
            replies,
            tails,
            phase,
            unwatched,
            traffic: Traffic::default(),
            trends: Trends::default(),
        }
    }

    pub(super) fn core(&self) -> &CoreHandle {
        &self.services.core
    }

    pub(super) fn view(&self) -> &View {
        &self.services.view
    }

    pub(super) fn config(&self) -> &Config {
        &self.services.config
    }

    pub(super) fn wall(&self) -> WallMs {
        self.services.clock.wall()
    }

    /// What an append vouches for that was answered.
    pub(super) fn durability(&self) -> v1::Durability {
        match self.config().wal.sync {
            SyncPolicy::Always => v1::Durability::Synced,
            SyncPolicy::Interval(_) | SyncPolicy::Never => v1::Durability::Written,
        }
    }

    /// Most bytes of a request, of a raised reply, and of what a batch expands to.
    pub(super) fn request_bytes_max(&self) -> usize {
        self.config().limits.request_bytes
    }
}

/// Counts of records and bytes since the start.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    records_in: AtomicU64,
    records_out: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// The counts of a [`Traffic`] at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TrafficCounts {
    pub(super) records_in: u64,
    pub(super) records_out: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
}

impl Traffic {
    pub(super) fn came_in(&self, records: u64, bytes: usize) {
        self.records_in.fetch_add(records, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn went_out(&self, records: u64, bytes: usize) {
        self.records_out.fetch_add(records, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> TrafficCounts {
        TrafficCounts {
            records_in: self.records_in.load(Ordering::Relaxed),
            records_out: self.records_out.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}
