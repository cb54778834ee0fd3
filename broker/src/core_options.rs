//! What the settings mean to the core.

use crate::config::Config;
use crate::core::decide::CountLimits;
use crate::core::forecast::AppendLimits;
use crate::core::groups::SessionLimits;
use crate::core::run::CoreOptions;
use crate::meters::Meters;

/// Room for requests in the core's queue, of the budget of all buffers.
pub(crate) fn queue_bytes(config: &Config) -> u32 {
    let quarter = u32::try_from(config.limits.memory_bytes / 4).unwrap_or(u32::MAX);
    let request = u32::try_from(config.limits.request_bytes).unwrap_or(u32::MAX);
    quarter.max(request)
}

/// How the core works by this configuration.
pub(crate) fn core_options(config: &Config, meters: Meters) -> CoreOptions {
    CoreOptions {
        sync: config.wal.sync,
        flush_interval: config.flush.interval,
        unflushed_bytes_max: config.flush.unflushed_bytes,
        checkpoint_wal_bytes: config.checkpoint.wal_bytes,
        checkpoint_interval: config.checkpoint.interval,
        unlink_delay: config.topics.unlink_delay,
        producer_expiry: config.producers.expiry,
        offset_retention: config.groups.offset_retention,
        limits: CountLimits {
            topics: count(config.limits.topics),
            partitions: count(config.limits.partitions),
            groups: count(config.limits.groups),
        },
        append_limits: AppendLimits {
            producers_per_partition: count(config.limits.producers_per_partition),
            request_ids: count(config.limits.request_ids),
            message_ids: count(config.limits.message_ids),
            ..AppendLimits::default()
        },
        session_limits: SessionLimits {
            members_max: config.limits.members,
        },
        meters,
    }
}

fn count(limit: usize) -> u64 {
    u64::try_from(limit).unwrap_or(u64::MAX)
}
