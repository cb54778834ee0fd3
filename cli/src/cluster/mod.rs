//! `varvelog cluster`: the broker itself.

mod command;
mod health;
mod info;

pub use command::Command;
pub(crate) use command::run;
