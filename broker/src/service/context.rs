//! What all services share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use varvelog_proto::v1;
use varvelog_store::WallMs;
use varvelog_store::identity::Identity;

use super::dead_letters::Plans;
use super::edge::{Budget, PhaseWatch, PortCounts};
use super::groups::{Advices, Trends};
use super::open_batches::OpenBatches;
use crate::clock::Clock;
use crate::config::{Config, SyncPolicy};
use crate::core::handle::CoreHandle;
use crate::core::run::DiskGauge;
use crate::meters::Meters;
use crate::traffic::Traffic;
use crate::view::{TopicView, View};

/// Appends that nobody waits for (`ACKS_NONE`), at a time.
const UNWATCHED_APPENDS_MAX: usize = 1024;

/// Share of `limits.memory` for batches that are read on, as a divisor.
const OPEN_BATCHES_SHARE: u64 = 16;

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
    /// Room on the volume.
    pub disk: Arc<DiskGauge>,
    /// How long the recovery of this start took.
    pub recovery: Duration,
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
    /// Batches that members are given record by record.
    pub(super) open_batches: OpenBatches,
    /// Of the gRPC port.
    pub(super) counts: PortCounts,
    pub(super) unwatched: Arc<Semaphore>,
    /// Of all topics.
    pub(super) traffic: Traffic,
    /// On the number of workers of each group.
    pub(super) advices: Advices,
    /// Of the lags of all groups.
    pub(super) trends: Trends,
    /// What calls have counted and may carry out.
    pub(super) plans: Plans,
}

impl Context {
    pub(super) fn new(
        services: Services,
        (replies, tails): (Budget, Budget),
        (phase, counts): (PhaseWatch, PortCounts),
    ) -> Self {
        let share = services.config.limits.memory_bytes / OPEN_BATCHES_SHARE;
        let open_bytes = usize::try_from(share).unwrap_or(usize::MAX);
        let unwatched = Arc::new(Semaphore::new(UNWATCHED_APPENDS_MAX));
        Self {
            services,
            replies,
            tails,
            phase,
            counts,
            open_batches: OpenBatches::new(open_bytes),
            unwatched,
            traffic: Traffic::default(),
            advices: Advices::default(),
            trends: Trends::default(),
            plans: Plans::default(),
        }
    }

    pub(super) fn core(&self) -> &CoreHandle {
        &self.services.core
    }

    pub(super) fn meters(&self) -> &Meters {
        self.services.core.meters()
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

    /// Records of a topic were committed.
    pub(super) fn came_in(&self, topic: &TopicView, records: u64, bytes: usize) {
        self.traffic.came_in(records, bytes);
        topic.traffic.came_in(records, bytes);
    }

    /// Records of a topic were handed to the transport.
    pub(super) fn went_out(&self, topic: &TopicView, records: u64, bytes: usize) {
        self.traffic.went_out(records, bytes);
        topic.traffic.went_out(records, bytes);
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
