//! `ClusterService`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use varvelog_proto::v1;

use super::context::Context;
use super::edge::Phase;
use super::generated::cluster_service_server::ClusterService;
use super::groups::worst;
use super::not_implemented::not_implemented;
use super::status::{CallFailure, FieldViolation};
use super::topics::timestamp;
use super::{checks, lookup};
use crate::core::refusal::CallError;
use crate::traffic::TrafficCounts;
use crate::view::{Catalog, TopicView};

const INTERVAL: (Duration, Duration) = (Duration::from_millis(100), Duration::from_mins(1));
const INTERVAL_DEFAULT_MS: u64 = 1000;
/// Topics of one call.
const TOPICS_MAX: usize = 1000;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    context: Arc<Context>,
    routes: Arc<RouteVersion>,
}

/// Numbers the states of the routes. Begins at the start of the process, so that it rises through
/// restarts too.
#[derive(Debug)]
struct RouteVersion {
    /// The catalog that was numbered last, and its number; guards the two against each other.
    last: Mutex<(Arc<Catalog>, i64)>,
}

impl RouteVersion {
    fn of(&self, catalog: &Arc<Catalog>) -> i64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.0, catalog) {
            *last = (Arc::clone(catalog), last.1.saturating_add(1));
        }
        last.1
    }
}

impl Cluster {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let last = Mutex::new((context.view().catalog(), context.services.identity.start.0));
        Self {
            context,
            routes: Arc::new(RouteVersion { last }),
        }
    }

    fn config(&self, prefix: &str) -> v1::GetConfigResponse {
        let is_wanted = |entry: &&crate::config::Entry| entry.key.starts_with(prefix);
        let shown = |entry: &crate::config::Entry| v1::ConfigEntry {
            key: entry.key.to_owned(),
            value: entry.value.clone(),
            source: entry.source.to_string(),
            sensitive: entry.sensitive,
        };
        let found = self.context.config().entries().iter().filter(is_wanted);
        let mut entries: Vec<v1::ConfigEntry> = found.map(shown).collect();
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        v1::GetConfigResponse { entries }
    }

    fn routes(&self, topics: &[String]) -> Result<v1::GetRoutesResponse, CallFailure> {
        if topics.len() > TOPICS_MAX {
            let what = format!("at most {TOPICS_MAX} are allowed");
            return Err(FieldViolation::bound("topics", TOPICS_MAX, topics.len(), what).into());
        }
        let catalog = self.context.view().catalog();
        let wanted: BTreeMap<_, Arc<TopicView>> = if topics.is_empty() {
            catalog.by_name.clone()
        } else {
            let mut wanted = BTreeMap::new();
            for (index, name) in topics.iter().enumerate() {
                let field = format!("topics[{index}]");
                let topic = lookup::topic(self.context.view(), &field, name)?;
                wanted.insert(topic.name.clone(), topic);
            }
            wanted
        };
        let identity = &self.context.services.identity;
        let routes_of = |topic: &Arc<TopicView>| {
            let route = |partition: &crate::view::PartitionView| v1::Route {
                topic: topic.name.to_string(),
                partition: i32::try_from(partition.id.partition).unwrap_or(i32::MAX),
                leader_node_id: identity.node_id.clone(),
                epoch: partition.epoch.as_i32(),
            };
            topic.partitions.iter().map(route).collect::<Vec<_>>()
        };
        Ok(v1::GetRoutesResponse {
            brokers: vec![v1::Broker {
                node_id: identity.node_id.clone(),
                address: identity.grpc.to_string(),
                rack: String::new(),
            }],
            routes: wanted.values().flat_map(routes_of).collect(),
            version: self.routes.of(&catalog),
        })
    }
}

