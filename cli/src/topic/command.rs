//! The commands below `varvelog topic`.

use clap::Subcommand;

use super::{add_partitions, alter, create, delete, delete_records, describe, list};
use crate::context::Context;
use crate::failure::Failure;

/// Below `topic`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a topic
    Create(create::CreateArgs),
    /// List topics
    List(list::ListArgs),
    /// Show a topic with its partitions and groups
    Describe(describe::DescribeArgs),
    /// Change settings of a topic
    Alter(alter::AlterArgs),
    /// Add partitions; keys may go to other partitions from then on
    AddPartitions(add_partitions::AddPartitionsArgs),
    /// Delete the oldest records of partitions
    DeleteRecords(delete_records::DeleteRecordsArgs),
    /// Delete topics with all their records
    Delete(delete::DeleteArgs),
}

pub(crate) async fn run(command: Command, context: &mut Context) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create::run(args, context).await,
        Command::List(args) => list::run(args, context).await,
        Command::Describe(args) => describe::run(args, context).await,
        Command::Alter(args) => alter::run(args, context).await,
        Command::AddPartitions(args) => add_partitions::run(args, context).await,
        Command::DeleteRecords(args) => delete_records::run(args, context).await,
        Command::Delete(args) => delete::run(args, context).await,
    }
}
