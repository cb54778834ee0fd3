//! Bounds of request fields. Nothing is ever cut to its bound: what passes it is refused.

use std::time::Duration;

use varvelog_store::Offset;

use super::status::FieldViolation;

/// A duration in milliseconds, from `min` to `max`; nothing where it is unset.
pub(super) fn duration_ms(
    field: &str,
    value: Option<&prost_types::Duration>,
    (min, max): (Duration, Duration),
) -> Result<Option<u64>, FieldViolation> {
    let Some(value) = value else { return Ok(None) };
    let refused = || {
        let limit = format!("{} to {}", shown(min), shown(max));
        let got = format!("{}.{:09}s", value.seconds, value.nanos.unsigned_abs());
        let what = format!("must be {limit}");
        FieldViolation::bound(field, limit, got, what)
    };
    let duration = positive(*value).ok_or_else(refused)?;
    if duration < min || duration > max {
        return Err(refused());
    }
    Ok(Some(
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    ))
}

/// The duration, if it is canonical and not negative. (The conversion of `prost` negates without
/// a check, and panics at the least number.)
fn positive(value: prost_types::Duration) -> Option<Duration> {
    let seconds = u64::try_from(value.seconds).ok()?;
    let nanos = u32::try_from(value.nanos).ok()?;
    (nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}

fn shown(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// A count that is 0 for its default, and else at most `max`.
pub(super) fn count(
    field: &str,
    value: i32,
    (default, max): (u32, u32),
) -> Result<u32, FieldViolation> {
    match u32::try_from(value) {
        Ok(0) => Ok(default),
        Ok(value) if value <= max => Ok(value),
        Ok(_) | Err(_) => {
            let what = format!("must be 1 to {max}, or 0 for {default}");
            Err(FieldViolation::bound(field, max, value, what))
        }
    }
}

/// A size in bytes that is 0 for its default, and else from `min` to `max`.
pub(super) fn bytes(
    field: &str,
    value: i64,
    default: u64,
    (min, max): (u64, u64),
) -> Result<u64, FieldViolation> {
    match u64::try_from(value) {
        Ok(0) => Ok(default),
        Ok(value) if (min..=max).contains(&value) => Ok(value),
        Ok(_) | Err(_) => {
            let limit = format!("{min} to {max}");
            let what = format!("must be {limit} bytes, or 0 for {default}");
            Err(FieldViolation::bound(field, limit, value, what))
        }
    }
}

/// A number that must not be negative.
pub(super) fn not_negative(field: &str, value: i64) -> Result<u64, FieldViolation> {
    u64::try_from(value)
        .map_err(|_negative| FieldViolation::bound(field, 0, value, "must not be negative"))
}

/// An offset of a log.
pub(super) fn offset(field: &str, value: i64) -> Result<Offset, FieldViolation> {
    Offset::from_i64(value)
        .ok_or_else(|| FieldViolation::bound(field, 0, value, "must not be negative"))
}

/// Text of at most `max` bytes.
pub(super) fn text(field: &str, value: &str, max: usize) -> Result<(), FieldViolation> {
    if value.len() <= max {
        return Ok(());
    }
    let what = format!("at most {max} bytes are allowed");
    Err(FieldViolation::bound(field, max, value.len(), what))
}

/// An enum whose number this release knows.
pub(super) fn known<E: TryFrom<i32>>(field: &str, value: i32) -> Result<E, FieldViolation> {
    E::try_from(value)
        .map_err(|_unknown| FieldViolation::bound(field, "", value, "is no value of the enum"))
}

#[cfg(test)]
mod tests {
    use varvelog_proto::v1;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn durations_are_taken_within_their_bounds_and_never_cut() {
        let read = |seconds, nanos| {
            let value = prost_types::Duration { seconds, nanos };
            duration_ms("f", Some(&value), (SECOND, SECOND * 60))
        };
        assert_eq!(duration_ms("f", None, (SECOND, SECOND)), Ok(None));
        assert_eq!(read(1, 0), Ok(Some(1000)));
        assert_eq!(read(60, 0), Ok(Some(60_000)));
        for (seconds, nanos) in [
            (0, 999_999_999),
            (60, 1),
            (-1, 0),
            (i64::MIN, i32::MIN),
            (i64::MAX, i32::MAX),
            (1, -5),
            (1, 1_000_000_000),
        ] {
            assert!(read(seconds, nanos).is_err(), "{seconds} {nanos}");
        }
        assert_eq!(read(61, 0).unwrap_err().limit, "1s to 1m");
    }

    #[test]
    fn zero_is_the_default_of_counts_and_sizes() {
        assert_eq!(count("f", 0, (500, 10_000)), Ok(500));
        assert_eq!(count("f", 10_000, (500, 10_000)), Ok(10_000));
        assert_eq!(
            count("f", 10_001, (500, 10_000)).unwrap_err().limit,
            "10000"
        );
        assert!(count("f", -1, (500, 10_000)).is_err());
        assert_eq!(bytes("f", 0, 7, (5, 9)), Ok(7));
        assert!(bytes("f", 4, 7, (5, 9)).is_err());
        assert!(bytes("f", i64::MIN, 7, (5, 9)).is_err());
    }

    #[test]
    fn an_enum_number_that_is_not_known_is_refused() {
        assert_eq!(known::<v1::Acks>("acks", 1), Ok(v1::Acks::None));
        assert!(known::<v1::Acks>("acks", 9).is_err());
    }
}
