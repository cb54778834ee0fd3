//! `varvelog config`: the broker's configuration, without a broker.

mod check;
mod command;
mod show;
mod sources;
mod template;

pub(crate) use command::Command;
pub(crate) use command::run;
pub(crate) use sources::{SourceArgs, load};
