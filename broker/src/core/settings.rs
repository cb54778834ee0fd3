//! Settings of topics and groups as the durable state holds them: defaults filled in, every value
//! within its bounds.

use std::collections::BTreeMap;

use super::retry_policy::RetryPolicy;

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

/// Who may be given what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupMode {
    /// Each partition belongs to one member.
    #[default]
    Stream,
    /// Any member is given records of any partition.
    Queue,
}

/// What a failed record holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Nothing: it goes to the retry topic.
    #[default]
    Overtake,
    /// Its key in a queue, its partition in a stream: it waits in place.
    Hold,
}

/// What follows a record that held up others and is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnHeadDead {
    /// The next record.
    #[default]
    Continue,
    /// Later records of its key go to the dead-letter topic too, while any of them is there.
    Park,
    /// Nothing, until an operator settles it.
    Halt,
}

/// Settings of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// Who may be given what. Changes only without live members.
    pub mode: GroupMode,
    /// What a failure holds up. Changes only without live members.
    pub on_failure: OnFailure,
    /// With [`OnFailure::Hold`].
    pub on_head_dead: OnHeadDead,
    /// When a failed record is given out again.
    pub retry: RetryPolicy,
    /// What becomes of records that are given out no more.
    pub dead_letter: DeadLetterSettings,
    /// How long a record is held before it is given to another, ms: 1 s to 12 h.
    pub visibility_timeout_ms: u64,
    /// How long a member whose connection broke is waited for, ms: 1 s to 30 min.
    pub session_timeout_ms: u64,
    /// Leased records of one partition: 1 to 10,000.
    pub in_flight_max: u32,
    /// Longest hold with extensions, ms: to 12 h.
    pub lease_total_max_ms: u64,
    /// Crashes or timeouts after which a record is given out alone: 1 to 1,000.
    pub isolate_after: u32,
    /// Releases of one record after which each counts as a failure: 1 to 10,000.
    pub releases_max: u32,
    /// Share of hand-outs kept for due retries, in thousandths: 50 to 500.
    pub retry_share_permille: u32,
    /// Slows first deliveries while most settlements fail transiently.
    pub circuit_breaker: bool,
    /// Retention never passes the lowest record that is not done.
    pub retain_until_consumed: bool,
    /// Gives out nothing; settlements go on.
    pub paused: bool,
    /// When producers are refused for this group's sake.
    pub admission: AdmissionSettings,
}

/// How far behind a group may be in a topic before producers of it are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionSettings {
    /// Records that are not done; 0: not watched.
    pub depth_max: u64,
    /// Milliseconds since the append of the oldest of them; 0: not watched.
    pub age_max_ms: u64,
    /// Bytes of them; 0: not watched.
    pub bytes_max: u64,
    /// Share of each limit at which producers are let in again, in thousandths: 1 to 1,000.
    pub resume_permille: u32,
    /// Counts what would have been refused, and refuses nothing.
    pub observe: bool,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self {
            depth_max: 0,
            age_max_ms: 0,
            bytes_max: 0,
            resume_permille: 800,
            observe: false,
        }
    }
}

impl AdmissionSettings {
    /// Whether there is any limit.
    pub fn is_watched(&self) -> bool {
        self.depth_max > 0 || self.age_max_ms > 0 || self.bytes_max > 0
    }
}

/// What becomes of records that are given out no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "switches, as users set them")]
pub struct DeadLetterSettings {
    /// They are dropped and counted as lost.
    pub off: bool,
    /// Of one partition of the dead-letter topic: at least 1.
    pub bytes_max: u64,
    /// Milliseconds since death after which a segment may go; 0: no limit.
    pub retention_age_ms: u64,
    /// At the limit the oldest go; else what would be dead-lettered waits in place.
    pub drop_oldest_when_full: bool,
    /// Error messages are not stored.
    pub omit_error_message: bool,
    /// Error stacks are not stored.
    pub omit_error_stack: bool,
    /// Replays of one record without force: 1 to 1,000.
    pub replays_max: u32,
}

impl Default for DeadLetterSettings {
    fn default() -> Self {
        Self {
            off: false,
            bytes_max: 1 << 30,
            retention_age_ms: 30 * 24 * 3_600 * 1_000,
            drop_oldest_when_full: false,
            omit_error_message: false,
            omit_error_stack: false,
            replays_max: 3,
        }
    }
}

impl GroupSettings {
    /// Whether what is dead waits in place for an operator.
    pub fn halts(&self) -> bool {
        self.on_failure == OnFailure::Hold && self.on_head_dead == OnHeadDead::Halt
    }

    /// Whether later records of a dead record's key follow it into the dead-letter topic.
    pub fn parks(&self) -> bool {
        self.on_failure == OnFailure::Hold && self.on_head_dead == OnHeadDead::Park
    }
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            mode: GroupMode::Stream,
            on_failure: OnFailure::Overtake,
            on_head_dead: OnHeadDead::Continue,
            retry: RetryPolicy::default(),
            dead_letter: DeadLetterSettings::default(),
            visibility_timeout_ms: 30_000,
            session_timeout_ms: 45_000,
            in_flight_max: 2_000,
            lease_total_max_ms: 3_600_000,
            isolate_after: 2,
            releases_max: 100,
            retry_share_permille: 250,
            circuit_breaker: false,
            retain_until_consumed: false,
            paused: false,
            admission: AdmissionSettings::default(),
        }
    }
}
