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
pub(crate) use format::{Format, Output};
pub(crate) use human::{show_age, show_bytes, show_count, show_text, show_time};
pub(crate) use json::descriptors;
pub(crate) use json::to_json;
pub(crate) use progress::Progress;
pub(crate) use record::{Printed, RecordPrinter};
pub(crate) use template::Template;
pub(crate) use view::{Block, View};
