//! Values: what a key may hold, how it is read from text and shown again.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;

const TEXT_BYTES_MAX: usize = 4096;

/// What values a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A path.
    Path,
    /// IP address and port.
    Address,
    /// true or false.
    Switch,
    /// Any text.
    Text,
    /// A number within bounds, both included.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A size within bounds, both included.
    Bytes {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A duration within bounds, both included.
    Duration {
        /// Shortest.
        min: Duration,
        /// Longest.
        max: Duration,
    },
    /// [`SyncPolicy`].
    Sync,
    /// [`DiskReserve`].
    Reserve,
    /// [`LogFormat`].
    Format,
}

impl Kind {
    /// What is accepted, with unit and bounds, for people.
    pub fn expected(&self) -> String {
        match self {
            Self::Path => String::from("a path"),
            Self::Address => String::from("an IP address and port, as 127.0.0.1:7461"),
            Self::Switch => String::from("true or false"),
            Self::Text => String::from("text"),
            Self::Count { min, max } => format!("a number from {min} to {max}"),
            Self::Bytes { min, max } => format!(
                "bytes, or a size with unit, from {} to {}",
                show_bytes(*min),
                show_bytes(*max)
            ),
            Self::Duration { min, max } => format!(
                "a duration with unit (ms, s, m, h, d) from {} to {}",
                show_duration(*min),
                show_duration(*max)
            ),
            Self::Sync => format!(
                "always, never or interval:<duration> from {} to {}",
                show_duration(SyncPolicy::INTERVAL_MIN),
                show_duration(SyncPolicy::INTERVAL_MAX)
            ),
            Self::Reserve => String::from("auto, a size with unit, or a percentage from 0% to 50%"),
            Self::Format => String::from("auto, human or json"),
        }
    }

    /// The value that the text stands for; none if it stands for none within the bounds.
    pub(super) fn parse(&self, text: &str) -> Option<Value> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        match self {
            Self::Path => {
                (!text.is_empty() && !text.contains('\0')).then(|| Value::Path(text.into()))
            }
            Self::Address => parse_address(text).map(Value::Address),
            Self::Switch => text.parse().ok().map(Value::Switch),
            Self::Text => Some(Value::Text(text.to_owned())),
            Self::Count { min, max } => text
                .parse()
                .ok()
                .filter(|n| (min..=max).contains(&n))
                .map(Value::Count),
            Self::Bytes { min, max } => parse_bytes(text)
                .filter(|n| (min..=max).contains(&n))
                .map(Value::Bytes),
            Self::Duration { min, max } => parse_duration(text)
                .filter(|d| (min..=max).contains(&d))
                .map(Value::Duration),
            Self::Sync => SyncPolicy::parse(text).map(Value::Sync),
            Self::Reserve => DiskReserve::parse(text).map(Value::Reserve),
            Self::Format => LogFormat::parse(text).map(Value::Format),
        }
    }
}

/// A value that was read and lies within its bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Path(PathBuf),
    Address(SocketAddr),
    Switch(bool),
    Text(String),
    Count(u64),
    Bytes(u64),
    Duration(Duration),
    Sync(SyncPolicy),
    Reserve(DiskReserve),
    Format(LogFormat),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Switch(on) => on.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Count(n) => n.fmt(f),
            Self::Bytes(n) => f.write_str(&show_bytes(*n)),
            Self::Duration(duration) => f.write_str(&show_duration(*duration)),
            Self::Sync(policy) => policy.fmt(f),
            Self::Reserve(reserve) => reserve.fmt(f),
            Self::Format(format) => f.write_str(format.name()),
        }
    }
}

/// When an append counts as committed: `wal.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Once it is on disk.
    Always,
    /// Once it is written; synced so often in the background.
    Interval(Duration),
    /// Once it is written; the operating system decides when it reaches the disk.
    Never,
}

impl SyncPolicy {
    const INTERVAL_MIN: Duration = Duration::from_millis(1);
    const INTERVAL_MAX: Duration = Duration::from_mins(1);

    fn parse(text: &str) -> Option<Self> {
        match text {
            "always" => Some(Self::Always),
            "never" => Some(Self::Never),
            _ => {
                let interval = parse_duration(text.strip_prefix("interval:")?)?;
                (Self::INTERVAL_MIN..=Self::INTERVAL_MAX)
                    .contains(&interval)
                    .then_some(Self::Interval(interval))
            }
        }
    }
}

impl fmt::Display for SyncPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Interval(interval) => write!(f, "interval:{}", show_duration(*interval)),
            Self::Never => f.write_str("never"),
        }
    }
}

/// Free space that appends leave alone: `disk.reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskReserve {
    /// 5 % of the volume or 1 GiB, whichever is smaller.
    Auto,
    /// So many bytes; 0: no reserve.
    Bytes(u64),
    /// Hundredths of a percent of the volume, 0 to 5,000.
    BasisPoints(u16),
}

impl DiskReserve {
    const AUTO_BYTES_MAX: u64 = 1 << 30;
    const BASIS_POINTS_MAX: u16 = 5000;

    /// The reserve in bytes on a volume of `volume_bytes`.
    pub fn bytes(self, volume_bytes: u64) -> u64 {
        match self {
            Self::Auto => (volume_bytes / 20).min(Self::AUTO_BYTES_MAX),
            Self::Bytes(bytes) => bytes,
            Self::BasisPoints(points) => {
                let share = u128::from(volume_bytes) * u128::from(points) / 10_000;
                u64::try_from(share).unwrap_or(volume_bytes)
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "auto" {
            return Some(Self::Auto);
        }
        let Some(percent) = text.strip_suffix('%') else {
            return parse_bytes(text).map(Self::Bytes);
        };
        let (whole, fraction) = percent
            .trim_end()
            .split_once('.')
            .unwrap_or((percent.trim_end(), "0"));
        if fraction.is_empty() || fraction.len() > 2 {
            return None;
        }
        let hundredths = parse_digits(&format!("{fraction:0<2}"))?;
        let points = parse_digits(whole)?
            .checked_mul(100)?
            .checked_add(hundredths)?;
        (points <= Self::BASIS_POINTS_MAX).then_some(Self::BasisPoints(points))
    }
}

impl fmt::Display for DiskReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Bytes(bytes) => f.write_str(&show_bytes(*bytes)),
            Self::BasisPoints(points) if points % 100 == 0 => write!(f, "{}%", points / 100),
            Self::BasisPoints(points) => write!(f, "{}.{:02}%", points / 100, points % 100),
        }
    }
}

/// Form of the broker's own log: `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Human on a terminal, else JSON.
    Auto,
    /// Lines for people.
    Human,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Human => "human",
            Self::Json => "json",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Auto, Self::Human, Self::Json]
            .into_iter()
            .find(|format| format.name() == text)
    }
}

/// `localhost` stands for 127.0.0.1; no other name is looked up.
fn parse_address(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}").parse().ok(),
        None => text.parse().ok(),
    }
}

fn parse_digits(text: &str) -> Option<u16> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

fn parse_bytes(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(|size| size.as_u64())
}

/// A number without unit is refused, but for 0.
fn parse_duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

/// In the largest unit that divides it, so that nothing is rounded.
pub(super) fn show_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    for (unit_bytes, unit) in UNITS {
        if bytes >= unit_bytes && bytes.is_multiple_of(unit_bytes) {
            return format!("{} {unit}", bytes / unit_bytes);
        }
    }
    format!("{bytes} B")
}

pub(super) fn show_duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}
