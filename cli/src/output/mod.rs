//! What the program prints: tables on a terminal, JSON in the contract's names for programs,
//! records by template.

#[cfg(test)]
mod capture;
mod format;
mod human;
mod json;
mod progress;
mod record;
mod template;
mod view;

#[cfg(test)]
mod view_tests;

#[cfg(test)]
pub(crate) use capture::Capture;
pub(crate) use format::complain;
pub(crate) use format::{Format, Output};
pub(crate) use human::{show_age, show_bytes, show_count, show_text, show_time, show_time_ms};
pub(crate) use json::descriptors;
pub(crate) use json::to_json;
pub(crate) use progress::Progress;
pub(crate) use record::{Printed, RecordPrinter};
pub(crate) use template::Template;
pub(crate) use view::{Block, View};
