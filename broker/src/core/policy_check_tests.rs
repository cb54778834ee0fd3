use super::*;
use crate::core::retry_policy::ErrorRule;

fn fields(policy: &RetryPolicy) -> Vec<String> {
    let found = policy.validate();
    assert!(found.iter().all(|violation| !violation.text.is_empty()));
    found.into_iter().map(|violation| violation.field).collect()
}

fn list(deliveries_max: u32, delays: Vec<u64>) -> RetryPolicy {
    RetryPolicy {
        deliveries_max,
        schedule: Schedule::List(delays),
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
        ..RetryPolicy::exponential()
    }
}

fn rules(patterns: impl IntoIterator<Item = String>) -> RetryPolicy {
    let rule = |pattern| ErrorRule {
        pattern,
        permanent: true,
    };
    RetryPolicy {
        rules: patterns.into_iter().map(rule).collect(),
        ..RetryPolicy::list()
    }
}

#[test]
fn the_presets_and_the_limits_themselves_are_accepted() {
    let accepted = [
        RetryPolicy::list(),
        RetryPolicy::exponential(),
        list(1, Vec::new()),
        list(2, vec![DELAY_FLOOR_MS]),
        list(DELIVERIES_MAX, vec![DELAY_MAX_MS; DELAYS_MAX]),
        exponential(10, 1_000, 10),
        exponential(3_600_000, 10_000, DELAY_MAX_MS),
        rules((0..RULES_MAX).map(|number| format!("{number}*"))),
        rules(["*".to_owned(), "c".repeat(PATTERN_BYTES_MAX)]),
        RetryPolicy {
            jitter_max_ms: 3_600_000,
            jitter_ppm: 1_000_000,
            age_max_ms: 1_000_001,
            ..RetryPolicy::list()
        },
    ];
    for policy in accepted {
        assert_eq!(policy.validate(), [], "{policy:?}");
    }
}

#[test]
fn t41_five_delays_with_five_deliveries_are_refused() {
    let found = list(5, vec![1_000; 5]).validate();
    let expected = PolicyViolation {
        field: "delays".into(),
        text: "must be at most max_deliveries - 1, 4".into(),
        bound: "4".into(),
        value: "5".into(),
    };
    assert_eq!(found, [expected]);
}

#[test]
fn t41_a_base_above_the_largest_delay_is_refused() {
    let found = exponential(2_000, 2_000, 1_500).validate();
    let expected = PolicyViolation {
        field: "max_delay".into(),
        text: "must be at least base, 2s".into(),
        bound: "2s".into(),
        value: "1s 500ms".into(),
    };
    assert_eq!(found, [expected]);
}

#[test]
fn t41_deliveries_outside_one_and_a_thousand_are_refused() {
    assert_eq!(fields(&list(0, vec![1_000])), ["max_deliveries"]);
    assert_eq!(
        fields(&list(DELIVERIES_MAX + 1, vec![1_000])),
        ["max_deliveries"]
    );
}

#[test]
fn lists_are_checked_item_by_item() {
    let policy = list(5, vec![9, 10, DELAY_MAX_MS, DELAY_MAX_MS + 1]);
    assert_eq!(fields(&policy), ["delays[0]", "delays[3]"]);
    let found = policy.validate();
    assert_eq!(
        (found[0].bound.as_str(), found[0].value.as_str()),
        ("10ms", "9ms")
    );
    assert_eq!(
        (found[1].bound.as_str(), found[1].value.as_str()),
        ("7days", "7days 1ms")
    );
    assert_eq!(
        fields(&list(DELIVERIES_MAX, vec![1_000; DELAYS_MAX + 1])),
        ["delays"]
    );
    assert_eq!(fields(&list(2, Vec::new())), ["delays"]);
    assert_eq!(fields(&list(1, vec![1_000])), ["delays"]);
}

#[test]
fn the_exponential_form_is_checked_field_by_field() {
    assert_eq!(fields(&exponential(9, 2_000, 60_000)), ["base"]);
    assert_eq!(
        fields(&exponential(3_600_001, 2_000, DELAY_MAX_MS)),
        ["base"]
    );
    assert_eq!(fields(&exponential(10, 999, 60_000)), ["multiplier"]);
    assert_eq!(
        exponential(10, 10_001, 60_000).validate()[0].value,
        "10.001"
    );
    assert_eq!(
        fields(&exponential(10, 2_000, DELAY_MAX_MS + 1)),
        ["max_delay"]
    );
}

#[test]
fn an_age_that_the_largest_delay_reaches_is_refused() {
    let aged = |age_max_ms| RetryPolicy {
        age_max_ms,
        ..RetryPolicy::list()
    };
    assert_eq!(fields(&aged(1_000_000)), ["max_age"]);
    assert_eq!(fields(&aged(1_000_001)), Vec::<String>::new());
}

#[test]
fn patterns_are_checked_rule_by_rule() {
    let patterns = ["", "ok*", "a*b", &"c".repeat(PATTERN_BYTES_MAX + 1)].map(str::to_owned);
    assert_eq!(
        fields(&rules(patterns)),
        [
            "rules[0].code_pattern",
            "rules[2].code_pattern",
            "rules[3].code_pattern"
        ]
    );
    assert_eq!(
        fields(&rules(vec!["code".into(); RULES_MAX + 1])),
        ["rules"]
    );
}

#[test]
fn all_that_is_wrong_is_told_at_once_and_nothing_is_corrected() {
    let policy = RetryPolicy {
        deliveries_max: 0,
        jitter_max_ms: 3_600_001,
        jitter_ppm: 1_000_001,
        age_max_ms: 0,
        rules: vec![ErrorRule {
            pattern: String::new(),
            permanent: false,
        }],
        ..exponential(9, 999, DELAY_MAX_MS + 1)
    };
    let before = policy.clone();
    assert_eq!(
        fields(&policy),
        [
            "max_deliveries",
            "base",
            "multiplier",
            "max_delay",
            "jitter_max",
            "jitter_ratio",
            "rules[0].code_pattern"
        ]
    );
    assert_eq!(policy, before);
}
