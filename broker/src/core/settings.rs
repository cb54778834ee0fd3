//! Settings of topics and groups as the durable state holds them: defaults filled in, every value
//! within its bounds.

use std::collections::BTreeMap;

/// Settings of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Milliseconds since append after which a segment may go; 0: no limit.
    pub retention_age_ms: u64,
    /// Bytes that a partition may hold; 0: no limit.
    pub retention_bytes: u64,
    /// Size at which a segment is closed: 1 MiB to 1 GiB.
    pub segment_bytes: u32,
    /// Key, value and headers of one record: 1 B to 16 MiB.
    pub record_bytes_max: u32,
    /// Milliseconds for which message ids are remembered; 0: not at all.
    pub message_id_window_ms: u64,
    /// The user's own; at most 64.
    pub labels: BTreeMap<String, String>,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            retention_age_ms: 7 * 24 * 3_600 * 1_000,
            retention_bytes: 0,
            segment_bytes: varvelog_store::limits::SEGMENT_BYTES_DEFAULT,
            record_bytes_max: 1 << 20,
            message_id_window_ms: 5 * 60 * 1_000,
            labels: BTreeMap::new(),
        }
    }
}

/// Settings of a group. What delivery with failures brings is not in it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// How long a record is held before it is given to another, ms: 1 s to 12 h.
    pub visibility_timeout_ms: u64,
    /// How long a member whose connection broke is waited for, ms: 1 s to 30 min.
    pub session_timeout_ms: u64,
    /// Leased records of one partition: 1 to 10,000.
    pub in_flight_max: u32,
    /// Longest hold with extensions, ms: to 12 h.
    pub lease_total_max_ms: u64,
    /// Gives out nothing; settlements go on.
    pub paused: bool,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            visibility_timeout_ms: 30_000,
            session_timeout_ms: 45_000,
            in_flight_max: 2_000,
            lease_total_max_ms: 3_600_000,
            paused: false,
        }
    }
}
