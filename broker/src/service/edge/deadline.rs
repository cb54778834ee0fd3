//! The caller's deadline: `grpc-timeout`.

use std::time::Duration;

use http::HeaderMap;

/// The header that carries it.
const HEADER: &str = "grpc-timeout";
const DIGITS_MAX: usize = 8;

/// A deadline that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// How long the caller waits; nothing if it waits for ever.
pub(super) fn timeout_of(headers: &HeaderMap) -> Result<Option<Duration>, Unreadable> {
    let Some(value) = headers.get(HEADER) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_not_text| Unreadable)?;
    let (unit_at, unit) = text.char_indices().next_back().ok_or(Unreadable)?;
    let digits = text.get(..unit_at).unwrap_or_default();
    if digits.is_empty() || digits.len() > DIGITS_MAX {
        return Err(Unreadable);
    }
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unreadable);
    }
    let count: u64 = digits.parse().map_err(|_not_a_number| Unreadable)?;
    let timeout = match unit {
        'H' => Duration::from_hours(count),
        'M' => Duration::from_mins(count),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return Err(Unreadable),
    };
    Ok(Some(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &'static str) -> Result<Option<Duration>, Unreadable> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, http::HeaderValue::from_static(value));
        timeout_of(&headers)
    }

    #[test]
    fn every_unit_is_read_and_the_longest_value_fits() {
        assert_eq!(timeout_of(&HeaderMap::new()), Ok(None));
        assert_eq!(of("2H"), Ok(Some(Duration::from_hours(2))));
        assert_eq!(of("3M"), Ok(Some(Duration::from_mins(3))));
        assert_eq!(of("4S"), Ok(Some(Duration::from_secs(4))));
        assert_eq!(of("5m"), Ok(Some(Duration::from_millis(5))));
        assert_eq!(of("6u"), Ok(Some(Duration::from_micros(6))));
        assert_eq!(of("7n"), Ok(Some(Duration::from_nanos(7))));
        assert_eq!(of("99999999H"), Ok(Some(Duration::from_hours(99_999_999))));
    }

    #[test]
    fn what_is_no_timeout_is_refused() {
        for bad in [
            "",
            "S",
            "5",
            "5x",
            "-5S",
            "+5S",
            "5 S",
            "123456789S",
            "1.5S",
        ] {
            assert_eq!(of(bad), Err(Unreadable), "{bad:?}");
        }
    }
}
