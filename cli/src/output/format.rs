//! Where output goes and in what form.

use std::io::{self, IsTerminal as _, Write};

use clap::ValueEnum;
use jiff::tz::TimeZone;

use super::view::View;

/// `-o`. Table: for people, records as lines. Json: one thing as one object, a list as the answer
/// that holds it. Jsonl: one object a line. Name: only names, one a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Jsonl,
    Name,
}

/// Standard output, and what is known about the terminal.
pub(crate) struct Output {
    /// In force.
    pub(crate) format: Format,
    /// Nothing on standard error but errors.
    pub(crate) quiet: bool,
    /// Standard output is a terminal.
    pub(crate) terminal: bool,
    /// Whose time is shown.
    pub(crate) zone: TimeZone,
    color: bool,
    writer: Box<dyn Write + Send>,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl Output {
    /// Standard output. Without `format`: a table on a terminal, JSON lines elsewhere.
    pub(crate) fn standard(format: Option<Format>, quiet: bool, color: bool) -> Self {
        let terminal = io::stdout().is_terminal();
        let default = if terminal {
            Format::Table
        } else {
            Format::Jsonl
        };
        Self {
            format: format.unwrap_or(default),
            quiet,
            terminal,
            zone: TimeZone::system(),
            color: color && terminal,
            writer: Box::new(io::BufWriter::new(io::stdout())),
        }
    }

    /// Output into `writer` as if it were no terminal, in UTC.
    #[cfg(test)]
    pub(crate) fn into(format: Format, writer: Box<dyn Write + Send>) -> Self {
        let zone = TimeZone::UTC;
        Self {
            format,
            quiet: true,
            terminal: false,
            zone,
            color: false,
            writer,
        }
    }

    /// Prints one thing or list, in the form asked for.
    pub(crate) fn show(&mut self, view: &View) -> io::Result<()> {
        match self.format {
            Format::Table => {
                let bold = if self.color { ansi_bold } else { plain };
                self.writer.write_all(view.to_text(bold).as_bytes())?;
            }
            Format::Json => {
                serde_json::to_writer_pretty(&mut self.writer, &view.json)?;
                self.writer.write_all(b"\n")?;
            }
            Format::Jsonl => return self.show_lines(view),
            Format::Name => {
                for name in &view.names {
                    writeln!(self.writer, "{name}")?;
                }
            }
        }
        self.writer.flush()
    }

    /// Prints the items of a list, one object a line, whatever form was asked for.
    pub(crate) fn show_lines(&mut self, view: &View) -> io::Result<()> {
        for item in &view.items {
            serde_json::to_writer(&mut self.writer, item)?;
            self.writer.write_all(b"\n")?;
        }
        self.writer.flush()
    }

    /// Bytes as they are, without a line end.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Hands everything to the operating system.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Clears the screen, where there is one.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        if self.terminal && self.format == Format::Table {
            self.writer.write_all(b"\x1b[2J\x1b[H")?;
        }
        Ok(())
    }

    /// A line on standard error, unless quiet.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            complain(text);
        }
    }
}

/// A line on standard error. That it cannot be written cannot be said anywhere else.
pub(crate) fn complain(text: &str) {
    let written = writeln!(io::stderr(), "{text}");
    drop(written);
}

fn ansi_bold(text: &str) -> String {
    format!("\x1b[1m{text}\x1b[0m")
}

fn plain(text: &str) -> String {
    text.to_owned()
}
