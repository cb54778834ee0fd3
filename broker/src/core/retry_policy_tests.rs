use proptest::prelude::*;

use super::*;

fn without_jitter() -> RetryPolicy {
    RetryPolicy {
        jitter_ppm: 0,
        ..RetryPolicy::list()
    }
}

fn exponential(base_ms: u64, multiplier_permille: u32, delay_max_ms: u64) -> RetryPolicy {
    RetryPolicy {
        schedule: Schedule::Exponential {
            base_ms,
            multiplier_permille,
            delay_max_ms,
            clamp_after_jitter: false,
        },
        jitter_max_ms: 0,
        ..RetryPolicy::exponential()
    }
}

fn clamped_after_jitter() -> RetryPolicy {
    let mut policy = RetryPolicy::exponential();
    if let Schedule::Exponential {
        clamp_after_jitter, ..
    } = &mut policy.schedule
    {
        *clamp_after_jitter = true;
    }
    policy
}

/// Numbers that look random, the same in each run.
fn draws(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|number| murmur2::murmur64a(&number.to_le_bytes(), 7))
}

#[test]
fn t05_the_first_retry_of_the_list_waits_exactly_its_first_delay_without_jitter() {
    assert!(draws(100).all(|draw| without_jitter().delay_ms(1, draw) == 1_000));
}

#[test]
fn the_list_goes_through_its_delays_and_repeats_the_last() {
    let delays = [1, 2, 3, 4, 5, 6, u32::MAX].map(|n| without_jitter().delay_ms(n, 0));
    let last = 1_000_000;
    assert_eq!(delays, [1_000, 10_000, 100_000, last, last, last, last]);
}

#[test]
fn the_default_adds_up_to_a_tenth_of_jitter() {
    let policy = RetryPolicy::default();
    for (failures, delay_ms) in [(1, 1_000), (2, 10_000), (3, 100_000), (4, 1_000_000)] {
        assert_eq!(policy.delay_ms(failures, 0), delay_ms);
        assert_eq!(
            policy.delay_ms(failures, u64::MAX),
            delay_ms + delay_ms / 10
        );
    }
}

#[test]
fn the_larger_bound_of_the_jitter_holds() {
    let policy = RetryPolicy {
        jitter_max_ms: 500,
        ..RetryPolicy::list()
    };
    assert_eq!(policy.delay_ms(1, u64::MAX), 1_500);
    assert_eq!(policy.delay_ms(2, u64::MAX), 11_000);
}

#[test]
fn t07_exponential_delays_spread_evenly_over_their_jitter_and_are_never_shorter_than_the_base() {
    let policy = RetryPolicy::exponential();
    for failures in 1..=4_u32 {
        let base_ms = 1_000 << (failures - 1);
        let mut tenths = [0_u32; 10];
        for draw in draws(10_000) {
            let over_ms = policy
                .delay_ms(failures, draw)
                .checked_sub(base_ms)
                .unwrap();
            assert!(over_ms <= 500, "{over_ms}");
            tenths[usize::try_from(over_ms * 10 / 501).unwrap()] += 1;
        }
        // 1,000 each, and 30 is one standard deviation.
        assert!(
            tenths.iter().all(|n| (850..1_150).contains(n)),
            "{tenths:?}"
        );
    }
}

#[test]
fn t08_at_the_cap_the_delay_keeps_its_jitter_unless_it_is_clamped_after_it() {
    for failures in (7..=100).chain([1_000, u32::MAX]) {
        for draw in draws(20).chain([0, u64::MAX]) {
            let delay_ms = RetryPolicy::exponential().delay_ms(failures, draw);
            assert!((60_000..=60_500).contains(&delay_ms), "{delay_ms}");
            assert_eq!(clamped_after_jitter().delay_ms(failures, draw), 60_000);
        }
    }
}

#[test]
fn below_the_cap_the_textbook_form_is_cut_at_it_only() {
    let policy = clamped_after_jitter();
    assert_eq!(policy.delay_ms(6, 0), 32_000);
    assert_eq!(policy.delay_ms(6, u64::MAX), 32_500);
    let cut = RetryPolicy {
        jitter_max_ms: 40_000,
        ..policy
    };
    assert_eq!(cut.delay_ms(6, u64::MAX), 60_000);
}

#[test]
fn a_multiplier_that_is_no_whole_number_does_not_drift() {
    let policy = exponential(1_000, 1_500, DELAY_MAX_MS);
    let delays = [1, 2, 3, 4, 5].map(|failures| policy.delay_ms(failures, 0));
    // 1,000 × 1.5^n; a part of a millisecond counts as a whole one.
    assert_eq!(delays, [1_000, 1_500, 2_250, 3_375, 5_063]);
    let slow = exponential(1_000_000, 1_001, DELAY_MAX_MS);
    // 1,000,000 × 1.001^100 = 1,105,115.697...
    assert_eq!(slow.delay_ms(101, 0), 1_105_116);
}

