//! A configuration file with every key in it.

use std::fmt::Write as _;

use super::keys::KEYS;
use super::value::Kind;

const COMMENT_COLUMNS: usize = 94;

/// The text of a file that sets nothing and explains everything: each key commented out with its
/// default, unit and bounds.
pub fn template() -> String {
    let mut text = String::from(
        "# Configuration of a Varvelog broker. Everything below is the default.\n\
         # The environment overrides this file (wal.sync is VARVELOG__WAL__SYNC), and flags of\n\
         # `varvelog serve` override both. Unknown keys are refused.\n",
    );
    let mut section = "";
    for key in KEYS {
        let (of, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if of != section {
            section = of;
            push_line(&mut text, &format!("\n[{section}]"));
        }
        text.push('\n');
        for line in wrap(key.about) {
            push_line(&mut text, &format!("# {line}"));
        }
        for line in wrap(&format!("Takes {}.", key.kind.expected())) {
            push_line(&mut text, &format!("# {line}"));
        }
        push_line(
            &mut text,
            &format!("#{name} = {}", literal(key.kind, key.default)),
        );
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}

/// A value as TOML. The defaults are plain text, so quoting needs no escapes.
fn literal(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Switch | Kind::Count { .. } => text.to_owned(),
        Kind::Path
        | Kind::Address
        | Kind::Text
        | Kind::Bytes { .. }
        | Kind::Duration { .. }
        | Kind::Sync
        | Kind::Reserve
        | Kind::Format => format!("\"{text}\""),
    }
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.len() + 1 + word.len() > COMMENT_COLUMNS {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
