use proptest::prelude::*;

use super::*;

/// The beginning, the number in the line between, and the end of a stack that was cut.
fn cut_in_three(kept: &str) -> (&str, usize, &str) {
    let (first, rest) = kept.split_once("\n... ").unwrap();
    let (removed, last) = rest.split_once(" bytes removed ...\n").unwrap();
    (first, removed.parse().unwrap(), last)
}

#[test]
fn what_is_short_enough_stays_as_it_is() {
    let stack = "s".repeat(ERROR_STACK_BYTES_MAX);
    let (code, message) = (
        "c".repeat(ERROR_CODE_BYTES_MAX),
        "m".repeat(ERROR_MESSAGE_BYTES_MAX),
    );
    let kept = FailureText::cut(&code, &message, &stack);
    let expected = FailureText {
        code,
        message,
        stack,
    };
    assert_eq!(kept, expected);
    assert_eq!(FailureText::cut("", "", ""), FailureText::default());
}

#[test]
fn t35_a_stack_of_a_mebibyte_keeps_both_ends_whole_characters_and_says_what_is_gone() {
    for shift in 0..4 {
        let stack = format!("{}{}", "x".repeat(shift), "\u{1f980}".repeat(1 << 18));
        let kept = stack_kept(&stack);
        assert!(kept.len() <= ERROR_STACK_BYTES_MAX);
        let (first, removed, last) = cut_in_three(&kept);
        assert!(stack.starts_with(first) && stack.ends_with(last));
        assert_eq!(first.len() + removed + last.len(), stack.len());
        for end in [first, last] {
            assert!((STACK_END_BYTES - 3..=STACK_END_BYTES).contains(&end.len()));
        }
    }
}

#[test]
fn one_byte_too_many_is_enough_to_be_cut() {
    let stack = "s".repeat(ERROR_STACK_BYTES_MAX + 1);
    assert_eq!(cut_in_three(&stack_kept(&stack)).1, 193);
    let long = "é".repeat(600);
    let kept = FailureText::cut(&long, &long, "");
    assert_eq!((kept.code.len(), kept.message.len()), (128, 1_024));
    let odd = FailureText::cut(&format!("x{long}"), &format!("x{long}"), "");
    assert_eq!((odd.code.len(), odd.message.len()), (127, 1_023));
}

proptest! {
    #[test]
    fn cutting_twice_is_cutting_once(
        code in ".{0,90}",
        message in "(.{0,40}é){0,20}",
        stack in ".{0,12}",
        times in 0_usize..2_000,
    ) {
        let stack = stack.repeat(times);
        let kept = FailureText::cut(&code, &message, &stack);
        prop_assert!(kept.code.len() <= ERROR_CODE_BYTES_MAX);
        prop_assert!(kept.message.len() <= ERROR_MESSAGE_BYTES_MAX);
        prop_assert!(kept.stack.len() <= ERROR_STACK_BYTES_MAX);
        prop_assert_eq!(FailureText::cut(&kept.code, &kept.message, &kept.stack), kept);
    }
}