/// Sends figures until nobody reads them or the broker drains.
async fn watch(
    context: Arc<Context>,
    interval: Duration,
    messages: mpsc::Sender<Result<v1::WatchOverviewResponse, Status>>,
) {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut before: Option<(i64, TrafficCounts)> = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = messages.closed() => return,
            () = context.phase.reached(Phase::Draining) => {
                let status = CallFailure::from(CallError::Draining).into();
                // A reader that is gone needs no word.
                drop(messages.try_send(Err(status)));
                return;
            }
        }
        let now = (context.wall().0, context.traffic.counts());
        let message = overview(&context, before, now)
            .await
            .map_err(|error| Status::from(CallFailure::from(error)));
        before = Some(now);
        let is_last = message.is_err();
        if messages.send(message).await.is_err() || is_last {
            return;
        }
    }
}

async fn overview(
    context: &Context,
    before: Option<(i64, TrafficCounts)>,
    (now_ms, counts): (i64, TrafficCounts),
) -> Result<v1::WatchOverviewResponse, CallError> {
    let worst = worst(context).await?;
    let (then_ms, then) = before.unwrap_or((now_ms, counts));
    // A wall clock that stepped back gives no rate.
    let seconds = Duration::from_millis(u64::try_from(now_ms - then_ms).unwrap_or(0)).as_secs_f64();
    let rate = |now: u64, then: u64| {
        let count = u32::try_from(now.saturating_sub(then)).unwrap_or(u32::MAX);
        if seconds > 0.0 {
            f64::from(count) / seconds
        } else {
            0.0
        }
    };
    Ok(v1::WatchOverviewResponse {
        time: Some(timestamp(now_ms)),
        records_in_per_second: rate(counts.records_in, then.records_in),
        records_out_per_second: rate(counts.records_out, then.records_out),
        bytes_in_per_second: rate(counts.bytes_in, then.bytes_in),
        bytes_out_per_second: rate(counts.bytes_out, then.bytes_out),
        worst_groups: worst.groups,
        dead_letters: i64::try_from(worst.dead_letters).unwrap_or(i64::MAX),
        stalled_groups: worst.stalled,
        ..v1::WatchOverviewResponse::default()
    })
}

#[tonic::async_trait]
impl ClusterService for Cluster {
    async fn get_info(
        &self,
        _request: Request<v1::GetInfoRequest>,
    ) -> Result<Response<v1::GetInfoResponse>, Status> {
        let identity = &self.context.services.identity;
        Ok(Response::new(v1::GetInfoResponse {
            version: identity.version.to_owned(),
            cluster_id: identity.cluster_id.clone(),
            node_id: identity.node_id.clone(),
            start_time: Some(timestamp(identity.start.0)),
            features: Vec::new(),
            sync_policy: self.context.config().wal.sync.to_string(),
        }))
    }

    async fn get_config(
        &self,
        request: Request<v1::GetConfigRequest>,
    ) -> Result<Response<v1::GetConfigResponse>, Status> {
        Ok(Response::new(self.config(&request.get_ref().prefix)))
    }

    async fn get_routes(
        &self,
        request: Request<v1::GetRoutesRequest>,
    ) -> Result<Response<v1::GetRoutesResponse>, Status> {
        Ok(Response::new(self.routes(&request.get_ref().topics)?))
    }

    async fn watch_overview(
        &self,
        request: Request<v1::WatchOverviewRequest>,
    ) -> Result<Response<BoxStream<v1::WatchOverviewResponse>>, Status> {
        let interval = request.get_ref().interval.as_ref();
        let interval_ms = checks::duration_ms("interval", interval, INTERVAL)
            .map_err(CallFailure::from)?
            .unwrap_or(INTERVAL_DEFAULT_MS);
        let (messages, sent) = mpsc::channel(1);
        let interval = Duration::from_millis(interval_ms);
        tokio::spawn(watch(Arc::clone(&self.context), interval, messages));
        Ok(Response::new(Box::pin(ReceiverStream::new(sent))))
    }

    async fn export_backup(
        &self,
        _request: Request<v1::ExportBackupRequest>,
    ) -> Result<Response<BoxStream<v1::ExportBackupResponse>>, Status> {
        Err(not_implemented("backup"))
    }
}
