use proptest::prelude::*;

use super::*;

fn written(log: &[FailedAttempt]) -> String {
    let mut text = String::new();
    write(log, &mut text);
    text
}

fn failed(attempt: u32, class: ErrorClass, code: &str) -> FailedAttempt {
    FailedAttempt {
        attempt,
        at: WallMs(1_700_000_000_000),
        class,
        code: code.into(),
    }
}

#[test]
fn it_reads_as_it_is_documented() {
    let log = [
        failed(1, ErrorClass::Transient, "E_IO"),
        failed(2, ErrorClass::Crash, ""),
    ];
    let text = "1,1700000000000,transient,E_IO;2,1700000000000,crash,";
    assert_eq!(written(&log), text);
    assert_eq!(parse(text), log);
    assert_eq!(written(&[]), "");
}

#[test]
fn what_would_end_an_entry_in_a_code_does_not() {
    let log = [failed(1, ErrorClass::Timeout, "a;b,c\nd")];
    assert_eq!(
        parse(&written(&log)),
        [failed(1, ErrorClass::Timeout, "a_b,c_d")]
    );
}

#[test]
fn what_is_no_entry_is_left_out() {
    for text in ["", ";", "1", "x,1,crash,", "1,1,unheard,", "-1,1,crash,c"] {
        assert_eq!(parse(text), [], "{text}");
    }
    assert_eq!(parse("x;1,1,crash,c;1").len(), 1);
}

proptest! {
    #[test]
    fn the_newest_are_read_back_and_fit(
        attempts in prop::collection::vec(
            (
                any::<u32>(),
                any::<i64>(),
                prop::sample::select(&ErrorClass::ALL[..]),
                "[^;\\x00-\\x1f\\x7f]{0,80}",
            ),
            0..9,
        ),
    ) {
        let log: Vec<_> = attempts
            .into_iter()
            .map(|(attempt, at, class, code)| FailedAttempt {
                attempt,
                at: WallMs(at),
                class,
                code: start_of(&code, LOG_CODE_BYTES_MAX).to_owned(),
            })
            .collect();
        let text = written(&log);
        prop_assert!(text.len() <= ATTEMPT_LOG_BYTES_MAX);
        prop_assert_eq!(parse(&text), &log[log.len().saturating_sub(ATTEMPT_LOG_MAX)..]);
    }
}
