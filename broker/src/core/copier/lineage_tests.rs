//! What a record is through all its copies.

use proptest::prelude::*;
use varvelog_store::WallMs;

use super::building::build;
use super::samples::{
    APPENDED, DEAD_LETTER, RETRY, SOURCE, Sample, any_sample, at, copied, failed, job, opened,
    retry, text,
};
use crate::core::attempt_log;
use crate::core::copies::{Copy, CopyTo, Failed};
use crate::core::failure::{DeadReason, ErrorClass, FailureNote, Wait};
use crate::core::reserved_headers::{
    DEAD_LETTER_HEADERS_BYTES_MAX, RETRY_HEADERS_BYTES_MAX, ReservedHeader,
};
use crate::core::settings::DeadLetterSettings;

const ORIGIN_OFFSET: u64 = 77;

/// A failure as a consumer, or nobody, tells of it.
#[derive(Debug, Clone)]
struct Telling {
    class: ErrorClass,
    code: String,
    message: String,
    stack: String,
}

fn any_telling() -> impl Strategy<Value = Telling> {
    let long = |text: &'static str| (0..3_000_usize).prop_map(move |count| text.repeat(count));
    (
        prop::sample::select(&ErrorClass::ALL[..]),
        prop_oneof!["[A-Z_;,]{0,12}", long("é"), Just("E\n1".to_owned())],
        prop_oneof![".{0,40}", long("\u{1f980}")],
        prop_oneof![
            Just(String::new()),
            "(at [a-z]{1,9}\n){0,4}",
            long("at é (a.js:1)\n")
        ],
    )
        .prop_map(|(class, code, message, stack)| Telling {
            class,
            code,
            message,
            stack,
        })
}

impl Telling {
    fn failed(&self, failures: u32) -> Failed {
        failed(
            failures,
            self.class,
            text(&self.code, &self.message, &self.stack),
        )
    }
}

/// Copies the only record of a log, which lies at `offset`.
fn copy(sample: &Sample, offset: u64, to: CopyTo, failed: Failed) -> Sample {
    let is_first = failed.failures == 1;
    let (from, append_time) = if is_first {
        (SOURCE, APPENDED)
    } else {
        (RETRY, WallMs(APPENDED.0 + 50_000))
    };
    let copies = vec![Copy {
        offset: at(offset),
        to,
        failed: Some(failed),
    }];
    let batch = opened(offset, append_time, std::slice::from_ref(sample));
    let built = build(&job(from, copies), [&batch]).unwrap();
    let target = match to {
        CopyTo::Retry(_) => RETRY,
        CopyTo::DeadLetter(_) => DEAD_LETTER,
        CopyTo::InPlace => panic!("no copy"),
    };
    let mut copies = copied(&built.parts, target);
    assert_eq!(copies.len(), 1);
    copies.remove(0)
}

/// Names of the reserved headers, and the sizes of those that are neither numbers nor error texts.
fn shape(sample: &Sample) -> Vec<(String, usize)> {
    let size = |name: &str, value: &str| {
        let varies = ["-class", "-code", "-message", "-log"]
            .iter()
            .any(|end| name.ends_with(end));
        let not_digit = |c: &char| !c.is_ascii_hexdigit();
        if varies {
            0
        } else {
            value.chars().filter(not_digit).count()
        }
    };
    let headers = sample.reserved().into_iter();
    headers
        .map(|(name, value)| (name.clone(), size(&name, &value)))
        .collect()
}

fn reserved_bytes(sample: &Sample) -> usize {
    let headers = sample.reserved().into_iter();
    headers.map(|(name, value)| name.len() + value.len()).sum()
}

