//! `varvelog retry`: records that wait to be given out again.

mod command;
mod list;
mod now;
mod views;

pub(crate) use command::{Command, run};
