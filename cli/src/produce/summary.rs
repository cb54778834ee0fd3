//! What became of the lines.

use std::time::Duration;

use serde_json::{Value, json};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{show_age, show_bytes, show_count};

/// Lines that are reported one by one; of the others only the number is.
const REPORTS_MAX: u64 = 20;

/// Counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Records appended, or sent with `--acks none`.
    pub(super) appended: u64,
    /// Lines whose message id had been appended before: they were not appended again.
    pub(super) duplicate: u64,
    /// Bytes of the lines appended.
    pub(super) bytes: u64,
    /// Lines that were not.
    pub(super) failed: u64,
    /// What ended the work before the last line.
    pub(super) fatal: Option<Failure>,
}

impl Summary {
    /// Counts a line that was not appended. The text to report it with, unless there were too
    /// many before.
    pub(super) fn fail(&mut self, line: u64, why: &str) -> Option<String> {
        self.failed += 1;
        (self.failed <= REPORTS_MAX).then(|| format!("line {line}: {why}"))
    }

    /// One line for people.
    pub(super) fn to_text(&self, took: Duration) -> String {
        let rate = rate(self.appended, took);
        let duplicate = match self.duplicate {
            0 => String::new(),
            more => format!(" and {} duplicate", shown(more)),
        };
        format!(
            "{} records{duplicate}, {} in {}, {} records/s",
            shown(self.appended),
            show_bytes(i64::try_from(self.bytes).unwrap_or(i64::MAX)),
            show_age(took),
            shown(rate),
        )
    }

    /// The same for programs.
    pub(super) fn to_json(&self, topic: &str, took: Duration) -> Value {
        json!({
            "topic": topic,
            "records": self.appended.to_string(),
            "duplicate": self.duplicate.to_string(),
            "failed": self.failed.to_string(),
            "bytes": self.bytes.to_string(),
            "milliseconds": took.as_millis().to_string(),
        })
    }

    /// Fine when every line was appended. When some were and some were not, that is partly
    /// failed, whatever the cause.
    pub(super) fn into_result(self) -> Result<(), Failure> {
        if self.failed == 0 && self.fatal.is_none() {
            return Ok(());
        }
        let counts = format!(
            "{} appended, {} not",
            self.appended + self.duplicate,
            self.failed
        );
        match self.fatal {
            Some(fatal) if self.appended + self.duplicate == 0 => Err(fatal),
            Some(fatal) => {
                let message = format!("{}; {counts}", fatal.message);
                Err(Failure {
                    exit: Exit::Partly,
                    message,
                    ..fatal
                })
            }
            None => Err(Failure::new(
                Exit::Partly,
                format!("some lines are no records: {counts}"),
            )),
        }
    }
}

fn shown(count: u64) -> String {
    show_count(i64::try_from(count).unwrap_or(i64::MAX))
}

fn rate(records: u64, took: Duration) -> u64 {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1);
    records.saturating_mul(1_000_000) / micros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_reported_by_number_but_not_without_end() {
        let mut summary = Summary {
            appended: 3,
            ..Summary::default()
        };
        assert_eq!(
            summary.fail(7, "no field \"x\"").unwrap(),
            "line 7: no field \"x\""
        );
        let reported = (8..100)
            .filter(|line| summary.fail(*line, "bad").is_some())
            .count();
        assert_eq!(reported, 19);
        let failure = summary.into_result().unwrap_err();
        assert_eq!(failure.exit, Exit::Partly);
        assert_eq!(
            failure.message,
            "some lines are no records: 3 appended, 93 not"
        );
    }

    #[test]
    fn a_fatal_end_keeps_its_code_when_nothing_was_appended() {
        let fatal = Some(Failure::new(Exit::NotFound, "no such topic"));
        let summary = Summary {
            failed: 2,
            fatal: fatal.clone(),
            ..Summary::default()
        };
        assert_eq!(summary.into_result().unwrap_err().exit, Exit::NotFound);
        let summary = Summary {
            appended: 5,
            failed: 2,
            fatal,
            ..Summary::default()
        };
        let failure = summary.into_result().unwrap_err();
        assert_eq!(failure.exit, Exit::Partly);
        assert_eq!(failure.message, "no such topic; 5 appended, 2 not");
        assert_eq!(Summary::default().into_result(), Ok(()));
    }

    #[test]
    fn duplicates_are_counted_apart() {
        let summary = Summary {
            appended: 2,
            duplicate: 3,
            ..Summary::default()
        };
        let text = summary.to_text(Duration::from_secs(1));
        assert!(text.starts_with("2 records and 3 duplicate, "), "{text}");
        assert_eq!(summary.into_result(), Ok(()));
    }

    #[test]
    fn the_rate_is_that_of_the_whole() {
        let summary = Summary {
            appended: 20_000,
            bytes: 1 << 20,
            ..Summary::default()
        };
        let took = Duration::from_millis(1250);
        assert_eq!(
            summary.to_text(took),
            "20,000 records, 1.0 MiB in 1.2s, 16,000 records/s"
        );
        insta::assert_snapshot!(summary.to_json("t", took).to_string());
    }
}
