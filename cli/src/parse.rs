//! What users type: durations, sizes, positions, pairs, records.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use clap::ValueEnum;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use varvelog_client::Position;
use varvelog_proto::v1;

/// A duration with unit, such as `500ms`, `30s`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_syntax| format!("`{text}` is no duration: give a number with ms, s, m, h or d"))
}

/// A duration, or `none` for no limit, which the contract writes as zero.
pub(crate) fn duration_or_none(text: &str) -> Result<Duration, String> {
    if text == "none" {
        Ok(Duration::ZERO)
    } else {
        duration(text)
    }
}

/// A size in bytes or with unit, such as `1048576`, `128MiB`, `1.5 GB`.
pub(crate) fn bytes(text: &str) -> Result<i64, String> {
    text.parse::<ByteSize>()
        .ok()
        .and_then(|size| i64::try_from(size.as_u64()).ok())
        .ok_or_else(|| format!("`{text}` is no size: give bytes, or KiB, MiB, GiB"))
}

/// A size, or `none` for no limit, which the contract writes as zero.
pub(crate) fn bytes_or_none(text: &str) -> Result<i64, String> {
    if text == "none" { Ok(0) } else { bytes(text) }
}

/// A count, or `none` for no limit, which the contract writes as zero.
pub(crate) fn count_or_none(text: &str) -> Result<i64, String> {
    let count = if text == "none" {
        Some(0)
    } else {
        text.parse().ok()
    };
    let count = count.filter(|count| text == "none" || *count > 0);
    count.ok_or_else(|| format!("`{text}` is no count: give a number above 0, or none"))
}

/// A number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| format!("`{text}` is no number above 0"))
}

/// A number from 0 to 1.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number: &f64| (0.0..=1.0).contains(number));
    number.ok_or_else(|| format!("`{text}` is no share: give a number from 0 to 1"))
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }
}

/// A record, by its first append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

impl RecordPlace {
    /// As the contract says it.
    pub(crate) fn to_record(&self) -> v1::TopicPartitionOffset {
        v1::TopicPartitionOffset {
            topic: self.topic.clone(),
            partition: self.partition,
            offset: self.offset,
        }
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}", self.topic, self.partition, self.offset)
    }
}

/// `TOPIC/PARTITION@OFFSET`.
pub(crate) fn record_place(text: &str) -> Result<RecordPlace, String> {
    let place = || {
        let (topic, place) = text.split_once('/')?;
        let (partition, offset) = place.split_once('@')?;
        let partition = partition.parse().ok().filter(|number| *number >= 0)?;
        let offset = offset.parse().ok().filter(|number| *number >= 0)?;
        (!topic.is_empty()).then(|| RecordPlace {
            topic: topic.to_owned(),
            partition,
            offset,
        })
    };
    place().ok_or_else(|| {
        format!("`{text}` is no record: give TOPIC/PARTITION@OFFSET, such as orders/3@17")
    })
}

/// `NAME=VALUE`. The value may hold further `=`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is no NAME=VALUE")),
    }
}

/// Where reading begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// The oldest record kept.
    Earliest,
    /// Behind the newest record.
    Latest,
    /// An offset.
    Offset(i64),
    /// So many records before the end of each partition.
    Last(i64),
    /// Records appended at or after, Unix milliseconds.
    Time(i64),
    /// Records appended so long ago or later.
    Ago(Duration),
}

impl From {
    /// As the contract says it; `now_ms` is the wall clock.
    pub(crate) fn to_position(self, now_ms: i64) -> v1::Position {
        self.to_client_position(now_ms).into()
    }

    /// As the client says it; `now_ms` is the wall clock.
    pub(crate) fn to_client_position(self, now_ms: i64) -> Position {
        match self {
            Self::Earliest => Position::Earliest,
            Self::Latest => Position::Latest,
            Self::Offset(offset) => Position::Offset(offset),
            Self::Last(records) => Position::LastN(records),
            Self::Time(time_ms) => Position::Timestamp(time_ms),
            Self::Ago(age) => {
                let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                Position::Timestamp(now_ms.saturating_sub(age_ms).max(0))
            }
        }
    }
}

/// `earliest`, `latest`, an offset, `-N` (the last N of each partition), `-15m` (so long ago),
/// `@MILLISECONDS`, or a time, which is local if it names no zone.
pub(crate) fn from(text: &str) -> Result<From, String> {
    match text {
        "earliest" | "start" => return Ok(From::Earliest),
        "latest" | "end" => return Ok(From::Latest),
        _ => {}
    }
    if let Some(unix_ms) = text.strip_prefix('@') {
        let time_ms = unix_ms.parse().ok().filter(|time_ms| *time_ms >= 0);
        return time_ms.map(From::Time).ok_or_else(|| no_position(text));
    }
    if let Some(back) = text.strip_prefix('-') {
        return match back.parse().ok().filter(|records| *records >= 0) {
            Some(records) => Ok(From::Last(records)),
            None => duration(back)
                .map(From::Ago)
                .map_err(|_syntax| no_position(text)),
        };
    }
    if let Some(offset) = text.parse().ok().filter(|offset| *offset >= 0) {
        return Ok(From::Offset(offset));
    }
    time_ms(text)
        .map(From::Time)
        .ok_or_else(|| no_position(text))
}

