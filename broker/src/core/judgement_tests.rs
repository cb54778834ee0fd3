use super::*;
use crate::core::retry_policy::{ErrorRule, Schedule};

const COUNTED: [ErrorClass; 4] = [
    ErrorClass::Transient,
    ErrorClass::Timeout,
    ErrorClass::Crash,
    ErrorClass::ReleaseLoop,
];

fn policy() -> RetryPolicy {
    RetryPolicy {
        jitter_ppm: 0,
        ..RetryPolicy::list()
    }
}

fn after(failures: u32) -> History {
    History {
        failures,
        has_expired: true,
        age_ms: 0,
    }
}

/// What becomes of a record that fails like this until it is dead, failure by failure.
fn run(policy: &RetryPolicy, class: ErrorClass) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    let mut before = History::default();
    loop {
        let verdict = policy.judge(Failing::of(class), before, 0);
        verdicts.push(verdict);
        if matches!(verdict, Verdict::Dead(_)) {
            return verdicts;
        }
        before.failures += 1;
        before.has_expired |= class.is_suspect();
    }
}

fn retry(delay_ms: u64) -> Verdict {
    Verdict::Retry { delay_ms }
}

const EXHAUSTED: Verdict = Verdict::Dead(DeadReason::MaxDeliveries);

#[test]
fn t06_five_deliveries_are_four_retries_by_the_list_and_then_the_dead_letter_topic_at_once() {
    let gaps = [1_000, 10_000, 100_000, 1_000_000].map(retry);
    for class in [ErrorClass::Transient, ErrorClass::ReleaseLoop] {
        assert_eq!(run(&policy(), class), [&gaps[..], &[EXHAUSTED]].concat());
    }
}

#[test]
fn t16_the_first_crash_or_timeout_is_given_out_at_once_and_the_later_by_the_policy() {
    let gaps = [10_000, 100_000, 1_000_000].map(retry);
    for class in [ErrorClass::Crash, ErrorClass::Timeout] {
        let expected = [&[Verdict::AtOnce], &gaps[..], &[EXHAUSTED]].concat();
        assert_eq!(run(&policy(), class), expected);
    }
}

#[test]
fn a_crash_after_another_failure_is_still_the_first_crash() {
    let before = History {
        has_expired: false,
        ..after(2)
    };
    let crash = Failing::of(ErrorClass::Crash);
    assert_eq!(policy().judge(crash, before, 0), Verdict::AtOnce);
    assert_eq!(policy().judge(crash, after(2), 0), retry(100_000));
}

#[test]
fn t09_a_permanent_failure_is_dead_at_its_first_attempt_and_at_its_last() {
    for failures in [0, 1, 4, 5, u32::MAX] {
        let verdict = policy().judge(Failing::of(ErrorClass::Permanent), after(failures), 0);
        assert_eq!(verdict, Verdict::Dead(DeadReason::Permanent));
        let verdict = policy().judge(Failing::of(ErrorClass::Undeliverable), after(failures), 0);
        assert_eq!(verdict, Verdict::Dead(DeadReason::Undeliverable));
    }
}

#[test]
fn t10_a_rule_makes_a_failure_without_an_action_permanent() {
    let policy = RetryPolicy {
        rules: vec![ErrorRule {
            pattern: "VAL_*".into(),
            permanent: true,
        }],
        ..policy()
    };
    let class = |action, code| policy.class_said(action, code);
    assert_eq!(
        class(FailureAction::ByPolicy, "VAL_7"),
        Some(ErrorClass::Permanent)
    );
    assert_eq!(
        class(FailureAction::ByPolicy, "IO"),
        Some(ErrorClass::Transient)
    );
    assert_eq!(
        class(FailureAction::Retry, "VAL_7"),
        Some(ErrorClass::Transient)
    );
    assert_eq!(
        class(FailureAction::DeadLetter, "IO"),
        Some(ErrorClass::Permanent)
    );
    assert_eq!(class(FailureAction::Release, "VAL_7"), None);
}

#[test]
fn t13_a_given_delay_replaces_the_policys_without_jitter_and_still_counts() {
    let policy = RetryPolicy::list();
    let failing = |ms| Failing {
        class: ErrorClass::Transient,
        retry_after_ms: Some(ms),
    };
    for draw in [0, 1 << 63, u64::MAX] {
        assert_eq!(policy.judge(failing(37_000), after(0), draw), retry(37_000));
        assert_eq!(
            policy.judge(failing(0), after(1), draw),
            retry(DELAY_FLOOR_MS)
        );
        assert_eq!(
            policy.judge(failing(9), after(1), draw),
            retry(DELAY_FLOOR_MS)
        );
    }
    assert_eq!(policy.judge(failing(37_000), after(4), 0), EXHAUSTED);
}

#[test]
fn with_one_delivery_every_first_failure_is_the_last() {
    let policy = RetryPolicy {
        deliveries_max: 1,
        schedule: Schedule::List(Vec::new()),
        ..policy()
    };
    for class in COUNTED {
        assert_eq!(run(&policy, class), [EXHAUSTED], "{class:?}");
    }
}

#[test]
fn every_number_of_deliveries_is_reached_and_not_passed() {
    for deliveries_max in 1..=50 {
        let policy = RetryPolicy {
            deliveries_max,
            ..policy()
        };
        for class in COUNTED {
            let deliveries = u32::try_from(run(&policy, class).len()).unwrap();
            assert_eq!(deliveries, deliveries_max, "{class:?}");
        }
    }
}

#[test]
fn a_failed_record_that_is_too_old_is_dead_and_an_exhausted_one_is_that_first() {
    let policy = RetryPolicy {
        age_max_ms: 5_000_000,
        ..policy()
    };
    let aged = |failures, age_ms| History {
        age_ms,
        ..after(failures)
    };
    let judge = |before| policy.judge(Failing::of(ErrorClass::Transient), before, 0);
    assert_eq!(judge(aged(0, 5_000_000)), retry(1_000));
    assert_eq!(judge(aged(0, 5_000_001)), Verdict::Dead(DeadReason::MaxAge));
    assert_eq!(judge(aged(4, 5_000_001)), EXHAUSTED);
    let crash = Failing::of(ErrorClass::Crash);
    let first = History {
        has_expired: false,
        ..aged(0, 5_000_001)
    };
    assert_eq!(
        policy.judge(crash, first, 0),
        Verdict::Dead(DeadReason::MaxAge)
    );
}

#[test]
fn a_lowered_limit_reaches_records_that_failed_so_often_and_none_that_never_failed() {
    let lowered = RetryPolicy {
        deliveries_max: 3,
        age_max_ms: 10,
        ..policy()
    };
    assert_eq!(lowered.spent(4, 0), Some(DeadReason::MaxDeliveries));
    assert_eq!(lowered.spent(3, 0), Some(DeadReason::MaxDeliveries));
    assert_eq!(lowered.spent(2, 0), None);
    assert_eq!(lowered.spent(2, 11), Some(DeadReason::MaxAge));
    assert_eq!(lowered.spent(0, u64::MAX), None);
}
