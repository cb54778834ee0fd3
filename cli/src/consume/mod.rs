//! `varvelog consume`: records of a group, settled as they are handled.

mod command;
mod exec;
mod interrupts;
mod session;
mod work;

pub(crate) use command::{ConsumeArgs, run};