/// A point in time in Unix milliseconds.
pub(crate) fn time(text: &str) -> Result<i64, String> {
    time_ms(text).ok_or_else(|| format!("`{text}` is no time such as 2001-01-13T14:56:00Z"))
}

fn time_ms(text: &str) -> Option<i64> {
    let timestamp = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let local = text.parse::<DateTime>().ok()?;
        local
            .to_zoned_datetime(TimeZone::system())
            .ok()
            .map(|zoned| zoned.timestamp())
    })?;
    Some(timestamp.as_millisecond()).filter(|time_ms| *time_ms >= 0)
}

fn no_position(text: &str) -> String {
    format!(
        "`{text}` is no position: earliest, latest, an offset, -N for the last N, -15m for so \
         long ago, or a time such as 2001-01-13T14:56:00Z"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h 30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration_or_none("none"), Ok(Duration::ZERO));
        for wrong in [
            "5",
            "",
            "-1s",
            "1 fortnight",
            "1e3s",
            "99999999999999999999y",
        ] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_take_binary_and_decimal_units() {
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert_eq!(bytes("128MiB"), Ok(128 << 20));
        assert_eq!(bytes("1 kB"), Ok(1000));
        assert_eq!(bytes_or_none("none"), Ok(0));
        for wrong in ["", "-1", "MiB", "1 parsec", "18446744073709551615"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_pair_is_cut_at_its_first_equals_sign() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert_eq!(pair("a="), Ok(("a".into(), String::new())));
        assert!(pair("=b").is_err());
        assert!(pair("ab").is_err());
    }

    #[test]
    fn a_record_is_named_by_topic_partition_and_offset() {
        let place = record_place("orders.eu/3@17").unwrap();
        assert_eq!(
            (place.topic.as_str(), place.partition, place.offset),
            ("orders.eu", 3, 17)
        );
        assert_eq!(place.to_string(), "orders.eu/3@17");
        for wrong in [
            "",
            "orders",
            "orders/3",
            "orders@17",
            "/3@17",
            "o/-1@1",
            "o/1@-1",
            "o/1@x",
        ] {
            assert!(record_place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_within_what_they_mean() {
        assert_eq!(count_or_none("1000"), Ok(1000));
        assert_eq!(count_or_none("none"), Ok(0));
        assert!(count_or_none("0").is_err() && count_or_none("-1").is_err());
        assert_eq!(positive("0.25"), Ok(0.25));
        assert!(positive("0").is_err() && positive("inf").is_err() && positive("NaN").is_err());
        assert_eq!((share("0"), share("1")), (Ok(0.0), Ok(1.0)));
        assert!(share("1.01").is_err() && share("NaN").is_err());
    }

    #[test]
    fn every_form_of_a_position_is_read() {
        assert_eq!(from("earliest"), Ok(From::Earliest));
        assert_eq!(from("latest"), Ok(From::Latest));
        assert_eq!(from("17"), Ok(From::Offset(17)));
        assert_eq!(from("-17"), Ok(From::Last(17)));
        assert_eq!(from("-15m"), Ok(From::Ago(Duration::from_mins(15))));
        assert_eq!(from("@979397760000"), Ok(From::Time(979_397_760_000)));
        assert_eq!(
            from("2001-01-13T14:56:00Z"),
            Ok(From::Time(979_397_760_000))
        );
        assert_eq!(
            from("2001-01-13T15:56:00+01:00"),
            Ok(From::Time(979_397_760_000))
        );
        assert!(matches!(from("2001-01-13 14:56"), Ok(From::Time(_))));
        for wrong in [
            "",
            "-",
            "--1",
            "@",
            "@-5",
            "soon",
            "1969-01-01T00:00:00Z",
            "-5x",
            "1.5",
        ] {
            assert!(from(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_position_so_long_ago_is_counted_from_now() {
        use v1::position::At;
        let position = From::Ago(Duration::from_secs(2)).to_position(5000);
        assert_eq!(position.at, Some(At::TimestampMs(3000)));
        let position = From::Ago(Duration::MAX).to_position(5000);
        assert_eq!(position.at, Some(At::TimestampMs(0)));
    }
}
