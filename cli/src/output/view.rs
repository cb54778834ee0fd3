//! One thing or a list of things to print, in all the forms that `-o` can ask for.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;

/// What a command answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    /// For people.
    pub(crate) blocks: Vec<Block>,
    /// `-o json`: the whole.
    pub(crate) json: Value,
    /// `-o jsonl`: one line each.
    pub(crate) items: Vec<Value>,
    /// `-o name`: one line each.
    pub(crate) names: Vec<String>,
}

/// A part of what people read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Names and values, one a line. A pair without a value is left out.
    Pairs(Vec<(&'static str, String)>),
    /// A table with a title over it (none if empty). Columns whose header begins with `>` are
    /// numbers and stand to the right.
    Table {
        /// Over it.
        title: String,
        /// One for each column.
        header: Vec<&'static str>,
        /// Cells.
        rows: Vec<Vec<String>>,
    },
    /// A sentence.
    Text(String),
}

impl View {
    /// One thing: the same JSON in `json` and `jsonl`.
    pub(crate) fn one(name: impl Into<String>, json: Value, blocks: Vec<Block>) -> Self {
        Self {
            blocks,
            items: vec![json.clone()],
            json,
            names: vec![name.into()],
        }
    }

    /// Text for people; `bold` emphasises headers.
    pub(crate) fn to_text(&self, bold: fn(&str) -> String) -> String {
        let mut parts = Vec::new();
        for block in &self.blocks {
            let part = block.to_text(bold);
            if !part.is_empty() {
                parts.push(part);
            }
        }
        parts.join("\n")
    }
}

impl Block {
    fn to_text(&self, bold: fn(&str) -> String) -> String {
        match self {
            Self::Pairs(pairs) => pairs_text(pairs),
            Self::Table {
                title,
                header,
                rows,
            } => {
                let body = table_text(header, rows, bold);
                if title.is_empty() {
                    body
                } else {
                    format!("{}\n{body}", bold(title))
                }
            }
            Self::Text(text) => format!("{text}\n"),
        }
    }
}

fn pairs_text(pairs: &[(&'static str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        writeln!(text, "{name:width$}  {value}").expect("writing to a String cannot fail");
    }
    text
}

fn table_text(header: &[&str], rows: &[Vec<String>], bold: fn(&str) -> String) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| name.trim_start_matches('>')));
    for row in rows {
        table.add_row(row);
    }
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let mut text = String::new();
    for (index, line) in table.to_string().lines().enumerate() {
        let line = line.trim_end();
        text.push_str(&if index == 0 {
            bold(line)
        } else {
            line.to_owned()
        });
        text.push('\n');
    }
    text
}
