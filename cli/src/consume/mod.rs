//! `varvelog consume`: records of a group, settled as they are handled.

mod command;
mod exec;
mod session;

pub(crate) use command::{ConsumeArgs, run};
