use super::*;

fn failed(failures: u32, class: ErrorClass, before: Option<FailureNote>) -> Failed {
    Failed {
        failures,
        class,
        text: FailureText {
            code: "C".repeat(100),
            message: "é".repeat(500),
            stack: "at f".into(),
        },
        at: WallMs(1_000 + i64::from(failures)),
        consumer: "w".repeat(200),
        before,
    }
}

fn note(failed: &Failed, wait: Wait) -> FailureNote {
    FailureNote::after(failed, wait, &DeadLetterSettings::default())
}

#[test]
fn names_of_classes_and_reasons_are_read_back() {
    for class in ErrorClass::ALL {
        assert_eq!(ErrorClass::parse(class.as_str()), Some(class));
    }
    for reason in DeadReason::ALL {
        assert_eq!(DeadReason::parse(reason.as_str()), Some(reason));
    }
    assert_eq!(
        (ErrorClass::parse(""), DeadReason::parse("Permanent")),
        (None, None)
    );
}

#[test]
fn a_note_keeps_the_first_time_and_the_newest_attempts() {
    let mut before = None;
    for failures in 1..=7 {
        let now = note(
            &failed(failures, ErrorClass::Transient, before),
            Wait::Ready,
        );
        assert_eq!((now.failures, now.first_failure), (failures, WallMs(1_001)));
        let attempts: Vec<u32> = now.log.iter().map(|failed| failed.attempt).collect();
        let oldest = failures.saturating_sub(4).max(1);
        assert_eq!(attempts, (oldest..=failures).collect::<Vec<_>>());
        before = Some(now);
    }
}

#[test]
fn a_note_is_small_unless_it_waits_to_be_a_dead_letter() {
    let failed = failed(1, ErrorClass::Permanent, None);
    for wait in [Wait::Ready, Wait::Until(WallMs(9))] {
        let note = note(&failed, wait);
        assert_eq!(
            (note.text.message.len(), note.text.stack.as_str()),
            (256, "")
        );
        assert_eq!(note.consumer.len(), CONSUMER_BYTES_MAX);
        assert_eq!(note.log[0].code.len(), LOG_CODE_BYTES_MAX);
    }
    for wait in [
        Wait::Room(DeadReason::Permanent),
        Wait::Operator(DeadReason::Permanent),
    ] {
        let note = note(&failed, wait);
        assert_eq!(
            (note.text.message.len(), note.text.stack.as_str()),
            (1_000, "at f")
        );
        assert_eq!(note.wait, wait);
    }
}

#[test]
fn texts_that_are_not_to_be_stored_are_in_no_note() {
    let kept = DeadLetterSettings {
        omit_error_message: true,
        omit_error_stack: true,
        ..DeadLetterSettings::default()
    };
    let wait = Wait::Room(DeadReason::Permanent);
    let note = FailureNote::after(&failed(1, ErrorClass::Permanent, None), wait, &kept);
    assert_eq!(
        (note.text.message.as_str(), note.text.stack.as_str()),
        ("", "")
    );
    assert_eq!(note.text.code.len(), 100);
}

#[test]
fn a_note_gives_its_last_failure_back() {
    let first = note(&failed(1, ErrorClass::Crash, None), Wait::Ready);
    let second = note(&failed(2, ErrorClass::Transient, Some(first)), Wait::Ready);
    let last = second.last();
    assert_eq!(
        (last.failures, last.class, last.at),
        (2, ErrorClass::Transient, WallMs(1_002))
    );
    // Noted once more it is the same: no failure was added.
    assert_eq!(note(&last, Wait::Ready), second);
}

#[test]
fn a_crash_is_remembered_through_later_failures() {
    let calm = note(&failed(1, ErrorClass::Transient, None), Wait::Ready);
    assert!(!calm.has_expired());
    let crashed = note(&failed(2, ErrorClass::Crash, Some(calm)), Wait::Ready);
    assert!(crashed.has_expired());
    let after = note(
        &failed(3, ErrorClass::Transient, Some(crashed)),
        Wait::Ready,
    );
    assert!(after.has_expired());
}
