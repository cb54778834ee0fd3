//! `varvelog topic`: topics and their settings.

mod add_partitions;
mod alter;
mod command;
mod create;
mod delete;
mod delete_records;
mod describe;
mod list;
mod settings;
mod views;

pub(crate) use command::Command;
pub(crate) use command::run;
pub(crate) use views::topic_view;
