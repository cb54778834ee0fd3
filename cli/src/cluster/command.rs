//! The commands below `varvelog cluster`.

use clap::Subcommand;

use super::{health, info};
use crate::context::Context;
use crate::failure::Failure;

/// Below `cluster`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Show who answers
    Info(info::InfoArgs),
    /// Say whether the broker serves and its groups move on; exit code 10 if not
    Health(health::HealthArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Info(args) => info::run(args, context).await,
        Command::Health(args) => health::run(args, context).await,
    }
}
