//! The attempt log as text: `attempt,ms,class,code;…`, oldest first.

use std::fmt::Write as _;

use varvelog_store::WallMs;

use super::failure::{ATTEMPT_LOG_MAX, ErrorClass, FailedAttempt, LOG_CODE_BYTES_MAX};
use super::failure_text::start_of;
use super::reserved_headers::ATTEMPT_LOG_BYTES_MAX;

const ENTRY_END: char = ';';
const FIELD_END: char = ',';
/// In place of what would end an entry in the middle of a code.
const SUBSTITUTE: char = '_';

/// Numbers, class and code at their longest, and what ends them.
const ENTRY_BYTES_MAX: usize = 10 + 20 + "undeliverable".len() + LOG_CODE_BYTES_MAX + 4;
const _: () = assert!(ATTEMPT_LOG_MAX * ENTRY_BYTES_MAX <= ATTEMPT_LOG_BYTES_MAX);

/// Writes the newest of `log` behind `out`.
pub fn write(log: &[FailedAttempt], out: &mut String) {
    let surplus = log.len().saturating_sub(ATTEMPT_LOG_MAX);
    for (index, failed) in log.iter().skip(surplus).enumerate() {
        if index > 0 {
            out.push(ENTRY_END);
        }
        let class = failed.class.as_str();
        let written = write!(
            out,
            "{}{FIELD_END}{}{FIELD_END}{class}{FIELD_END}",
            failed.attempt, failed.at.0
        );
        debug_assert!(written.is_ok(), "a text takes all");
        let code = start_of(&failed.code, LOG_CODE_BYTES_MAX);
        out.extend(code.chars().map(|c| {
            if c == ENTRY_END || c.is_ascii_control() {
                SUBSTITUTE
            } else {
                c
            }
        }));
    }
}

/// Reads one back. What is no entry is left out, and so are the oldest beyond
/// [`ATTEMPT_LOG_MAX`].
pub fn parse(text: &str) -> Vec<FailedAttempt> {
    let mut log: Vec<_> = text
        .rsplit(ENTRY_END)
        .take(ATTEMPT_LOG_MAX)
        .filter_map(entry)
        .collect();
    log.reverse();
    log
}

fn entry(text: &str) -> Option<FailedAttempt> {
    let mut fields = text.splitn(4, FIELD_END);
    Some(FailedAttempt {
        attempt: fields.next()?.parse().ok()?,
        at: WallMs(fields.next()?.parse().ok()?),
        class: ErrorClass::parse(fields.next()?)?,
        code: start_of(fields.next()?, LOG_CODE_BYTES_MAX).to_owned(),
    })
}

#[cfg(test)]
#[path = "attempt_log_tests.rs"]
mod tests;
