//! Fingerprints of failures: alike for failures of one cause, whatever record they hit.
//!
//! The hash is of the class, the code and the first three frames of the stack, in which numbers
//! and addresses do not count. The message counts only where there is no code. It is kept in logs,
//! so what it is of never changes.

use super::failure::{ErrorClass, FailureText};

const FRAMES: usize = 3;
/// Letters that are all hex digits are an address or a hash if there are so many.
const HEX_WORD_MIN: usize = 8;
const UUID_LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
/// Between two parts; in no part, since control characters are left out of them.
const SEPARATOR: char = '\0';

impl FailureText {
    /// Alike for failures of one cause. Written as 16 hex digits.
    pub fn fingerprint(&self, class: ErrorClass) -> u64 {
        let mut content = String::from(class.as_str());
        content.push(SEPARATOR);
        content.push_str(&self.code);
        for frame in frames(&self.stack) {
            content.push(SEPARATOR);
            strip(frame, &mut content);
        }
        if self.code.is_empty() {
            content.push(SEPARATOR);
            strip(&self.message, &mut content);
        }
        murmur2::murmur64a(content.as_bytes(), 0)
    }
}

/// The first frames of a stack, or its first lines where none of them looks like one.
fn frames(stack: &str) -> Vec<&str> {
    let lines = || stack.lines().map(str::trim).filter(|line| !line.is_empty());
    let frames: Vec<&str> = lines().filter(|line| is_frame(line)).take(FRAMES).collect();
    if frames.is_empty() {
        lines().take(FRAMES).collect()
    } else {
        frames
    }
}

/// Whether a line names a place in code, as languages write it: `at f (a.js:1)`, `File "a.py"`,
/// `#0 a.php(1)`, `12: crate::f`, `/src/a.go:1`, `a.rb:1:in 'f'`.
fn is_frame(line: &str) -> bool {
    let starts = ["at ", "File \""];
    starts.iter().any(|start| line.starts_with(start)) || is_numbered(line) || names_line(line)
}

fn is_numbered(line: &str) -> bool {
    let number = line.strip_prefix('#').unwrap_or(line);
    let rest = number.trim_start_matches(|c: char| c.is_ascii_digit());
    rest.len() < number.len() && (rest.starts_with(": ") || number.len() < line.len())
}

/// Whether a word of it is `name.extension:number`.
fn names_line(line: &str) -> bool {
    line.split_whitespace().any(|word| {
        let mut parts = word.split(':');
        let file = parts.next().unwrap_or_default();
        let number = parts.next().unwrap_or_default();
        let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_extension = (1..=5).contains(&extension.len())
            && extension.starts_with(|c: char| c.is_ascii_alphabetic())
            && extension.chars().all(|c| c.is_ascii_alphanumeric());
        is_extension && number.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// Adds `text` without numbers, addresses, hashes and control characters.
fn strip(text: &str, out: &mut String) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let uuid = uuid_len(rest);
        let word = rest.len() - rest.trim_start_matches(is_word).len();
        let taken = match (uuid, word) {
            (Some(uuid), _) => uuid,
            (None, 0) => {
                out.extend(Some(first).filter(|c| !c.is_control()));
                first.len_utf8()
            }
            (None, word) => {
                let word = rest.get(..word).unwrap_or_default();
                if !is_hex(word) {
                    out.extend(word.chars().filter(|c| !c.is_ascii_digit()));
                }
                word.len()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a word is a number, an address or a hash rather than a name.
fn is_hex(word: &str) -> bool {
    let digits = word
        .strip_prefix("0x")
        .or_else(|| word.strip_prefix("0X"))
        .unwrap_or(word);
    let is_hex = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_hexdigit());
    let is_prefixed = digits.len() < word.len();
    let has_digit = digits.chars().any(|c| c.is_ascii_digit());
    is_hex && (is_prefixed || has_digit || digits.len() >= HEX_WORD_MIN)
}

/// The length of the UUID that `text` begins with.
fn uuid_len(text: &str) -> Option<usize> {
    let mut at = 0;
    for (index, length) in UUID_LENGTHS.into_iter().enumerate() {
        if index > 0 {
            text.get(at..)?.strip_prefix('-')?;
            at += 1;
        }
        let part = text.get(at..at + length)?;
        if !part.chars().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        at += length;
    }
    let follows = text.get(at..)?.chars().next();
    follows.is_none_or(|c| !is_word(c)).then_some(at)
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
