//! The list of keys.

use std::time::Duration;

use super::value::Kind;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;
const TIB: u64 = 1024 * GIB;

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As in the file, with dots.
    pub name: &'static str,
    /// What values it takes, with unit and bounds.
    pub kind: Kind,
    /// Text of the value it has when nobody sets it.
    pub default: &'static str,
    /// For people, one or two sentences.
    pub about: &'static str,
    /// A secret: its value is never shown.
    pub sensitive: bool,
}

impl Key {
    /// The key of that name.
    pub fn find(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The existing name that looks most like `name`, if one looks like it at all.
    pub fn nearest(name: &str) -> Option<&'static str> {
        let last = name.rsplit('.').next().unwrap_or(name);
        let likeness = |key: &Key| {
            let tail = key.name.rsplit('.').next().unwrap_or(key.name);
            let whole = strsim::normalized_damerau_levenshtein(name, key.name);
            whole.max(0.9 * strsim::normalized_damerau_levenshtein(last, tail))
        };
        KEYS.iter()
            .map(|key| (likeness(key), key.name))
            .filter(|(score, _)| *score >= 0.6)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, name)| name)
    }
}

const fn key(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key {
        name,
        kind,
        default,
        about,
        sensitive: false,
    }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

const fn count(min: u64, max: u64) -> Kind {
    Kind::Count { min, max }
}

const fn millis(min: u64, max: u64) -> Kind {
    Kind::Duration {
        min: Duration::from_millis(min),
        max: Duration::from_millis(max),
    }
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Every key, in the order of the template.
pub const KEYS: &[Key] = &[
    key(
        "data_dir",
        Kind::Path,
        "varvelog-data",
        "Folder of all data; made if it does not exist. One broker at a time.",
    ),
    key(
        "listen",
        Kind::Address,
        "127.0.0.1:7461",
        "Where gRPC is served. Port 0 takes a free one. An address that other machines can reach \
         is refused unless `insecure` is set.",
    ),
    key(
        "http_listen",
        Kind::Address,
        "127.0.0.1:7462",
        "Where dashboard, metrics and the JSON door are served. As `listen`.",
    ),
    key(
        "insecure",
        Kind::Switch,
        "false",
        "Serve other machines without TLS and authentication.",
    ),
    key(
        "edges",
        count(0, 256),
        "0",
        "Threads that serve connections. 0: as many as there are cores.",
    ),
    key(
        "wal.sync",
        Kind::Sync,
        "always",
        "When an append is acknowledged. always: once it is on disk, and so survives power loss. \
         interval:<duration> or never: once it is written, which survives a killed process; power \
         loss may take a suffix, never a hole.",
    ),
    key(
        "wal.file_bytes",
        bytes(MIB, GIB),
        "64 MiB",
        "Size of one write-ahead log file; files are allocated in full and recycled.",
    ),
    key(
        "checkpoint.wal_bytes",
        bytes(MIB, 64 * GIB),
        "256 MiB",
        "A checkpoint is made after so much write-ahead log; it bounds the time of a start. \
         Appends wait while the newest checkpoint is more than twice as much behind.",
    ),
    key(
        "checkpoint.interval",
        millis(SECOND, DAY),
        "60s",
        "And at least so often while there is activity.",
    ),
    key(
        "flush.interval",
        millis(10, MINUTE),
        "1s",
        "How long committed records stay in memory before they are written to their segment. \
         They are in the write-ahead log already.",
    ),
    key(
        "flush.unflushed_bytes",
        bytes(MIB, 64 * GIB),
        "256 MiB",
        "Most committed bytes in memory that are not yet in a segment; appends wait beyond it. \
         At most half of `limits.memory`.",
    ),
    key(
        "retention.check_interval",
        millis(100, DAY),
        "1m",
        "How often retention by age and size is checked.",
    ),
    key(
        "topics.unlink_delay",
        millis(0, DAY),
        "60s",
        "How long files of deleted topics and records stay on disk. May be 0.",
    ),
    key(
        "disk.reserve",
        Kind::Reserve,
        "auto",
        "Free space of the data volume below which appends are refused, so that everything else \
         keeps working. auto: 5 % or 1 GiB, whichever is smaller. 0: no reserve.",
    ),
    key(
        "groups.offset_retention",
        millis(MINUTE, 3650 * DAY),
        "7d",
        "How long a group's position is kept after its last member left.",
    ),
    key(
        "producers.expiry",
        millis(MINUTE, 3650 * DAY),
        "7d",
        "How long an unused producer id is remembered; longer while its last batch is in the log \
         of a partition, of which up to 5,000 are remembered so.",
    ),
    key(
        "limits.request_bytes",
        bytes(2 * MIB, 64 * MIB),
        "16 MiB",
        "Largest request, and what a record batch may decompress to. The largest record of a \
         topic is at most 1 MiB less; a request of an administrator at most a 64th, and 64 KiB \
         to 1 MiB.",
    ),
    key(
        "limits.memory",
        bytes(64 * MIB, TIB),
        "1 GiB",
        "Budget of all buffers: requests in work, unflushed records, replies being sent.",
    ),
    key(
        "limits.topics",
        count(1, 1_000_000),
        "1000",
        "Topics, derived ones not counted.",
    ),
    key(
        "limits.partitions",
        count(1, 1_000_000),
        "10000",
        "Partitions of all topics together, derived ones not counted.",
    ),
    key(
        "limits.groups",
        count(1, 1_000_000),
        "10000",
        "Consumer groups.",
    ),
    key(
        "limits.members",
        count(1, 100_000),
        "1000",
        "Members of one group.",
    ),
    key(
        "limits.producers_per_partition",
        count(1, 1_000_000),
        "10000",
        "Producer ids remembered by one partition.",
    ),
    key(
        "limits.request_ids",
        count(1, 10_000_000),
        "100000",
        "Request ids remembered by one topic, for 5 minutes each.",
    ),
    key(
        "limits.message_ids",
        count(1, 16_000_000),
        "4000000",
        "Message ids remembered by one topic, within its window; some 45 bytes of memory each.",
    ),
    key(
        "limits.connections",
        count(1, 100_000),
        "1000",
        "Connections to `listen`; to `http_listen` a quarter of so many, at most 256.",
    ),
    key(
        "limits.connections_per_address",
        count(1, 100_000),
        "100",
        "Connections from one address; loopback is exempt.",
    ),
    key(
        "limits.streams_per_connection",
        count(1, 10_000),
        "128",
        "Calls open at a time on one connection.",
    ),
    key(
        "log.format",
        Kind::Format,
        "auto",
        "Form of the broker's own log on stderr. auto: human on a terminal, else json.",
    ),
    key(
        "log.filter",
        Kind::Text,
        "info",
        "What is logged: error, warn, info, debug or trace, also by module \
         (`info,varvelog_broker=debug`).",
    ),
    key(
        "shutdown.grace",
        millis(0, 10 * MINUTE),
        "10s",
        "How long a stop waits for calls in work before it ends them.",
    ),
];
