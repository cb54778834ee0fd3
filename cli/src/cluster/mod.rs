//! `varvelog cluster`: the broker itself.

mod command;
mod health;
mod info;

pub(crate) use command::Command;
pub(crate) use command::run;