fn assert_bounded(sample: &Sample, is_dead: bool) {
    for (name, value) in sample.reserved() {
        let header = ReservedHeader::of_name(name.as_bytes()).unwrap();
        assert!(
            value.len() <= header.bytes_max(is_dead),
            "{name}: {}",
            value.len()
        );
    }
    let bytes_max = if is_dead {
        DEAD_LETTER_HEADERS_BYTES_MAX
    } else {
        RETRY_HEADERS_BYTES_MAX
    };
    assert!(reserved_bytes(sample) <= bytes_max);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_often_a_record_fails_it_stays_what_it_was_and_its_headers_do_not_grow(
        sample in any_sample(),
        tellings in prop::collection::vec(any_telling(), 2..9),
    ) {
        let mut moved = sample.clone();
        let mut offset = ORIGIN_OFFSET;
        let mut first_shape = None;
        let (last, retried) = tellings.split_last().unwrap();
        for (failures, telling) in (1..).zip(retried) {
            moved = copy(&moved, offset, retry(ORIGIN_OFFSET, failures), telling.failed(failures));
            offset = 1_000 + u64::from(failures);
            prop_assert_eq!(&moved.clone().without_reserved(), &sample);
            assert_bounded(&moved, false);
            let shape = shape(&moved);
            prop_assert_eq!(first_shape.get_or_insert(shape.clone()), &shape);
            prop_assert_eq!(moved.header("attempt").unwrap(), failures.to_string());
            let class = telling.class.as_str();
            prop_assert_eq!(moved.header("error-class").unwrap(), class);
        }
        let failures = u32::try_from(tellings.len()).unwrap();
        let to = CopyTo::DeadLetter(DeadReason::MaxDeliveries);
        let dead = copy(&moved, offset, to, last.failed(failures));
        assert_bounded(&dead, true);
        prop_assert_eq!(&dead.clone().without_reserved(), &sample);
        let header = |name| dead.header(name).unwrap();
        prop_assert_eq!(header("origin-topic"), "orders");
        prop_assert_eq!(header("origin-partition"), "5");
        prop_assert_eq!(header("origin-offset"), ORIGIN_OFFSET.to_string());
        prop_assert_eq!(header("origin-timestamp-ms"), APPENDED.0.to_string());
        prop_assert_eq!(header("first-failure-ms"), (APPENDED.0 + 1_000).to_string());
        prop_assert!(header("message-id").ends_with("/5/77"));
        let log = attempt_log::parse(&header("attempt-log"));
        let attempts: Vec<u32> = log.iter().map(|attempt| attempt.attempt).collect();
        let remembered = failures.saturating_sub(4).max(1)..=failures;
        prop_assert_eq!(attempts, remembered.collect::<Vec<_>>());
    }
}

#[test]
fn what_was_noted_in_place_is_told_in_the_copy() {
    let telling = Telling {
        class: ErrorClass::Crash,
        code: String::new(),
        message: String::new(),
        stack: String::new(),
    };
    let kept = DeadLetterSettings::default();
    let mut before = None;
    for failures in 1..=3 {
        let failed = Failed {
            before: before.take(),
            ..telling.failed(failures)
        };
        before = Some(FailureNote::after(&failed, Wait::Ready, &kept));
    }
    let last = Failed {
        before,
        ..telling.failed(4)
    };
    let batch = opened(0, APPENDED, &[Sample::of_value(b"v")]);
    let copies = vec![Copy {
        offset: at(0),
        to: retry(0, 4),
        failed: Some(last),
    }];
    let built = build(&job(SOURCE, copies), [&batch]).unwrap();
    let copy = copied(&built.parts, RETRY).remove(0);
    let log = attempt_log::parse(&copy.header("attempt-log").unwrap());
    assert_eq!(
        log.iter().map(|failed| failed.attempt).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(
        copy.header("first-failure-ms").unwrap(),
        (APPENDED.0 + 1_000).to_string()
    );
}

#[test]
fn a_record_that_waited_for_room_tells_of_its_last_failure_once() {
    let telling = Telling {
        class: ErrorClass::Permanent,
        code: "E".into(),
        message: "m".repeat(1_000),
        stack: "at f\n".into(),
    };
    let wait = Wait::Room(DeadReason::Permanent);
    let note = FailureNote::after(&telling.failed(1), wait, &DeadLetterSettings::default());
    let to = CopyTo::DeadLetter(DeadReason::Permanent);
    let sample = Sample::of_value(b"v");
    let waited = copy(&sample, ORIGIN_OFFSET, to, note.last());
    let at_once = copy(&sample, ORIGIN_OFFSET, to, telling.failed(1));
    assert_eq!(waited, at_once);
}
