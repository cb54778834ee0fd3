//! Positions of requests (earliest, latest, an offset, a time, the last N), resolved against a
//! log.

use varvelog_proto::v1;
use varvelog_proto::v1::position::At;
use varvelog_store::partition::ReadError;
use varvelog_store::{Offset, WallMs};

use super::read::on_disk;
use super::status::FieldViolation;
use crate::view::PartitionView;

/// Where to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Position {
    /// At the oldest record kept.
    Earliest,
    /// Behind the last record.
    Latest,
    /// At an offset, brought into the log.
    Offset(Offset),
    /// At the first record appended at or after a time.
    Time(WallMs),
    /// So many records before the end.
    LastN(u64),
}

impl Position {
    /// Reads a position; `unset` where there is none.
    pub(super) fn read(
        field: &str,
        position: Option<&v1::Position>,
        unset: Self,
    ) -> Result<Self, FieldViolation> {
        let bad = |part: &str, value: i64| {
            FieldViolation::bound(format!("{field}.{part}"), 0, value, "must not be negative")
        };
        match position.and_then(|position| position.at.as_ref()) {
            None => Ok(unset),
            Some(At::Earliest(_)) => Ok(Self::Earliest),
            Some(At::Latest(_)) => Ok(Self::Latest),
            Some(At::Offset(offset)) => {
                let read = Offset::from_i64(*offset).ok_or_else(|| bad("offset", *offset))?;
                Ok(Self::Offset(read))
            }
            Some(At::TimestampMs(time)) if *time >= 0 => Ok(Self::Time(WallMs(*time))),
            Some(At::TimestampMs(time)) => Err(bad("timestamp_ms", *time)),
            Some(At::LastN(count)) => u64::try_from(*count)
                .map(Self::LastN)
                .map_err(|_negative| bad("last_n", *count)),
        }
    }

    /// The offset in a partition: between its log start and its end.
    pub(super) async fn resolve(self, partition: &PartitionView) -> Result<Offset, ReadError> {
        let (earliest, latest) = bounds(partition);
        Ok(match self {
            Self::Earliest => earliest,
            Self::Latest => latest,
            Self::Offset(offset) => offset.clamp(earliest, latest),
            Self::LastN(count) => latest.minus(count).max(earliest),
            Self::Time(time) => {
                let reader = partition.reader.clone();
                let found = on_disk(move || reader.first_at_or_after(time)).await?;
                found.map_or(latest, |(offset, _)| offset.clamp(earliest, latest))
            }
        })
    }
}

/// Log start and visible end of a partition.
pub(super) fn bounds(partition: &PartitionView) -> (Offset, Offset) {
    let earliest = partition.reader.start();
    // The start may pass an end that was looked at before.
    (earliest, (*partition.end.borrow()).max(earliest))
}
