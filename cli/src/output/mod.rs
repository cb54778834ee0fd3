//! What the program prints: tables on a terminal, JSON in the contract's names for programs,
//! records by template.

mod format;
mod human;
mod json;
mod progress;
mod record;
mod template;
mod view;

#[cfg(test)]
mod view_tests;

pub(crate) use format::complain;
pub use format::{Format, Output};
pub use human::{show_age, show_bytes, show_count, show_text, show_time, show_time_ms};
pub(crate) use json::descriptors;
pub use json::to_json;
pub use progress::Progress;
pub use record::{Printed, RecordPrinter};
pub use template::Template;
pub use view::{Block, View};
