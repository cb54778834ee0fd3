//! `varvelog group`: consumer groups, their members and what they have left to do.

mod calls;
mod command;
mod delete;
mod describe;
mod list;
mod reset;
mod views;
mod watch;

pub(crate) use calls::groups_of_topic;
pub(crate) use command::Command;
pub(crate) use command::run;
pub(crate) use views::{group_age, group_status, groups_view};
