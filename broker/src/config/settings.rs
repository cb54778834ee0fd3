//! The typed configuration, and the one way to make it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::error::ConfigError;
use super::keys::{KEYS, Key};
use super::sources::{RawValues, Source, Sources, gather};
use super::value::{DiskReserve, LogFormat, SyncPolicy, Value, show_bytes};

const MIB: u64 = 1 << 20;
const RECORD_BYTES_MAX: u64 = 16 * MIB;

/// A valid configuration. The meaning, unit and bounds of each field are those of its key in
/// [`KEYS`].
#[derive(Clone, Debug)]
pub struct Config {
    /// `data_dir`.
    pub data_dir: PathBuf,
    /// `listen`.
    pub listen: SocketAddr,
    /// `http_listen`.
    pub http_listen: SocketAddr,
    /// `insecure`.
    pub insecure: bool,
    /// `edges`; 0: as many as there are cores.
    pub edges: usize,
    /// `wal.*`.
    pub wal: WalSettings,
    /// `checkpoint.*`.
    pub checkpoint: CheckpointSettings,
    /// `flush.*`.
    pub flush: FlushSettings,
    /// `retention.*`.
    pub retention: RetentionSettings,
    /// `topics.*`.
    pub topics: TopicSettings,
    /// `disk.*`.
    pub disk: DiskSettings,
    /// `groups.*`.
    pub groups: GroupSettings,
    /// `producers.*`.
    pub producers: ProducerSettings,
    /// `limits.*`.
    pub limits: LimitSettings,
    /// `log.*`.
    pub log: LogSettings,
    /// `shutdown.*`.
    pub shutdown: ShutdownSettings,
    entries: Vec<Entry>,
}

/// The write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalSettings {
    /// `wal.sync`.
    pub sync: SyncPolicy,
    /// `wal.file_bytes`.
    pub file_bytes: u64,
}

/// When checkpoints are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointSettings {
    /// `checkpoint.wal_bytes`.
    pub wal_bytes: u64,
    /// `checkpoint.interval`.
    pub interval: Duration,
}

/// When committed records are written to segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushSettings {
    /// `flush.interval`.
    pub interval: Duration,
    /// `flush.unflushed_bytes`; at most half of `limits.memory`.
    pub unflushed_bytes: u64,
}

/// When retention is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionSettings {
    /// `retention.check_interval`.
    pub check_interval: Duration,
}

/// What holds for all topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// `topics.unlink_delay`; may be zero.
    pub unlink_delay: Duration,
}

/// The data volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSettings {
    /// `disk.reserve`.
    pub reserve: DiskReserve,
}

/// What holds for all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `groups.offset_retention`.
    pub offset_retention: Duration,
}

/// What holds for all producers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerSettings {
    /// `producers.expiry`.
    pub expiry: Duration,
}

/// How much there may be of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// `limits.request_bytes`.
    pub request_bytes: usize,
    /// `limits.memory`.
    pub memory_bytes: u64,
    /// `limits.topics`.
    pub topics: usize,
    /// `limits.partitions`.
    pub partitions: usize,
    /// `limits.groups`.
    pub groups: usize,
    /// `limits.members`, of one group.
    pub members: usize,
    /// `limits.producers_per_partition`.
    pub producers_per_partition: usize,
    /// `limits.request_ids`, of one topic.
    pub request_ids: usize,
    /// `limits.message_ids`, of one topic.
    pub message_ids: usize,
    /// `limits.connections`.
    pub connections: usize,
    /// `limits.connections_per_address`.
    pub connections_per_address: usize,
    /// `limits.streams_per_connection`.
    pub streams_per_connection: u32,
}

impl LimitSettings {
    /// The largest `max_record_bytes` that a topic may have, so that one record with its frame
    /// always fits into a request: `request_bytes` less 1 MiB, at most 16 MiB.
    pub fn record_bytes_max(&self) -> u32 {
        let request_bytes = u64::try_from(self.request_bytes).unwrap_or(u64::MAX);
        let bytes = request_bytes.saturating_sub(MIB).min(RECORD_BYTES_MAX);
        u32::try_from(bytes).expect("at most 16 MiB")
    }
}

/// The broker's own log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// `log.format`.
    pub format: LogFormat,
    /// `log.filter`.
    pub filter: String,
}

/// A clean stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// `shutdown.grace`.
    pub grace: Duration,
}

/// A key in force, as it may be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// As in the file, with dots.
    pub key: &'static str,
    /// Empty if sensitive.
    pub value: String,
    /// Where it comes from.
    pub source: Source,
    /// A secret.
    pub sensitive: bool,
}

