//! `varvelog group`: consumer groups, their members and what they have left to do.

mod admission_settings;
mod advise;
mod calls;
mod command;
mod config_view;
mod create;
mod dead_letter_settings;
mod delete;
mod describe;
mod list;
mod reset;
mod retry_settings;
mod settings;
mod settle;
mod update;
mod views;
mod watch;

pub(crate) use calls::groups_of_topic;
pub(crate) use command::Command;
pub(crate) use command::run;
pub(crate) use views::{group_age, group_status, groups_view};
