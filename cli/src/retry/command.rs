//! The commands below `varvelog retry`.

use clap::Subcommand;

use super::{list, now};
use crate::context::Context;
use crate::failure::Failure;

/// Below `retry`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List what waits, soonest first
    List(list::ListArgs),
    /// Give out waiting records at once
    Now(now::NowArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args, context).await,
        Command::Now(args) => now::run(args, context).await,
    }
}
