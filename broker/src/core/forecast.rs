//! What the appends of the round under construction will do, on top of committed state.

use std::collections::HashMap;

use varvelog_store::{Offset, PartitionId, TopicId};

use super::delays::DELAYS_MAX;
use super::message_ids::RoundIds;
use super::producers::Batches;
use super::touched::Touched;

/// How much appends may add. Not part of what apply checks, so that brokers with other limits get
/// the same state from the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendLimits {
    /// Producers remembered by one partition; see `limits.producers_per_partition`.
    pub producers_per_partition: u64,
    /// Request ids remembered by one topic; see `limits.request_ids`.
    pub request_ids: u64,
    /// Message ids remembered by one topic; see `limits.message_ids`.
    pub message_ids: u64,
    /// Delayed records of one partition; at most [`DELAYS_MAX`].
    pub delays: u64,
}

impl Default for AppendLimits {
    fn default() -> Self {
        Self {
            producers_per_partition: 10_000,
            request_ids: 100_000,
            message_ids: 4_000_000,
            delays: DELAYS_MAX,
        }
    }
}

/// The appends of a round so far. Its maps are never iterated.
#[derive(Debug, Default)]
pub struct RoundForecast {
    pub(super) limits: AppendLimits,
    pub(super) ends: HashMap<PartitionId, Offset>,
    pub(super) histories: Histories,
    requests: HashMap<TopicId, HashMap<String, u64>>,
    delays: HashMap<PartitionId, u64>,
    pub(super) ids: RoundIds,
    pub(super) touched: Touched,
}

impl RoundForecast {
    /// A new round. [`Default`] gives one with the limits of a broker that sets none.
    pub fn with_limits(limits: AppendLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    pub(super) fn request(&self, topic: TopicId, id: &str) -> Option<u64> {
        self.requests.get(&topic)?.get(id).copied()
    }

    pub(super) fn request_count(&self, topic: TopicId) -> u64 {
        let ids = self.requests.get(&topic).map_or(0, HashMap::len);
        u64::try_from(ids).unwrap_or(u64::MAX)
    }

    /// Delayed records that the round adds to a partition.
    pub(super) fn delays(&self, partition: PartitionId) -> u64 {
        self.delays.get(&partition).copied().unwrap_or(0)
    }

    pub(super) fn add_delays(&mut self, partition: PartitionId, more: u64) {
        if more > 0 {
            *self.delays.entry(partition).or_default() += more;
        }
    }

    pub(super) fn remember(&mut self, topic: TopicId, id: &str, content_hash: u64) {
        self.requests
            .entry(topic)
            .or_default()
            .insert(id.to_owned(), content_hash);
    }
}

/// Histories of producers as they will be, and how many are new to their partition.
#[derive(Debug, Default)]
pub(super) struct Histories {
    by_producer: HashMap<(PartitionId, i64), Batches>,
    fresh: HashMap<PartitionId, u64>,
}

impl Histories {
    pub(super) fn get(&self, partition: PartitionId, id: i64) -> Option<Batches> {
        self.by_producer.get(&(partition, id)).copied()
    }

    pub(super) fn fresh(&self, partition: PartitionId) -> u64 {
        self.fresh.get(&partition).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, partition: PartitionId, id: i64, to: Batches, is_fresh: bool) {
        self.by_producer.insert((partition, id), to);
        if is_fresh {
            *self.fresh.entry(partition).or_default() += 1;
        }
    }
}
