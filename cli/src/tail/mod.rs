//! `varvelog tail`: the last records of topics, and those to come.

mod backlog;
mod command;

pub(crate) use command::TailArgs;
pub(crate) use command::run;
