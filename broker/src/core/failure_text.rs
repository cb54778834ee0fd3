//! Error texts, cut to what is kept of them. Nothing is ever refused for its length.

use std::borrow::Cow;

use super::failure::{
    CONSUMER_BYTES_MAX, ERROR_CODE_BYTES_MAX, ERROR_MESSAGE_BYTES_MAX, ERROR_STACK_BYTES_MAX,
    FailureText,
};

/// Bytes kept of each end of a stack that is too long: some languages have the cause first, some
/// last.
const STACK_END_BYTES: usize = 4_000;

impl FailureText {
    /// What is kept of a failure: the code and the message from their beginning, the stack from
    /// both ends, with a line between them that says how many bytes were removed. No character is
    /// cut in two. What is short enough stays as it is.
    pub fn cut(code: &str, message: &str, stack: &str) -> Self {
        Self {
            code: start_of(code, ERROR_CODE_BYTES_MAX).to_owned(),
            message: start_of(message, ERROR_MESSAGE_BYTES_MAX).to_owned(),
            stack: stack_kept(stack).into_owned(),
        }
    }
}

/// The beginning of `text`: whole characters, at most so many bytes.
pub fn start_of(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max))
        .unwrap_or_default()
}

/// What is kept of the name or id of a consumer.
pub fn consumer_kept(consumer: &str) -> &str {
    start_of(consumer, CONSUMER_BYTES_MAX)
}

/// What is kept of a stack: all of it, or both ends.
pub fn stack_kept(stack: &str) -> Cow<'_, str> {
    if stack.len() <= ERROR_STACK_BYTES_MAX {
        return stack.into();
    }
    let first = start_of(stack, STACK_END_BYTES);
    let last_at = stack.ceil_char_boundary(stack.len() - STACK_END_BYTES);
    let last = stack.get(last_at..).unwrap_or_default();
    let removed = stack.len() - first.len() - last.len();
    format!("{first}\n... {removed} bytes removed ...\n{last}").into()
}

/// Room for the line between both ends: its text and the longest number.
const MARKER_BYTES_MAX: usize = "\n...  bytes removed ...\n".len() + 20;
const _: () = assert!(2 * STACK_END_BYTES + MARKER_BYTES_MAX <= ERROR_STACK_BYTES_MAX);

#[cfg(test)]
#[path = "failure_text_tests.rs"]
mod tests;