impl Config {
    /// Reads all layers and checks every value and what must hold between values.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let raw = gather(sources)?;
        let mut values = BTreeMap::new();
        let mut entries = Vec::with_capacity(KEYS.len());
        for key in KEYS {
            let (value, source) = read(key, &raw)?;
            let shown = if key.sensitive {
                String::new()
            } else {
                value.to_string()
            };
            let sensitive = key.sensitive;
            entries.push(Entry {
                key: key.name,
                value: shown,
                source,
                sensitive,
            });
            values.insert(key.name, value);
        }
        let config = Self::from_values(&Values(values), entries);
        config.check()?;
        Ok(config)
    }

    /// Every key in force, in the order of [`KEYS`].
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    fn from_values(values: &Values, entries: Vec<Entry>) -> Self {
        Self {
            data_dir: values.path("data_dir"),
            listen: values.address("listen"),
            http_listen: values.address("http_listen"),
            insecure: values.switch("insecure"),
            edges: values.count("edges"),
            wal: WalSettings {
                sync: values.sync("wal.sync"),
                file_bytes: values.bytes("wal.file_bytes"),
            },
            checkpoint: CheckpointSettings {
                wal_bytes: values.bytes("checkpoint.wal_bytes"),
                interval: values.duration("checkpoint.interval"),
            },
            flush: FlushSettings {
                interval: values.duration("flush.interval"),
                unflushed_bytes: values.bytes("flush.unflushed_bytes"),
            },
            retention: RetentionSettings {
                check_interval: values.duration("retention.check_interval"),
            },
            topics: TopicSettings {
                unlink_delay: values.duration("topics.unlink_delay"),
            },
            disk: DiskSettings {
                reserve: values.reserve("disk.reserve"),
            },
            groups: GroupSettings {
                offset_retention: values.duration("groups.offset_retention"),
            },
            producers: ProducerSettings {
                expiry: values.duration("producers.expiry"),
            },
            limits: values.limits(),
            log: LogSettings {
                format: values.format("log.format"),
                filter: values.text("log.filter"),
            },
            shutdown: ShutdownSettings {
                grace: values.duration("shutdown.grace"),
            },
            entries,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (key, address) in [("listen", self.listen), ("http_listen", self.http_listen)] {
            if !self.insecure && !is_loopback(address.ip()) {
                return Err(ConfigError::Exposed { key, address });
            }
        }
        if self.listen.port() != 0 && self.listen == self.http_listen {
            return Err(ConfigError::Conflict {
                key: "listen",
                value: self.listen.to_string(),
                other_key: "http_listen",
                other_value: self.http_listen.to_string(),
                rule: "the two need a port each",
            });
        }
        if self.flush.unflushed_bytes > self.limits.memory_bytes / 2 {
            return Err(ConfigError::Conflict {
                key: "flush.unflushed_bytes",
                value: show_bytes(self.flush.unflushed_bytes),
                other_key: "limits.memory",
                other_value: show_bytes(self.limits.memory_bytes),
                rule: "unflushed records may take half of the memory at most",
            });
        }
        Ok(())
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

fn read(key: &'static Key, raw: &RawValues) -> Result<(Value, Source), ConfigError> {
    let Some(raw) = raw.get(key.name) else {
        let value = key
            .kind
            .parse(key.default)
            .expect("every default is within its bounds");
        return Ok((value, Source::Default));
    };
    match key.kind.parse(&raw.text) {
        Some(value) => Ok((value, raw.source)),
        None => Err(ConfigError::InvalidValue {
            place: raw.place.clone(),
            key: key.name,
            shown: if key.sensitive {
                String::from("a secret")
            } else {
                quote(&raw.text)
            },
            expected: key.kind.expected(),
        }),
    }
}

/// Quoted, escaped and cut, so that no value can garble a terminal.
fn quote(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let cut: String = text.chars().take(CHARS_MAX).collect();
    let more = if cut.len() < text.len() { "..." } else { "" };
    format!("{cut:?}{more}")
}

/// A value of each key. A getter is called with a name whose kind it fits; anything else is an
/// error in this file, found by every load.
struct Values(BTreeMap<&'static str, Value>);

macro_rules! getters {
    ($($name:ident: $variant:ident -> $type:ty),+ $(,)?) => {
        $(fn $name(&self, key: &str) -> $type {
            match self.0.get(key) {
                Some(Value::$variant(value)) => value.clone(),
                other => panic!("{key} holds {other:?}"),
            }
        })+
    };
}

impl Values {
    getters! {
        path: Path -> PathBuf,
        address: Address -> SocketAddr,
        switch: Switch -> bool,
        text: Text -> String,
        bytes: Bytes -> u64,
        duration: Duration -> Duration,
        sync: Sync -> SyncPolicy,
        reserve: Reserve -> DiskReserve,
        format: Format -> LogFormat,
        number: Count -> u64,
    }

    fn count(&self, key: &str) -> usize {
        usize::try_from(self.number(key)).expect("no count passes 16,000,000")
    }

    fn limits(&self) -> LimitSettings {
        LimitSettings {
            request_bytes: usize::try_from(self.bytes("limits.request_bytes"))
                .expect("at most 64 MiB"),
            memory_bytes: self.bytes("limits.memory"),
            topics: self.count("limits.topics"),
            partitions: self.count("limits.partitions"),
            groups: self.count("limits.groups"),
            members: self.count("limits.members"),
            producers_per_partition: self.count("limits.producers_per_partition"),
            request_ids: self.count("limits.request_ids"),
            message_ids: self.count("limits.message_ids"),
            connections: self.count("limits.connections"),
            connections_per_address: self.count("limits.connections_per_address"),
            streams_per_connection: u32::try_from(self.number("limits.streams_per_connection"))
                .expect("at most 10,000"),
        }
    }
}
