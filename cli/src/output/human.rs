//! Numbers and times as people read them.

use std::fmt::Write as _;
use std::time::Duration;

use bytesize::ByteSize;
use jiff::tz::TimeZone;

/// Two units at most: `3.2s`, `5m 10s`, `2days 3h`.
pub(crate) fn show_age(age: Duration) -> String {
    if age < Duration::from_secs(1) {
        return format!("{}ms", age.as_millis());
    }
    if age < Duration::from_mins(1) {
        let tenths = age.as_millis() / 100;
        return format!("{}.{}s", tenths / 10, tenths % 10);
    }
    let whole = humantime::format_duration(Duration::from_secs(age.as_secs())).to_string();
    whole.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// `1.7 MiB`.
pub(crate) fn show_bytes(bytes: i64) -> String {
    match u64::try_from(bytes) {
        Ok(bytes) => ByteSize(bytes).display().iec().to_string(),
        Err(_) => bytes.to_string(),
    }
}

/// `20,000`.
pub(crate) fn show_count(count: i64) -> String {
    let digits = count.unsigned_abs().to_string();
    let mut shown = String::from(if count < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A point in time with seconds; `-` if unset.
pub(crate) fn show_time(time: Option<&prost_types::Timestamp>, zone: &TimeZone) -> String {
    let timestamp = time.and_then(|time| jiff::Timestamp::new(time.seconds, time.nanos).ok());
    timestamp.map_or_else(
        || String::from("-"),
        |timestamp| {
            timestamp
                .to_zoned_datetime(zone.clone())
                .strftime("%Y-%m-%d %H:%M:%S")
                .to_string()
        },
    )
}

/// Unix milliseconds as a point in time with milliseconds; `-` if negative.
pub(crate) fn show_time_ms(time_ms: i64, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_millisecond(time_ms) {
        Ok(timestamp) if time_ms >= 0 => timestamp
            .to_zoned_datetime(zone.clone())
            .strftime("%Y-%m-%d %H:%M:%S%.3f")
            .to_string(),
        _ => String::from("-"),
    }
}

/// Text that came from elsewhere, such that it cannot move the cursor or change colours.
/// Bytes that are not UTF-8 are shown as `\xNN`.
pub(crate) fn show_text(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() && character != '\t' {
                shown.extend(character.escape_default());
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            write!(shown, "\\x{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_two_units_at_most() {
        let cases = [
            (Duration::from_millis(0), "0ms"),
            (Duration::from_millis(999), "999ms"),
            (Duration::from_millis(3250), "3.2s"),
            (Duration::from_millis(310_900), "5m 10s"),
            (
                Duration::from_hours(51) + Duration::from_secs(1),
                "2days 3h",
            ),
        ];
        for (age, shown) in cases {
            assert_eq!(show_age(age), shown);
        }
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        let shown = [0, 999, 1000, 20_000, 1_234_567, -1000].map(show_count);
        assert_eq!(
            shown,
            ["0", "999", "1,000", "20,000", "1,234,567", "-1,000"]
        );
    }

    #[test]
    fn times_are_shown_in_the_zone_or_not_at_all() {
        assert_eq!(
            show_time_ms(979_397_760_123, &TimeZone::UTC),
            "2001-01-13 14:56:00.123"
        );
        assert_eq!(show_time_ms(-1, &TimeZone::UTC), "-");
        assert_eq!(show_time(None, &TimeZone::UTC), "-");
        let time = prost_types::Timestamp {
            seconds: 979_397_760,
            nanos: 0,
        };
        assert_eq!(
            show_time(Some(&time), &TimeZone::UTC),
            "2001-01-13 14:56:00"
        );
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(show_text(b"\x1b[2Ja\tb\n\xff"), "\\u{1b}[2Ja\tb\\n\\xff");
        assert_eq!(show_text("Zürich".as_bytes()), "Zürich");
    }
}
