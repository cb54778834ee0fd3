//! The commands below `varvelog group`.

use clap::Subcommand;

use super::{advise, create, delete, describe, list, reset, settle, update, watch};
use crate::context::Context;
use crate::failure::Failure;

/// Below `group`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a group, with its retry and dead-letter topics
    Create(create::CreateArgs),
    /// List groups with lag and age
    List(list::ListArgs),
    /// Show a group: settings, members, lag, and what holds it back
    Describe(describe::DescribeArgs),
    /// Say how many workers the group could use more, or could do without
    Advise(advise::AdviseArgs),
    /// Show a group again and again
    Watch(watch::WatchArgs),
    /// Change settings of a group; those that are not named stay
    Update(update::UpdateArgs),
    /// Move the positions of a group
    Reset(reset::ResetArgs),
    /// Skip, dead-letter or retry single records by hand
    Settle(settle::SettleArgs),
    /// Delete a group
    Delete(delete::DeleteArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args, context).await,
        Command::List(args) => list::run(args, context).await,
        Command::Describe(args) => describe::run(args, context).await,
        Command::Advise(args) => advise::run(args, context).await,
        Command::Watch(args) => watch::run(args, context).await,
        Command::Update(args) => update::run(args, context).await,
        Command::Reset(args) => reset::run(args, context).await,
        Command::Settle(args) => settle::run(args, context).await,
        Command::Delete(args) => delete::run(args, context).await,
    }
}
