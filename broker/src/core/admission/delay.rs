//! When a producer that was turned away is to come back.

use std::time::Duration;

use super::gate::{Behind, Measure};
use super::rate::Rate;
use crate::core::settings::AdmissionSettings;

const SHORTEST_MS: u64 = 100;
const LONGEST_MS: u64 = 30_000;
/// Jitter to either side, in percent.
const JITTER_PERCENT: u64 = 20;

/// About how long the group takes, at the rate at which it settles, down to the resume levels of
/// what it is over: 100 ms to 30 s, and 30 s while it settles nothing.
pub(super) fn to_drain(
    settings: &AdmissionSettings,
    behind: &Behind,
    rate: &Rate,
    now_ms: u64,
) -> Duration {
    let records = Measure::ALL.into_iter().map(|measure| {
        let at = settings.resume_at(measure).unwrap_or(u64::MAX);
        let value = behind.by(measure);
        // Of all records the share by which the value is above: age falls as the oldest go.
        let above = u128::from(value.saturating_sub(at));
        above * u128::from(behind.records) / u128::from(value.max(1))
    });
    let records = records.max().unwrap_or(0);
    let wait_ms = rate.over(now_ms).map_or(LONGEST_MS, |(count, in_ms)| {
        let wait = records * u128::from(in_ms) / u128::from(count.max(1));
        u64::try_from(wait).unwrap_or(LONGEST_MS)
    });
    Duration::from_millis(wait_ms.clamp(SHORTEST_MS, LONGEST_MS))
}

/// The delay with up to a fifth more or less of it, and still within its bounds: those who are
/// turned away together do not come back together.
pub(super) fn with_jitter(delay: Duration, dice: [u8; 16]) -> Duration {
    let base_ms = u64::try_from(delay.as_millis()).unwrap_or(LONGEST_MS);
    let base_ms = base_ms.clamp(
        SHORTEST_MS * 100 / (100 - JITTER_PERCENT),
        LONGEST_MS * 100 / (100 + JITTER_PERCENT),
    );
    let (drawn, _) = dice.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let span = base_ms * JITTER_PERCENT * 2 / 100;
    let drawn = u64::from(u32::from_le_bytes(*drawn));
    let part = span * drawn / u64::from(u32::MAX);
    Duration::from_millis(base_ms - span / 2 + part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dice(value: u32) -> [u8; 16] {
        let mut dice = [0; 16];
        dice[..4].copy_from_slice(&value.to_le_bytes());
        dice
    }

    #[test]
    fn it_is_the_time_to_the_resume_level_at_the_rate_of_now_within_its_bounds() {
        let settings = AdmissionSettings {
            depth_max: 1_000,
            ..AdmissionSettings::default()
        };
        let wait = |records, per_second| {
            let mut rate = Rate::default();
            for second in 0..10 {
                rate.add(second * 1_000, per_second);
            }
            let behind = Behind {
                records,
                ..Behind::default()
            };
            to_drain(&settings, &behind, &rate, 10_000).as_millis()
        };
        // 9 s are looked back at, and the second that begins now.
        assert_eq!(wait(1_000, 100), 2_000);
        assert_eq!(wait(10_800, 1_000), 10_000);
        assert_eq!(wait(1_000, 1_000_000), 100);
        assert_eq!(wait(1_000_000, 1), 30_000);
        assert_eq!(wait(1_000, 0), 30_000);
    }

    #[test]
    fn the_slowest_of_the_measures_decides() {
        let settings = AdmissionSettings {
            depth_max: 100,
            age_max_ms: 10_000,
            bytes_max: 1_000,
            ..AdmissionSettings::default()
        };
        let mut rate = Rate::default();
        rate.add(0, 10);
        let behind = Behind {
            records: 100,
            age_ms: 16_000,
            bytes: 1_600,
        };
        // Half of the records are older than 8 s: 50 at 10 in a second.
        let wait = to_drain(&settings, &behind, &rate, 500);
        assert_eq!(wait, Duration::from_secs(5));
    }

    #[test]
    fn jitter_is_a_fifth_either_way_and_never_leaves_the_bounds() {
        let ms = |delay, value| with_jitter(Duration::from_millis(delay), dice(value)).as_millis();
        assert_eq!((ms(1_000, 0), ms(1_000, u32::MAX)), (800, 1_200));
        assert_eq!((ms(100, 0), ms(100, u32::MAX)), (100, 150));
        assert_eq!((ms(30_000, 0), ms(30_000, u32::MAX)), (20_000, 30_000));
        let middle = ms(10_000, u32::MAX / 2);
        assert!((9_990..=10_010).contains(&middle), "{middle}");
    }
}
