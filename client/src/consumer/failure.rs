//! Why a record was not processed, as the broker is told.

use std::time::Duration;

use varvelog_proto::v1;

use crate::admin::duration;

/// Bytes of an error code that the broker keeps.
const CODE_BYTES_MAX: usize = 128;
/// Bytes of an error message that the broker keeps.
const MESSAGE_BYTES_MAX: usize = 1_024;
/// Bytes that are kept of each end of a stack which is longer than twice as much.
const STACK_END_BYTES: usize = 4_000;

/// Why one record was not processed, and what is to become of it.
///
/// Texts longer than what is kept are cut: the code to 128 bytes, the message to 1 KiB, the stack
/// in its middle to 8 KiB. No failure is refused for its length.
///
/// ```
/// use std::time::Duration;
/// use varvelog_client::Failure;
///
/// let busy = Failure::transient("busy", "the shop takes no orders before 9")
///     .retry_after(Duration::from_secs(60));
/// let broken = Failure::permanent("bad-json", "expected a comma at line 3");
/// assert_eq!((busy.code(), broken.message()), ("busy", "expected a comma at line 3"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a failure does nothing until a record is settled with it"]
pub struct Failure {
    action: v1::FailureAction,
    code: String,
    message: String,
    stack: String,
    retry_after: Option<Duration>,
}

impl Failure {
    /// It may work later: the record comes again as the group's policy says, and becomes a dead
    /// letter when no delivery is left.
    pub fn transient(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(v1::FailureAction::Retry, code.into(), message.into())
    }

    /// It can never work: the record becomes a dead letter at once.
    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(v1::FailureAction::DeadLetter, code.into(), message.into())
    }

    /// The group's rules on the code decide; where none matches it is transient, unless the group
    /// says otherwise.
    pub fn by_code(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(v1::FailureAction::Unspecified, code.into(), message.into())
    }

    /// The record was not looked at: it is given out again, and that is not counted.
    pub fn released() -> Self {
        Self::new(v1::FailureAction::Release, String::new(), String::new())
    }

    fn new(action: v1::FailureAction, code: String, message: String) -> Self {
        Self {
            action,
            code: beginning(code, CODE_BYTES_MAX),
            message: beginning(message, MESSAGE_BYTES_MAX),
            stack: String::new(),
            retry_after: None,
        }
    }

    /// Where it came from: a stack, or the chain of causes. Kept with dead letters only.
    pub fn stack(mut self, stack: impl Into<String>) -> Self {
        self.stack = both_ends(stack.into());
        self
    }

    /// If it is given out again: after this time (0 to 24 h) instead of the policy's, without
    /// jitter. It counts all the same.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// What becomes of the record.
    pub fn action(&self) -> v1::FailureAction {
        self.action
    }

    /// A stable code, by which failures are counted and rules match.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Bytes of its texts.
    pub(super) fn text_bytes(&self) -> usize {
        self.message.len() + self.stack.len()
    }

    /// Without its stack, and without its message if that is not enough.
    pub(super) fn shorten_to(&mut self, bytes: usize) {
        if self.text_bytes() > bytes {
            self.stack.clear();
        }
        if self.text_bytes() > bytes {
            self.message.clear();
        }
    }

    pub(super) fn at(self, offset: i64) -> v1::Failure {
        v1::Failure {
            offset,
            action: self.action.into(),
            error_code: self.code,
            error_message: self.message,
            error_stack: self.stack,
            retry_after: self.retry_after.map(duration),
        }
    }
}

fn beginning(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

/// Some languages have the root cause at the end, others at the start.
fn both_ends(text: String) -> String {
    if text.len() <= 2 * STACK_END_BYTES {
        return text;
    }
    let end = text.floor_char_boundary(STACK_END_BYTES);
    let start = text.ceil_char_boundary(text.len() - STACK_END_BYTES);
    let (first, last) = (text.get(..end), text.get(start..));
    let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
    format!("{first}\n[{} bytes left out]\n{last}", start - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_says_what_becomes_of_the_record() {
        let action = |failure: Failure| failure.at(7).action();
        assert_eq!(
            action(Failure::transient("a", "b")),
            v1::FailureAction::Retry
        );
        assert_eq!(
            action(Failure::permanent("a", "b")),
            v1::FailureAction::DeadLetter
        );
        assert_eq!(
            action(Failure::by_code("a", "b")),
            v1::FailureAction::Unspecified
        );
        assert_eq!(action(Failure::released()), v1::FailureAction::Release);
    }

    #[test]
    fn everything_that_was_said_is_sent() {
        let after = Duration::from_millis(1_500);
        let failure = Failure::by_code("busy", "later")
            .stack("at shop")
            .retry_after(after);
        assert_eq!(
            failure.at(17),
            v1::Failure {
                offset: 17,
                action: 0,
                error_code: "busy".to_owned(),
                error_message: "later".to_owned(),
                error_stack: "at shop".to_owned(),
                retry_after: Some(duration(after)),
            }
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_a_stack_keeps_both_ends() {
        let wide = "\u{1f980}".repeat(1 << 18);
        let failure = Failure::transient(wide.clone(), wide.clone());
        assert_eq!(
            (failure.code().len(), failure.message().len()),
            (128, 1_024)
        );
        let odd = Failure::transient(format!("x{wide}"), "");
        assert_eq!(odd.code().len(), 125, "no half of a character");
        let stack = format!("first{wide}last");
        let cut = failure.stack(stack.clone()).at(0).error_stack;
        assert!(cut.len() <= 8_192, "{}", cut.len());
        assert!(cut.starts_with("first") && cut.ends_with("last"));
        let marker = cut.find("bytes left out").expect("a marker");
        let left_out: usize = cut[..marker]
            .rsplit_once('[')
            .and_then(|(_, number)| number.trim().parse().ok())
            .expect("a number");
        let marker_bytes = format!("\n[{left_out} bytes left out]\n").len();
        assert_eq!(cut.len() - marker_bytes + left_out, stack.len());
    }

    #[test]
    fn a_stack_that_fits_is_left_alone() {
        let stack = "x".repeat(8_000);
        let failure = Failure::transient("a", "b").stack(stack.clone());
        assert_eq!(failure.at(0).error_stack, stack);
    }
}