#[test]
fn a_multiplier_of_one_is_a_constant_delay() {
    assert_eq!(exponential(250, 1_000, 60_000).delay_ms(u32::MAX, 0), 250);
}

#[test]
fn no_delay_is_below_the_floor_even_where_a_policy_names_none() {
    let empty = RetryPolicy {
        schedule: Schedule::List(Vec::new()),
        ..without_jitter()
    };
    assert_eq!(empty.delay_ms(1, 0), DELAY_FLOOR_MS);
    assert_eq!(exponential(0, 0, 0).delay_ms(3, 0), DELAY_FLOOR_MS);
}

#[test]
fn the_largest_delay_is_the_largest_that_the_deliveries_reach() {
    assert_eq!(RetryPolicy::list().largest_delay_ms(), 1_000_000);
    assert_eq!(RetryPolicy::exponential().largest_delay_ms(), 8_000);
    let many = RetryPolicy {
        deliveries_max: 100,
        ..RetryPolicy::exponential()
    };
    assert_eq!(many.largest_delay_ms(), 60_000);
    for policy in [RetryPolicy::list(), RetryPolicy::exponential()] {
        let one = RetryPolicy {
            deliveries_max: 1,
            ..policy
        };
        assert_eq!(one.largest_delay_ms(), 0);
    }
}

#[test]
fn the_default_list_is_as_long_as_the_deliveries_have_use_for() {
    assert!(Schedule::listed_delays(1).is_empty());
    assert_eq!(Schedule::listed_delays(3), [1_000, 10_000]);
    assert_eq!(Schedule::listed_delays(1_000).len(), 4);
}

#[test]
fn the_first_rule_that_matches_decides_and_then_the_default() {
    let rule = |pattern: &str, permanent| ErrorRule {
        pattern: pattern.into(),
        permanent,
    };
    let rules = vec![
        rule("VAL_OK", false),
        rule("VAL_*", true),
        rule("VAL_*", false),
        rule("exact", true),
    ];
    let mut policy = RetryPolicy {
        rules,
        ..RetryPolicy::list()
    };
    let permanent = |policy: &RetryPolicy, code| policy.classify(code) == ErrorClass::Permanent;
    assert!(
        permanent(&policy, "VAL_7") && permanent(&policy, "VAL_") && permanent(&policy, "exact")
    );
    assert!(
        ["VAL_OK", "VAL", "exactly", "other", ""]
            .iter()
            .all(|code| !permanent(&policy, code))
    );
    policy.permanent_by_default = true;
    assert!(permanent(&policy, "other") && permanent(&policy, "") && !permanent(&policy, "VAL_OK"));
    policy.rules = vec![rule("*", false)];
    assert!(!permanent(&policy, "") && !permanent(&policy, "other"));
}

prop_compose! {
    fn any_schedule()(
        is_list in any::<bool>(),
        delays in prop::collection::vec(any::<u64>(), 0..5),
        base_ms in any::<u64>(),
        multiplier_permille in any::<u32>(),
        delay_max_ms in any::<u64>(),
        clamp_after_jitter in any::<bool>(),
    ) -> Schedule {
        if is_list {
            return Schedule::List(delays);
        }
        Schedule::Exponential { base_ms, multiplier_permille, delay_max_ms, clamp_after_jitter }
    }
}

proptest! {
    #[test]
    fn no_policy_overflows_whatever_its_numbers(
        schedule in any_schedule(),
        jitter_max_ms in any::<u64>(),
        jitter_ppm in any::<u32>(),
        failures in any::<u32>(),
        draw in any::<u64>(),
    ) {
        let policy =
            RetryPolicy { schedule, jitter_max_ms, jitter_ppm, ..RetryPolicy::list() };
        prop_assert!(policy.delay_ms(failures, draw) >= DELAY_FLOOR_MS);
        policy.largest_delay_ms();
    }

    #[test]
    fn a_delay_lies_between_that_of_the_smallest_and_of_the_largest_draw(
        failures in 1_u32..12,
        draw in any::<u64>(),
        base_ms in 10_u64..3_600_000,
        multiplier_permille in 1_000_u32..=10_000,
        jitter_ppm in 0_u32..=1_000_000,
    ) {
        let policy = RetryPolicy {
            jitter_ppm,
            ..exponential(base_ms, multiplier_permille, DELAY_MAX_MS)
        };
        let delay_ms = policy.delay_ms(failures, draw);
        prop_assert!(policy.delay_ms(failures, 0) <= delay_ms);
        prop_assert!(delay_ms <= policy.delay_ms(failures, u64::MAX));
        prop_assert!(policy.delay_ms(failures, 0) <= policy.delay_ms(failures + 1, 0));
    }
}
