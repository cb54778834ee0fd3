//! A line of progress on standard error, where that is a terminal.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Records so far and their rate; silent when quiet or when nobody looks.
#[derive(Clone, Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// With `total` records a bar, without one a count.
    pub(crate) fn new(verb: &'static str, total: Option<u64>, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr_with_hz(5));
        let template = if total.is_some() {
            "{msg} {wide_bar} {human_pos}/{human_len} records  {per_sec}"
        } else {
            "{spinner} {msg} {human_pos} records  {per_sec}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(verb);
        bar.enable_steady_tick(REDRAW_INTERVAL);
        Self(bar)
    }

    /// So many records more.
    pub(crate) fn add(&self, records: u64) {
        self.0.inc(records);
    }

    /// A line above the progress.
    pub(crate) fn note(&self, text: &str) {
        if self.0.is_hidden() {
            super::format::complain(text);
        } else {
            self.0.suspend(|| super::format::complain(text));
        }
    }

    /// Leaves nothing on the screen.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
