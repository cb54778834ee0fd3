//! The commands below `varvelog group`.

use clap::Subcommand;

use super::{delete, describe, list, reset, watch};
use crate::context::Context;
use crate::failure::Failure;

/// Below `group`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// List groups with lag and age
    List(list::ListArgs),
    /// Show a group with its members and partitions
    Describe(describe::DescribeArgs),
    /// Show a group again and again
    Watch(watch::WatchArgs),
    /// Move the positions of a group
    Reset(reset::ResetArgs),
    /// Delete a group
    Delete(delete::DeleteArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::run(args, context).await,
        Command::Describe(args) => describe::run(args, context).await,
        Command::Watch(args) => watch::run(args, context).await,
        Command::Reset(args) => reset::run(args, context).await,
        Command::Delete(args) => delete::run(args, context).await,
    }
}
